"""What could be exchanged for each chosen feature, against refits in NumPy."""

import numpy as np
import pytest

import sparsehtp as sht

RNG = np.random.default_rng(4)
X = RNG.standard_normal((80, 7))
X[:, 5] = X[:, 1] + 0.05 * RNG.standard_normal(80)  # nearly the same
X[:, 6] = X[:, 3] + 0.6 * RNG.standard_normal(80)
Y = 2 * X[:, 1] - X[:, 3] + 0.7 * RNG.standard_normal(80)


def objective(chosen, l2):
    """F of the best fit on some standardised features."""
    A = (X[:, chosen] - X[:, chosen].mean(0)) / X[:, chosen].std(0)
    y = Y - Y.mean()
    w = np.linalg.solve(A.T @ A / 80 + l2 * np.eye(len(chosen)), A.T @ y / 80)
    return 0.5 * np.mean((y - A @ w) ** 2) + 0.5 * l2 * w @ w


def test_what_costs_less_than_the_noise_and_nothing_else():
    model = sht.SparseRegressor(l2=0.01, cv=4).fit(X, Y)
    chosen, results = list(np.flatnonzero(model.support_)), model.cv_results_
    row = results["row"]
    (before,) = np.flatnonzero(results["ks"] == results["ks"][row] - 1)
    d = results["scores"][:, row] - results["scores"][:, before]
    noise = np.sqrt(np.mean((d - d.mean()) ** 2) / 3)
    value, found = objective(chosen, 0.01), model.exchangeable_
    assert set(found) == set(chosen)
    for i in chosen:
        rises = {j: objective([*(set(chosen) - {i}), j], 0.01) - value for j in set(range(7)) - set(chosen)}
        assert [j for j, _ in found[i]] == sorted((j for j in rises if rises[j] <= noise), key=rises.__getitem__)
        np.testing.assert_allclose(
            [rise for _, rise in found[i]], [rises[j] for j, _ in found[i]], rtol=1e-6, atol=1e-12
        )
    assert any(found.values())


@pytest.mark.parametrize("k", [2, "bic"])
def test_without_folds_there_is_no_noise_to_compare_with(k):
    assert sht.SparseRegressor(k=k, solver="htp").fit(X, Y).exchangeable_ is None


@pytest.mark.slow
def test_names_and_other_losses():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdefg"))
    model = sht.SparseClassifier(cv=3, rule="best", l2=0.1, solver="foba").fit(frame, Y > 0)
    found = model.exchangeable_
    assert set(found) == set(model.get_feature_names_out())
    assert all(rise >= -1e-6 and other not in found for others in found.values() for other, rise in others)
