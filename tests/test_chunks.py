"""Memory-bounded chunks."""

import jax
import jax.numpy as jnp
import numpy as np

import sparsehtp as sht
from sparsehtp._chunks import chunk_width, in_chunks


def test_chunks_of_any_width_equal_one_batch():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 12)).astype(np.float32)
    y = X[:, :3] @ np.array([2.0, -1.0, 0.5], np.float32)
    objective = sht.LinearModel(X, y)
    ks = jnp.arange(1, 6)

    def lane(k):
        solution = sht.solve(objective, sht.Sparsity(k, k_max=8), sht.HTP(), record=None)
        return solution.value, solution.support.mask, solution.x

    whole = jax.vmap(lane)(ks)
    seen = []
    for width in (1, 2, 5, 9):
        value, mask, x = in_chunks(lane, ks, width, lambda done, total: seen.append((done, total)))
        np.testing.assert_array_equal(mask, whole[1])
        np.testing.assert_allclose(value, whole[0], atol=1e-6)
        np.testing.assert_allclose(x, whole[2], atol=1e-5)
    assert seen[:5] == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)] and seen[-1] == (5, 5)


def test_width_follows_the_memory():
    objective = sht.LinearModel(np.ones((1000, 50), np.float32), np.ones(1000, np.float32))
    narrow = chunk_width(objective, 16, 10_000, memory=2**24)
    wide = chunk_width(objective, 16, 10_000, memory=2**28)
    assert 1 <= narrow < wide <= 10_000
    assert chunk_width(objective, 16, 10_000, memory=1) == 1
    # The bound covers the k-column work that a lane cannot do without.
    assert narrow * 1000 * 16 * 4 <= 2**24
