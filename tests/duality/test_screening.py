"""No coordinate of an optimum is ever screened out, none outside ever fixed in; bounds never claim too much."""

import functools
import itertools
from types import SimpleNamespace

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from exhaustive import Problem, best_penalised, best_sparse

import sparsehtp as sht
from sparsehtp.duality import Fixed, dual_of, relax
from sparsehtp.screening import bounds, gap_sphere, rules, screen

pytestmark = pytest.mark.usefixtures("x64")
N, P = 12, 6
# Every kind of problem is a program of its own: the default run takes two of the four kinds.
FEW = [seed for seed in range(48) if (seed % 3 == 0) != bool(seed % 2)]
SQUARED, MANY = [seed for seed in FEW if seed % 3], range(500)


def random_problem(seed, p=P, logistic=None, intercept=None):
    """A third logistic, half with an intercept, half with prices that differ, some of them zero; lam0, lam1, lam2 of
    the sum form in the ranges that matter."""
    rng = np.random.default_rng(seed)
    logistic = seed % 3 == 0 if logistic is None else logistic
    intercept = bool(seed % 2) if intercept is None else intercept
    X = rng.standard_normal((N, p))
    X /= np.linalg.norm(X, axis=0)
    y = X @ np.where(np.arange(p) < 3, 1.5 * rng.standard_normal(p), 0) + 0.3 * rng.standard_normal(N)
    y = np.where(y > np.median(y), 1.0, -1.0) if logistic else y
    weights = rng.integers(1, 4, N).astype(float) if seed % 5 == 0 else np.ones(N)
    lam0, lam1, lam2 = 10.0 ** rng.uniform([-2.5, -3, -2], [-0.5, -1, 0.5])
    prices = rng.choice([0.0, 0.5, 1.0, 2.0], p, p=[0.1, 0.3, 0.3, 0.3]) if seed % 4 < 2 else np.ones(p)
    loss = "logistic" if logistic else "squared"
    return Problem(X, y, weights, lam0 / N, lam1 / N, 2 * lam2 / N, intercept, loss, prices)


@functools.cache
def screened(loss, intercept, penalised):
    """Screening at the dual optimum and at two worse dual points, with the optimum and a worse value as UB."""

    def run(X, y, weights, l0, l1, l2, prices, k, uppers, noise):
        model = sht.LinearModel(X, y, cases.LOSSES[loss], l2=l2, sample_weight=weights, fit_intercept=intercept)
        threshold = sht.L0L1L2(l0, l1, prices=prices) if penalised else sht.Sparsity(k, P)
        dual = dual_of(model, threshold)
        energies = dual.columns.moments()[1]
        best = relax(dual, 1e-9, max_steps=3000)
        no = jnp.zeros(P, bool)

        def at(a, upper):
            dual_none = dual_of(model, threshold, Fixed(no, no))
            point = dual_none.point(dual.project(a))
            fixed, after = screen(dual_none, point, energies, upper)
            old = gap_sphere(dual_none, point, energies, upper).zero if penalised else no
            return fixed, old, point.value, after.value

        points = best.point.a + jnp.stack([0 * noise, 0.02 * noise, 0.2 * noise])
        found = jax.vmap(lambda a: jax.vmap(lambda u: at(a, u))(uppers))(points)
        return best.point.value, found

    return cases.jit(run)


def check_screening(problem, k=None):
    """(decided by the phi test, by rule (16)) at the dual optimum, after checks against all optima."""
    penalised = k is None
    best, supports = best_penalised(problem) if penalised else best_sparse(problem, k)
    uppers = np.array([best, best * 1.01])
    noise = np.random.default_rng(0).standard_normal(N) * problem.y.std()
    arguments = (*problem[:6], problem.prices, k or 0, uppers, noise)
    lower, (fixed, old, value, after) = jax.device_get(screened(problem.loss, problem.intercept, penalised)(*arguments))
    assert lower <= best * (1 + 1e-9)
    zero, nonzero = fixed
    assert np.all(value <= after + 1e-12) and np.all(after <= best * (1 + 1e-9)), "the restricted dual is a bound too"
    for support in supports:
        assert not (zero & support).any(), "a coordinate of an optimum was screened out"
        assert not (nonzero & ~support).any(), "a coordinate outside was fixed in"
        assert not (old & support).any()
    assert not (old & ~zero).any(), "the phi test fires wherever rule (16) does"
    return (zero | nonzero)[0, 0].sum(), old[0, 0].sum(), zero[0, 0].sum()


@pytest.mark.parametrize(("seeds", "share"), [(FEW, 0.4), pytest.param(MANY, 0.5, marks=pytest.mark.slow)])
def test_screening_is_safe(seeds, share):
    decided, old, new, number = 0, 0, 0, 0
    for seed in seeds:
        a, b, c = check_screening(random_problem(seed))
        decided, old, new, number = decided + a, old + b, new + c, number + P
        check_screening(random_problem(seed), k=seed % P)
    assert decided >= share * number and new > old > 0


def test_rules_are_the_bounds_that_they_come_from():
    """Rule (16) as printed; phi as the least of both bounds over all |w_j| >= m, on a grid."""
    rng, mu, p = np.random.default_rng(0), 0.25, 150
    l0, l1, l2, A, tau = rng.uniform(0.1, 2, (5, p)) * [[1], [1], [1], [1], [3]]
    t, pull, psi = tau - l1, mu / (2 * A), l0 - np.maximum(tau - l1, 0) ** 2 / (2 * l2)
    fixed = Fixed(*(np.arange(p) == j for j in (0, 1)))
    loss, columns = SimpleNamespace(smoothness=1 / mu), SimpleNamespace(norms=lambda: None)
    dual = SimpleNamespace(prices=(l0, l1), ridge=l2, objective=SimpleNamespace(loss=loss), columns=columns)
    dual.masks, dual.rounding = (lambda: fixed), (lambda *_: 0.0)

    @cases.jit
    def decide(tau, upper):
        point = SimpleNamespace(value=1.0, tau=tau, terms=-psi)
        return [rule(dual, point, A, upper) for rule in (rules._phi, gap_sphere)]

    w = np.sqrt(2 * l0 / (A / mu + l2)) + np.linspace(0, 40, 4001)[:, None]
    phi = np.min(l0 - t * w + l2 / 2 * w**2 + pull * (l2 * w - t) ** 2, 0)
    excess = np.maximum(tau - l1 - np.sqrt(2 * l0 * (A / mu + l2)), 0)
    free, rest = ~(fixed.zero | fixed.nonzero), np.maximum(-psi, 0)
    for gap in (0.2, 1.0):
        (zero, nonzero), old = decide(tau * rng.choice([-1, 1], p), 1 + gap)
        inn = free & (rest + pull * excess**2 > gap)
        out = free & (rest + phi > gap) & ~inn
        assert np.sum(zero != out) <= 1 and np.sum(nonzero != inn) <= 1, "a grid may err beside a tie"
        sphere = tau + np.sqrt(A * 2 * gap / mu) < l1 + np.sqrt(2 * l0 * l2)
        assert np.array_equal(old.zero, sphere) and min(out.sum(), inn.sum(), sphere.sum()) > 3


def test_ranks_decide_by_what_another_choice_gains():
    """A feature inside takes the place of none, or of the best outside; one outside that of the worst inside."""
    p, G = 20, np.random.default_rng(0).uniform(0, 3, 20)

    @cases.jit
    def decide(free, member, k, upper):
        fixed = Fixed(~free, jnp.zeros(p, bool))
        dual = SimpleNamespace(masks=lambda: fixed, slots=lambda: k, select=lambda _: (member, None))
        return rules._ranks(dual, SimpleNamespace(value=1.0, terms=jnp.asarray(G)), G, upper)

    for first, k, gap in itertools.product((0, 2), (0, 1, 5, 17, 18, 20), (0.1, 1.0)):
        free = np.arange(p) >= first
        member = free & np.isin(np.arange(p), np.argsort(np.where(free, -G, 1))[:k])
        zero, nonzero = decide(free, member, k, 1 + gap)
        worst, best = np.min(G[member], initial=np.inf), np.max(G[free & ~member], initial=0)
        assert np.array_equal(zero, free & ~member & (worst - G > gap)), k
        assert np.array_equal(nonzero, member & (G - best > gap)), k


def test_a_smaller_problem_is_that_of_its_features():
    """Its dual has the same value and coefficients, and steps start where they were."""
    rng, p, own, point = np.random.default_rng(0), 16, [0, 13, 7], cases.jit(lambda dual, a: dual.point(a))
    (w, y), names, first = rng.standard_normal((2, p)), rng.permutation(p), np.arange(p) == 0
    model = sht.LinearModel(rng.standard_normal((p, p)), y, l2=rng.uniform(0.5, 2, p))
    fixed, prices = Fixed(~np.isin(np.arange(p), own), first), rng.uniform(0.5, 2, p)
    for threshold in (sht.L0L1L2(0.01, 0.1, prices=prices, keep=[7]), sht.Sparsity(2, lower=-np.ones(p))):
        dual = dual_of(model, threshold, jax.tree.map(jnp.asarray, fixed))
        small, features, start = bounds._smaller(dual, fixed, names, w)
        at, live = np.argsort(names)[features], ~np.asarray(small.masks().zero)
        assert at.size == 8 and sorted(at[live]) == sorted(own) and (dual.penalised or small.slots() == dual.slots())
        here, whole = point(small, y), point(dual, y)
        np.testing.assert_allclose(here.value, whole.value, rtol=1e-12)
        np.testing.assert_allclose(here.x[live], whole.x[at[live]], rtol=1e-12)
        np.testing.assert_array_equal(start, np.where(live, w[at], 0))
        sizes = [bounds._smaller(dual, Fixed(np.arange(p) >= m, first), names, w)[1].size for m in (8, 9)]
        assert sizes == [8, 16], "where it halves the work"
    kept = dual_of(model, sht.Sparsity(2, keep=[7]))
    assert bounds._smaller(kept, fixed, names, w)[1].size == p


@functools.cache
def solved(loss, intercept, solver):
    def run(X, y, weights, l0, l1, l2, prices):
        model = sht.LinearModel(X, y, cases.LOSSES[loss], l2=l2, sample_weight=weights, fit_intercept=intercept)
        solution = sht.solve(model, sht.L0L1L2(l0, l1, prices=prices), solver, record=None)
        lower = getattr(solution.state, "lower", -jnp.inf)
        no = jnp.zeros(X.shape[1], bool)
        return solution.value, lower, getattr(solution.state, "out", no), getattr(solution.state, "inn", no), solution.x

    return cases.jit(run)


@pytest.mark.parametrize(
    ("solver", "seeds", "share"),
    [
        (sht.solvers.PrimalDual(), SQUARED, 0.75),
        pytest.param(sht.solvers.PrimalDual(), MANY, 0.85, marks=pytest.mark.slow),
        pytest.param(sht.solvers.CDSS(), MANY, 0.85, marks=pytest.mark.slow),
    ],
)
def test_primal_dual_is_safe(solver, seeds, share):
    """And so is CDSS: none is below the optimum, which is found often, and what is bounded and screened is right."""
    optimal = []
    for seed in seeds:
        problem = random_problem(seed)
        best, supports = best_penalised(problem)
        run = solved(problem.loss, problem.intercept, solver)
        value, lower, out, inn, x = jax.device_get(run(*problem[:6], problem.prices))
        assert lower <= best * (1 + 1e-9) and value >= best * (1 - 1e-9)
        for support in supports:
            assert not (out & support).any() and not (inn & ~support).any()
        optimal.append(value <= best * (1 + 1e-7))
        if optimal[-1]:
            assert any(np.array_equal(x != 0, support) for support in supports)
    assert np.mean(optimal) >= share


@cases.jit
def largest_dual(model, threshold):
    return relax(dual_of(model, threshold), 1e-8, max_steps=3000).point.value


@pytest.mark.parametrize(("seeds", "more"), [(SQUARED[:6], 0), pytest.param(range(100), 3, marks=pytest.mark.slow)])
def test_bounds_are_safe_and_at_least_the_dual_optimum(seeds, more):
    """Against exhaustive search, at its value: the bound, and all that is fixed."""
    closed = 0
    for seed in seeds:
        problem = random_problem(seed, P + more * (seed % 3))
        options = {"l2": problem.l2, "sample_weight": problem.weights, "fit_intercept": problem.intercept}
        model = sht.LinearModel(problem.X, problem.y, cases.LOSSES[problem.loss], **options)
        for k in (None, 1 + seed % 3):
            penalised = sht.L0L1L2(problem.l0, problem.l1, prices=problem.prices)
            threshold = penalised if k is None else sht.Sparsity(k, 4)
            best, supports = best_penalised(problem) if k is None else best_sparse(problem, k)
            bounds = sht.lower_bound(model, threshold, best)
            dual = float(largest_dual(model, threshold))
            assert dual - 1e-6 * abs(dual) <= bounds.lower <= best * (1 + 1e-9)
            assert sht.lower_bound(model, threshold, 20 * best).lower >= dual - 1e-6 * abs(dual), "of little data"
            for support in supports:
                assert not support[bounds.zero].any() and support[bounds.nonzero].all()
            closed += best - bounds.lower <= 1e-6 * best
    assert closed, "some bounds are the optimum itself"


def test_a_constant_column_beside_an_intercept_is_in_no_optimum():
    """Its coefficient is zero there, whatever rounding leaves of its mean; a sparse column is not centred."""
    x, noise = np.random.default_rng(0).standard_normal((2, 100))
    y = x + 0.1 * noise + 7
    data = scipy.sparse.csr_array(np.column_stack([np.full(100, 3.3), x]))
    model, threshold = sht.LinearModel(data, y, l2=0.1, fit_intercept=True), sht.L0L1L2(0.01, keep=[0])
    best = (np.var(y) - np.cov(x, y, bias=True)[0, 1] ** 2 / (np.var(x) + 0.1)) / 2 + 0.01
    bounds = sht.lower_bound(model, threshold, best)
    assert bounds.lower <= best * (1 + 1e-9) and 0 not in bounds.nonzero
