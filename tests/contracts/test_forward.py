"""ForwardSelection and FoBa against greedy searches written out in NumPy."""

import itertools
from types import SimpleNamespace

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact import Loss
from scipy.optimize import nnls

import sparsehtp as sht
from sparsehtp import _solve
from sparsehtp.results import FIRED, RESULTS
from sparsehtp.solvers import foba

pytestmark = pytest.mark.usefixtures("x64")

# One shape, one k_max and one kept feature throughout, so that few programs are compiled.
N, P, K_MAX, KEEP, L2 = 40, 9, 8, 5, 0.05
OFFSET = 0.3 * np.sin(np.arange(N))
GREEDY = pytest.mark.parametrize("name", ["forward", "foba"])


def problem(loss="squared", seed=0, rho=0.8):
    """AR(rho) columns of different scales and means, and weights."""
    rng = np.random.default_rng(seed)
    X = cases.chained(rng.standard_normal((N, P)), rho)
    eta = 0.6 * (X[:, 1] - X[:, 4] + 0.5 * X[:, 7])
    y = cases.LOSSES[loss].draw_targets(eta, rng)
    return X * np.geomspace(0.5, 2, P) + 0.3, y, rng.uniform(0.5, 2, N)


def superfluous(loss, seed):
    """Features 0 and 8 are nearly the sums of two others that matter, so they are taken first, and then not needed."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P))
    X[:, 0] = X[:, 1] + X[:, 2] + 0.9 * X[:, 0]
    X[:, 8] = X[:, 3] - X[:, 4] + 0.9 * X[:, 8]
    y = X[:, 1] + X[:, 2] + 0.6 * (X[:, 3] - X[:, 4]) + 0.1 * rng.standard_normal(N)
    if loss == "logistic":
        y = np.where(2 * y + rng.logistic(size=N) > 0, 1.0, -1.0)
    return X * np.geomspace(0.5, 2, P) + 0.3, y, rng.uniform(0.5, 2, N)


def model(loss, X, y, weights, l2=L2, offset=OFFSET):
    return sht.LinearModel(X, y, cases.LOSSES[loss], l2, weights, True, True, offset)


@cases.jit
def found(solver, objective, threshold):
    return solver.path(objective, threshold.bind(objective), jax.random.key(0))


def path(solver, objective, k=K_MAX):
    return found(solver, objective, sht.Sparsity(k, k_max=K_MAX, keep=[KEEP]))


def solve(solver, objective, k, **rest):
    return sht.solve(objective, sht.Sparsity(k, k_max=K_MAX, keep=[KEEP]), solver, **rest)


def features(trail, k):
    """The support of one row, in its order, without the intercept."""
    return list(np.asarray(trail.support.idx[k])[np.asarray(trail.support.mask[k])][1:])


class Reference:
    """The weighted loss of standardised columns with its refit on a support, by Newton's method."""

    def __init__(self, loss, X, y, weights, l2=L2):
        self.loss, self.y, self.s, self.l2 = loss, y, weights / weights.sum(), l2
        centred = X - self.s @ X
        self.X = centred / np.sqrt(self.s @ centred**2)

    def pieces(self, eta):
        """Loss, and its first two derivatives."""
        value, _, first, second, _ = Loss(self.loss, 1.0).parts(eta + OFFSET, self.y)
        return value, first, second

    def value(self, eta, w):
        return self.s @ self.pieces(eta)[0] + self.l2 / 2 * w @ w

    def fit(self, S):
        A, ridge = np.column_stack([np.ones(N), self.X[:, S]]), self.l2 * np.array([0.0] + [1.0] * len(S))
        z = np.zeros(len(S) + 1)
        for _ in range(30):
            _, first, second = self.pieces(A @ z)
            z -= np.linalg.solve((A.T * (self.s * second)) @ A + np.diag(ridge), A.T @ (self.s * first) + ridge * z)
        return z, self.value(A @ z, z[1:])

    def scores(self, S, rule):
        """Decreases of F from one more feature, or |gradient|: brute force for "ols" and squares, else second order."""
        z, value = self.fit(S)
        eta = z[0] + self.X[:, S] @ z[1:]
        _, first, second = self.pieces(eta)
        h, out = self.s * second, np.full(P, -np.inf)
        B = np.column_stack([np.ones(N), self.X[:, S if rule == "ols" else []]])
        H = (B.T * h) @ B + self.l2 * np.diag([0.0] + [1.0] * (B.shape[1] - 1))
        for j in set(range(P)) - set(S):
            x = self.X[:, j]
            if rule == "ols" and self.loss == "squared":
                out[j] = value - self.fit([*S, j])[1]
                continue
            if rule == "gradient":
                out[j] = abs(x @ (self.s * first))
                continue
            c = B.T @ (h * x)
            out[j] = (x @ (self.s * first)) ** 2 / (h @ x**2 + self.l2 - c @ np.linalg.solve(H, c)) / 2
        return out

    def forward(self, rule):
        S, values = [KEEP], [self.fit([KEEP])[1]]
        for _ in range(K_MAX):
            S = [*S, int(np.argmax(self.scores(S, rule)))]
            values.append(self.fit(S)[1])
        return S, values

    def foba(self, k, epsilon=0.0, ratio=0.5):
        """The last support, the least value met with at most each size, how many were given back, and steps."""
        S, gains, dropped, steps, best = [KEEP], [], 0, 0, np.full(k + 1, np.inf)

        def met():
            best[len(gains)] = min(best[len(gains)], self.fit(S)[1])

        met()
        while len(gains) < k:
            new = [*S, int(np.argmax(self.scores(S, "omp")))]
            gain, steps = self.fit(S)[1] - self.fit(new)[1], steps + 1
            if gain <= epsilon:
                break
            S, gains = new, [*gains, gain]
            met()
            while gains:
                z, value = self.fit(S)
                eta = z[0] + self.X[:, S] @ z[1:]
                h = self.s * self.pieces(eta)[2]
                costs = []
                for i in range(1, len(S)):
                    x, w = self.X[:, S[i]], np.delete(z[1:], i)
                    costs.append(self.value(eta - z[1 + i] * (x - h @ x / h.sum()), w) - value)
                if min(costs) > ratio * gains[-1]:
                    break
                S, gains, dropped = np.delete(S, 1 + np.argmin(costs)).tolist(), gains[:-1], dropped + 1
                met()
        return S, np.minimum.accumulate(best), dropped, steps


@pytest.mark.parametrize(
    ("rule", "loss"),
    [*itertools.product(("ols", "omp", "gradient"), ("squared", "logistic")), ("omp", "poisson")],
)
def test_forward_takes_the_features_of_the_reference(rule, loss):
    for seed in range(3):
        data = problem(loss, seed)
        order, values = Reference(loss, *data).forward(rule)
        trail = path(sht.solvers.ForwardSelection(rule), model(loss, *data))
        for k in range(K_MAX + 1):
            assert features(trail, k) == order[: 1 + k], "supports are nested, in the order of the reference"
        np.testing.assert_allclose(trail.value, values, rtol=1e-9)
        assert np.all(np.diff(trail.value) <= 0) and np.all(trail.result == RESULTS.converged)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_foba_takes_the_features_of_the_reference(loss):
    given_back = 0
    for seed in (2, 8, 11):  # where what an older size was worth decides
        X, y, weights = superfluous(loss, seed)
        for epsilon, ratio in ((0.0, 0.5), (3e-3, 0.9)):
            chosen, best, dropped, steps = Reference(loss, X, y, weights, 1e-3).foba(7, epsilon, ratio)
            given_back += dropped
            objective, solver = model(loss, X, y, weights, 1e-3), sht.solvers.FoBa(epsilon, ratio)
            trail = path(solver, objective, k=7)
            np.testing.assert_allclose(trail.value[:8], best, rtol=1e-9)
            if loss == "squared":
                solution = solve(solver, objective, 7)
                np.testing.assert_array_equal(cases.members(solution.support), np.sort(chosen))
                assert solution.num_steps == steps
    assert given_back > 2, "features are given back, or this test shows little"


def test_units_of_columns_change_no_choice():
    X, y, _ = superfluous("squared", 2)
    units = 4.0 ** (np.arange(P) % 5 - 2)
    one, other = (path(sht.solvers.FoBa(), sht.LinearModel(Z, y, fit_intercept=True)) for Z in (X, units * X))
    np.testing.assert_array_equal(one.support.idx, other.support.idx)
    np.testing.assert_allclose(one.value, other.value, rtol=1e-9)


@GREEDY
def test_rows_of_a_path_and_a_batch_are_the_solutions_for_every_k(name):
    solver = cases.GREEDY_SOLVERS[name]
    data = problem(seed=1) if name == "forward" else superfluous("squared", 0)
    objective = model("squared", *data, L2 if name == "forward" else 1e-3)
    trail, batch = path(solver, objective), jax.vmap(lambda k: solve(solver, objective, k))(jnp.arange(K_MAX + 1))
    np.testing.assert_array_equal(batch.result, RESULTS.converged)
    np.testing.assert_array_equal(batch.fired, FIRED.Complete)
    assert np.all(np.asarray(batch.history.design_products) == np.asarray(batch.history.step_size)), "one a step"
    solve(solver, objective, 1)
    programs = len(_solve._solution.compiled)
    for k in range(K_MAX + 1):
        one = solve(solver, objective, k)
        np.testing.assert_allclose(batch.x[k], one.x, atol=1e-10)
        assert batch.num_steps[k] == one.num_steps
        assert trail.value[k] <= one.value * (1 + 1e-10), "a path may meet a better support on its way"
        if name == "forward":
            x = (batch.x[k] * objective.internal_scale())[np.array(features(trail, k))]
            np.testing.assert_allclose(trail.z[k][1 : 2 + k], x, rtol=1e-9)
            values = trail.value[1 : k + 1] if k else batch.value[:1]
            np.testing.assert_allclose(batch.history.value[k, : k or 1], values)
    assert len(_solve._solution.compiled) == programs, "one program serves every k"


@GREEDY
def test_rows_past_k_repeat(name):
    objective = model("squared", *problem(seed=2))
    short, full = (path(cases.GREEDY_SOLVERS[name], objective, k) for k in (3, K_MAX))
    for k in range(3, K_MAX + 1):
        assert features(short, k) == features(short, 3)
        assert short.value[k] == short.value[3]
    if name == "forward":
        np.testing.assert_allclose(short.value[:4], full.value[:4], rtol=1e-12)


def test_a_path_that_is_cut_short_has_not_converged(monkeypatch):
    """It ends after so many additions."""
    monkeypatch.setattr(foba, "MAX_STEPS", 2)
    objective = model("squared", *problem(seed=2))
    bound, full = sht.Sparsity(K_MAX, keep=[KEEP]).bind(objective), path(sht.solvers.FoBa(), objective).value
    short = cases.jit(lambda: sht.solvers.FoBa().path(objective, bound, None))()
    np.testing.assert_allclose(short.value, [*full[:3], *[full[2]] * 6], rtol=1e-12)
    np.testing.assert_array_equal(short.result, RESULTS.max_steps)


def test_products_of_a_step():
    """Of a loss: a gradient, the curvatures, and with "ols" one of each place of the support beside."""
    objective = model("logistic", *problem("logistic"))
    bound = sht.Sparsity(1, k_max=1, keep=[KEEP]).bind(objective)  # beside an intercept and a kept feature

    @cases.jit
    def products(solver):
        return solver.step(objective, bound, solver.init(objective, bound, None, None), 0)[1].design_products

    for solver, number in ((sht.solvers.ForwardSelection(), 2 + 3), (sht.solvers.FoBa(), 2)):
        assert products(solver) == number


def test_nonnegative_coefficients():
    X, y, weights = problem(seed=5)
    root, S, values = np.sqrt(weights / weights.sum()), [], []
    curvature = root**2 @ (X - weights @ X / weights.sum()) ** 2 + L2
    for _ in range(4):
        A = np.column_stack([np.ones(N), -np.ones(N), X[:, S]])  # an intercept of either sign
        z, norm = nnls(
            np.vstack([root[:, None] * A, np.sqrt(L2) * np.eye(A.shape[1])[2:]]), np.append(root * y, 0 * A[0, 2:])
        )
        values.append(norm**2 / 2)
        scores = np.maximum(X.T @ (root**2 * (y - A @ z)), 0) ** 2 / curvature
        scores[S] = -1
        S = [*S, int(np.argmax(scores))]
    threshold = sht.Sparsity(3, k_max=4, lower=0)
    objective = sht.LinearModel(X, y, l2=L2, sample_weight=weights, fit_intercept=True)
    trail = found(sht.solvers.ForwardSelection("omp"), objective, threshold)
    assert features(trail, 3) == S[:3] and np.all(trail.z[:, 1:] >= 0)
    np.testing.assert_allclose(trail.value[:4], values, rtol=1e-7)


def test_dependent_features_are_left_out_or_reported():
    for loss, rule in (("squared", "ols"), ("squared", "omp"), ("logistic", "ols"), ("poisson", "omp")):
        X, y, weights = problem(loss)
        X[:, 3] = X[:, KEEP]
        objective = sht.LinearModel(X, y, cases.LOSSES[loss], l2=0.0, sample_weight=weights, fit_intercept=True)
        trail = path(sht.solvers.ForwardSelection(rule), objective)
        assert np.isfinite(trail.value).all() and np.isfinite(trail.z).all()
        assert np.all(trail.result[:8] == RESULTS.converged)
        # The eighth feature is a copy: refused, or taken with a word, it lowers nothing.
        np.testing.assert_allclose(trail.value[8], trail.value[7], rtol=1e-6)
        assert (features(trail, 8) == features(trail, 7)) == (trail.result[8] == RESULTS.converged)
    objective = model("squared", np.zeros((N, P)), problem()[1], np.ones(N), 0.0)
    solution = solve(sht.solvers.FoBa(), objective, 3)
    assert int(solution.result) == RESULTS.converged and not np.any(solution.x)
    trail = path(sht.solvers.ForwardSelection(), objective)
    assert features(trail, 3) == [KEEP] and not np.any(trail.z[:, 1:])


def test_rounding_that_a_fit_leaves_takes_in_no_feature():
    """FoBa ends with the features that explain all, though it may have more and each lowers the rest by something."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((N, P)) + 3
        y = X[:, [1, 4, KEEP]] @ rng.uniform(1, 2, 3) + 1e3
        trail = path(sht.solvers.FoBa(), model("squared", X, y, np.ones(N), 0.0, np.zeros(N)))
        assert sorted(features(trail, K_MAX)) == [1, 4, KEEP] and trail.result[K_MAX] == RESULTS.converged
    below, above = (sht.solvers.FoBa()._gains(sht.Sparsity(1, k_max=1), jnp.asarray(F)).least for F in (-2.0, 2.0))
    assert below == above > 0, "also of a form below zero"


def test_what_they_do_not_take():
    X, y, weights = problem()
    objective = model("squared", X, y, weights)
    cases.refused(ValueError, "rule: ", lambda: sht.solvers.ForwardSelection("best"))
    wide, least, omp = sht.LinearModel(np.zeros((2, 2**15)), np.ones(2)), sht.solvers.ForwardSelection(), "omp"
    for solver, k in ((least, 2**13), (sht.solvers.ForwardSelection(omp), 2**13 + 1)):
        solver.check(wide, sht.Sparsity(k))
    cases.refused(ValueError, "k: .*over 2 GiB", lambda: least.check(wide, sht.Sparsity(2**13 + 1)))
    cases.refused(ValueError, "epsilon: ", lambda: sht.solvers.FoBa(epsilon=-1.0))
    cases.refused(ValueError, "backward_ratio: ", lambda: sht.solvers.FoBa(backward_ratio=1.0))
    cases.refused(
        TypeError, "bounds", lambda: sht.solve(objective, sht.Sparsity(2, upper=1.0), sht.solvers.ForwardSelection())
    )


def test_what_cannot_be_removed_does_not_hide_what_can():
    """Where a value without a feature is outside a loss's domain, infinite or NaN."""
    without = jnp.array([0.0, np.nan, 5.0, 3.5, np.inf, -9.0])  # an intercept, four features, padding
    objective = SimpleNamespace(n_free=1, restrict=lambda _: SimpleNamespace(without_each=lambda *_: without))
    state = SimpleNamespace(
        x=jnp.ones(9),
        support=sht.results.Support(jnp.array([8, 1, 3, 5, 7, 0]), jnp.arange(6) < 5),
        value=3.0,
        size=4,
        memory=SimpleNamespace(by_size=jnp.full(6, 1.0)),
        complete=jnp.zeros((), bool),
    )
    threshold = SimpleNamespace(keep=np.zeros(0, int))
    position, superfluous = sht.solvers.FoBa()._weakest(objective, threshold, state)
    assert (int(position), bool(superfluous)) == (3, True)
