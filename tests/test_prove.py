"""Proofs of best subsets: limits, resumption, interrupts, memory, sparse and single data, and what is refused."""

import itertools
import math
import re
import signal
import threading
import time
from types import SimpleNamespace

import cases
import jax
import numpy as np
import pytest
from scipy import sparse

import sparsehtp as sht
from sparsehtp.certificates import diagonal, generalised, least_squares, nodes, prove, quadratic, tree
from sparsehtp.certificates.generalised import Generalised
from sparsehtp.certificates.least_squares import LeastSquares


def make(n=100, p=40, k=10, rho=0.9, seed=0):
    rng = np.random.default_rng(seed)
    X = cases.chained(rng.standard_normal((n, p)), rho)
    signal_ = X[:, rng.permutation(p)[:k]] @ (rng.uniform(0.5, 1.5, k) * (-1.0) ** np.arange(k))
    y = signal_ + rng.standard_normal(n) * signal_.std()
    return (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()


@pytest.fixture(scope="module")
def model():
    with jax.enable_x64(True):
        return sht.LinearModel(*make(), l2=1e-3)


@pytest.fixture(scope="module")
def proof(model):
    return sht.prove(model, sht.Sparsity(10))


def test_no_gap_is_closed_to_rounding(model, proof):
    exact = sht.prove(model, sht.Sparsity(10), gap=0.0)
    assert exact.proved and exact.gap <= 1e-11 and exact.nodes > proof.nodes and 0 < proof.gap <= 1e-4 * (1 + 1e-9)
    pairs = sht.prove(model, sht.Sparsity(2))
    assert pairs.proved and (pairs.nodes, pairs.leaves) == (0, 1), "all of them are looked at together"


def test_limits_leave_a_bound(model, proof, tmp_path, monkeypatch):
    few = sht.prove(model, sht.Sparsity(10), max_nodes=100, checkpoint=tmp_path)
    began = time.monotonic()
    again = sht.prove(model, sht.Sparsity(10), max_nodes=1, checkpoint=tmp_path)
    assert (again.nodes, again.lower) == (few.nodes, few.lower), "what the last run ended with is kept"
    assert few.seconds < again.seconds < few.seconds + time.monotonic() - began, "the time is that of all runs"
    assert not few.proved and 100 <= few.nodes < proof.nodes and "its nodes were used up" in few.statement
    assert few.lower <= proof.upper and few.gap > 1e-4 and re.search(r"by at most [\d.]+%\.$", few.statement)
    with monkeypatch.context() as full:
        full.setattr(tree, "POOL_BYTES", 0)
        deep = sht.prove(model, sht.Sparsity(10), max_nodes=500)
    best_first = np.interp(500, proof.history["nodes"], proof.history["lower"])
    assert 0 < deep.lower < best_first, "nodes with the least bounds come first where there is room"
    began = time.monotonic()
    soon = sht.prove(model, sht.Sparsity(10), time_limit=1e-6, collect=1.0)
    assert 0 < soon.seconds < time.monotonic() - began
    assert not soon.collected.complete and not soon.collected.share.any()
    assert not soon.proved and soon.nodes == 0 and soon.lower == 0 and "its time was over" in soon.statement
    assert soon.upper >= proof.upper * (1 - 1e-12)


def test_neither_the_start_nor_the_pieces_of_its_matrix_change_a_proof(model, proof, monkeypatch):
    x = np.zeros(model.n_coefficients)
    x[np.setdiff1d(np.arange(x.size), np.flatnonzero(proof.x))[:3]] = 1
    poor = sht.prove(model, sht.Sparsity(10), SimpleNamespace(x=x))
    monkeypatch.setattr(least_squares, "PANEL", 1)
    monkeypatch.setattr(least_squares, "ROWS", 17)
    pieces = sht.prove(model, sht.Sparsity(10))
    assert poor.proved and pieces.proved
    for other in (poor, pieces):
        np.testing.assert_allclose(other.x, proof.x, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose((other.upper, pieces.lower), (proof.upper, proof.lower), rtol=1e-9)


def test_a_time_limit_may_end_anywhere(monkeypatch):
    """Before the first bounds are timed, too: their pace is zero then."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 60)).astype(np.float32)
    model = sht.LinearModel(X, X[:, :6].sum(1) + 2 * rng.standard_normal(100).astype(np.float32), fit_intercept=True)
    seconds = iter(np.linspace(0.2, -1, 7))
    monkeypatch.setattr(tree.Tree, "seconds_left", property(lambda _: next(seconds, -1.0)))
    part = sht.prove(model, sht.Sparsity(6), time_limit=60)
    assert 0 <= part.lower <= part.upper


@pytest.mark.parametrize("kind", [quadratic.LeastSquaresBounds, generalised.DualBounds])
def test_bounds_that_are_nan_decide_nothing(x64, monkeypatch, kind):
    squared = kind is quadratic.LeastSquaresBounds
    monkeypatch.setattr(generalised, "AT_ONCE", 1)  # as of large data: the two nodes of a branching at a time
    X, y = make(60, 20, 8) if squared else make(40, 10, 4)
    loss, threshold = (sht.losses.Squared(), sht.Sparsity(8)) if squared else (sht.losses.Logistic(), sht.Sparsity(4))
    model = sht.LinearModel(X, y if squared else np.where(y > 0.3, 1.0, -1.0), loss, l2=1e-2)
    whole, bound, rng = sht.prove(model, threshold), kind.bound, np.random.default_rng(0)

    def some_nan(*args):
        lower, v, u, inn, out, weight = bound(*args)
        lower = np.where(rng.random(lower.shape) < 0.5, np.nan, lower)
        v, u, weight = (np.where(rng.random(len(lower))[:, None] < 0.5, np.nan, a) for a in (v, u, weight))
        return lower, v, u, inn, out, np.where(inn | out, -1, weight)

    monkeypatch.setattr(kind, "bound", some_nan)
    proof = sht.prove(model, threshold)
    assert whole.proved and proof.proved and proof.nodes > whole.nodes
    np.testing.assert_allclose(proof.x, whole.x, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose((proof.upper, proof.lower), (whole.upper, whole.lower), rtol=2e-4)
    if not squared:  # whose supports are fitted again in exact arithmetic
        values = Generalised.values
        monkeypatch.setattr(Generalised, "values", lambda *args: tuple(np.nan * a for a in values(*args)))
        assert not sht.prove(model, threshold).proved


@pytest.mark.parametrize(("loss", "collect"), [("squared", None), ("squared", 1.02), ("logistic", 1.05)])
def test_a_resumed_run_comes_to_the_same(x64, model, tmp_path, loss, collect):
    limits, threshold, options = (70, 150, 250), sht.Sparsity(10), {"collect": collect}
    if loss == "logistic":
        X, y = make(80, 12, 6)
        model = sht.LinearModel(X, np.where(y > 0.3, 1.0, -1.0), sht.losses.Logistic(), l2=1e-2, fit_intercept=True)
        limits, threshold, options = (20,), sht.Sparsity(4), {"collect": collect, "gap": 0.0}
    whole, lower = sht.prove(model, threshold, **options), 0.0
    for limit in limits:
        part = sht.prove(model, threshold, max_nodes=limit, checkpoint=tmp_path, **options)
        assert not (part.proved if loss == "squared" else part.collected.complete)
        assert part.lower >= lower and part.nodes >= limit
        assert part.lower <= whole.upper <= part.upper * (1 + 1e-12)
        lower = part.lower
    rest = sht.prove(model, threshold, checkpoint=tmp_path, **options)
    assert whole.proved and rest.proved and rest.nodes > part.nodes and lower > 0
    assert rest.upper == pytest.approx(whole.upper, rel=1e-12)
    assert rest.lower == pytest.approx(whole.lower, rel=1e-12 if loss == "squared" else 1e-10)
    assert (np.diff(rest.history["nodes"]) >= 0).all() and (np.diff(rest.history["seconds"]) >= 0).all()
    if collect is not None:
        assert rest.collected.complete and not part.collected.complete
        wanted, found = ({mask.tobytes() for mask in each.collected.masks} for each in (whole, rest))
        assert wanted == found and len(found) > 1
    finished = sht.prove(model, threshold, checkpoint=tmp_path, **options)
    assert finished.proved and finished.nodes == rest.nodes
    for k, other in ((3, {}), (threshold.k, {"collect": 1.5}), (threshold.k, {"gap": 0.1})):
        with pytest.raises(ValueError, match=r"checkpoint: .* another problem"):
            sht.prove(model, sht.Sparsity(k), checkpoint=tmp_path, **options | other)
    assert float(model.value(model.to_internal(whole.x, whole.intercept))) == pytest.approx(whole.upper, rel=1e-12)


@pytest.mark.parametrize("least", [1e-6, 1e-8, 1e-12])
def test_a_diagonal_is_below_the_matrix_whatever_rounding_did(least, monkeypatch):
    """By ten times what an eigenvalue may be wrong by; where that is too much, points alone are looked for."""
    rng, p = np.random.default_rng(0), 12
    U = np.linalg.qr(rng.standard_normal((p, p)))[0]
    Q, taken = (U * np.geomspace(least, 3, p)) @ U.T, []
    monkeypatch.setattr(quadratic, "LeastSquaresBounds", lambda *given: taken.append(given))
    problem = SimpleNamespace(prepare=lambda: True, Q=(Q + Q.T) / 2, b=np.ones(p), ridge=np.zeros(p), c0=1.0)
    of = SimpleNamespace(d=np.ones(p), problem=problem, names=np.arange(p), seconds_left=9.0, seconds=9.0)
    of.nodes, of.leaves, of.pool = 0, 0, SimpleNamespace(size=0)
    quadratic.begin(of)
    eigenvalues = np.linalg.eigvalsh(problem.Q / np.sqrt(of.d * of.d[:, None]))
    assert of.bounded == (least > 1e-9)
    assert not of.bounded or eigenvalues[0] >= 1 + 5 * p * quadratic.EPS * eigenvalues[-1]
    np.testing.assert_allclose(taken[0][3], eigenvalues, rtol=1e-6, atol=100 * quadratic.EPS * eigenvalues[-1])


def test_another_diagonal_leaves_what_nodes_start_from(model, monkeypatch):
    """The pool holds w and the dual in units of the diagonal."""
    begin, ratios = quadratic.begin, []

    def checked(tree):
        units = np.sqrt(tree.d)
        start = tree.pool["v"] / units, tree.pool["u"] * units
        phase = begin(tree)
        for part, before, power in zip("vu", start, (-0.5, 0.5), strict=True):
            np.testing.assert_allclose(tree.pool[part] * tree.d**power, before, rtol=1e-5)
        ratios.append(np.ptp(np.sqrt(tree.d) / units) * np.abs(start[0]).max() * np.abs(start[1]).max())
        return phase

    monkeypatch.setattr(quadratic, "begin", checked)
    monkeypatch.setattr(tree, "FIRST", 20)
    sht.prove(model, sht.Sparsity(10), max_nodes=300)
    assert max(ratios, default=0) > 0


def test_an_interrupt_returns_what_is_known(model, proof, tmp_path):
    before = signal.getsignal(signal.SIGINT)

    def interrupt(nodes, _):
        if nodes >= 100:
            signal.raise_signal(signal.SIGINT)

    part = sht.prove(model, sht.Sparsity(10), progress=interrupt, checkpoint=tmp_path)
    assert not part.proved and 0 < part.nodes < proof.nodes and "it was interrupted" in part.statement
    assert signal.getsignal(signal.SIGINT) is before
    with tree._interrupts() as asked:
        signal.raise_signal(signal.SIGINT)
        assert asked() and signal.getsignal(signal.SIGINT) is before, "a second time ends the program"
    rest = sht.prove(model, sht.Sparsity(10), checkpoint=tmp_path)
    assert rest.proved and rest.upper == pytest.approx(proof.upper, rel=1e-12)


def test_other_threads_prove_too(model, proof):
    found = []
    thread = threading.Thread(target=lambda: found.append(sht.prove(model, sht.Sparsity(10), max_nodes=100)))
    thread.start()
    thread.join()
    assert found[0].upper == proof.upper and 0 < found[0].lower <= proof.upper


def test_a_full_pool_goes_depth_first(model, proof, monkeypatch):
    sizes, add = [], tree.Pool.add

    def counted(self, *args, **columns):
        add(self, *args, **columns)
        sizes.append(self.size)

    monkeypatch.setattr(tree.Pool, "add", counted)
    free = sht.prove(model, sht.Sparsity(10), gap=0.0, collect=1.02)
    most, sizes[:] = max(sizes), []
    rows = most // 5
    monkeypatch.setattr(tree, "POOL_BYTES", rows * tree.Pool(40).row_bytes)
    small = sht.prove(model, sht.Sparsity(10), gap=0.0, collect=1.02)
    assert small.proved and small.upper == free.upper
    assert len(small.collected.values) == len(free.collected.values)
    assert max(sizes) <= rows + 2 * tree.BATCH_CPU


def test_collections_that_are_too_large_hold_the_best(model, monkeypatch):
    everything = sht.prove(model, sht.Sparsity(10), collect=1.03).collected
    monkeypatch.setattr(tree, "MOST_COLLECTED", 20)
    some = sht.prove(model, sht.Sparsity(10), collect=1.03)
    assert everything.complete and len(everything.values) > 100
    assert not some.collected.complete and len(some.collected.values) == 20
    assert np.array_equal(some.collected.values, everything.values[:20])
    assert (np.diff(everything.values) >= 0).all() and everything.values[-1] <= 1.03 * everything.values[0] * (1 + 1e-8)


def test_sparse_designs_and_single_precision_are_proved_in_double():
    rng = np.random.default_rng(3)
    X = np.where(rng.random((120, 25)) < 0.6, 0, rng.standard_normal((120, 25))).astype(np.float32)
    y = (X[:, :6].sum(1) + 2 * rng.standard_normal(120) + 5).astype(np.float32)
    settings = {"l2": 1e-3, "fit_intercept": True, "standardize": True}
    with jax.enable_x64(True):
        double = sht.prove(sht.LinearModel(X.astype(float), y.astype(float), **settings), sht.Sparsity(5))
    assert double.proved and double.x.dtype == float
    for data in (X, sparse.csr_array(X)):
        single = sht.prove(sht.LinearModel(data, y, **settings), sht.Sparsity(5))
        assert single.proved and np.array_equal(single.support.idx, double.support.idx)
        assert single.upper == pytest.approx(double.upper, rel=1e-6)  # l2 and the centred y are rounded
        assert np.allclose(single.x, double.x, rtol=1e-4) and single.intercept == pytest.approx(double.intercept, 1e-4)


def test_a_singular_problem_says_so(x64):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 60)), rng.standard_normal(20)
    singular = sht.LinearModel(X, y)
    assert sht.prove(singular, sht.Sparsity(3)).proved
    large = sht.prove(singular, sht.Sparsity(8), max_nodes=200)
    assert not large.proved and large.lower == 0 and "collinear and l2 is 0" in large.statement


@pytest.mark.parametrize("kind", [LeastSquares, Generalised])
def test_a_search_adds_and_exchanges_what_lowers_the_objective_most(x64, kind, monkeypatch):
    """Against refits; of a loss that is not squared, what lowers its quadratic model most."""
    squared, (X, y), p = kind is LeastSquares, make(40, 10, 4, seed=4), 10
    X, y = X * np.geomspace(0.1, 10, p), y if squared else np.where(y > 0.3, 1.0, -1.0)
    loss = sht.losses.Squared() if squared else sht.losses.Logistic()
    offset = np.zeros(40) if squared else np.linspace(-1, 2, 40)
    model = sht.LinearModel(X + squared * X.std(0) / 2, y, loss, l2=1e-2, fit_intercept=squared, offset=offset)
    problem, late = (kind(model, np.array([5]), 3, stop_at=stop) for stop in (np.inf, -np.inf))

    def lowers(S, j):
        """What adding a feature lowers F by: with a refit, or by its slope and curvature."""
        if squared:
            return problem.values(np.array([S]))[0][0] - problem.values(np.array([[*S, j]]))[0][0]
        share = 1 / (1 + np.exp(y * (X @ problem.fit(np.array(S))[1] + offset)))
        return np.mean(y * share * X[:, j]) ** 2 / (np.mean(share * (1 - share) * X[:, j] ** 2) + 1e-2)

    def rest(S):
        return sorted(set(range(p)) - set(S), key=lambda j: -lowers(S, j))

    most = np.linalg.norm(X, 2) ** 2 / 40
    assert most / 2 <= generalised._norm(X, np.full(40, 1 / 40)) <= most * (1 + 1e-12), "estimated from below"
    assert problem.null == pytest.approx(np.var(y) / 2 if squared else np.logaddexp(0, -y * offset).mean())
    value, lower = problem.values(np.arange(4)[None])
    assert 0.999 * value < lower < value, "rounding is taken off"
    if squared:
        moments = (X - X.mean(0)).T @ y / 40, np.var(X, 0), np.mean((X + X.std(0) / 2) ** 2, 0)
        np.testing.assert_allclose(problem._moments()[:3], moments, rtol=1e-9, atol=1e-12)
        monkeypatch.setattr(least_squares, "PANEL", 1)
        assert not late.prepare(), "there was no time for it"
        thin = sht.LinearModel(sparse.csr_array(X + X.std(0) / 2), y, l2=1e-2, fit_intercept=True)
        rows, soon = (kind(thin, np.array([5]), 3, stop_at=stop) for stop in (np.inf, -np.inf))
        assert rows.prepare() and not soon.prepare() and late.exact(np.arange(2)) is None
        before = [problem._row(j) for j in range(p)]
        assert problem.prepare()
        np.testing.assert_allclose(before, problem.Q, atol=1e-12)
        np.testing.assert_allclose(rows.Q, problem.Q, atol=1e-9)
        S = problem.search(np.array([0, 1, 2]))
        exchanges = ([*(set(S) - {i}), j] for i, j in itertools.product(set(S) - {5}, set(range(p)) - set(S)))
        best = min(problem.values(np.array(each)[None])[0] for each in exchanges)
        assert 5 in S and problem.values(S[None])[0] <= best
        monkeypatch.setattr(least_squares, "SWAPS", 0)
    greedy = [5]
    while len(greedy) < 4:
        greedy.append(rest(greedy)[0])
    assert problem.search(np.zeros(0, int)).tolist() == sorted(greedy)
    assert late.search(np.zeros(0, int)).tolist() == sorted([5, *rest([5])[:3]])


def test_supports_that_could_be_better_are_fitted_and_the_best_is_offered(monkeypatch):
    """In exact arithmetic where rounding could decide, and there is time for that."""
    calls, values, lower = [], np.array([1.2, 0.95, np.nan, 0.85]), np.array([1.15, 0.95, np.nan, 0.5])
    at = SimpleNamespace(upper=1.0, slack=0.1, level=0.96, sure=np.inf, names=np.arange(4) + 5)
    at.offer = lambda members: calls.append(("offer", *members))
    at._exactly = lambda members: calls.append(("exactly", *members)) or {2: 0.8}.get(members[0])
    at._collect = lambda members, values, wrong: calls.append((*values, *wrong.round(9)))
    at.problem = SimpleNamespace(values=lambda members: (values, lower))
    at.limits = SimpleNamespace(ratio=1.05)
    tree.Tree._look(at, np.arange(4)[:, None])
    fits = [("offer", 3), ("exactly", 2), ("offer", 2), ("exactly", 3)]
    assert calls == [*fits, (1.2, 0.95, 0.8, 0.85, 0.05, 0, 0, 0.35)] and at.sure == 0.5
    calls.clear()
    at._look = lambda members: calls.append(("look", *members.ravel()))
    phase = SimpleNamespace(support_values=lambda _: np.array([0.95, np.nan, 0.97, 0.5, 0.99]))
    supports = np.eye(5, 4, -1, bool) | np.eye(5, 4, 4, bool)
    tree.Tree._settle(at, phase, supports, np.array([False, True, True, True, False]))
    assert calls == [("offer", 7), ("look", 5, 7)]
    # Of a collection: what is open, or wrong by too much, where there is exact arithmetic.
    found = {"sure": (0.9, 1e-7), "above": (1.2, 0.1), "open": (1.04, 0.1), "below": (1.1, 0.1), "wrong": (0.5, 0.02)}
    found = {name: (name, *each) for name, each in found.items()}
    at = SimpleNamespace(claimed=1.05, trim=lambda: None, found=dict(found))
    at._exactly = {"open": 1.06, "below": 1.01}.get
    tree.Tree.settle_collection(at)
    for most, cap in ((4, np.inf), (3, 1.04)):  # the best of what may belong to it
        few = SimpleNamespace(reach=1.05, cap=np.inf, found=found)
        monkeypatch.setattr(tree, "MOST_COLLECTED", most)
        tree.Tree.trim(few)
        assert [*few.found] == ["wrong", "sure", "open", "below"][:most] and few.cap == cap
    at.exacts, at.problem = tree.MOST_EXACT - 1, SimpleNamespace(exact=lambda members: 0.5)
    assert [tree.Tree._exactly(at, np.arange(2)) for _ in range(2)] == [0.5, None], "so many at most"
    left = {name: each[1:] for name, each in at.found.items()}
    assert left == {"sure": (0.9, 1e-7), "below": (1.01, 0), "wrong": (0.5, 0)}


BEST = "the best choice of 2 features"
OUT = "Not proved to be the best choice of 2 features, since "
LATE, UNBOUNDED = {"proved": False, "stopped": "late"}, {"proved": False, "lower": 0.0, "bounded": False}
STATED = [
    ({}, f"Proved: this is {BEST}, to 0.01% of the objective."),
    ({"gap": 0.0}, f"Proved: this is {BEST}, but for rounding."),
    ({"gap": 1e-3}, f"Proved: this is {BEST}, to 1e-07 of the objective without features."),
    ({"k": 1, "copied": True}, "Proved: this is the best choice of 1 feature, to .*; columns that copy .* to them."),
    (LATE, f"{OUT}late: a better one lowers the objective by at most 0.01%."),
    (LATE | {"lower": 0.0}, f"{OUT}late before there was a bound."),
    ({"proved": False}, f"{OUT}rounding in float64 hides the rest: .* by at most 0.01%; raise l2, or .* copy."),
    (UNBOUNDED, f"{OUT}rounding decides: features are collinear and l2 is 0, .* l2."),
    (UNBOUNDED | LATE, f"{OUT}late: features are collinear and .*"),
    (LATE | {"bounded": False}, f"{OUT}late: a better one .*"),
    ({"collected": (1, True)}, "Proved: .* of the objective; 1 choice is within 5% of it."),
    ({"collected": (3, False)}, r"Proved: .*; 3 choices are within 5% of it \(there may be more\)."),
    ({"collected": (10_000, False)}, r"Proved: .*; 10000 choices are within 5% of it \(there are more\)."),
    ({"collected": (3, True), "noise": 0.2}, "Proved: .*; 3 choices are within rounding of it."),
]


def test_what_a_proof_says():
    for known, said in STATED:
        at = dict(k=2, gap=1e-4 * (1 + 5e-10), proved=True, collected=None, stopped="", lower=0.9, bounded=True) | known
        problem = SimpleNamespace(null=10.0, noise=at.get("noise", 1e-13), copied=at.get("copied", False))
        limits = tree.Limits(60, math.inf, 1e-4, at["collected"] and 1.05)
        search = SimpleNamespace(problem=problem, limits=limits, zero=1e-6, upper=1.0, **at)
        collected = at["collected"] and prove.Collected(None, np.zeros(at["collected"][0]), None, at["collected"][1])
        statement = prove._statement(search, at["k"], at["gap"], at["proved"], collected)
        assert re.fullmatch(said, statement), (known, statement)


def test_what_is_open_of_a_proof_is_the_gap_or_rounding():
    """That may hide so much, and a millionth of F without features; where F is rounding all of it is known."""
    for lower, zero, null, gap, proved in (
        *((1 - 0.99e-3, 0, 1, 1e-3, True), (1 - 1.01e-3, 0, 1, 1e-3, False), (2, 0, 1, 1e-3, True)),
        *((0.8, 0.3, 250, 1e-3, True), (0.8, 0.3, 150, 1e-3, False), (0.8, 0.1, 250, 1e-3, False), (0, 1, 1, 0, False)),
        *((0.8, 0.3, 3e5, 0, True), (0.8, 0.3, 1e5, 0, False), (1, 0, 1, 0, True), (1 - 1e-12, 0, 1, 0, False)),
    ):
        at = SimpleNamespace(lower=lower, zero=zero, null=null, noise=0.5 + (lower == 0) / 2, members=[1], history=[])
        at.problem, at.fit, at.floor, at.features = at, lambda _: (1.0, np.zeros(3), 0.0), 7.0, np.array([0, 2])
        at.limits, at.copied, at.bounded, at.stopped = tree.Limits(60, 99, gap, None), False, True, "late"
        at.nodes, at.leaves, at.seconds = 5, 4, 3.0
        found = prove._proof(at, sht.Sparsity(1, keep=[1]))
        assert (found.proved, found.upper, found.lower) == (proved, 8, 7 + min(lower, 1)), (lower, zero, null, gap)
        assert found.support.idx.tolist() == [1, 2]
        assert found.gap == pytest.approx(0 if lower == 0 else max(1 - lower, 0), abs=1e-15)


def test_the_time_of_eigenvalues_grows_with_the_cube_of_their_number(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(quadratic.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(np.linalg, "eigh", lambda A: clock.append(clock.pop() + A.shape[0] ** 3))
    for p in (100, 256, 257, 800):
        assert quadratic._eigen_seconds(np.zeros((p, p)), p) == (0 if p <= 256 else pytest.approx(2.5 * p**3)), p


def test_progress_is_reported(model, tmp_path, monkeypatch):
    seen, kept = [], []
    monkeypatch.setattr(prove.Checkpoint, "store", lambda *_: kept.append(len(seen)))
    options = {"progress": lambda done, total: seen.append((done, total)), "checkpoint": tmp_path}
    sht.prove(model, sht.Sparsity(10), **options)
    assert len(seen) > 2 and seen == sorted(seen) and {total for _, total in seen} == {0}
    assert kept == [len(seen)], "at the end"
    monkeypatch.setattr(tree, "SAVE_EVERY", 0.0)
    kept.clear(), seen.clear()
    sht.prove(model, sht.Sparsity(10), **options)
    assert kept == [*range(1, len(seen) + 1), len(seen)], "and every so many seconds"


def test_memory_is_reckoned_before_anything_is_formed(monkeypatch):
    sizes = ((LeastSquares, 10**3, 10**6, 160e12), (LeastSquares, 10**6, 10**3, 32.2e9))
    for kind, n, p, stated in (*sizes, (Generalised, 10**4, 10**6, 50e10), (Generalised, 10, 3, 8 * 2**24)):
        assert kind.memory(SimpleNamespace(y=np.zeros(n), n_coefficients=p)) == pytest.approx(stated, rel=0.02), kind
    for p, most in itertools.product((1, 32, 128, 1024, 3000), (1, 8, 64, 1024)):  # leaves at once
        number, room = nodes.leaves_at_once(p, most), max(nodes.LEAF_NUMBERS // p**2, 1)
        assert number & (number - 1) == 0 and number <= min(most, room) < 2 * number, (p, most)
    pool = tree.Pool(40)
    row = [np.empty((1, *column.shape[1:]), column.dtype) for column in pool.columns.values()]
    assert pool.row_bytes == sum(part.nbytes for part in row)
    wide = sht.LinearModel(np.random.default_rng(0).standard_normal((3, 200_000), dtype=np.float32), np.arange(3.0))
    with pytest.raises(ValueError, match=r"objective: a proof for 200,000 features takes 5,\d+ GiB of memory, and"):
        sht.prove(wide, sht.Sparsity(2))
    monkeypatch.setattr("sparsehtp.certificates.prove.available", lambda: 2**10)
    X, y = make()
    for loss, target in ((sht.losses.Squared(), y), (sht.losses.Logistic(), np.sign(y))):
        with pytest.raises(ValueError, match="GiB are free; prove on fewer features"):
            sht.prove(sht.LinearModel(X, target, loss, l2=0.1), sht.Sparsity(2))


def test_what_there_is_no_time_for_is_not_begun(model, proof, monkeypatch):
    found = sht.prove(model, sht.Sparsity(10), max_nodes=100)
    monkeypatch.setattr("sparsehtp.certificates.quadratic._eigen_seconds", lambda Q, p: np.inf)
    for solution in (None, found):
        part = sht.prove(model, sht.Sparsity(10), solution)
        assert part.seconds < 30 and part.nodes == 0 and part.lower == 0 and not part.proved
        assert "its time was over before there was a bound" in part.statement
        assert proof.upper * (1 - 1e-12) <= part.upper <= (0.5 if solution is None else found.upper * (1 + 1e-12))


@pytest.mark.slow
@pytest.mark.parametrize("loss", [sht.losses.Squared(), sht.losses.Logistic()], ids=["squared", "logistic"])
def test_many_features_keep_the_time_limit(x64, loss):
    X, y = make(200, 1100, 5)
    model = sht.LinearModel(X, y if loss == sht.losses.Squared() else np.sign(y), loss, l2=1e-2)
    sht.prove(model, sht.Sparsity(5), time_limit=60)  # compiles
    for limit in (1.0, 5.0, 20.0):
        part = sht.prove(model, sht.Sparsity(5), time_limit=limit)
        assert part.seconds <= 1.1 * limit + 0.5 and part.lower <= part.upper


def test_what_is_refused(model):
    X, y = make(20, 5, 2)
    single, labels, two = X.astype(np.float32), np.sign(y).astype(np.float32), sht.Sparsity(2)
    logistic, hinge = (sht.LinearModel(single, labels, loss()) for loss in (sht.losses.Logistic, sht.losses.Hinge))
    several, ten = sht.MultiResponse(single, single), sht.prove(model, sht.Sparsity(10), max_nodes=1)
    cases.refused(ValueError, "l2: a proof for Logistic needs l2 > 0 on every", lambda: sht.prove(logistic, two))
    cases.refused(TypeError, "objective: .* squared or another smooth loss .* got Hinge", lambda: sht.prove(hinge, two))
    cases.refused(TypeError, "proofs are for a LinearModel, got MultiResponse", lambda: sht.prove(several, two))
    cases.refused(TypeError, "threshold: .* with bounds", lambda: sht.prove(model, sht.Sparsity(2, lower=-1.0)))
    cases.refused(TypeError, r"threshold: .* got RowSparsity", lambda: sht.prove(model, sht.RowSparsity(2)))
    cases.refused(ValueError, "solution: it has 10 nonzeros", lambda: sht.prove(model, two, ten))
    bad = {"gap": (1.0, -1e-9), "collect": (0.9, math.inf), "time_limit": (0.0,), "max_nodes": (0, math.inf)}
    for name, value in ((name, value) for name, values in bad.items() for value in values):
        cases.refused(ValueError, f"{name}: ", lambda limit={name: value}: sht.prove(model, two, **limit))
    with jax.enable_x64(True), pytest.raises(TypeError, match="objective: a proof needs concrete arrays"):
        jax.jit(lambda l2: sht.prove(model.reweighted(l2=l2), two).upper)(0.1)


def test_programs_of_a_shrinking_proof_pay_for_themselves():
    rng = np.random.default_rng(0)
    for _ in range(50):
        fitting, seconds, node = int(rng.integers(100, 2000)), float(rng.uniform(0.5, 5)), 10 ** rng.uniform(-6, -4)
        at = SimpleNamespace(width=0, nodes=0, goal=tree.FIRST, limits=tree.Limits(60, math.inf, 1e-4, None))
        widths, gained = [tree.Tree.width_for(at, fitting, node, seconds)], 0.0
        assert widths == [fitting]
        while at.nodes < 10**6:
            at.nodes, at.goal = at.goal, tree.GROWTH * at.goal
            fitting = int(rng.integers(fitting // 3, fitting + 1))
            widths.append(tree.Tree.width_for(at, fitting, node, seconds))
            assert widths[-1] in (fitting, widths[-2])
            gained += (at.goal - at.nodes) * node * (widths[-2] - widths[-1])
        assert (len(set(widths)) - 1) * seconds <= gained


def test_a_diagonal_is_tuned_by_the_gradient_of_its_bounds(monkeypatch):
    rng, p, mu, h = np.random.default_rng(0), 5, 0.01, 1e-5
    Z, inn, out = rng.standard_normal((20, p)), np.zeros((3, p), bool), np.zeros((3, p), bool)
    Q, b, inn[1, 2], out[2, 0] = Z.T @ Z / 20, rng.standard_normal(p), True, True
    at = diagonal.Nodes(2 - inn.sum(1), inn, out)
    d = rng.uniform(0.5, 0.9, p) * np.linalg.eigvalsh(Q)[0]
    monkeypatch.setattr(diagonal, "ACCURACY", 0.0)

    def relaxed(d, steps=1000):
        return diagonal._relax(Q, b, 10.0, d, at, np.full((3, p), 0.4), steps)

    def value(d):
        return relaxed(d).upper.mean() + mu * diagonal._barrier(Q, d)

    here = relaxed(d)
    assert np.abs(here.upper - here.lower).max() < 1e-6
    for row, lower in enumerate(here.lower):
        own = (S for S in itertools.combinations(range(p), 2) if {*S} >= {*np.flatnonzero(inn[row])})
        choices = [list(S) for S in own if not out[row, list(S)].any()]
        assert lower <= min(10 - b[S] @ np.linalg.solve(Q[np.ix_(S, S)], b[S]) / 2 for S in choices)
    e = np.where(out | inn, 0, 1 / np.maximum(here.z, 1e-6) - 1)
    steps = [(value(d + h * row) - value(d - h * row)) / (2 * h) for row in np.eye(p)]
    np.testing.assert_allclose(diagonal._gradient(np.linalg.inv(Q - np.diag(d)), d, here.w, e, 3, mu), steps, rtol=1e-4)

    for level in (20.0, 8.9):  # above all nodes, or all but one
        best = diagonal.tuned_diagonal(Q, b, 10.0, at, level)
        highest = np.minimum(relaxed(best).lower, level).mean()
        others = best * (1 + 0.1 * rng.standard_normal((30, p)))
        inside = [other for other in others if diagonal._barrier(Q, other) > -np.inf]
        near = [np.minimum(relaxed(d, 100).lower, level).mean() for d in inside]
        assert len(near) > 3 and max(near) < highest + 1e-3


def test_the_phases_of_a_proof_share_their_programs(model):
    before = set(nodes.bound.compiled), set(nodes.leaves.compiled), set(nodes.support_values.compiled)
    found = sht.prove(model, sht.Sparsity(9), gap=0.0)
    assert found.nodes > tree.FIRST  # more than one phase
    programs = nodes.bound, nodes.leaves, nodes.support_values
    assert all(len(set(each.compiled) - old) <= 1 for each, old in zip(programs, before, strict=True))


@pytest.mark.parametrize("unit", [1.0, 1e14])
def test_what_is_proved_is_the_best_in_any_units_of_the_targets(x64, unit):
    """Where rounding hides which support is better, nothing is proved."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 3))
    y = unit * np.exp(0.5 * X[:, 0] + 0.1 * rng.standard_normal(100))
    model = sht.LinearModel(X, y, sht.losses.Gamma(), l2=1e-3, fit_intercept=True)
    start = SimpleNamespace(x=np.array([0, 0.1, 0]), intercept=0.0, support=np.array([1]))
    proof = sht.prove(model, sht.Sparsity(1), start, time_limit=20)
    assert proof.proved == proof.statement.startswith("Proved")
    last = proof.history["upper"][-1], proof.history["lower"][-1]
    np.testing.assert_allclose(last, (proof.upper, proof.lower), rtol=1e-9)
    assert proof.support.idx.tolist() == [0] if proof.proved else proof.gap > 1e-4
