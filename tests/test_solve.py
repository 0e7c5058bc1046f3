"""The public entry, end to end."""

import numpy as np

import sparsehtp as sht


def test_planted_support_is_found():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 30)).astype(np.float32)
    y = 2 * X[:, 3] - X[:, 17] + 5
    solution = sht.solve(sht.LinearModel(X, y, fit_intercept=True), sht.Sparsity(2), sht.HTP())
    assert set(np.asarray(solution.support.idx)[np.asarray(solution.support.mask)]) == {3, 17}
    np.testing.assert_allclose(solution.x[np.array([3, 17])], [2, -1], rtol=1e-4)
    np.testing.assert_allclose(solution.intercept, 5, rtol=1e-4)
    assert int(solution.result) == sht.RESULTS.converged
