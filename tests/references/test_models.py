"""Models compute what they did when references/models.npz was written, to a few digits of the last."""

import jax
import models
import numpy as np
import pytest

MOST = 64  # ulp of an array's largest entry; sums may be taken in another order


@pytest.fixture(scope="module")
def kept():
    with np.load(models.FILE) as file:
        return dict(file)


@pytest.mark.filterwarnings("ignore:X, y. float32 cannot hold")
@pytest.mark.parametrize("seed", range(models.NUMBER))
def test_a_model_computes_what_it_did(kept, seed):
    with jax.enable_x64(True):
        now = models.facts(seed)
    before = {name[3:]: value for name, value in kept.items() if int(name[:2]) == seed}
    assert set(now) == set(before)
    for name, was in before.items():
        value = now[name]
        assert (value.shape, value.dtype) == (was.shape, was.dtype), name
        assert np.array_equal(np.isfinite(value), np.isfinite(was)), name
        value, was = (np.where(np.isfinite(a), a, 0).astype(float) for a in (value, was))
        digits = np.finfo(now[name].dtype).eps * np.max(np.abs(was), initial=1e-300)
        assert np.max(np.abs(value - was), initial=0) <= MOST * digits, name
