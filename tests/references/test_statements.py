"""What the library states of drawn problems, against exact and extended-precision references, sentence by sentence.

SPARSEHTP_CASES sets how many cases are drawn of all kinds together (5,000); `statements.violations(kind, seed)` repeats
one.
"""

import os

import numpy as np
import pytest
import statements
from rational import Quadratic
from scipy.optimize import lsq_linear

NUMBER = int(os.environ.get("SPARSEHTP_CASES", 5000))
FIRST = int(os.environ.get("SPARSEHTP_FIRST", 0))  # seed
SHARES = {
    "proof": 0.4,
    "certificate": 0.12,
    "solution": 0.1,
    "other proof": 0.03,
    "other certificate": 0.03,
    "other solution": 0.02,
    "units": 0.03,
    "estimator": 0.04,
    "other estimator": 0.03,
}


def false(kind, seeds):
    """{seed: what is stated and is not so}."""
    found = {seed: statements.violations(kind, seed)[1] for seed in seeds}
    return {seed: each for seed, each in found.items() if each}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHARES)
def test_statements(kind):
    assert false(kind, range(FIRST, FIRST + int(SHARES[kind] * NUMBER))) == {}


@pytest.mark.parametrize("first", [1, 0], ids=["float64", "float32"])
def test_a_few_proofs(first):
    """With an intercept and standardised: far means, near copies, little noise."""
    assert false("proof", range(first, 240, 12)) == {}


@pytest.mark.parametrize(
    "name", [pytest.param(a, marks=[pytest.mark.later] * (a != "negative_binomial")) for a in statements.PROVED]
)
def test_a_few_proofs_of_another_loss(name):
    losses = statements.PROVED
    assert false("other proof", range(2 * losses.index(name) + 1, 4 * len(losses), 2 * len(losses))) == {}


@pytest.mark.parametrize("first", [1, 0], ids=["float64", "float32"])
def test_a_few_certificates(first):
    """With an intercept and standardised."""
    assert false("certificate", range(first, 100, 4)) == {}


def test_a_few_estimators():
    """In single precision, with an intercept and standardised."""
    assert false("estimator", range(0, 48, 6)) == {}


@pytest.mark.parametrize("place", range(4), ids=["keep", "box", "positive", "groups"])
def test_a_few_units(place):
    assert false("units", range(1 + 2 * place, 80, 2 * len(statements.STRUCTURES))) == {}


def test_the_reference_within_bounds_is_that_of_scipy():
    rng = np.random.default_rng(0)
    X, y, s = rng.standard_normal((20, 4)) + 3, rng.standard_normal(20), rng.exponential(size=20)
    exact, root = Quadratic(X, y, 0.1, s, None, True, True), np.sqrt(s / s.sum())
    ridge = 0.1 * np.cov(X.T, aweights=s, ddof=0).diagonal()[:2]
    A = np.vstack([root[:, None] * np.column_stack([X[:, :2], np.ones(20)]), np.diag(np.sqrt([*ridge, 0]))])
    for least in (-np.inf, 0.5):  # the second is above the free coefficient
        best = lsq_linear(A, np.append(root * y, np.zeros(3)), ([-np.inf, least, -np.inf], np.inf), tol=1e-14)
        held = exact.bounded([0, 1], np.array([-np.inf, least, 0, 0]), np.full(4, np.inf))
        np.testing.assert_allclose(float(held), best.cost, rtol=1e-9)
        assert (best.x[1] == pytest.approx(0.5)) == (least == 0.5)
