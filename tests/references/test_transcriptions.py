"""Every solver whose iterates follow from a formula, against that formula in NumPy, iterate by iterate.

One problem has all that a formula can leave out: weights of which some are zero, an offset, columns of other scales and
means that are standardised, an intercept, l2 that differs by feature, a kept feature, and a start other than zero.
"""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.solvers.stochastic import draw

pytestmark = pytest.mark.usefixtures("x64")

N, P, K, KEPT, STEPS = 15, 7, 2, 5, 4
KEY = jax.random.key(7)
RNG = np.random.default_rng(17)
X = RNG.standard_normal((N, P)) @ RNG.standard_normal((P, P)) + RNG.uniform(-2, 2, P)
OFFSET, L2 = 0.5 * RNG.standard_normal(N), RNG.uniform(0.05, 0.2, P)
Y = X @ np.where(np.arange(P) < 3, 0.5, 0) + RNG.standard_normal(N) + 0.5
WEIGHTS = np.append([0.0, 0.0], RNG.uniform(0.5, 2, N - 2))
OMEGA = WEIGHTS / WEIGHTS.sum()
CENTRED = X - OMEGA @ X
A = np.column_stack([CENTRED / np.sqrt(OMEGA @ CENTRED**2), np.ones(N)])  # in the solver's units
RIDGE = np.append(L2, 0)
START = 0.3 * RNG.standard_normal(P + 1)


class Numpy:
    """F with the squared or the logistic loss, in the solver's units."""

    def __init__(self, logistic):
        self.logistic, self.y = logistic, np.where(Y > np.median(Y), 1.0, -1.0) if logistic else Y
        loss = sht.losses.Logistic() if logistic else sht.losses.Squared()
        self.model = sht.LinearModel(X, self.y, loss, L2, WEIGHTS, fit_intercept=True, standardize=True, offset=OFFSET)

    def value(self, x):
        eta = A @ x + OFFSET
        each = np.logaddexp(0, -self.y * eta) if self.logistic else 0.5 * (eta - self.y) ** 2
        return OMEGA @ each + 0.5 * RIDGE @ x**2

    def scores(self, x):
        """N s_i / W times the derivative of the loss at every row."""
        eta = A @ x + OFFSET
        return N * OMEGA * (-self.y / (1 + np.exp(self.y * eta)) if self.logistic else eta - self.y)

    def grad(self, x, rows=np.arange(N)):  # noqa: B008
        return A[rows].T @ self.scores(x)[rows] / len(rows) + RIDGE * x

    def hess(self, x):
        eta = A @ x + OFFSET
        bend = 1 / (2 + 2 * np.cosh(eta)) if self.logistic else np.ones(N)
        return (A.T * (OMEGA * bend)) @ A + np.diag(RIDGE)

    def refit(self, x, S):
        x = np.where(S, x, 0)
        for _ in range(30 if self.logistic else 1):
            x[S] -= np.linalg.solve(self.hess(x)[np.ix_(S, S)], self.grad(x)[S])
        return x

    def newton_size(self, x, g):
        """The exact minimiser along g of the quadratic model."""
        return (g @ g) / (g @ self.hess(x) @ g)


def best(scores, k):
    """The mask of the k best features beside the kept one, the intercept with them."""
    order = [j for j in np.argsort(-np.abs(scores[:P]), kind="stable") if j != KEPT]
    return np.isin(np.arange(P + 1), [*order[:k], KEPT, P])


def top(z):
    return np.where(best(z, K), z, 0)


def iht(f, x, key, *, size, momentum=0.0):
    previous = x
    for _ in range(STEPS):
        x, previous = top(x - size * f.grad(x) + momentum * (x - previous)), x
        yield x, dict(step_size=size, ifo=N, design_products=1, hard_thresholds=1)


def nesterov(f, x, key, *, size, momentum):
    """`momentum` is a function of t = 0, 1, ..."""
    ahead = x
    for t in range(STEPS):
        new = top(ahead - size * f.grad(ahead))
        ahead, x = new + momentum(t) * (new - x), new
        # at the point ahead a forward and a backward product, and a forward one at x
        yield x, dict(step_size=size, ifo=2 * N, design_products=3, hard_thresholds=1)


def searching_iht(f, x, key, *, propose):
    size, S = None, x != 0
    for _ in range(STEPS):
        g, tries = f.grad(x), 1
        size = propose(f, x, np.where(S, g, 0), size)
        while True:
            new = top(x - size * g)
            move = new - x
            if f.value(new) <= f.value(x) + g @ move + move @ move / (2 * size):
                break
            size, tries = size / 2, tries + 1
        x, S = new, best(new, K)
        yield x, dict(step_size=size, ifo=N, design_products=1, hard_thresholds=tries)


def htp(f, x, key):
    for _ in range(STEPS):
        g, tries = f.grad(x), 1
        size = f.newton_size(x, np.where(best(g, K), g, 0))
        while f.value(new := f.refit(x, best(x - size * g, K))) > f.value(x) * (1 + 1e-14):
            size, tries = size / 2, tries + 1
        x = new
        yield x, dict(step_size=size, ifo=N, design_products=1, hard_thresholds=1 + tries)


def pursuit(f, x, key, *, expansion, debias=True):
    for _ in range(STEPS):
        wide = f.refit(x, (x != 0) | best(f.grad(x), expansion * K))
        x = f.refit(wide, best(wide, K)) if debias else top(wide)
        yield x, dict(ifo=N, design_products=1, hard_thresholds=2)


def sgd(f, x, key, *, size, batch):
    for t in range(STEPS):
        for rows in np.asarray(draw(jax.random.fold_in(key, t), N, batch, N // batch, True)):
            x = top(x - size * f.grad(x, rows))
        yield x, dict(ifo=N // batch * batch, hard_thresholds=N // batch)


def svrg(f, x, key, *, size, batch, steps, radius=np.inf, drawn=False):
    for t in range(STEPS):
        batch_key, stop_key = jax.random.split(jax.random.fold_in(key, t))
        stop = int(jax.random.randint(stop_key, (), 0, steps, dtype=jnp.int32)) if drawn else steps
        anchor = x
        for rows in np.asarray(draw(batch_key, N, batch, steps, True))[:stop]:
            x = top(x - size * (f.grad(x, rows) - f.grad(anchor, rows) + f.grad(anchor)))
            x[:P] /= max(1.0, np.linalg.norm(x[:P]) / radius)
        yield x, dict(ifo=N + stop * batch, hard_thresholds=stop)


def saga(f, x, key, *, size, batch):
    table = f.scores(x)
    for t in range(STEPS):
        for rows in np.asarray(draw(jax.random.fold_in(key, t), N, batch, N // batch, False)):
            scores = f.scores(x)[rows]
            g = A[rows].T @ (scores - table[rows]) / batch + A.T @ table / N + RIDGE * x
            table[rows] = scores
            x = top(x - size * g)
        yield x, dict(ifo=N // batch * batch + N * (t == 0), hard_thresholds=N // batch)


def hybrid(f, x, key, *, size, momentum):
    """Batches of 3, 9, and then all 15."""
    previous, solver, sizes = x, METHODS["hybrid"][1], [3, 9, 15, 15, 15, 15, 15, 15]
    for t in range(STEPS):
        for i in (2 * t, 2 * t + 1):
            rows = solver.draws(key, N, i)
            assert len(set(rows.tolist())) == len(rows) == sizes[i]
            x, previous = top(x - size * f.grad(x, rows) + momentum * (x - previous)), x
        yield x, dict(ifo=sum(sizes[2 * t : 2 * t + 2]), hard_thresholds=2)


def dual_value(f, a, w):
    """D(a) with the squared loss and the link w."""
    return OMEGA @ (a * OFFSET - a**2 / 2 - a * f.y) - 0.5 * RIDGE @ w**2


def link(a):
    """w(a), without an intercept."""
    tau = A.T @ (OMEGA * a)
    return np.append(np.where(best(tau[:P] / np.sqrt(L2), K)[:P], -tau[:P] / L2, 0), 0)


def best_shift(f, w):
    """w with its best intercept."""
    return w + (np.arange(P + 1) == P) * (OMEGA @ (f.y - A @ w - OFFSET))


def balanced(a):
    """The projection that an intercept asks for; rows without weight count nothing."""
    return np.where(OMEGA > 0, a - OMEGA @ a, 0)


def residuals(f, x):
    return balanced(f.scores(x) / np.where(OMEGA > 0, N * OMEGA, 1))


def dual(f, a, x, thresholds=1):
    """A primal point, and what is reported with it."""
    counts = dict(ifo=N, design_products=1, hard_thresholds=thresholds)
    return x, dict(value=f.value(x), gap=f.value(x) - dual_value(f, a, link(a))) | counts


def capped(t, scale):
    """No longer than the curvature of D allows, one more than that of its columns."""
    return min(1 / (np.linalg.norm(SCALED, 2) ** 2 + 1), scale / (t + 2))


def diht(f, x, key, *, size):
    """The coefficients that are shown are refitted, which must not move the dual points."""
    a = residuals(f, x)
    for t in range(STEPS):
        a = balanced(a + size(t) * (A @ link(a) + OFFSET - a - f.y))
        yield dual(f, a, f.refit(link(a), best(link(a), K)))


def sdiht(f, x, key, *, scale, block, rule="capped", paper=False):
    """The weighted sum of every block's dual variables stays, which the intercept asks for."""
    a = residuals(f, x)
    blocks = -(-N // block)
    for t in range(STEPS):
        key, draw = jax.random.split(key)
        order = np.arange(N) if paper else np.asarray(jax.random.permutation(draw, N))
        drawn = np.asarray(jax.random.randint(draw, (blocks,), 0, blocks)) if paper else range(blocks)
        for j, place in enumerate(drawn):
            rows = order[place * block : (place + 1) * block]
            size = blocks * scale / (t * blocks + j + 2)
            if rule == "capped":
                size = min(1 / (np.linalg.norm(SCALED[rows] @ SCALED[rows].T) + 1), size)
            move = size * (A[rows] @ link(a) + OFFSET[rows] - a[rows] - f.y[rows])
            a[rows] += move - OMEGA[rows] @ move / OMEGA[rows].sum()
        yield dual(f, a, best_shift(f, link(a)), blocks + 1)


SCALED = A[:, :P] * np.sqrt(OMEGA)[:, None] / np.sqrt(L2)


def penalised(f, x, key, *, size, pace=1):
    """Supergradient ascent under l0 and l1, which the kept feature does not pay."""
    a, lower, fixed = residuals(f, x), -np.inf, size is not None
    if fixed:
        a, lower = np.zeros(N), 0.0
    l0, l1 = np.where(np.arange(P) == KEPT, 0, L0), np.where(np.arange(P) == KEPT, 0, L1)

    def link(a):
        tau = A[:, :P].T @ (OMEGA * a)
        rest = np.maximum(np.abs(tau) - l1, 0)
        return np.append(np.where(rest**2 / (2 * L2) > l0, -np.sign(tau) * rest / L2, 0), 0)

    for t in range(STEPS):
        size = size if fixed else capped(pace * t, 8)
        a = balanced(a + size * (A @ link(a) + OFFSET - a - f.y))
        x = best_shift(f, link(a))
        lower = max(lower, dual_value(f, a, link(a)) + l0 @ (x[:P] != 0))
        value = f.value(x) + l0 @ (x[:P] != 0) + l1 @ np.abs(x[:P])
        slope = np.linalg.norm((f.grad(x) + np.append(l1, 0) * np.sign(x))[x != 0])
        # the gradient of the dual, and that of F
        yield x, dict(step_size=size, value=value, gap=value - lower, grad_norm=slope, ifo=2 * N, design_products=2)


L0, L1, SIZE = 0.02, 0.05, 0.5
STEP, ours = sht.steps.ConstantStep(SIZE), sht.solvers
# name -> (logistic, solver, formula, its options)
METHODS = {
    "iht": (True, ours.IHT(STEP), iht, dict(size=SIZE)),
    "iht_heavy_ball": (True, ours.IHT(STEP, momentum=0.6), iht, dict(size=SIZE, momentum=0.6)),
    "iht_nesterov": (True, ours.IHT(STEP, 0.6, nesterov=True), nesterov, dict(size=SIZE, momentum=lambda t: 0.6)),
    "iht_fista": (True, ours.IHT(STEP, momentum=None), nesterov, dict(size=SIZE, momentum=lambda t: t / (t + 3))),
    "iht_normalised": (True, ours.IHT(), searching_iht, dict(propose=lambda f, x, g, size: f.newton_size(x, g))),
    "iht_backtracking": (
        True,
        ours.IHT(sht.steps.BacktrackingStep(4.0)),
        searching_iht,
        dict(propose=lambda f, x, g, size: 2 * size if size else 4.0),
    ),
    "htp": (False, ours.HTP(), htp, {}),
    "cosamp": (False, ours.GraSP(debias=False), pursuit, dict(expansion=2, debias=False)),
    "subspace_pursuit": (False, ours.SubspacePursuit(), pursuit, dict(expansion=1)),
    "sg_ht": (True, ours.StochasticHT(STEP, 4), sgd, dict(size=SIZE, batch=4)),
    "svrg": (True, ours.SVRGHT(STEP, 10, 2, radius=0.5), svrg, dict(size=SIZE, batch=2, steps=10, radius=0.5)),
    "svrg_random": (True, ours.SVRGHT(STEP, 8, 2, True), svrg, dict(size=SIZE, batch=2, steps=8, drawn=True)),
    "saga": (True, ours.SAGAHT(STEP, 4), saga, dict(size=SIZE, batch=4)),
    "hybrid": (True, ours.HybridHT(STEP, 0.3, 3.0, 3.0, 2), hybrid, dict(size=SIZE, momentum=0.3)),
    "diht": (False, ours.DIHT("theorem15", 0.7, polish=True), diht, dict(size=lambda t: 0.7 / (t + 2))),
    "diht_capped": (False, ours.DIHT(scale=0.1, polish=True), diht, dict(size=lambda t: capped(t, 0.1))),
    "diht_theorem_17": (
        False,
        ours.DIHT("theorem17", 0.7, polish=True),
        diht,
        dict(size=lambda t: 0.7 * capped(t, np.inf) ** 2),
    ),
    "sdiht": (False, ours.SDIHT(4, "capped", 0.5, polish=False), sdiht, dict(scale=0.5, block=4)),
    "sdiht_paper": (
        False,
        ours.SDIHT(4, "theorem15", 0.1, polish=False, sampling="paper"),
        sdiht,
        dict(scale=0.1, block=4, rule="theorem15", paper=True),
    ),
    "dual_ascent": (False, ours.PrimalDual(dual_ascent=True, omega=SIZE), penalised, dict(size=SIZE)),
    "dual_ascent_capped": (False, ours.PrimalDual(dual_ascent=True), penalised, dict(size=None, pace=120)),
}


@cases.jit
def run(model, threshold, solver, key, start, pace=1):
    """(x, Info) after every step, of which so many are said to lie between two."""

    def step(state, t):
        new, info = solver.step(model, threshold, state, t)
        return new, (new.x, info)

    return jax.lax.scan(step, solver.init(model, threshold, start, key), pace * jnp.arange(STEPS))[1]


@pytest.mark.parametrize("name", METHODS)
def test_iterates(name):
    logistic, solver, formula, options = METHODS[name]
    f = Numpy(logistic)
    threshold = sht.L0L1L2(L0, L1, keep=[KEPT]) if formula is penalised else sht.Sparsity(K, K, keep=[KEPT])
    points, info = run(f.model, threshold.bind(f.model), solver, KEY, START, options.get("pace", 1))
    dual = formula in (diht, sdiht)  # their start's residuals count, all of it
    previous, moved = START if dual or formula is penalised else top(START), {tuple(np.flatnonzero(top(START)))}
    for t, (x, told) in enumerate(formula(f, previous.copy(), KEY, **options)):
        np.testing.assert_allclose(points[t], x, rtol=1e-7, atol=1e-9, err_msg=f"step {t}")
        moved.add(tuple(np.flatnonzero(x)))
        slope, move = np.linalg.norm(f.grad(x)[x != 0]), np.linalg.norm(x - previous)
        told = dict(value=f.value(x), support_size=np.count_nonzero(x[:P]), grad_norm=slope) | told
        told |= {} if dual else {"step_norm": move}
        for field, expected in told.items():
            np.testing.assert_allclose(getattr(info, field)[t], expected, rtol=1e-7, atol=1e-9, err_msg=field)
        previous = x.copy()
    assert len(moved) > 1, "the support moves, or this test shows little"


def test_what_sizes_htp_refuses():
    """Those that raise F, and none for rounding: started where it ended, F of the refit is the same but for that."""
    f, threshold, most = Numpy(False), sht.Sparsity(K, K, keep=[KEPT]), 0
    for seed in (*range(12), 76, 282, 335):
        rng = np.random.default_rng(seed)
        start, f.y = 3 * rng.standard_normal(P + 1), Y + rng.standard_normal(N)
        model = sht.LinearModel(
            X, f.y, sht.losses.Squared(), L2, WEIGHTS, fit_intercept=True, standardize=True, offset=OFFSET
        )
        for _ in range(2):
            points, info = run(model, threshold.bind(model), sht.solvers.HTP(), KEY, start)
            tries = [told["hard_thresholds"] for _, told in htp(f, top(start), KEY)]
            np.testing.assert_array_equal(info.hard_thresholds, tries)
            start, most = np.asarray(points[-1]), max(most, *tries)
    assert most > 2
