"""What every stochastic solver promises, against NumPy and against `IHT`."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csr_array

import sparsehtp as sht
from sparsehtp.results import RESULTS
from sparsehtp.solvers import stochastic
from sparsehtp.solvers.stochastic import draw, permuted
from sparsehtp.steps.sample import usual_batch

pytestmark = pytest.mark.usefixtures("x64")


def named(*quick, among=tuple(cases.STOCHASTIC_SOLVERS)):
    """All solvers; those that are not named here run slowly."""
    return pytest.mark.parametrize(
        "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in quick)) for n in among]
    )


N, P, K = 40, 12, 3
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, P)) * RNG.uniform(0.5, 2, P) + RNG.standard_normal(P)
W = np.where(np.arange(P) < K, [1.5, -2.0, 1.0] + [0.0] * (P - 3), 0)
Y = X @ W + 0.3 * RNG.standard_normal(N)
LABELS = np.where(Y > np.median(Y), 1.0, -1.0)
WEIGHTS = RNG.integers(0, 4, N).astype(float)
KEY = jax.random.key(7)
NEVER = sht.stopping.Never()


def model(loss="squared", **options):
    y = LABELS if cases.LOSSES[loss].classification else Y
    return sht.LinearModel(X, y, cases.LOSSES[loss], **{"l2": 0.1, **options})


FULL = dict(
    sample_weight=WEIGHTS,
    fit_intercept=True,
    standardize=True,
    l2=np.linspace(0, 0.3, P),
    offset=RNG.standard_normal(N),
)


def run(solver, steps=5, key=KEY, objective=None, k=K, **rest):
    """All share shapes and k_max, so that a solver is compiled once per number of steps."""
    objective = model() if objective is None else objective
    return sht.solve(
        objective, sht.Sparsity(k, 4), solver, key=key, max_steps=steps, termination=NEVER, throw=False, **rest
    )


# --- samples ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [{}, FULL], ids=["plain", "full"])
def test_sample_smoothness_is_the_largest_row(options):
    objective = model("logistic", **options)
    A = X
    s = np.ones(N)
    if options:
        s = WEIGHTS * N / WEIGHTS.sum()
        mean = s @ X / N
        A = np.column_stack([(X - mean) / np.sqrt(s @ (X - mean) ** 2 / N), np.ones(N)])
    largest = (s * np.sum(A**2, 1)).max() / 4 + np.max(options.get("l2", 0.1))
    np.testing.assert_allclose(objective.sample_smoothness(), largest, rtol=1e-10)
    np.testing.assert_allclose(sht.steps.SampleStep(0.5).init(objective), 0.5 / largest, rtol=1e-10)
    for b in (N, 3 * N):  # no batch has more samples than there are
        np.testing.assert_allclose(sht.steps.SampleStep(1.0, b).init(objective), 1 / objective.lipschitz(), rtol=1e-10)
    np.testing.assert_allclose(sht.steps.ConstantStep(scale=0.5).init(objective), 0.5 / objective.lipschitz())
    tiny = sht.LinearModel(X * [*[1] * (P - 1), 1e-60], np.sign(Y), sht.losses.Logistic(), **{"l2": 0.1, **options})
    assert tiny.sample_smoothness() >= (1 - 1e-6) * tiny.lipschitz(), "a mean is no steeper than its steepest term"
    for b in (2, 4):
        mixed = (N * (b - 1) * objective.lipschitz() + (N - b) * largest) / (b * (N - 1))
        np.testing.assert_allclose(sht.steps.SampleStep(1.0, b).init(objective), 1 / mixed, rtol=1e-9)


def test_the_step_with_a_batch_covers_every_batch_in_expectation():
    # E ||g_B(x) - g_B(x*)||^2 <= 2 L(b) (F(x) - F(x*)) at the minimiser x*, all batches of two enumerated.
    objective = sht.LinearModel(X[:8], Y[:8], l2=0.1)
    best = jnp.asarray(np.linalg.solve(X[:8].T @ X[:8] / 8 + 0.1 * np.eye(P), X[:8].T @ Y[:8] / 8))
    pairs = jnp.asarray(np.array(np.triu_indices(8, 1)).T)
    bound = 1 / sht.steps.SampleStep(1.0, 2).init(objective)

    @cases.jit
    def both(x):
        noise = jax.vmap(lambda i: objective.sample_grad(x, i) - objective.sample_grad(best, i))(pairs)
        return noise, objective.value(x) - objective.value(best)

    for seed in range(5):
        noise, gap = both(best + np.random.default_rng(seed).standard_normal(P))
        assert np.mean(np.sum(np.asarray(noise) ** 2, 1)) <= 2 * bound * gap * (1 + 1e-9)


@pytest.mark.parametrize("replacement", [True, False])
def test_draws(replacement):
    batches = np.asarray(draw(KEY, 10, 3, 7, replacement))
    assert batches.shape == (7, 3) and batches.dtype == np.int32 and batches.min() >= 0 and batches.max() < 10
    if not replacement:
        assert all(np.unique(batch).size == 3 for batch in batches)
        assert np.unique(batches[:3]).size == 9, "a pass meets no sample twice"
    np.testing.assert_array_equal(batches, draw(KEY, 10, 3, 7, replacement))
    many = np.asarray(draw(KEY, 10, 3, 3000, replacement))
    counts = np.bincount(many.ravel(), minlength=10)
    assert np.abs(counts - 900).max() < 5 * np.sqrt(900), "uniform"


def test_batches_of_an_epoch(monkeypatch):
    """Their size, their number, and whether a sample may come again: as it is said by default."""
    drawn, objective, bound, x0 = [], model(), sht.Sparsity(K).bind(model()), jnp.zeros(P)
    svrg, saga = sht.solvers.SVRGHT, sht.solvers.SAGAHT
    monkeypatch.setattr(stochastic, "draw", lambda key, n, *batches: drawn.append(batches) or draw(key, n, *batches))
    for kind, *batches in ((svrg, 3, 40, True), (saga, 1, N, True), (saga, 3, 13, False)):
        solver = kind(sht.steps.ConstantStep(0.1), batch_size=batches[0])
        jax.eval_shape(lambda s=solver: s.step(objective, bound, s.init(objective, bound, x0, KEY), 0))
        assert drawn.pop() == tuple(batches)


def test_hybrid_batches_are_marginally_uniform():
    solver = sht.solvers.HybridHT(growth=1.5)
    keys = jax.random.split(jax.random.key(3), 400)
    counts = np.bincount(np.concatenate([solver.draws(key, 20, 4) for key in keys]), minlength=20)
    expected = counts.sum() / 20
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


# --- laws ------------------------------------------------------------------------------------------------------------
CONVERGENT = tuple(name for name in cases.STOCHASTIC_SOLVERS if "stochastic" not in name)


@named("svrg", "saga_batch", among=CONVERGENT)
def test_variance_reduced_solvers_reach_the_restricted_minimiser(name):
    objective = model(fit_intercept=True, standardize=True)
    solution = sht.solve(objective, sht.Sparsity(K, 4), cases.STOCHASTIC_SOLVERS[name], max_steps=3000)
    assert int(solution.result) == RESULTS.converged, solution.describe()
    support = cases.members(solution.support)
    if "hybrid" not in name:  # one sample at a time, at the start, leads it anywhere
        np.testing.assert_array_equal(support, np.arange(K))
    sd = X[:, support].std(0)
    A = (X[:, support] - X[:, support].mean(0)) / sd
    w = np.linalg.solve(A.T @ A / N + 0.1 * np.eye(K), A.T @ (Y - Y.mean()) / N) / sd
    np.testing.assert_allclose(np.asarray(solution.x)[support], w, rtol=1e-6)
    np.testing.assert_allclose(solution.intercept, Y.mean() - X[:, support].mean(0) @ w, rtol=1e-6)


@named("stochastic_batch", "svrg_random", "hybrid_momentum")
def test_keys(name):
    solver = cases.STOCHASTIC_SOLVERS[name]
    objective = model("logistic", fit_intercept=True)
    keys = jax.random.split(jax.random.key(2), 3)
    batch = jax.vmap(lambda key: run(solver, 3, key, objective))(keys)
    assert len({float(value) for value in batch.value}) == 3, "keys matter"
    np.testing.assert_array_equal(jax.random.key_data(batch.key), jax.random.key_data(keys))
    for i, key in enumerate(keys):
        single = run(solver, 3, key, objective)
        np.testing.assert_allclose(batch.x[i], single.x, atol=1e-12)
        for field in ("value", "ifo", "hard_thresholds", "support_size"):
            np.testing.assert_allclose(np.asarray(getattr(batch.history, field))[i], getattr(single.history, field))
        np.testing.assert_array_equal(run(solver, 3, key, objective).x, single.x)


def test_theory():
    objective = model()
    L, alpha = float(objective.sample_smoothness()), 0.5
    solver, k = sht.solvers.SVRGHT.theory(objective, 2, alpha)
    c = L / alpha
    assert k == int(np.ceil(16 * c * (8 * c - 1))) and solver.inner_steps == int(np.ceil(4 * (8 * c - 1)))
    assert solver.random_iterate and solver.batch_size == 1
    assert solver.step_rule.init(objective) == pytest.approx(1 / (8 * L))
    flat = sht.solvers.SVRGHT.theory(objective, 2, 2 * L)
    assert flat[0].inner_steps == 28 and flat[1] == 112, "no condition number is below one"
    for kind in (sht.solvers.SVRGHT, sht.solvers.HybridHT):
        cases.refused(ValueError, "strong_convexity: ", lambda kind=kind: kind.theory(objective, 2, 0.0))
    root = c**0.5
    for theorem, step, factor, decay, momentum in (
        (1, 1 / (6 * L), 1 + 712 * c**2, 1 - 1 / (480 * c), 0),
        (2, 1 / (2 * L), 1 + 64 * c**2, 1 - 1 / (16 * c), 0),
        (3, 4 / (L**0.5 + alpha**0.5) ** 2, 1 + 16 * c, (1 - 1 / (18 * root)) ** 2, ((root - 1) / (root + 1)) ** 2),
    ):
        solver, k = sht.solvers.HybridHT.theory(objective, 2, alpha, theorem, first=3.0)
        assert k == int(np.ceil(2 * factor)) and solver.first == 3 and solver.momentum == pytest.approx(momentum)
        assert solver.step_rule.init(objective) == pytest.approx(step)
        assert solver.growth == pytest.approx(1 / decay, rel=1e-12)
    assert sht.solvers.HybridHT.theory(objective, 2, alpha)[0].growth == 1 / (1 - 1 / (16 * c))
    assert sht.solvers.HybridHT.theory(objective, 2, 2 * L, 2)[1] == 2 * 65


def test_tuned_steps():
    objective = model()
    search = sht.tune_step(objective, sht.Sparsity(K, 4), sht.solvers.SVRGHT(), [1e-4, 0.02, 1e3], max_steps=2, key=KEY)
    assert search.best == 1 and search.values[2] == np.inf and search.solver.step_rule.size == 0.02
    for size, value in zip(search.sizes[:2], search.values, strict=False):
        assert run(sht.solvers.SVRGHT(sht.steps.ConstantStep(size)), 2).value == pytest.approx(value, rel=1e-9)
    cases.refused(TypeError, "no step", lambda: sht.tune_step(objective, sht.Sparsity(K, 4), sht.solvers.BestSubset()))


def test_bad_arguments():
    cases.refused(ValueError, "searches", lambda: sht.solvers.SVRGHT(sht.steps.NormalisedStep()))
    cases.refused(ValueError, "replacement", lambda: sht.solvers.SAGAHT(batch_size=2, replacement=True))
    cases.refused(ValueError, "growth", lambda: sht.solvers.HybridHT(growth=1.0))
    cases.refused(ValueError, "growth", lambda: run(sht.solvers.HybridHT(growth=1 + 1e-9)))
    cases.refused(ValueError, "momentum", lambda: sht.solvers.HybridHT(momentum=1.0))
    cases.refused(ValueError, "batch_size", lambda: run(sht.solvers.StochasticHT(batch_size=N + 1)))
    sht.solvers.StochasticHT(batch_size=N).check(model(), sht.Sparsity(K))
    cases.refused(ValueError, "radius", lambda: sht.solvers.SVRGHT(radius=0.0))
    form, samples = sht.QuadraticForm(np.eye(P), np.ones(P)), "takes CustomSum, LinearModel, MultiResponse, not Quad"
    cases.refused(TypeError, samples, lambda: run(sht.solvers.SVRGHT(), objective=form))
    cases.refused(TypeError, "samples", lambda: run(sht.solvers.IHT(sht.steps.SampleStep()), objective=form))


# --- many samples ----------------------------------------------------------------------------------------------------
MANY = 6000
TALL = np.random.default_rng(5).standard_normal((MANY, P)) * np.linspace(0.5, 2, P)


def test_many_samples_are_permuted_without_sorting():
    permutations = np.asarray(jax.vmap(permuted, (0, None))(jax.random.split(KEY, 60), MANY))
    np.testing.assert_array_equal(np.sort(permutations, 1), np.tile(np.arange(MANY), (60, 1)))
    assert np.unique(permutations[:, 0]).size > 50, "keys matter"
    batch = permutations // 100  # of 60 places in turn; every number is in each equally often
    assert np.abs(np.bincount(batch[:, :1000].ravel(), minlength=60) - 1000).max() < 5 * np.sqrt(1000)
    place = np.argsort(permutations, 1) // 100
    together = (place[:, 1:] == place[:, :-1]).mean()  # neighbours are in one batch as often as others
    assert abs(together - 99 / (MANY - 1)) < 5 * np.sqrt(0.0165 / (60 * MANY))


HEAVY = {
    "plain": (TALL, None),
    "log-normal": (np.exp(2 * TALL), None),
    "a rare column": (np.where(np.arange(MANY)[:, None] % 400 == 7, TALL + 100 * (np.arange(P) == 3), TALL), None),
    "weights": (TALL, np.where(np.arange(MANY) % 3, 10.0 ** np.random.default_rng(6).uniform(-4, 0, MANY), 0)),
}


@pytest.mark.parametrize("form", [np.asarray, csr_array])
@pytest.mark.parametrize("name", HEAVY)
def test_the_smoothness_of_some_samples_is_about_that_of_all(name, form):
    rows, weights = HEAVY[name]
    weights = np.ones(MANY) if weights is None else weights
    rows = np.where(weights[:, None] > 0, rows, 1e3)  # those without weight do not count
    model = sht.LinearModel(form(rows), np.zeros(MANY), l2=0.1, sample_weight=weights)
    share = weights / weights.sum()
    whole = np.linalg.eigvalsh((rows.T * share) @ rows)[-1] + 0.1
    largest, rough = model.smoothness()
    np.testing.assert_allclose(largest, np.max(MANY * share * np.sum(rows**2, 1)) + 0.1, rtol=1e-10)
    np.testing.assert_allclose(rough, whole, rtol=0.3)
    assert model.smoothness_ifo <= 11 * MANY


def test_steps_with_all_samples_and_with_one_are_finite():
    one = sht.LinearModel(np.full((1, P), 2.0), np.array([4.0]), l2=0.1)
    np.testing.assert_allclose(sht.steps.SampleStep(0.5).init(one) * one.lipschitz(), 0.5, rtol=1e-6)
    rows, _ = HEAVY["a rare column"]
    heavy = sht.LinearModel(rows, rows[:, 0] - rows[:, 3], l2=0.1)
    values = np.asarray(run(sht.solvers.HybridHT(growth=1.2), 20, objective=heavy).history.value)
    assert np.isfinite(values).all() and values[-1] < values[0]


def test_the_step_is_counted_and_batches_grow_with_the_samples():
    objective = sht.LinearModel(TALL, TALL[:, 0], l2=0.1)
    solution = run(sht.solvers.StochasticHT(), 2, objective=objective)
    b = MANY // 256
    assert MANY < objective.smoothness_ifo < 2 * MANY
    np.testing.assert_array_equal(solution.history.ifo, MANY // b * b + np.array([objective.smoothness_ifo, 0]))
    np.testing.assert_array_equal(solution.history.hard_thresholds, MANY // b)
    size = sht.steps.SampleStep(0.5, b).init(objective)
    np.testing.assert_allclose(solution.history.step_size, size)


def test_sizes_of_batches():
    for (n, p), size in {(40, 5): 1, (6000, 12): 23, (10**6, 2000): 256, (10**6, 100): 1310, (10**5, 100): 390}.items():
        assert usual_batch(n, p) == size, "n // 256, at least 1 and at most 256 or 2^17 / p, whichever is more"
    for growth, first, iterations in ((1.5, 1.0, 3), (1.2, 4.5, 2), (2.0, 1.0, 4), (1.3, 700.0, 1), (1.1, 50.0, 2)):
        sizes, starts, branch, widths = sht.solvers.HybridHT(None, 0.0, growth, first, iterations).batches(60)
        expected = [min(60, int(np.ceil(first * growth**t - 1e-9))) for t in range(len(sizes))]
        np.testing.assert_array_equal(sizes, expected)
        assert (sizes == 60).sum() == 1 and sizes[-1] == 60, "from then on it is the full gradient"
        for t, (size, start, width) in enumerate(zip(sizes, starts, np.array(widths)[branch], strict=True)):
            assert start == sum(expected[t - t % iterations : t]) % 60 and size <= width < max(2 * size, 2)
            assert width == 60 if size == 60 else width == 59 or width & (width - 1) == 0


def test_a_hybrid_with_all_samples_is_iht_with_the_smoothness_of_all():
    objective = model(fit_intercept=True)
    ours = run(sht.solvers.HybridHT(first=N, iterations=1), 4, objective=objective)
    size = 0.5 / objective.lipschitz()
    theirs = run(sht.solvers.IHT(sht.steps.ConstantStep(size)), 4, objective=objective)
    np.testing.assert_allclose(ours.history.value, theirs.history.value, rtol=1e-9)
    np.testing.assert_allclose(ours.history.step_size, size)
    # the smoothness of one sample, and that of all for the others
    np.testing.assert_array_equal(ours.history.ifo, N + np.array([N + objective.smoothness_ifo, 0, 0, 0]))


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_defaults_reach_the_value_of_htp(loss):
    """In a few epochs on columns of one scale, where no step is needed."""
    rng = np.random.default_rng(3)
    A = rng.standard_normal((3000, 20))
    eta = A[:, :K] @ [1.5, -2.0, 1.0]
    y = eta + rng.standard_normal(3000) if loss == "squared" else np.where(eta + rng.logistic(size=3000) > 0, 1.0, -1.0)
    objective = sht.LinearModel(A, y, cases.LOSSES[loss], l2=0.01)
    best = float(sht.solve(objective, sht.Sparsity(K, 4), sht.solvers.HTP()).value)
    for solver in (sht.solvers.StochasticHT(), sht.solvers.SVRGHT(), sht.solvers.SAGAHT(), sht.solvers.SDIHT()):
        found = run(solver, 12, objective=objective)
        assert float(found.value) < best * 1.01, type(solver).__name__
    found = run(sht.solvers.HybridHT(), 25, objective=objective)
    assert float(found.value) < best * 1.01
