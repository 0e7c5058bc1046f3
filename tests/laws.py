"""Laws of solutions, certificates and bounds against `exact.Problem`, on problems of every scale.

Static settings (what compiles a program) are few and fixed; all else is a `Case`, and `violations(setting, case)` tells
which laws it breaks.
"""

import contextlib
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from cases import BY_NAME, solvers
from exact import LOG_LINK, Loss, Problem

import sparsehtp as sht
from sparsehtp.objectives.model import in_double

PARAMETERS = {
    "logistic": (1.0, 0.5, 2.0),
    "smoothed_hinge": (0.25, 1.0),
    "huber": (1.0, 0.125),
    "tweedie": (1.5, 1.25, 1.875),
    "negative_binomial": (1.0, 0.125, 2.0),
    "quantile": (1.0, 0.125),
}
SOLVERS = solvers("default", "htp", "grasp", "subspace_pursuit", "forward", "foba", "iht", "diht")
REFITS = {"default", "htp", "grasp", "subspace_pursuit", "forward", "foba"}


class Setting(NamedTuple):
    """What a program is compiled for."""

    loss: str
    solver: str
    double: bool
    intercept: bool
    standardize: bool
    shape: tuple[int, int]


class Case(NamedTuple):
    """What is traced. Sizes are powers of ten; `twin` joins column 1 to column 0 up to a relative gap (0: equal)."""

    seed: int = 0
    k: int = 2
    l2: float = 0.0
    parameter: int = 0
    noise: float = 0.3
    x_mean: float = 0.0
    x_scale: float = 0.0
    x_spread: float = 0.0
    y_mean: float = 0.0
    y_scale: float = 0.0
    weight_scale: float = 0.0
    weight_spread: float = 0.0
    fold: bool = False
    offset: float = 0.0
    offset_varies: bool = False
    twin: float | None = None
    start: float | None = None
    start_intercept: float = 0.0


class Start(NamedTuple):
    """A warm start."""

    x: np.ndarray
    intercept: float


def problem_of(setting, case):
    """(arguments of LinearModel, Loss, k, warm start): all that a case says, in the setting's dtype."""
    rng = np.random.default_rng(case.seed)
    (n, p), single = setting.shape, not setting.double
    Z = rng.standard_normal((n, p))
    if case.twin is not None:
        Z[:, 1] = Z[:, 0] + case.twin * Z[:, 1]
    w = np.where(np.arange(p) < 3, [1.0, -0.8, 0.6, 0, 0, 0][:p], 0) * (rng.random(p) < 0.8)
    scales = 10.0 ** np.clip(case.x_scale + case.x_spread * rng.uniform(-1, 1, p), -25, 25)
    X = (Z + case.x_mean * rng.uniform(-1, 1, p)) * scales
    if case.twin == 0:
        X[:, 1] = X[:, 0]
    eta, offset = Z @ w, case.offset * (rng.uniform(-1, 1, n) if case.offset_varies else np.ones(n))
    if setting.loss in ("squared", "huber", "quantile"):
        # In float32, squares of y must be numbers.
        scale = 10.0 ** np.clip(case.y_scale, *((-10, 10) if single else (-25, 25)))
        y, offset = scale * (eta + case.noise * rng.standard_normal(n) + case.y_mean), offset * scale
    elif setting.loss in LOG_LINK:
        if single and (not setting.intercept or setting.loss in ("gamma", "tweedie")):
            offset = offset / 2  # exp(100) is no number of float32, and an intercept helps to one side only
        mean = np.exp(eta) * np.clip(case.y_mean, 1, 1e4)
        y = rng.poisson(mean).astype(float) if setting.loss != "gamma" else rng.gamma(2, mean / 2) + 1e-3
    else:
        y = np.where(eta + case.noise * rng.logistic(size=n) > 0, 1.0, -1.0)
    weights = 10.0 ** np.clip(case.weight_scale + case.weight_spread * rng.uniform(-1, 1, n), -30, 30)
    if case.fold:
        weights[rng.permutation(n)[: n // 3]] = 0
    dtype = np.float64 if setting.double else np.float32
    choices = PARAMETERS.get(setting.loss, (1.0,))
    parameter = choices[case.parameter % len(choices)]
    l2 = max(case.l2, 1e-12) if setting.solver == "diht" else case.l2
    arrays = dict(X=X, y=y, sample_weight=weights, offset=offset, l2=np.asarray(l2))
    start = None
    if case.start is not None:
        start = Start((case.start * rng.standard_normal(p) / scales).astype(dtype), dtype(case.start_intercept))
    arrays = {name: value.astype(dtype) for name, value in arrays.items()}
    return arrays, Loss(setting.loss, np.longdouble(parameter)), min(case.k, p), start


def violations(setting, case):
    """(law, what was seen) of every law that a case breaks."""
    with jax.enable_x64(True) if setting.double else contextlib.nullcontext():
        arrays, loss, k, start = problem_of(setting, case)
        of = arrays["l2"], arrays["sample_weight"], arrays["offset"], setting.intercept, setting.standardize
        exact = Problem(arrays["X"], arrays["y"], loss, *of)
        try:
            options = dict(fit_intercept=setting.intercept, standardize=setting.standardize)
            model = sht.LinearModel(**arrays, loss=BY_NAME[setting.loss](float(loss.parameter)), **options)
        except ValueError as refusal:
            return [] if beyond(setting, arrays, str(refusal)) else [("refused", str(refusal))]
        threshold = sht.Sparsity(k, k_max=setting.shape[1])
        solution = sht.solve(model, threshold, SOLVERS[setting.solver], start, throw=False)
        found = list(of_solution(setting, exact, k, solution))
        if any(law == "finite" for law, _ in found):
            return found
        minima = exact.minima()
        here = exact.value(np.asarray(solution.x), float(solution.intercept))
        minima[1][place_of(minima[0], chosen(solution))] = min(here, best_on(*minima[:2], chosen(solution)))
        found += of_support(setting, exact, solution, minima)
        found += of_certificate(setting, exact, model, k, solution, minima, sht.certificate(model, threshold, solution))
        bounded = case.l2 > 0 and setting.loss not in ("hinge", "tweedie") and np.all(np.asarray(model.l2) > 0)
        if bounded and np.isfinite(solution.value):
            found += of_bounds(setting, k, minima, sht.lower_bound(model, threshold, float(solution.value)))
        return found


def beyond(setting, arrays, refusal):
    """Whether a model refuses products or quotients of targets and columns that are near the end of float32."""
    X, y = np.abs(np.asarray(arrays["X"], float)), np.abs(np.asarray(arrays["y"], float)).max()
    products = y * np.append(X.max(0)[X.max(0) > 0], 1.0)
    extreme = products.max() > 1e16 or products.min() < 1e-16
    squares = extreme and refusal.startswith("y: float32 cannot hold the squares")
    quotients = y < 1e-29 * X.max() and refusal.startswith("X: float32 cannot hold the coefficients")
    return not setting.double and (squares or quotients)


def eps_of(setting):
    return float(np.finfo(np.float64 if setting.double else np.float32).eps)


def chosen(solution):
    return np.unique(np.asarray(solution.support.idx)[np.asarray(solution.support.mask)])


def of_solution(setting, exact, k, solution):
    """Finite, within k, F(x) as stated, and no worse than no feature at all."""
    x, intercept, value = np.asarray(solution.x), float(solution.intercept), float(solution.value)
    null, best = exact.null()
    # A value beyond the range of the dtype is only ever reported as such.
    nonfinite = int(solution.result) == sht.results.RESULTS.nonfinite
    stated = np.isfinite(value) or nonfinite or best > np.finfo(x.dtype).max
    if not (stated and np.isfinite(x).all() and np.isfinite(intercept)):
        yield "finite", f"x {x}, intercept {intercept}, value {value}, {solution.describe()}"
        return
    if np.count_nonzero(x) > k or not set(np.flatnonzero(x)) <= set(chosen(solution)):
        yield "sparse", f"{np.count_nonzero(x)} nonzeros, support {chosen(solution)}, k = {k}"
    here = exact.value(x, intercept)
    slack = 16 * exact.slack(x, intercept, eps_of(setting))
    # Terms of a sum that is nearly beyond the range may be beyond it.
    beyond = not np.isfinite(value) and here + slack > np.finfo(x.dtype).max / (4 * len(exact.y))
    if not beyond and not abs(value - here) <= slack:
        yield "value", f"value {value}, F(x) = {float(here)}, slack {float(slack):.1e}"
    # Columns are centred before they are used, so that their means cost nothing here.
    room = 32 * exact.slack(np.zeros_like(x), null, eps_of(setting)) + nothing(setting, exact)
    if setting.solver in REFITS and setting.loss != "hinge" and not value <= best + room:
        yield "null", f"value {value}, null model {float(best)}, slack {float(room):.1e}, {solution.describe()}"


def nothing(setting, exact):
    """What an F is at most that is zero but for rounding: every step down from F(0) was a sum of terms of its size."""
    return eps_of(setting) * abs(exact.value(np.zeros(exact.X.shape[1])))


def place_of(masks, members):
    return np.argmax(np.all(masks == np.isin(np.arange(masks.shape[1]), members), axis=1))


def best_on(masks, values, members):
    return values[place_of(masks, members)]


def of_support(setting, exact, solution, minima):
    """What says that it converged is optimal on its support, to a share of F there and without features."""
    if setting.solver not in REFITS or setting.loss == "hinge" or int(solution.result) != sht.results.RESULTS.converged:
        return
    least, null = best_on(*minima[:2], chosen(solution)), exact.null()[1]
    room = (1e-9 if setting.double else 1e-5) * (abs(least) + abs(null))
    x, b, eps = np.asarray(solution.x), float(solution.intercept), eps_of(setting)
    other = [part[place_of(minima[0], chosen(solution))] for part in minima[2]]
    room += 16 * (exact.slack(x, b, eps) + exact.blur(x, b, other, eps))
    here = exact.value(x, b)
    if here - least > room:
        yield "stationary", f"F(x) = {float(here)}, best on {chosen(solution)}: {float(least)}, null {float(null)}"


def of_certificate(setting, exact, model, k, solution, minima, c):
    masks, values, _ = minima
    members, x, b = chosen(solution), np.asarray(solution.x), float(solution.intercept)
    here, slack = exact.value(x, b), 16 * exact.slack(x, b, eps_of(setting))
    optimum = values[masks.sum(1) == k].min()
    least = best_on(masks, values, members)
    tol = 1e-10 if setting.double else 1e-5
    known = np.isfinite(c.upper_bound) or here < np.finfo(float).max / 1e3
    if known and not abs(c.upper_bound - here) <= slack:
        yield "upper_bound", f"{c.upper_bound}, F(x) = {float(here)}, slack {float(slack):.1e}"
    if c.lower_bound is not None and not c.lower_bound <= optimum + 8 * eps_of(setting) * abs(optimum):
        yield "lower_bound", f"{c.lower_bound} > {float(optimum)} by {float(c.lower_bound - optimum):.1e}"
    scale = abs(here) + abs(exact.value(np.zeros_like(x)))
    if c.stationary and here - least > 1e4 * tol * tol * scale + 0.1 * tol * scale + slack:
        yield "certified_stationary", f"F(x) = {float(here)}, best on the support {float(least)}"
    swaps = {}
    for j in set(range(len(x))) - set(members):
        for i in [*members] + [None] * (len(members) < k):
            swaps[i, j] = best_on(masks, values, [*(m for m in members if m != i), j])
    best = min(swaps.values(), default=np.inf)
    zero = nothing(setting, exact)
    if c.swap_gain == 0.0 and here - best > 2 * tol * abs(here) + slack + zero:
        yield "no_swap", f"F(x) = {float(here)}, a swap gives {float(best)}"
    if c.swap_gain and swaps[c.best_swap] > here - c.swap_gain / 2 + slack:
        out, new = c.best_swap
        least = min(swaps[c.best_swap], reached(exact, model, solution, [*(m for m in members if m != out), new]))
        if least > here - c.swap_gain / 2 + slack:
            yield "swap_gain", f"{c.best_swap} gains {c.swap_gain}: F(x) = {float(here)} to {float(least)}"
    said = c.statement
    if c.necessary_condition is False and here <= optimum * (1 + 4 * eps_of(setting) * np.sign(optimum)):
        yield "necessary_condition", f"refutes the optimum {float(optimum)}, F(x) = {float(here)}"
    others = (masks.sum(1) == k) & np.any(masks != np.isin(np.arange(len(x)), members), axis=1)
    best = values[others].min(initial=np.inf)
    if "This is the best subset" in said and here - best > 2 * tol * abs(here) + slack + zero:
        yield "best_subset", f"F(x) = {float(here)}, another one has {float(best)}"
    excess = here - optimum
    gap = 10 * (1e-8 if setting.double else 1e-5)
    if "Proved optimal" in said and excess > 2 * gap * abs(here) + slack:
        yield "proved", f"F(x) = {float(here)}, optimum {float(optimum)}"
    good = re.search("best subset of its size|Proved optimal", said)
    bad = re.search("so a better one exists|so this is not the best|coefficients are not optimal", said)
    if good and bad:
        yield "contradiction", said
    if re.search(r"\bnan\b|\binf\b", said):
        yield "words", said


def reached(exact, model, solution, members):
    """The reference's F at a refit on a support: where the reference came to rest above it, it is a witness."""
    with jax.enable_x64(True):
        model = in_double(model)
        x = model.to_internal(np.asarray(solution.x, float), float(solution.intercept))
        idx = jnp.array([*range(x.size - model.n_free, x.size), *members])
        z = model.restrict(sht.results.Support(idx, jnp.ones(idx.shape, bool))).minimise(x[idx]).z
        w, intercept = model.to_external(jnp.zeros_like(x).at[idx].set(z))
        return exact.value(np.asarray(w), float(intercept))


def of_bounds(setting, k, minima, bounds):
    masks, values, _ = minima
    allowed = masks.sum(1) == k
    optimum = values[allowed].min()
    tie = np.longdouble(1e-15) * abs(optimum)
    best = values <= optimum + tie
    for j in bounds.zero:
        if not (best & allowed & ~masks[:, j]).any():
            yield "fixed_zero", f"{j} is in every optimum; zero {bounds.zero}, nonzero {bounds.nonzero}"
    for j in bounds.nonzero:
        if (best & allowed & ~masks[:, j]).any():
            yield "fixed_nonzero", f"{j} is not in an optimum; zero {bounds.zero}, nonzero {bounds.nonzero}"
    if not bounds.lower <= optimum + 8 * eps_of(setting) * abs(optimum):
        yield "bound", f"{bounds.lower} > {float(optimum)} by {float(bounds.lower - optimum):.1e}"


def settings_of():
    """Every loss, dtype and way of centring, with the solvers in turn; the default one everywhere."""
    out, others, turn = [], [s for s in SOLVERS if s != "default"], 0
    for loss in BY_NAME:
        for double in (False, True):
            for intercept, standardize in ((False, False), (True, False), (True, True)):
                shape = [(12, 4), (20, 5)][(turn // 2) % 2]
                own = ["iht"] if loss == "hinge" else ["default", others[turn % len(others)]]
                out += [Setting(loss, solver, double, intercept, standardize, shape) for solver in own]
                turn += 1
    return out


SETTINGS = settings_of()


def name_of(s: Any) -> str:
    return "-".join([s.loss, s.solver, "64" if s.double else "32", "b" * s.intercept + "s" * s.standardize])
