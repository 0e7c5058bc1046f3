"""The certificate against exhaustive refits in NumPy and SciPy."""

import itertools
import re
from types import SimpleNamespace
from typing import NamedTuple

import cases
import exhaustive
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import sparsehtp as sht
from sparsehtp.certificates import certificate, dual_bound, penalised, placed, swap_scan
from sparsehtp.certificates.facts import Facts, of_a_penalised_point, of_refits
from sparsehtp.screening.bounds import Bounds

N, P, K = 25, 8, 3


class Fit(NamedTuple):
    """All that a certificate asks of a solution."""

    x: np.ndarray
    intercept: float
    support: sht.results.Support


class Problem:
    """Correlated columns of different scales and means, so that HTP often stops early; and weights, some zero."""

    def __init__(self, seed, weighted=False, **options):
        rng = np.random.default_rng(seed)
        X = cases.chained(rng.standard_normal((N, P)), 0.95)
        self.y = X[:, 1] - X[:, 4] + 0.5 * X[:, 6] + 0.5 * rng.standard_normal(N) + 1
        self.X = X * np.geomspace(0.3, 3, P) + 0.5
        self.options = options
        self.weights = rng.integers(0, 4, N).astype(float) if weighted else np.ones(N)

    def model(self):
        return sht.LinearModel(self.X, self.y, sample_weight=self.weights, **self.options)

    def fit(self, support):
        """The least-squares fit on a support and its F, from the definition."""
        support = np.asarray(support, int)
        s = self.weights / self.weights.sum()
        free = int("fit_intercept" in self.options)
        A = np.column_stack([self.X[:, support], np.ones((N, free))])
        ridge = self.options.get("l2", 0.0) * (np.arange(A.shape[1]) < support.size)
        A = np.vstack([np.sqrt(s)[:, None] * A, np.diag(np.sqrt(ridge))])
        b = np.append(np.sqrt(s) * self.y, np.zeros(A.shape[1]))
        z = np.linalg.lstsq(A, b, rcond=None)[0]
        return fit_of(support, z[: support.size], z[-1] if free else 0.0), 0.5 * np.sum((b - A @ z) ** 2)

    def value(self, support):
        return self.fit(support)[1]


def fit_of(support, z, intercept=0.0):
    x = np.zeros(P)
    x[support] = z
    return Fit(x, float(intercept), sht.results.Support(np.asarray(support), np.ones(len(support), bool)))


def test_coefficients_are_said_to_be_what_their_refit_tells(x64, monkeypatch):
    """And what rounding of the intercept in original units costs, by hand."""
    problem, refitted = Problem(3, fit_intercept=True, l2=0.1), certificate.refitted_point
    model, threshold, (fit, value) = problem.model(), sht.Sparsity(K), problem.fit([1, 4, 6])
    for moved in (fit._replace(x=fit.x * (1 + 1e-4)), fit._replace(intercept=fit.intercept + 1e-4)):
        c = sht.certificate(model, threshold, moved)
        assert c.stationary is False and c.lower_bound < value
    np.testing.assert_allclose(c.upper_bound, value + 0.5e-8, rtol=1e-12)
    far, stuck = {"removable": 1.0}, {"judged": sht.results.RESULTS.max_steps}
    for near, told, said in (
        *((True, {}, True), (True, {"singular": True}, None), (False, {"singular": True}, True), (False, far, False)),
        *((False, far | {"solved": False}, False), (False, {"solved": False}, None)),
        *((False, stuck, None), (False, far | stuck, False), (False, {"grad": np.full(P + 1, np.nan)}, None)),
    ):
        monkeypatch.setattr(certificate, "refitted_point", lambda *at, told=told: refitted(*at)._replace(**told))
        monkeypatch.setattr(certificate, "_ambiguous", lambda _, near=near: near)
        c = sht.certificate(model, threshold, fit, bounds=False)
        assert c.stationary is said and c.lower_bound is None, told
    for most, limited in ((P, True), (P + 1, False)):
        monkeypatch.setattr(certificate, "DENSE_HESSIAN_LIMIT", most)
        c = sht.certificate(model, threshold, fit, bounds=False)
        assert (c.swap_gain is None) == (f"supports of more than {P} coefficients" in c.statement) == limited
    far_X, single = problem.X - 1e6 * (-1.0) ** np.arange(P), np.dtype(np.float32)
    away = sht.LinearModel(far_X, problem.y, fit_intercept=True)
    for dtype in (np.float64, np.float32):
        facts = certificate._facts(away, threshold.bind(away), fit._replace(intercept=dtype(-3e6)), single)
        error = np.finfo(dtype).eps * (3e6 + np.abs(far_X.mean(0)) @ np.abs(fit.x))
        np.testing.assert_allclose(facts.digit, error**2 / 2, rtol=1e-9)


def test_nothing_to_exchange_is_the_optimum(x64):
    problem = Problem(4)
    model = sht.QuadraticForm.from_data(problem.X, problem.y)
    for k in (0, 1, 2, P - 1, P):
        support = min(itertools.combinations(range(P), k), key=problem.value)
        c = sht.certificate(model, sht.Sparsity(k), problem.fit(support)[0])
        assert c.swap_gain == 0.0 and c.best_swap is None and c.necessary_condition and c.stationary
        assert ("This is the best subset" in c.statement) == (k != 2), "of which not all others were tried"


def test_a_value_that_is_zero(x64):
    """No exchange improves a perfect fit by rounding, and any does where F can become negative."""
    problem = Problem(5)
    problem.y = problem.X[:, 1] + problem.X[:, 2]
    c = sht.certificate(problem.model(), sht.Sparsity(K), problem.fit([1, 2, 3])[0])
    assert c.swap_gain == 0.0 and c.upper_bound < 1e-25 and c.stationary
    model = sht.QuadraticForm(np.eye(P), np.arange(P) + 1.0)
    c = sht.certificate(model, sht.Sparsity(1), fit_of([0], [0.0]))
    assert c.upper_bound == 0 and c.best_swap == (0, P - 1) and c.necessary_condition is c.stationary is False
    np.testing.assert_allclose(c.swap_gain, P**2 / 2)
    best = sht.certificate(model, sht.Sparsity(1), fit_of([P - 1], [P]))
    assert best.upper_bound == -(P**2) / 2 and best.stationary and best.necessary_condition and best.swap_gain == 0
    none = sht.certificate(sht.QuadraticForm(np.eye(P), np.zeros(P)), sht.Sparsity(1), fit_of([], []))
    assert none.swap_gain == 0 and "the best subset of its size" not in none.statement, "of which there is no other"


def test_exchanges_and_curvatures_are_scored_by_the_gram_matrix(x64, monkeypatch):
    """Of chosen features that may leave, and others that may enter, block by block: no kept one, no padding."""
    rng, p, S = np.random.default_rng(0), 23, [0, 3, 7]
    X, s = rng.standard_normal((N, p)) * np.append(100, np.geomspace(0.3, 3, p - 1)) + 1, rng.uniform(0.5, 2, N)
    X[:, -1] *= 5
    units = sht.results.Support(np.array([p, *S, 0, 0, 0, 0, 0]), np.arange(9) < 4)  # free, kept, chosen, padding
    Z, y, others = X - s @ X / s.sum(), X @ rng.standard_normal(p), sorted(set(range(p)) - set(S))
    G, b = Z.T * s / s.sum() @ Z + 0.1 * np.eye(p), Z.T * s / s.sum() @ y
    steepest = max(np.linalg.eigvalsh(G[np.ix_(pair, pair)])[-1] for pair in itertools.product((3, 7), others))

    def least(S):
        return -b[S] @ np.linalg.solve(G[np.ix_(S, S)], b[S]) / 2

    gains = {(i, j): least(S) - least([*(set(S) - {units.idx[i]}), j]) for i in (2, 3) for j in others}
    gains |= {(4, j): least(S) - least([*S, j]) for j in others}
    monkeypatch.setattr(swap_scan, "BLOCK_MEMORY", 8 * 8 * p - 1)
    monkeypatch.setattr(swap_scan, "GRAM_ROWS", 3)
    for data in (X, scipy.sparse.csr_array(X)):
        model = sht.LinearModel(data, y, l2=0.1, sample_weight=s, fit_intercept=True)
        point = placed.refitted_point(model, sht.Sparsity(3, keep=[0]).bind(model), jnp.zeros(p + 1), units)
        point = jax.device_get(point._replace(value=point.refit_value))
        found, diagonal, largest = swap_scan.scan(model, units, np.array([2, 3, 4]), point, 1e-9)
        np.testing.assert_allclose(diagonal, np.diag(G), rtol=1e-10)
        np.testing.assert_allclose(largest, steepest, rtol=1e-10)
        told = list(zip(found.places.tolist(), found.new.tolist(), strict=True))
        assert set(told) == {swap for swap, gain in gains.items() if gain > 1e-9} and found.complete
        np.testing.assert_allclose(found.gain_bounds, [gains[swap] for swap in told], rtol=1e-6)
        assert (np.diff(found.gain_bounds) <= 0).all() and P < len(told) < len(gains)
    monkeypatch.setattr(swap_scan, "CANDIDATES", 5)
    few = swap_scan.scan(model, units, np.array([2, 3, 4]), point, 1e-9)[0]
    assert list(zip(few.places, few.new, strict=True)) == told[:5] and not few.complete
    labels = sht.LinearModel(X, np.sign(X[:, 1]), sht.losses.Logistic(), l2=0.1)
    assert swap_scan.quadratic_bound(sht.LinearModel(X, np.abs(y), sht.losses.Poisson(), l2=0.1)) is None
    bound, smoothness = swap_scan.quadratic_bound(labels)
    assert bound.quadratic and smoothness == 0.25 and smoothness * float(bound.l2) == pytest.approx(0.1)


def test_exchanges_into_the_span_of_what_stays_are_in_doubt(x64, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 7)) + 1
    X[:, 4] = X[:, 1] - 2 * X[:, 2] + 1e-6 * X[:, 4]  # what only the exchange of 3 leaves as it is
    X[:, 5] = 0  # adds nothing, surely
    X[:, 6] = X[:, 1] + 2 + 1e-6 * X[:, 6]  # nearly 1 beside an intercept
    model = sht.LinearModel(X, X[:, 0] + rng.standard_normal(N), fit_intercept=True)
    threshold = sht.Sparsity(3).bind(model)
    units = sht.results.Support(np.array([7, 1, 2, 3, 0]), np.arange(5) < 4)  # free, chosen, an empty place
    point = jax.device_get(placed.refitted_point(model, threshold, jnp.ones(8), units))
    for memory in (swap_scan.BLOCK_MEMORY, 8 * 5 * 7 - 1):
        monkeypatch.setattr(swap_scan, "BLOCK_MEMORY", memory)
        found = swap_scan.scan(model, units, np.array([1, 2, 3, 4]), point, 0.0)[0]
        assert sorted(found.doubtful) == [(2, 6), (3, 4), (3, 6), (4, 4), (4, 6)], found.doubtful


class At(SimpleNamespace):
    __getitem__ = staticmethod(lambda _: ())


def test_of_refits_the_best_one_is_told_and_none_where_one_is_in_doubt(monkeypatch):
    fit = At(units=sht.results.Support(np.array([7, 0]), np.array([True, False])), objective=None, size=0)
    fit._replace = lambda units: fit
    base = Facts(1.0, of_refits, enough=1e-3, rounding=1e-3)
    monkeypatch.setattr(certificate, "exchanged", lambda *_: None)
    monkeypatch.setattr(certificate, "chunk_width", lambda *_: 2)

    def told(values, rounding=0.0, ended=(), singular=(), places=(0, 0, 0, 0), near=False, bounds=1.0, **more):
        size, gone = len(values), lambda which: np.isin(np.arange(4), which)
        refits = np.array([*values, 9.0]), np.full(size + 1, rounding), ~gone(ended)[: size + 1], gone(singular)
        monkeypatch.setattr(certificate, "refit_values", lambda places, new: [part[new] for part in refits])
        monkeypatch.setattr(certificate, "_ambiguous", lambda _: near)
        swaps = swap_scan.Candidates(np.broadcast_to(bounds, size), np.array(places)[:size], np.arange(size), **more)
        found = certificate._confirmed(fit, base, swaps, 2)
        return found.gain, found.swap or found.why

    assert told([0.9, 0.5, 0.8]) == (pytest.approx(0.499), (7, 1)), "less what rounding may have done"
    assert told([0.9, 0.5, 0.8], 0.1, places=(0, 1, 0)) == (pytest.approx(0.399), (None, 1))
    assert told([0.9, 0.8, 0.5], bounds=[1, 1, 0.19]) == (pytest.approx(0.199), (7, 1)), "no other can be better"
    assert told([0.9, 0.8, 0.5], bounds=[1, 1, 0.21]) == (pytest.approx(0.499), (7, 2))
    assert told([0.5, np.nan]) == told([0.5, 0.9, 0.5]) == (pytest.approx(0.499), (7, 0))
    assert told([0.5, 0.5], bounds=1e-3) == told([1.1, 1.0, 1.2], 0.9e-3) == told([1.0], singular=[0]) == (0, "")
    for doubt in (
        dict(values=[1.0, 1.0], rounding=1.1e-3),
        dict(values=[1.1, 1.0], ended=[0]),
        dict(values=[1.1, np.nan]),
        dict(values=[1.1], complete=False),
        dict(values=[1.1], doubtful=((0, 0),) * 257),
    ):
        assert told(**doubt) == (None, "the refits do not settle it at this precision"), doubt
    for doubt in (dict(singular=[1]), dict(doubtful=((0, 0),))):
        assert told([1.1, 1.0], near=True, **doubt) == (None, "columns are nearly, but not exactly, collinear"), doubt


PROVED = dual_bound.DualBound(0.9, True, "Proved optimal: it is.", "Proved: it is.")
NEAR = dual_bound.DualBound(0.9, False, "Within 1% of it.")
GAIN, MORE = {"gain": 0.5, "swap": (1, 2)}, r"\(by more than 1e-08 of its value\)"
UNTOLD = "Whether the coefficients are optimal for the chosen features cannot be told at this precision."
UNKNOWN = "Whether exchanging one chosen feature for another would lower the objective is unknown, since it is."
POOR = "The coefficients are not optimal for the chosen features:"
NO_MOVE = f"feature that is added, left out or exchanged for another, the others held, lowers the objective {MORE}."
NO_DUAL = "The dual gives no bound: it needs l2 > 0 and a conjugate loss."
NO_SWAP = f"No exchange of one chosen feature .* objective {MORE}, with all .* again. This does not prove .* subset."
OF_A_PENALISED_POINT = [
    ({}, f"Locally optimal: no {NO_MOVE} {NO_DUAL}"),
    ({"proof": NEAR}, f"Locally optimal: no {NO_MOVE} Within 1% of it."),
    ({"proof": PROVED}, "Proved optimal: it is."),
    ({"stationary": None}, f"{UNTOLD} No {NO_MOVE} {NO_DUAL}"),
    ({"stationary": False}, f"{POOR} fitting them again lowers the objective. No {NO_MOVE} {NO_DUAL}"),
    ({"gain": None}, f"{UNKNOWN} {NO_DUAL}"),
    (GAIN, f"Exchanging feature 1 for feature 2, the others held, lowers the objective by 0.5. {NO_DUAL}"),
    (GAIN | {"swap": (1, None)}, "Leaving out feature 1, the .*"),
    (GAIN | {"swap": (None, 2)}, "Adding feature 2, the .*"),
]
OF_REFITS = [
    ({}, NO_SWAP),
    ({"proof": NEAR, "value": -1.0}, f"{NO_SWAP} Within 1% of it."),
    ({"convex": False}, f"No refit from here .* the objective {MORE}; .* convex. This does not prove .* subset."),
    ({"every_subset": True}, f"This is the best subset of its size: .*, lowers the objective {MORE}."),
    ({"every_subset": True, "convex": False}, "No refit from here .*"),
    ({"every_subset": True, "stationary": None}, f"{UNTOLD} {NO_SWAP}"),
    ({"stationary": False}, f"{POOR} refitting them lowers the objective. {NO_SWAP}"),
    ({"stationary": False, "digit": 2e-8}, f"{POOR}.* Rounding of the intercept alone may cost 2e-08: .*"),
    ({"stationary": False, "proof": PROVED}, "Refitting .* a little more. No .* again. Proved optimal: it is."),
    ({"gain": None}, f"{UNKNOWN} Nothing here proves that it is the best subset."),
    ({"gain": None, "proof": PROVED}, f"{UNKNOWN} Proved optimal: it is."),
    (GAIN | {"value": -2.0}, r"Exchanging .* lowers the objective by 0.5 \(0.25 of its value\), so .* subset."),
    (GAIN | {"value": 3e-4, "necessary": False}, "Exchanging .* by 0.5, so this is not the best subset."),
    (GAIN | {"proof": PROVED}, "Exchanging .* best subset. Proved: it is."),
    (GAIN | {"proof": NEAR}, "Exchanging .* best subset. Within 1% of it."),
    ({"necessary": False}, rf"{NO_SWAP} A necessary condition .* fails \(by more than 5.0e-09\), so .* exists."),
    ({"necessary": False, "enough": 2e-9}, rf"{NO_SWAP} .* fails \(by more than 2.0e-09\), so .* exists."),
    ({"enough": 2e-8}, r"No .* \(by more than 2.1e-08, the rounding of the objective without features\), .*"),
]


@pytest.mark.parametrize(("sentences", "table"), [(of_a_penalised_point, OF_A_PENALISED_POINT), (of_refits, OF_REFITS)])
def test_what_is_said(sentences, table):
    for known, said in table:
        known = dict(stationary=True, gain=0.0, enough=1e-8, slack=1e-8, tol=1e-8, why="it is") | known
        statement = " ".join(filter(None, sentences(Facts(known.pop("value", 1.0), sentences, **known))))
        assert re.fullmatch(said, statement), (known, statement)


def test_rounding_refutes_no_best_subset():
    facts = Facts(1.0, of_refits, gain=0.0, every_subset=True, necessary=False)
    known = facts, facts._replace(every_subset=False, proof=PROVED), facts._replace(necessary=None)
    assert [certificate._stated(each).necessary_condition for each in known] == [True, True, None]
    assert not any("necessary" in certificate._stated(each).statement for each in known)
    for doubt in (facts._replace(every_subset=False), facts._replace(gain=0.5, swap=(1, 2)), facts._replace(gain=None)):
        assert certificate._stated(doubt).necessary_condition is False, doubt


@pytest.mark.parametrize("shrink", [1.0, 0.9])
@pytest.mark.parametrize("priced", [False, True], ids=["k features", "priced"])
def test_what_is_nan_inside_takes_claims_away_and_makes_none(x64, monkeypatch, priced, shrink):
    """NaN once said that nothing was better, that a coefficient was not optimal, that a better subset exists."""
    problem, threshold = Problem(3, l2=0.01, fit_intercept=True), sht.Sparsity(K)
    model = problem.model()
    found = problem.fit(min(itertools.combinations(range(P), K), key=problem.value))[0]
    if priced:
        labels, threshold = np.where(problem.y > np.median(problem.y), 1.0, -1.0), sht.L0L1L2(0.02, 0.01)
        model = sht.LinearModel(problem.X, labels, sht.losses.Logistic(), **problem.options)
        found = fit_of([1, 4, 6], [0.5, -0.5, 0.2], 0.1)
        found = sht.solve(model, threshold, sht.solvers.CDSS(), record=None) if shrink == 1 else found
    fit, computed = Fit(shrink * np.asarray(found.x), found.intercept, found.support), []
    true = sht.certificate(model, threshold, fit)

    def with_nan(function, place=None):
        """The function with one of the floating numbers that it returns NaN; how many there are is noted."""

        def call(*args):
            leaves, structure = jax.tree.flatten(jax.device_get(function(*args)))
            floating = [i for i, leaf in enumerate(leaves) if np.issubdtype(np.asarray(leaf).dtype, np.floating)]
            computed.append(len(floating))
            if place is not None and floating:
                lost = floating[place % len(floating)]
                leaves[lost] = np.full_like(leaves[lost], np.nan)
            return structure.unflatten(leaves)

        return call

    places = [(certificate, name) for name in ("refitted_point", "scan", "refit_values")]
    for module, name in [(penalised, "_penalised")] if priced else places:
        function = getattr(module, name)
        computed.clear()
        monkeypatch.setattr(module, name, with_nan(function))
        sht.certificate(model, threshold, fit, bounds=False)
        for place in range(max(computed, default=0)):
            monkeypatch.setattr(module, name, with_nan(function, place))
            c = sht.certificate(model, threshold, fit, bounds=False)
            for claim in ("swap_gain", "best_swap", "stationary", "necessary_condition"):
                assert getattr(c, claim) in (None, getattr(true, claim)), (name, place, claim, c.statement)
        monkeypatch.setattr(module, name, function)
    for gain, most in ((np.nan, 0.0), (0.0, np.nan)) if priced else ():

        def spoiled(*args, gain=gain, most=most):
            at = function(*args)
            return at._replace(found=at.found._replace(gain=gain), most=most)

        monkeypatch.setattr(penalised, "_penalised", spoiled)
        assert sht.certificate(model, threshold, fit, bounds=False).swap_gain is None


def test_where_the_objective_overflows_nothing_is_claimed(x64):
    problem = Problem(3, l2=0.01)
    model = sht.LinearModel(problem.X, np.round(np.abs(problem.y)), sht.losses.Poisson(), **problem.options)
    fit = fit_of(np.arange(K), np.full(K, 1e3))
    for threshold in (sht.Sparsity(K), sht.L0L1L2(0.02, 0.01)):
        c = sht.certificate(model, threshold, fit)
        assert not np.isfinite(c.upper_bound) and c.swap_gain is c.stationary is c.necessary_condition is None
        assert "is unknown, since the objective is not finite here" in c.statement


def test_the_necessary_condition_by_hand():
    """|grad F| <= M min |x|, of no kept one; with fewer nonzeros no coordinate may gain more than the slack alone."""
    facts = Facts(1.0, of_refits, enough=1e-9, slack=1e-12)
    for grad, said, more in (
        *(([0, 2 + 8e-10, 0], True, {}), ([0, 2.1, 0], False, {}), ([0, 9, 2.1], True, {"keep": [1, 2]})),
        *(([0, 9, 0], True, {"M": 0}), ([0, 9, 0], True, {"x": [0, 0, 0], "k": 0}), ([0, 1e-5, 0], False, {"k": 3})),
        *(([0, 1e-7, 0], True, {"k": 3}), ([0, 1e-3, 0], False, {"k": 3, "D": [1, 0, 1]})),
        *(([1, 0, 0], True, {"k": 3, "D": [1e12, 0, 1]}), ([0, 0, 0], None, {"D": [1, np.nan, 1]})),
        *(([0, np.nan, 0], None, {}), ([0, 0, 0], None, {"M": np.inf})),
    ):
        at = SimpleNamespace(**{"x": [1, 0, -2], "k": 2, "keep": [], "D": np.ones(3), "M": 2} | more, n_coefficients=3)
        at.keep, fit = np.array(at.keep, int), SimpleNamespace(x=at.x, chosen=np.arange(3), threshold=at, objective=at)
        found = certificate._necessary(fit, SimpleNamespace(grad=np.array(grad)), facts, np.array(at.D, float), at.M)
        assert found is said, (grad, more)


@pytest.mark.parametrize(("apart", "near"), [(0.0, False), (1e-6, True), (1e-3, False)])
def test_columns_are_nearly_collinear_in_any_units(x64, apart, near):
    """Beside a column of zeros; a row without weight does not count, and with a ridge none are."""
    X, units = np.random.default_rng(0).standard_normal((N, 2)), sht.results.Support(np.arange(3), np.ones(3, bool))
    X = np.column_stack([1e3 * X[:, 0], 1e-3 * (X[:, 0] + apart * X[:, 1]), np.zeros(N)])
    s, threshold = (np.arange(N) > 0).astype(float), sht.Sparsity(3)
    model, form = sht.LinearModel(X + (s == 0)[:, None], s, sample_weight=s), sht.QuadraticForm.from_data(X[1:], s[1:])
    for each, said in ((model, near), (model.reweighted(l2=np.array([1e6, 1e-6, 1.0])), False), (form, near)):
        bound, at = threshold.bind(each), (jnp.zeros(3), units, np.arange(3), 0.0, np.dtype(float))
        assert certificate._ambiguous(placed.Placed(each, bound, *at)) == said, each


def test_within_groups_nothing_is_said(x64):
    problem = Problem(7)
    fit = problem.fit([0, 6])[0]._replace(support=sht.results.Support(np.array([0, 3]), np.ones(2, bool)))
    c = sht.certificate(problem.model(), sht.GroupSparsity([0, 0, 1, 1, 2, 2, 3, 3], 2, within=1), fit)
    assert c.swap_gain is None and c.stationary and "unknown" in c.statement and c.necessary_condition is None


@pytest.mark.parametrize("softmax", [False, True], ids=["squared", "softmax"])
def test_several_responses(x64, softmax):
    """The best exchange of features of all responses, by SciPy's refits, from a support that is not the best."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((N, 6)) * np.geomspace(0.5, 2, 6) + rng.standard_normal((N, 1)) + 3
    eta = X @ np.where(np.arange(6)[:, None] == 2, [1.5, -1.0, 0.5], np.where(np.arange(6)[:, None] == 5, 0.5, 0.0))
    y = np.argmax(eta - eta.mean(0) + rng.gumbel(size=eta.shape), 1).astype(np.int32)
    assert np.bincount(y, minlength=3).min() >= 3
    Y = eta + rng.standard_normal(eta.shape)
    groups, Y = np.array([0, 1, 1, 2, 3, 3]), y if softmax else Y

    def refitted(units):
        columns, W = np.isin(groups, units), np.zeros((6, 3))
        value, W[columns], b = exhaustive.of_matrices(X[:, columns], Y, 0.05)
        return Fit(W, b, sht.results.Support(np.array(units), np.ones(len(units), bool))), value

    loss = sht.losses.Softmax(3) if softmax else sht.losses.Squared()
    model, threshold = sht.MultiResponse(X, Y, loss, l2=0.05, fit_intercept=True), sht.GroupSparsity(groups, 2)
    fit, value = refitted([0, 3])
    c = sht.certificate(model, threshold, fit)
    values = {(i, j): refitted(sorted({0, 3, j} - {i}))[1] for i in (0, 3) for j in (1, 2)}
    exchange = min(values, key=values.get)
    np.testing.assert_allclose(c.upper_bound, value, rtol=1e-9)
    np.testing.assert_allclose(c.swap_gain, value - values[exchange], rtol=1e-5)
    assert c.best_swap == exchange and c.stationary and c.lower_bound is None
    assert sht.certificate(model, threshold, sht.solve(model, threshold)).swap_gain == 0


def test_a_loss_that_is_not_smooth():
    problem = Problem(8)
    hinge = sht.LinearModel(problem.X, np.where(problem.y > 1, 1.0, -1.0), sht.losses.Hinge(), l2=0.1)
    c = sht.certificate(hinge, sht.Sparsity(K), fit_of([1, 2, 3], [1.0, 0.0, -1.0]))
    assert c.stationary is c.swap_gain is c.necessary_condition is None and "the loss is not smooth" in c.statement
    assert c.upper_bound > 0


def leaves_of(x):
    return jnp.mean((DATA @ jnp.append(x["a"], x["b"]) - TARGET) ** 2) / 2


DATA = np.random.default_rng(3).standard_normal((30, 6))
TARGET = DATA @ np.array([1.0, 0.8, 0.3, -0.5, 0.2, 0.0]) + 0.1 * np.random.default_rng(4).standard_normal(30)
LEAVES = {"a": np.zeros(2), "b": np.zeros(4)}
OF_LEAVES = {f"leaf_{a}_{b}": sht.LeafSparsity({"a": a, "b": b}) for a, b in ((None, 2), (2, None), (1, 1))}
SOONER = ("sparsity_keep", "leaf_None_2")
LATER = [name for name in cases.THRESHOLDS | OF_LEAVES if name not in SOONER]


@pytest.mark.parametrize("name", [*SOONER, *(pytest.param(name, marks=pytest.mark.slow) for name in LATER)])
def test_every_solution_of_every_threshold_is_taken(x64, name):
    threshold = (cases.THRESHOLDS | OF_LEAVES)[name]
    model = sht.LinearModel(DATA, TARGET, l2=0.1, fit_intercept=True)
    if threshold.kind == "leaves":
        model = sht.Custom(leaves_of, like=LEAVES)
    elif isinstance(threshold, sht.Rank | sht.RowSparsity):
        model = sht.MultiResponse(DATA[:, :3], np.column_stack([TARGET, -TARGET]), l2=0.1, fit_intercept=True)
    elif threshold.kind == "pairs":
        model = cases.bound_to(threshold)
    solution = sht.solve(model, threshold)
    if name in ("rank", "off_diagonal"):
        cases.refused(TypeError, "choice of entries or groups", lambda: sht.certificate(model, threshold, solution))
        return
    c = sht.certificate(model, threshold, solution, bounds=False)
    assert c.upper_bound == pytest.approx(float(solution.value), rel=1e-9) and c.stationary is not False, c.statement


@pytest.mark.parametrize("keep", [[], [4], [1, 5]])
def test_a_solution_is_placed_as_a_solver_places_it(keep):
    """In shape too: programs of either serve both."""
    model = sht.LinearModel(DATA, TARGET, fit_intercept=True)
    threshold, w = sht.Sparsity(2, keep=keep).bind(model), np.isin(np.arange(6), [0, 2, *keep]).astype(np.float32)
    x, support = threshold(model.to_internal(jnp.asarray(w), jnp.asarray(0.5)))
    own = sht.results.Support(np.flatnonzero(w), np.ones(2 + len(keep), bool))  # as a solution tells it
    placed_x, units, chosen, covered = placed.onto_support(model, threshold, w, jnp.asarray(0.5), own)
    np.testing.assert_array_equal(units.mask, support.mask)
    assert np.asarray(units.idx)[np.asarray(units.mask)].tolist() == [6, *keep, 0, 2] and chosen.tolist() == [0, 2]
    np.testing.assert_allclose(placed_x, x, rtol=1e-6)
    assert covered


@pytest.mark.parametrize("counts", [(None, 1), pytest.param((1, 1), marks=pytest.mark.slow)])
def test_leaves_exchange_within_themselves(x64, counts, monkeypatch):
    def fit(members):
        z = np.linalg.lstsq(DATA[:, members], TARGET)[0]
        return z, np.mean((DATA[:, members] @ z - TARGET) ** 2) / 2

    def solution_on(members):
        x = np.zeros(6)
        x[members] = fit(members)[0]
        return Fit(x, 0.0, sht.results.Support(np.array(members), np.ones(len(members), bool)))

    model, threshold = sht.Custom(leaves_of, like=LEAVES), sht.LeafSparsity(dict(zip("ab", counts, strict=True)))
    firsts = [(0, 1)] if counts[0] is None else [(0,), (1,)]
    for first, second in itertools.product(firsts, ((2,), (3,), (4,), (5,), ())):
        members = [*first, *second]
        value, solution, others = fit(members)[1], solution_on(members), []
        if second or counts[0] is None:
            others += [[*first, j] for j in range(2, 6) if (j,) != second]
        if counts[0] == 1:
            others += [[1 - first[0], *second]] + ([] if second else [[*first, j] for j in range(2, 6)])
        gain = value - min(fit(each)[1] for each in others)
        c = sht.certificate(model, threshold, solution)
        assert c.swap_gain == pytest.approx(max(gain, 0), rel=1e-8, abs=1e-12), (members, c.statement)
    for less in (0, 1):  # (refits) (samples + coefficients) (coefficients)^2, of one sample
        monkeypatch.setattr(certificate, "REFIT_WORK", len(others) * (1 + 6) * 6**2 - less)
        none = sht.certificate(model, threshold, solution)
        assert (none.swap_gain is None) == (f"{len(others)} refits are too many" in none.statement) == bool(less)
    with pytest.raises(ValueError, match="holds 2 units of leaf 1; k allows 1"):
        sht.certificate(model, threshold, solution_on([0, 1, 2, 3]))


def test_what_it_does_not_take():
    problem = Problem(9)
    model, fit = problem.model(), problem.fit([1, 4, 6])[0]
    with pytest.raises(ValueError, match="concrete"):
        jax.jit(lambda x: sht.certificate(model, sht.Sparsity(K), fit._replace(x=x)))(fit.x)
    for threshold, x, sentence in (
        (sht.Sparsity(2), fit.x, "3 units besides those in keep; k allows 2"),
        (sht.Sparsity(K), jnp.zeros((2, P)), f"shape \\({P},\\)"),
        (sht.Sparsity(K), np.full(P, np.nan), "NaN"),
        (sht.Sparsity(K), np.ones(P), "outside its support"),
        (sht.Sparsity(K, upper=0.01), fit.x, "bounds"),
        (sht.L0L1L2(0.01, upper=0.01), fit.x, "bounds"),
    ):
        cases.refused(ValueError, sentence, lambda t=threshold, x=x: sht.certificate(model, t, fit._replace(x=x)))
    cases.refused(TypeError, "threshold", lambda: sht.certificate(model, K, fit))


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        *((1.0, 1.5), (1.0, 2.0), (-1.5, -1.0), (-1.0, 0.5), (-4e48, 1e15), (0.0, 1.0), (-1.0, 0.0), (1.0, 9.0)),
        *((1.0, 1.0), (-np.inf, 1.0), (-1.0, -1 + 9.5e-5), (1.0, 1 + 1.05e-4)),
    ],
)
def test_a_share_of_the_best_objective_holds_wherever_the_best_one_is(monkeypatch, lower, upper):
    monkeypatch.setattr(dual_bound, "lower_bound", lambda *_: Bounds(lower, np.zeros(0), np.zeros(0), False))
    model = sht.LinearModel(DATA, TARGET, l2=0.1)
    found = dual_bound.dual_bound(model, sht.Sparsity(2), upper, np.float32)
    said = re.search(r"within (\S+)% of the best possible", found.sentence)
    assert found.optimal == ("Proved" in found.sentence) == (upper - lower <= 1e-4 * abs(upper))
    assert bool(said) == ((lower, upper) in [(1.0, 1.5), (1.0, 2.0), (-1.5, -1.0), (1.0, 1 + 1.05e-4)])
    assert found.lower == (lower if lower > -np.inf else None)
    for best in np.linspace(lower, upper, 7) if said else ():
        assert upper - best <= float(said[1]) / 100 * abs(best) * (1 + 1e-9)


def test_the_objective_without_features_has_an_intercept_of_its_own(x64):
    """Tolerances are shares of it: the mean of an offset is none of them."""
    rng = np.random.default_rng(3)
    X, y, offset = rng.standard_normal((40, 3)), rng.standard_normal(40), 100 + 30 * rng.standard_normal(40)
    model = sht.LinearModel(X, y, fit_intercept=True, offset=offset)
    np.testing.assert_allclose(placed.null_value(model), np.var(y - offset) / 2, rtol=1e-10)


def test_half_the_slope_in_the_metric_of_the_curvature_is_what_a_refit_gains():
    rng = np.random.default_rng(0)
    for size in (0, 1, 3):
        Z, slope = rng.standard_normal((5, size)) * 10.0 ** np.arange(-3, 3 * size - 3, 3), rng.standard_normal(size)
        H = Z.T @ Z
        gain = slope @ np.linalg.solve(H, slope) / 2
        said = [penalised._stationary(slope, H, share * gain + 1e-30) for share in (0.999, 1.001)]
        assert said == [size == 0, True], "half the slope in the metric of the curvature"
        assert size == 0 or penalised._stationary(slope, H + np.diag([np.nan, *np.zeros(size - 1)]), 1.0) is None
        assert size == 0 or penalised._stationary(slope * [np.inf, *np.ones(size - 1)], H, 1.0) is None
    assert penalised._stationary(np.array([1e-4, 1e-4]), np.ones((2, 2)), 1e-6) is True
    assert penalised._stationary(np.array([1e-9, -1e-9]), np.ones((2, 2)), 1e-6) is None, "rounding of the curvature"


def test_under_prices_stationary_says_what_a_refit_gains(x64, monkeypatch):
    """A slope may be small where the curvature is smaller, and small beside that without an intercept."""
    rng = np.random.default_rng(0)
    monkeypatch.setattr(penalised, "DENSE_HESSIAN_LIMIT", 2)
    u, v, w = (np.linalg.qr(rng.standard_normal((200, 3)))[0] * np.sqrt(200)).T
    X, y = np.stack([u + 1e-5 * v, u - 1e-5 * v, w], 1), u + 1e-2 * v
    model, threshold = sht.LinearModel(X, y), sht.L0L1L2(1e-9)
    halves, refit = np.array([0.5, 0.5, 0]), np.append(np.linalg.lstsq(X[:, :2], y, rcond=None)[0], 0)
    gain = (np.mean((y - X @ halves) ** 2) - np.mean((y - X @ refit) ** 2)) / 2
    found = [sht.certificate(model, threshold, Fit(x, 0.0, np.array([0, 1]))) for x in (halves, refit)]
    assert gain > 1e-5 and not found[0].stationary and "Locally optimal" not in found[0].statement
    assert found[1].stationary
    far = sht.LinearModel(X, np.exp(18 + 0.5 * w), sht.losses.Gamma(), l2=1e-3, fit_intercept=True)
    fits = (Fit(np.array([0, 0, x]), b, np.array([2])) for x, b in ((0.5, 18.0), (0.2, 18.1)))
    near, start = (sht.certificate(far, sht.L0L1L2(1e-3), fit) for fit in fits)
    assert near.upper_bound < start.upper_bound - 0.01 and not start.stationary
