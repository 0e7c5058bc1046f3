"""What the library says of a drawn problem, sentence by sentence, against references of another kind.

`violations(kind, seed)` draws a case and returns it with the sentences and numbers that are false: (law, what was said
and what is so). Shapes and static settings are few, so that thousands of cases share their programs.
"""

import contextlib
import re
import tempfile
import types
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from exact import LEVEL, LOG_LINK, Loss, Problem
from rational import Quadratic
from scipy.special import xlogy

import sparsehtp as sht
from sparsehtp.certificates.exchanges import best_swaps

N, P = 24, 6
EPS = {False: float(np.finfo(np.float32).eps), True: float(np.finfo(float).eps)}


class Drawn(NamedTuple):
    """A problem in the units and the dtype of its user."""

    X: np.ndarray
    y: np.ndarray
    l2: Any
    weights: np.ndarray | None
    offset: np.ndarray | None
    intercept: bool
    standardize: bool
    k: int
    double: bool
    about: str

    def options(self):
        """Keyword arguments of `LinearModel`."""
        return dict(
            l2=self.l2,
            sample_weight=self.weights,
            offset=self.offset,
            fit_intercept=self.intercept,
            standardize=self.standardize,
        )


def columns(rng, n, p, double):
    """(columns, what they are): far, near, tiny, rounded; every case has some of these and few have all."""
    Z, about = rng.standard_normal((n, p)), []
    rho = rng.choice([0.0, 0.5, 0.95])
    for j in range(1, p):
        Z[:, j] = rho * Z[:, j - 1] + np.sqrt(1 - rho**2) * Z[:, j]
    if rng.random() < 0.15:
        Z = np.round(2 * Z)
    copy, joined = None, rng.random()
    a, b, c = rng.permutation(p)[:3]
    if joined < 0.45:
        copy = 10.0 ** rng.uniform(-16 if double else -8, -5)
        Z[:, b] = Z[:, a] + copy * rng.standard_normal(n)
        about.append(f"columns {a} and {b} differ by {copy:.0e}")
    elif joined < 0.55:
        copy = 10.0 ** rng.uniform(-16 if double else -8, -5)
        Z[:, c] = Z[:, a] + Z[:, b] + copy * rng.standard_normal(n)
        about.append(f"column {c} is {a} + {b} up to {copy:.0e}")
    elif joined < 0.6:
        Z[:, b] = -2 * Z[:, a]
        about.append(f"column {b} copies {a}")
    where = rng.random()
    if where < 0.55:
        far = 10.0 ** rng.uniform(0, 7 if double else 6)
        which = np.ones(p, bool) if rng.random() < 0.4 else rng.random(p) < 0.3
        which[rng.integers(p)] = True
        same = rng.random() < 0.5
        Z = Z + far * which * (1.0 if same else rng.uniform(-1, 1, p))
        about.append(f"means {far:.0e} deviations off in {np.flatnonzero(which).tolist()}")
    if rng.random() < 0.3:
        reach = rng.choice([3, 8, 60 if double else 12])
        Z = Z * 10.0 ** rng.uniform(-reach, reach, 1 if rng.random() < 0.3 else p)
        about.append(f"scales to 1e{reach}")
    return Z, about


def draw(rng, double, intercept, standardize, n=N, p=P, far_targets=True):
    """A least-squares problem."""
    Z, about = columns(rng, n, p, double)
    dtype = np.float64 if double else np.float32
    X = Z.astype(dtype)
    unit = X.astype(float) - X.astype(float).mean(0)
    unit = unit / np.where(unit.std(0) > 0, unit.std(0), 1)
    signal = unit @ np.where(rng.random(p) < 0.5, rng.standard_normal(p), 0)
    noise = rng.choice([0.0, 1.0, 10.0 ** rng.uniform(-8, 0)], p=[0.05, 0.35, 0.6])
    y = signal + noise * rng.standard_normal(n)
    about.append(f"noise {noise:.0e}")
    if far_targets and rng.random() < 0.3:
        y = y + 10.0 ** rng.uniform(0, 7 if double else 5)
        about.append("far targets")
    offset = None
    if rng.random() < 0.3:
        offset = rng.standard_normal(n) * rng.choice([1.0, 100.0]) + rng.choice([0.0, 100.0, 1e5])
        about.append("offset")
    if rng.random() < 0.2:
        scale = 10.0 ** rng.uniform(-8, 8)
        y, offset = y * scale, None if offset is None else offset * scale
        about.append(f"targets times {scale:.0e}")
    weights, how = None, rng.random()
    if how < 0.4:
        weights = rng.exponential(size=n) * (rng.random(n) < 0.8)
        weights[:8] = 1
        about.append("weights")
    elif how < 0.5:
        weights = 10.0 ** rng.uniform(-6, 6, n)
        about.append("weights of many sizes")
    l2 = rng.choice([0.0, 0.0, 1e-12, 1e-8, 1e-4, 1e-2, 1.0])
    if not standardize and l2:
        size = np.abs(X.astype(float)).max(0)
        l2 = l2 * size**2 if rng.random() < 0.7 else l2
    l2 = np.broadcast_to(l2, p).astype(dtype)
    return Drawn(
        X,
        y.astype(dtype),
        l2,
        None if weights is None else weights.astype(dtype),
        None if offset is None else offset.astype(dtype),
        intercept,
        standardize,
        int(rng.integers(1, 4)),
        double,
        "; ".join(about),
    )


def rational(drawn):
    return Quadratic(drawn.X, drawn.y, drawn.l2, drawn.weights, drawn.offset, drawn.intercept, drawn.standardize)


class Spread(NamedTuple):
    """Sizes of what a model is computed from once it is centred, in float64."""

    omega: np.ndarray
    Z: np.ndarray
    t: np.ndarray
    null: float


def spread(drawn):
    X, y = drawn.X.astype(np.longdouble), drawn.y.astype(np.longdouble)
    y = y if drawn.offset is None else y - drawn.offset.astype(np.longdouble)
    s = np.ones(len(y)) if drawn.weights is None else drawn.weights.astype(np.longdouble)
    omega = s / s.sum()
    if drawn.intercept:
        X, y = X - omega @ X, y - omega @ y
    return Spread(omega.astype(float), X.astype(float), y.astype(float), float(omega @ y**2) / 2)


def blurred(at, value, w, eps, b=0.0):
    """What rounding of the centred terms of the predictor by eps may do to a value F, by the square root of F q, and q;
    and what the last digit of an intercept in double precision is."""
    size = np.abs(at.Z) @ np.abs(np.asarray(w, float)) + np.abs(at.t)
    q = eps**2 * float(at.omega @ size**2)
    return np.sqrt(2 * abs(value) * q) + q + (EPS[True] * abs(float(b))) ** 2


def percent(text):
    return float(text) / 100


def margin(sentence, said, here):
    """What an exchange may lower F by beside a sentence, None if it is not said."""
    found = re.search(sentence + r".*?\(by more than ([0-9.e+-]*[0-9])( of its value)?", said)
    return found and float(found.group(1)) * (abs(here) if found.group(2) else 1) * 1.01


COPIES = 3e-14  # columns that differ by less, of their size, may count as copies, or as what they are


def of_proof(drawn, proof, exact, ratio):
    """Every sentence and number of a `Proof` of least squares."""
    at, said, share = spread(drawn), proof.statement, 1e-4
    usable = np.flatnonzero(~exact.constant) if drawn.intercept else np.flatnonzero(np.abs(drawn.X).max(0) > 0)
    values = {s: float(v) for s, v in exact.choices(drawn.k, usable=usable).items()}
    copied = {s: float(v) for s, v in exact.choices(drawn.k, usable=usable, copies=COPIES).items()}
    best, most = min(values.values()), min(copied.values())
    here, zero = float(exact.value(proof.x, proof.intercept)), 1e-13 * at.null
    blur = 16 * blurred(at, here, proof.x, EPS[True], proof.intercept) + 1e-40
    if not np.isfinite([proof.upper, proof.lower, proof.intercept, *proof.x]).all():
        yield "finite", said
        return
    if abs(proof.upper - here) > 1e-6 * here + blur:
        yield "upper", f"upper {proof.upper:.6g}, F(x, b) = {here:.6g}, best {best:.6g}; {said}"
    if not proof.lower <= most * (1 + 1e-9) + 1e-15 * at.null + blur:
        yield "lower", f"lower {proof.lower:.9g}, best {most:.9g}, by {proof.lower / most - 1:.1e}; {said}"
    if len(proof.support.idx) > drawn.k or not set(np.flatnonzero(proof.x)) <= set(np.asarray(proof.support.idx)):
        yield "support", f"{proof.support.idx}"
    if proof.proved != said.startswith("Proved"):
        yield "words", said
    found, null = (
        re.search("to ([0-9.e+-]+)% of the objective", said),
        re.search("to ([0-9.e+-]+) of the objective w", said),
    )
    room = percent(found.group(1)) * here if found else float(null.group(1)) * at.null if null else 1e-9 * here
    if proof.proved and here - most > room * (1 + 1e-6) + blur:
        yield "proved", f"F {here:.9g}, best {most:.9g} ({here / most - 1:.1e} above): {said}"
    open_ = re.search("lowers the objective by at most ([0-9.e+-]+)%", said)
    if open_ and here - most > percent(open_.group(1)) * here * (1 + 1e-6) + blur:
        yield "at most", f"F {here:.9g}, best {most:.9g}: {said}"
    if not proof.proved and "rounding in float64 hides the rest" not in said:
        yield "not proved", said
    if ratio is None:
        return
    share = ratio - 1 if "within rounding" not in said else 0
    noise = 1e-13 * at.null if "within rounding" in said else 0
    level = best + share * best + noise
    masks = [frozenset(np.flatnonzero(mask).tolist()) for mask in proof.collected.masks]
    if len(masks) != len(set(masks)):
        yield "collected twice", said
    missing = {s for s in values if max(values[s], copied[s]) < level * (1 - 1e-6) - noise - blur} - set(masks)
    if proof.collected.complete and proof.proved and missing:
        yield "collected misses", f"{sorted(map(sorted, missing))} at {[values[s] / best for s in missing]}: {said}"
    more = {s for s in masks if values.get(s, np.inf) > max(level, most * ratio) * (1 + 1e-6) + noise + blur}
    if more and proof.proved:
        yield "collected more", f"{[values.get(s, np.inf) / best for s in more]} times the best: {said}"
    for s, v in zip(masks, proof.collected.values, strict=True):
        if s in values and not values[s] * (1 - 1e-6) - zero <= v <= copied[s] * (1 + 1e-6) + zero + 1e-40:
            yield "collected value", f"{sorted(s)}: {v:.6g}, is {values[s]:.6g}"
            break


def chosen(solution):
    return np.unique(np.asarray(solution.support.idx)[np.asarray(solution.support.mask)])


def of_solution(drawn, solution, exact):
    """`value`, for one who takes x and the intercept as they are."""
    at, x, b = spread(drawn), np.asarray(solution.x, float), float(solution.intercept)
    here, value = float(exact.value(x, b)), float(solution.value)
    if not np.isfinite([value, b, *x]).all():
        if int(solution.result) in (0, 1):
            yield "finite", f"{solution.describe()} {value} {x} {b}"
        return
    eps = EPS[drawn.double]
    near = (1e-8 if drawn.double else 1e-4) * here + 32 * blurred(at, here, x, eps) + eps * at.null
    if not -near <= here - value <= near + 2 * float(solution.intercept_rounding):
        rise = f"intercept_rounding {float(solution.intercept_rounding):.2g}"
        yield "value", f"value {value:.6g}, F(x, b) = {here:.6g}, {rise}; {solution.describe()}"


def of_certificate(drawn, solution, certificate, exact):
    """Every sentence and number of a `Certificate` of least squares, at the numbers that the solution holds."""
    at, x, b = spread(drawn), np.asarray(solution.x, float), float(solution.intercept)
    members, k, said = [int(j) for j in chosen(solution)], drawn.k, certificate.statement
    at_x = exact.value(x, b)
    here = float(at_x)
    blur = 32 * blurred(at, here, x, EPS[True], b) + 1e-7 * here + 1e-20 * at.null
    usable = np.flatnonzero(~exact.constant) if drawn.intercept else np.arange(P)
    if abs(certificate.upper_bound - here) > blur:
        yield "upper_bound", f"{certificate.upper_bound:.6g}, F(x, b) = {here:.6g}"
    values = {s: float(v) for s, v in exact.choices(k, usable=usable, copies=COPIES).items()}
    best = min(values.values())
    if certificate.lower_bound is not None and not certificate.lower_bound <= best * (1 + 1e-9) + 1e-14 * at.null:
        yield "lower_bound", f"{certificate.lower_bound:.9g}, best {best:.9g}"
    alone = float(exact.without_copies(members, COPIES))
    tol = 1e-12 if drawn.double else 1e-6
    if certificate.stationary and here - alone > tol * (here + 2 * at.null) * 1.01 + blur:
        yield "stationary", f"F {here:.6g}, refitted {alone:.6g}"
    if certificate.stationary is False and alone >= here * (1 - 1e-12):
        yield "not stationary", f"F {here:.6g}, refitted {alone:.6g}"
    swaps = {}
    for j in set(range(P)) - set(members):
        for i in [*members] + [None] * (len(members) < k):
            swaps[i, j] = float(exact.without_copies(sorted([*(m for m in members if m != i), j]), COPIES))
    least = min(swaps.values(), default=np.inf)
    none = margin("No exchange", said, here)
    if none is not None and here - least > none + blur:
        yield "no exchange", f"F {here:.6g}, an exchange has {least:.6g} ({least / here - 1:.1e}): {said}"
    whole, mine = margin("This is the best subset", said, here), frozenset(members)
    other = min((v for s, v in values.items() if s != mine), default=np.inf)
    if whole is not None and here - other > whole + blur:
        yield "best subset", f"F {here:.6g}, another has {other:.6g}: {said}"
    if certificate.best_swap is not None:
        after = swaps[certificate.best_swap]
        if after > here - certificate.swap_gain * (1 - 1e-3) + blur:
            yield "gain", f"{certificate.best_swap} gains {certificate.swap_gain:.6g}: from {here:.9g} to {after:.9g}"
    optimal = re.search("no other choice lowers the objective by more than ([0-9.e+-]+) of its value", said)
    if optimal and here - best > float(optimal.group(1)) * here * 1.01 + blur:
        yield "proved optimal", f"F {here:.6g}, best {best:.6g}: {said}"
    within = re.search("within ([0-9.e+-]+)% of the best possible", said)
    if within and here - best > percent(within.group(1)) * best * 1.001 + blur:
        yield "within", f"F {here:.6g}, best {best:.6g}: {said}"
    if "a better one exists" in said and best >= here:
        yield "a better one", f"F {here:.6g}, best {best:.6g}: {said}"
    if "refitting them lowers" in said and alone >= here:
        yield "not optimal", f"F {here:.6g}, refitted {alone:.6g}"
    if re.search(r"\bnan\b|\binf\b", said):
        yield "words", said


def of_exchanges(drawn, solution, swaps, exact):
    """The gain of the best exchange of each feature."""
    at, x = spread(drawn), np.asarray(solution.x, float)
    members, here = [int(j) for j in chosen(solution)], float(exact.value(x, float(solution.intercept)))
    eps = EPS[drawn.double]
    room = 1e-4 * here + 64 * blurred(at, here, x, eps) + (0 if drawn.double else 1e-6) * at.null + 1e-12 * at.null
    for i, j, gain in zip(swaps.features, swaps.substitutes, swaps.gains, strict=True):
        after = float(exact.minimum(sorted([*(m for m in members if m != i), int(j)])))
        if abs(here - after - gain) > room + 1e-4 * abs(gain):
            yield "best_swaps", f"{i} for {j} gains {gain:.6g}, F {here:.6g} to {after:.6g}, null {at.null:.6g}"
            return


def of_bounds(drawn, bounds, exact):
    """A lower bound, and features that are in every best choice or in none."""
    usable = np.flatnonzero(~exact.constant) if drawn.intercept else np.arange(P)
    values = {s: float(v) for s, v in exact.choices(drawn.k, usable=usable).items()}
    best = min(values.values())
    if not bounds.lower <= best * (1 + 1e-9) + 1e-14 * spread(drawn).null:
        yield "bound", f"{bounds.lower:.9g}, best {best:.9g}"
    optima = [s for s, v in values.items() if v <= best * (1 + 1e-7)]
    for j in bounds.zero:
        if all(int(j) in s for s in optima):
            yield "fixed at zero", f"{j} of {bounds}: {optima}"
    for j in bounds.nonzero:
        if all(int(j) not in s for s in optima):
            yield "fixed in", f"{j} of {bounds}: {optima}"


@contextlib.contextmanager
def precision(double):
    with jax.enable_x64(double):
        yield


SETTINGS = [(True, True), (True, False), (False, False)]  # an intercept, standardised columns


def least_squares(seed):
    """A proof of a drawn problem."""
    rng = np.random.default_rng(seed)
    double, (intercept, standardize) = bool(seed % 2), SETTINGS[seed // 2 % 3]
    drawn = draw(rng, double, intercept, standardize)
    ratio = rng.choice([None, 1.0001, 1.05])
    with precision(double):
        try:
            model = sht.LinearModel(drawn.X, drawn.y, **drawn.options())
        except ValueError as refusal:
            return refused(drawn, str(refusal))
        proof = sht.prove(model, sht.Sparsity(drawn.k), collect=ratio, time_limit=120)
    return drawn, list(of_proof(drawn, proof, rational(drawn), ratio))


class Point(NamedTuple):
    """What is certified: a point of the reference's, rounded to the user's dtype."""

    x: np.ndarray
    intercept: Any
    support: Any
    value: float
    result: int = int(sht.RESULTS.converged)

    def describe(self):
        return "a point by hand"


def point(rng, drawn, w, b, members, value):
    """Coefficients of the reference as a `Solution` would hold them, exact but for rounding, or a little off."""
    dtype = drawn.X.dtype
    if rng.random() < 0.3:
        w = w * (1 + 10.0 ** rng.uniform(-12, -2) * rng.standard_normal(w.size))
    intercept = np.asarray(b, np.float64 if rng.random() < 0.5 else dtype)
    support = sht.Support(np.array(members, np.int32), np.ones(len(members), bool))
    return Point(w.astype(dtype), intercept, support, float(value))


def certified(seed):
    """The certificate of a point of the reference's."""
    rng = np.random.default_rng(seed)
    double, (intercept, standardize) = bool(seed % 2), SETTINGS[seed // 2 % 2]
    drawn = draw(rng, double, intercept, standardize)
    exact = rational(drawn)
    usable = np.flatnonzero(~exact.constant)
    choices = exact.choices(drawn.k, usable=usable)
    supports = sorted(choices, key=choices.get)
    members = sorted(supports[0] if rng.random() < 0.6 else supports[rng.integers(len(supports))])
    members = members[: rng.integers(1, len(members) + 1)] if rng.random() < 0.15 else members
    value, (z,) = exact.solve(members)
    w = np.zeros(P)
    w[members] = [float(each) for each in z[: len(members)]]
    level = float(z[-1]) if drawn.intercept else 0.0
    solution = point(rng, drawn, w, level, members, value)
    if not np.isfinite(solution.x).all():
        return drawn, []
    with precision(double), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = sht.LinearModel(drawn.X, drawn.y, **drawn.options())
            certificate = sht.certificate(model, sht.Sparsity(drawn.k), solution)
        except ValueError as refusal:
            return refused(drawn, str(refusal))
        found = list(of_certificate(drawn, solution, certificate, exact))
        here = float(exact.value(solution.x, float(solution.intercept)))
        if here <= float(value) * (1 + 1e-6):  # it tells of exchanges from where coefficients are fitted
            found += list(of_exchanges(drawn, solution, best_swaps(model, solution), exact))
        if np.all(drawn.l2 > 0):
            upper = float(exact.value(solution.x, float(solution.intercept)))
            found += list(of_bounds(drawn, sht.lower_bound(model, sht.Sparsity(drawn.k), upper), exact))
    return drawn, found


def solved(seed):
    """A solution of a drawn problem, by exchanges, and its certificate."""
    rng = np.random.default_rng(seed)
    double = bool(seed % 2)
    intercept, standardize = SETTINGS[1 - double]
    drawn = draw(rng, double, intercept, standardize)
    with precision(double), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = sht.LinearModel(drawn.X, drawn.y, **drawn.options())
        except ValueError as refusal:
            return refused(drawn, str(refusal))
        solution = sht.solve(model, sht.Sparsity(drawn.k), throw=False)
        exact = rational(drawn)
        found = list(of_solution(drawn, solution, exact))
        if np.isfinite(np.asarray(solution.x)).all() and np.isfinite(float(solution.value)):
            found += list(
                of_certificate(drawn, solution, sht.certificate(model, sht.Sparsity(drawn.k), solution), exact)
            )
    return drawn, found


# --- other losses ----------------------------------------------------------------------------------------------------
LOSSES = {
    "logistic": (sht.Logistic, (1.0, 2.0)),
    "poisson": (lambda c: sht.Poisson(), (1.0,)),
    "smoothed_hinge": (sht.SmoothedHinge, (0.25, 1.0)),
    "huber": (sht.Huber, (0.125, 1.0)),
    "negative_binomial": (sht.NegativeBinomial, (0.25, 1.0)),
    "gamma": (lambda c: sht.Gamma(), (1.0,)),
    "squared_hinge": (lambda c: sht.SquaredHinge(), (1.0,)),
    "quantile": (lambda c: sht.Quantile(float(LEVEL), c), (0.125, 1.0)),
    "tweedie": (sht.Tweedie, (1.5, 1.25)),
}
FEW = 5


class Other(NamedTuple):
    """A problem of another loss."""

    drawn: Drawn
    loss: Loss

    @property
    def module(self):
        """The library's loss."""
        return LOSSES[self.loss.name][0](float(self.loss.parameter))

    def problem(self):
        d = self.drawn
        return Problem(d.X, d.y, self.loss, d.l2, d.weights, d.offset, d.intercept, d.standardize)


def draw_other(rng, name, double, intercept, standardize, least_l2=0.0):
    """A problem of a loss that is not squared, without extreme scales: those are `laws.py`'s."""
    Z, about = columns(rng, N, FEW, double)
    size = np.abs(Z).max(0)
    Z = Z / np.where(size > 0, size, 1) * np.clip(size, 1e-5, 1e8)
    dtype = np.float64 if double else np.float32
    X = Z.astype(dtype)
    unit = X.astype(float) - X.astype(float).mean(0)
    unit = unit / np.where(unit.std(0) > 0, unit.std(0), 1)
    score = unit @ np.where(rng.random(FEW) < 0.6, rng.standard_normal(FEW), 0)
    offset = None
    if rng.random() < 0.3:
        offset = rng.uniform(-1, 1, N) + rng.choice([0.0, 5.0, 30.0])
        about.append("offset")
    parameter = rng.choice(LOSSES[name][1])
    if name in LOG_LINK:
        mean = np.exp(np.clip(score, -3, 3)) * rng.choice([1.0, 100.0])
        y = rng.gamma(2, mean / 2) + 1e-3 if name == "gamma" else rng.poisson(mean).astype(float)
    elif name in ("huber", "quantile"):
        noise = rng.choice([1.0, 10.0 ** rng.uniform(-6, 0)])
        y = score + noise * rng.standard_t(2, N) + rng.choice([0.0, 100.0, 1e5])
        about.append(f"noise {noise:.0e}")
    else:
        y = np.where(score + rng.choice([0.3, 1.0]) * rng.logistic(size=N) > 0, 1.0, -1.0)
    weights = None
    if rng.random() < 0.4:
        weights = rng.exponential(size=N) * (rng.random(N) < 0.8)
        weights[:8] = 1
        about.append("weights")
    l2 = rng.choice([least_l2, 1e-8, 1e-6, 1e-4, 1e-2, 1.0])
    l2 = max(l2, least_l2)
    if not standardize:
        l2 = l2 * (np.abs(X.astype(float)).max(0) ** 2 if rng.random() < 0.7 else 1.0)
    drawn = Drawn(
        X,
        y.astype(dtype),
        np.broadcast_to(l2, FEW).astype(dtype),
        None if weights is None else weights.astype(dtype),
        None if offset is None else offset.astype(dtype),
        intercept,
        standardize,
        int(rng.integers(1, 4)),
        double,
        f"{name} {parameter}; " + "; ".join(about),
    )
    return Other(drawn, Loss(name, np.longdouble(parameter)))


def reach(other, problem, w, b, eps):
    """What rounding the centred terms of the predictor by eps may do to F(w, b)."""
    d, live = other.drawn, problem.omega > 0
    w, mean = np.asarray(w, np.longdouble), problem.mean
    X = problem.X - mean
    level = np.longdouble(b) + mean @ w
    offset = problem.offset - (problem.omega @ problem.offset if d.intercept else 0)
    eta = problem.X @ w + np.longdouble(b) + problem.offset
    y = np.abs(problem.y - (problem.omega @ problem.y if d.intercept else 0)) * (
        other.loss.name in ("huber", "quantile")
    )
    size = np.abs(X) @ np.abs(w) + np.abs(offset) + y
    if other.loss.name not in ("huber", "quantile"):
        size = size + abs(level) + np.abs(problem.offset)
    with np.errstate(over="ignore", invalid="ignore"):
        at = other.loss.value(eta, problem.y)
        up, down = (other.loss.value(eta + sign * eps * size, problem.y) - at for sign in (1, -1))
        terms = other.loss.parts(eta, problem.y)[1]
    total = problem.omega[live] @ (np.maximum(np.abs(up), np.abs(down)) + 4 * eps * np.abs(terms))[live]
    total = total + eps * np.sum(problem.ridge * w**2) + np.longdouble(1e-290)  # the end of the range
    if other.loss.name == "quantile" and not d.double:  # a level of 0.3 is rounded to single precision
        total = total + EPS[False] * problem.value(w, b)
    return float(total) if np.isfinite(total) else np.inf


def place(masks, members):
    return int(np.argmax(np.all(masks == np.isin(np.arange(masks.shape[1]), list(members)), axis=1)))


def of_other_certificate(other, solution, certificate, problem):
    """The sentences of a certificate of another loss, and the value of the solution."""
    drawn = other.drawn
    x, b, said, k = np.asarray(solution.x, float), float(solution.intercept), certificate.statement, drawn.k
    members = [int(j) for j in chosen(solution)]
    here, value = float(problem.value(x, b)), float(solution.value)
    if not np.isfinite(here):  # exponentials beyond the range
        return
    blur = 16 * reach(other, problem, x, b, EPS[True]) + 1e-10 * abs(here)
    usable = np.isfinite(problem.size)
    masks, values, _ = problem.minima()
    values = values.astype(float)
    values[place(masks, members)] = min(values[place(masks, members)], here)
    null = float(problem.null()[1])
    by_hand = isinstance(solution, Point)
    rise = np.inf if by_hand else float(solution.intercept_rounding)
    near = 16 * reach(other, problem, x, b, EPS[drawn.double]) + (1e-8 if drawn.double else 1e-4) * abs(here)
    if np.isfinite(value) and not -near <= here - value <= near + 2 * rise:
        rounding = f"intercept_rounding {rise:.2g}, null {null:.6g}"
        yield "value", f"value {value:.6g}, F(x, b) = {here:.6g}, {rounding}; {solution.describe()}"
    if np.isfinite(certificate.upper_bound) and abs(certificate.upper_bound - here) > blur + 1e-7 * abs(here):
        yield "upper_bound", f"{certificate.upper_bound:.9g}, F(x, b) = {here:.9g}"
    sizes = masks.sum(1)
    allowed = (sizes <= k) & ~np.any(masks & ~usable, 1)
    best = values[allowed].min()
    above = best + 1e-9 * abs(best) + 1e-13 * abs(null) + blur
    if certificate.lower_bound is not None and not certificate.lower_bound <= above:
        yield "lower_bound", f"{certificate.lower_bound:.9g}, best {best:.9g}"
    alone = values[place(masks, members)]
    tol = 1e-12 if drawn.double else 1e-6
    scale = abs(here) + abs(null) + abs(float(problem.value(np.zeros(FEW))))
    if certificate.stationary and here - alone > tol * scale * 1.01 + blur:
        yield "stationary", f"F {here:.9g}, refitted {alone:.9g}, null {null:.6g}"
    swaps = {}
    for j in set(range(FEW)) - set(members):
        for i in [*members] + [None] * (len(members) < k):
            swaps[i, j] = values[place(masks, [*(m for m in members if m != i), j])]
    least = min(swaps.values(), default=np.inf)
    none = margin("No exchange", said, here)
    if none is not None and here - least > none + blur:
        yield "no exchange", f"F {here:.9g}, an exchange has {least:.9g} ({(least - here) / here:.1e}): {said}"
    whole, mine = margin("This is the best subset", said, here), np.isin(np.arange(FEW), members)
    another = values[allowed & np.any(masks != mine, 1)].min(initial=np.inf)
    if whole is not None and here - another > whole + blur:
        yield "best subset", f"F {here:.9g}, another has {another:.9g}: {said}"
    if certificate.best_swap is not None:
        after = swaps[certificate.best_swap]
        if after > here - certificate.swap_gain * (1 - 1e-3) + blur:
            yield "gain", f"{certificate.best_swap} gains {certificate.swap_gain:.6g}: from {here:.9g} to {after:.9g}"
    optimal = re.search("no other choice lowers the objective by more than ([0-9.e+-]+) of its value", said)
    if optimal and here - best > float(optimal.group(1)) * abs(here) * 1.01 + blur:
        yield "proved optimal", f"F {here:.9g}, best {best:.9g}: {said}"
    within = re.search("within ([0-9.e+-]+)% of the best possible", said)
    if within and here - best > percent(within.group(1)) * abs(best) * 1.001 + blur:
        yield "within", f"F {here:.9g}, best {best:.9g}: {said}"
    if "a better one exists" in said and best >= here:
        yield "a better one", f"F {here:.9g}, best {best:.9g}: {said}"
    if re.search(r"\bnan\b|\binf\b", said):
        yield "words", said
    if int(solution.result) == sht.RESULTS.converged and here > null + near + 2 * rise:
        yield "above the null model", f"F {here:.9g}, null {null:.9g}"


def other_certified(seed):
    """The certificate of a point of the reference's under another loss."""
    rng = np.random.default_rng(seed)
    double = bool(seed % 2)
    intercept, standardize = SETTINGS[1 - double]
    other = draw_other(rng, list(LOSSES)[seed // 2 % len(LOSSES)], double, intercept, standardize)
    drawn, problem = other.drawn, other.problem()
    masks, values, (w, b) = problem.minima()
    allowed = np.flatnonzero((masks.sum(1) == drawn.k) & ~np.any(masks & ~np.isfinite(problem.size), 1))
    if not allowed.size:
        return drawn, []
    row = allowed[np.argmin(values[allowed])] if rng.random() < 0.6 else rng.choice(allowed)
    solution = point(rng, drawn, w[row].astype(float), float(b[row]), np.flatnonzero(masks[row]), values[row])
    with precision(double), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = sht.LinearModel(drawn.X, drawn.y, other.module, **drawn.options())
            certificate = sht.certificate(model, sht.Sparsity(drawn.k), solution)
        except ValueError as refusal:
            return refused(drawn, str(refusal))
    return drawn, list(of_other_certificate(other, solution, certificate, problem))


def other_solved(seed):
    """A solution of another loss and its certificate."""
    rng = np.random.default_rng(seed)
    double = bool(seed % 2)
    intercept, standardize = SETTINGS[1 - double]
    other = draw_other(rng, ("logistic", "poisson", "huber")[seed // 2 % 3], double, intercept, standardize)
    drawn = other.drawn
    with precision(double), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = sht.LinearModel(drawn.X, drawn.y, other.module, **drawn.options())
        except ValueError as refusal:
            return refused(drawn, str(refusal))
        solution = sht.solve(model, sht.Sparsity(drawn.k), throw=False)
        if not (np.isfinite(np.asarray(solution.x)).all() and np.isfinite(float(solution.value))):
            known = int(solution.result) not in (0, 1)
            return drawn, [] if known else [("finite", solution.describe())]
        certificate = sht.certificate(model, sht.Sparsity(drawn.k), solution)
    return drawn, list(of_other_certificate(other, solution, certificate, other.problem()))


PROVED = [name for name in LOSSES if name != "tweedie"]


def other_proof(seed):
    """A proof of another loss."""
    rng = np.random.default_rng(seed)
    double = bool(seed % 2)
    intercept, standardize = SETTINGS[1 - double]
    other = draw_other(rng, PROVED[seed // 2 % len(PROVED)], double, intercept, standardize, 1e-8)
    drawn, ratio = other.drawn, rng.choice([None, 1.05])
    with precision(double):
        try:
            model = sht.LinearModel(drawn.X, drawn.y, other.module, **drawn.options())
            proof = sht.prove(model, sht.Sparsity(drawn.k), collect=ratio, time_limit=120)
        except ValueError as refusal:
            return refused(drawn, str(refusal))
    return drawn, list(of_other_proof(other, proof, other.problem(), ratio))


def of_other_proof(other, proof, problem, ratio):
    """The sentences and numbers of a proof of another loss."""
    drawn, said = other.drawn, proof.statement
    masks, values, _ = problem.minima()
    values, usable = values.astype(float), np.isfinite(problem.size)
    right = (masks.sum(1) == min(drawn.k, usable.sum())) & ~np.any(masks & ~usable, 1)
    masks, values = masks[right], values[right]
    y, c = np.asarray(drawn.y, float), float(other.loss.parameter)
    if other.loss.name == "negative_binomial":
        each = xlogy(y, (1 + c * y) / np.where(y > 0, c * y, 1)) + np.log1p(c * y) / c
    else:
        each = {"poisson": y - xlogy(y, y), "gamma": 1 + np.log(np.maximum(y, 1e-300))}.get(other.loss.name, 0 * y)
    floor = float(problem.omega @ each)
    if not np.isfinite([proof.upper, proof.lower, proof.intercept, *proof.x]).all():
        yield "finite", said
        return
    here = float(problem.value(proof.x, proof.intercept))
    best = min(values.min(), here)
    size = here - floor
    blur = 16 * reach(other, problem, proof.x, proof.intercept, EPS[True]) + 1e-10 * (abs(here) + abs(floor))
    if abs(proof.floor - floor) > 1e-9 * (1 + abs(floor)):
        yield "floor", f"{proof.floor:.9g}, is {floor:.9g}"
    if abs(proof.upper - here) > 1e-6 * size + blur:
        yield "upper", f"upper {proof.upper:.9g}, F(x, b) = {here:.9g}, best {best:.9g}"
    if not proof.lower <= best + 1e-9 * abs(best - floor) + blur:
        yield "lower", f"lower {proof.lower:.9g}, best {best:.9g}: {said}"
    found = re.search("to ([0-9.e+-]+)% of the objective", said)
    if proof.proved and here - best > (percent(found.group(1)) if found else 1e-4) * size * (1 + 1e-6) + blur:
        yield "proved", f"F {here:.9g}, best {best:.9g}, floor {floor:.6g}: {said}"
    most = re.search("lowers the objective by at most ([0-9.e+-]+)%", said)
    if most and here - best > percent(most.group(1)) * size * (1 + 1e-6) + blur:
        yield "at most", f"F {here:.9g}, best {best:.9g}: {said}"
    if not proof.proved and "rounding in float64 hides the rest" not in said:
        yield "not proved", said
    if ratio is None or not proof.proved:
        return
    level = floor + ratio * (best - floor)
    every = {frozenset(np.flatnonzero(mask).tolist()): v for mask, v in zip(masks, values, strict=True)}
    found = [frozenset(np.flatnonzero(mask).tolist()) for mask in proof.collected.masks]
    missing = {s for s, v in every.items() if v < level - 1e-6 * size - blur} - set(found)
    if proof.collected.complete and missing:
        yield "collected misses", f"{sorted(map(sorted, missing))}: {said}"
    more = [s for s in found if every.get(s, np.inf) > level + 1e-6 * size + blur]
    if more:
        yield "collected more", f"{[(every.get(s, np.inf) - floor) / (best - floor) for s in more]}: {said}"


# --- units: kept features, bounds, signs, groups, rows ---------------------------------------------------------------
GROUPS = np.array([0, 0, 1, 2, 2, 3])
STRUCTURES = ("keep", "box", "positive", "groups", "groups keep", "groups positive", "rows")


def threshold_of(name, k, reach):
    k = min(k, 2)
    return {
        "keep": lambda: sht.Sparsity(k, keep=[1]),
        "box": lambda: sht.Sparsity(k, lower=-0.3 * reach, upper=0.4 * reach),
        "positive": lambda: sht.Sparsity(k, lower=0),
        "groups": lambda: sht.GroupSparsity(GROUPS, k),
        "groups keep": lambda: sht.GroupSparsity(GROUPS, 1, keep=[2]),
        "groups positive": lambda: sht.GroupSparsity(GROUPS, k, lower=0.0, upper=np.full(P, np.inf)),
        "rows": lambda: sht.RowSparsity(k),
    }[name]()


def in_units(seed):
    """A solution of kept features, bounds, groups or rows, and what its certificate says of exchanges of units."""
    rng = np.random.default_rng(seed)
    double, name = bool(seed % 2), STRUCTURES[seed // 2 % len(STRUCTURES)]
    intercept, standardize = SETTINGS[1 - double]
    drawn = draw(rng, double, intercept, standardize)
    size = np.abs(drawn.X.astype(float) - drawn.X.astype(float).mean(0)).max(0)
    spread_y = float(np.std(drawn.y.astype(float)))
    reach = np.where(size > 0, spread_y / np.where(size > 0, size, 1), 1.0).astype(drawn.X.dtype)
    threshold = threshold_of(name, drawn.k, reach)
    y = drawn.y
    if name == "rows":
        y = np.column_stack([y, y[::-1]])
    offset = None if name == "rows" else drawn.offset
    drawn = drawn._replace(y=y, offset=offset, about=f"{name}; {drawn.about}")
    exact = rational(drawn)
    with precision(double), warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        try:
            model = (sht.MultiResponse if name == "rows" else sht.LinearModel)(drawn.X, y, **drawn.options())
        except ValueError as refusal:
            return refused(drawn, str(refusal))
        solution = sht.solve(model, threshold, throw=False)
        if not (np.isfinite(np.asarray(solution.x)).all() and np.isfinite(float(solution.value))):
            known = int(solution.result) not in (0, 1)
            return drawn, [] if known else [("finite", solution.describe())]
        certificate = sht.certificate(model, threshold, solution)
    return drawn, list(of_units(drawn, name, threshold, solution, certificate, exact))


def of_units(drawn, name, threshold, solution, certificate, exact):
    """The sentences about exchanges of units, all of which are enumerated."""
    members_of = (
        [np.flatnonzero(g == GROUPS) for g in range(4)] if "groups" in name else [np.array([j]) for j in range(P)]
    )
    kept, units = [int(u) for u in np.asarray(threshold.keep)], [int(u) for u in chosen(solution)]
    lower, upper = (
        np.broadcast_to(default if bound is None else np.asarray(bound, float), P)
        for bound, default in (
            (getattr(threshold, "lower", None), -np.inf),
            (getattr(threshold, "upper", None), np.inf),
        )
    )
    bounded = np.isfinite(lower).any() or np.isfinite(upper).any()

    def least(chosen_units):
        features = sorted(int(j) for u in chosen_units for j in members_of[u])
        return float(exact.bounded(features, lower, upper) if bounded else exact.minimum(features))

    x, b = np.asarray(solution.x, float), np.asarray(solution.intercept, float)
    at_x = exact.value(x, b)
    here, value, said = float(at_x), float(solution.value), certificate.statement
    single, terms = EPS[drawn.double], []
    for r in range(exact.responses):
        at = spread(drawn._replace(y=drawn.y.reshape(N, -1)[:, r]))
        terms.append((at, x.reshape(P, -1)[:, r]))
    null = sum(at.null for at, _ in terms)
    blur, near = (32 * sum(blurred(at, here, w, eps) for at, w in terms) for eps in (EPS[True], single))
    blur += 1e-7 * here + 1e-20 * null
    near, rise = near + (1e-8 if drawn.double else 1e-4) * here, float(np.sum(solution.intercept_rounding))
    if not -near <= here - value <= near + 2 * rise:
        yield "value", f"value {value:.6g}, F(x, b) = {here:.6g}, intercept_rounding {rise:.2g}; {solution.describe()}"
    if abs(certificate.upper_bound - here) > blur:
        yield "upper_bound", f"{certificate.upper_bound:.6g}, F(x, b) = {here:.6g}"
    if np.any(x < np.asarray(lower).reshape(-1, *[1] * (x.ndim - 1))) or np.any(
        x > np.asarray(upper).reshape(-1, *[1] * (x.ndim - 1))
    ):
        yield "bounds", f"{x} outside {lower} to {upper}"
    k = int(threshold.k)
    mine = [u for u in units if u not in kept]
    if len(mine) > k:
        yield "support", f"{units}"
    alone = least([*kept, *mine])
    tol = 1e-12 if drawn.double else 1e-6
    if certificate.stationary and here - alone > tol * (here + 2 * null) * 1.01 + blur:
        yield "stationary", f"F {here:.9g}, refitted {alone:.9g}, null {null:.6g}"
    if certificate.stationary is False and alone >= here * (1 - 1e-12):
        yield "not stationary", f"F {here:.9g}, refitted {alone:.9g}"
    if int(solution.result) == sht.RESULTS.converged:
        slow = (1e-9 if drawn.double else 1e-5) * (here + 2 * null)
        if here - alone > slow + near + 2 * rise:
            yield "converged", f"F {here:.9g}, refitted {alone:.9g}, null {null:.6g}"
    swaps = {}
    for u in set(range(len(members_of))) - set(kept) - set(mine):
        for out in [*mine] + [None] * (len(mine) < k):
            swaps[out, u] = least([*kept, *(m for m in mine if m != out), u])
    best = min(swaps.values(), default=np.inf)
    none = margin("No exchange", said, here)
    if none is not None and here - best > none + blur:
        yield "no exchange", f"F {here:.9g}, an exchange has {best:.9g} ({best / here - 1:.1e}): {said}"
    whole = margin("This is the best subset", said, here)
    if whole is not None and here - best > whole + blur:
        yield "best subset", f"F {here:.9g}, an exchange has {best:.9g}: {said}"
    if certificate.best_swap is not None:
        after = swaps[certificate.best_swap]
        if after > here - certificate.swap_gain * (1 - 1e-3) + blur:
            yield "gain", f"{certificate.best_swap} gains {certificate.swap_gain:.6g}: from {here:.9g} to {after:.9g}"
    if certificate.lower_bound is not None and not certificate.lower_bound <= min(alone, best, here) * (1 + 1e-9):
        yield "lower_bound", f"{certificate.lower_bound:.9g}, a choice has {min(alone, best, here):.9g}"


# --- estimators ------------------------------------------------------------------------------------------------------
def estimated(seed):
    """An estimator of least squares: what it holds, predicts, says, saves and proves is of one function."""
    rng = np.random.default_rng(seed)
    double, (intercept, standardize) = bool(seed % 2), SETTINGS[seed // 2 % 3]
    drawn = draw(rng, double, intercept, standardize)
    l2 = float(rng.choice([0.0, 1e-6, 1e-3, 1.0]))
    k = drawn.k if rng.random() < 0.8 else "bic"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = sht.SparseRegressor(k, l2=l2, fit_intercept=intercept, standardize=standardize)
        try:
            model.fit(drawn.X, drawn.y, drawn.weights, offset=drawn.offset)
        except ValueError as refusal:
            return refused(drawn, str(refusal))
        if drawn.weights is not None:  # as the model has them, in the dtype of X
            drawn = drawn._replace(weights=(drawn.weights.astype(float) / drawn.weights.max()).astype(drawn.X.dtype))
        drawn = drawn._replace(l2=np.full(P, l2, drawn.X.dtype), k=int(model.k_), about=f"k={k}; {drawn.about}")
        exact = rational(drawn)
        messages = [str(each.message) for each in caught]
        found = list(of_estimator(drawn, model, exact, messages))
        if rng.random() < 0.3 and not found:
            model.prove(20)
            found += [(f"after prove: {law}", what) for law, what in of_estimator(drawn, model, exact, messages)]
    return drawn, found


class Held(NamedTuple):
    """What an estimator holds, as a solution."""

    x: np.ndarray
    intercept: Any
    support: Any
    value: float
    result: int

    def describe(self):
        return sht.RESULTS(self.result).name


def held(model):
    features = np.flatnonzero(model.support_).astype(np.int32)
    support = sht.estimators.base.Support(features, np.ones(features.size, bool))
    coef, intercept = np.ravel(model.coef_), np.ravel(model.intercept_)[0]
    return Held(coef, intercept, support, model.objective_value_, int(sht.RESULTS[model.result_]))


def of_estimator(drawn, model, exact, messages):
    """objective_value_, predictions, files and certificate of a fitted estimator of one response."""
    x, b, value = np.asarray(model.coef_, float), float(model.intercept_), model.objective_value_
    if not np.isfinite([value, b, *x]).all():
        if model.result_ == "converged":
            yield "finite", f"{value} {x} {b}"
        return
    at = spread(drawn)
    here = float(exact.value(x, b))
    near = 4 * blurred(at, here, x, EPS[True], b) + (1e-12 if drawn.double else 1e-6) * (here + at.null)
    if abs(value - here) > near:
        yield "objective_value_", f"{value:.6g}, F(coef_, intercept_) = {here:.6g}, null {at.null:.6g}; {messages}"
    said = np.asarray(model.predict(drawn.X, drawn.offset), np.longdouble)
    y, omega = drawn.y.astype(np.longdouble), at.omega
    ridge = (
        sum(float(r) * (w * 2.0**e) ** 2 for r, w, e in zip(exact.ridge, x, [-e for e in exact.exponents], strict=True))
        / 2
    )
    predicted = float(omega @ (said - y) ** 2) / 2 + ridge
    terms = np.abs(drawn.X.astype(float)) @ np.abs(x) + abs(b) + (0 if drawn.offset is None else np.abs(drawn.offset))
    digits = EPS[True] * float(np.sqrt(omega @ terms**2))
    room = 8 * (np.sqrt(2 * value) * digits + digits**2)
    if abs(predicted - value) > near + room:
        yield (
            "predict",
            f"objective_value_ {value:.6g}, that of predict {predicted:.6g}, of coef_ {here:.6g}; {messages}",
        )
    with tempfile.TemporaryDirectory() as folder:
        again = sht.load(sht.save(model, Path(folder) / "model.npz"))
    if not np.array_equal(again.predict(drawn.X, drawn.offset), model.predict(drawn.X, drawn.offset)):
        yield "load", "a loaded model predicts something else"
    if again.objective_value_ != value:
        yield "load", f"{again.objective_value_} for {value}"
    if model.result_ == "converged":
        alone = float(exact.minimum(np.flatnonzero(model.support_)))
        if here - alone > (1e-9 if drawn.double else 1e-5) * (here + 2 * at.null) + near:
            yield "converged", f"F {here:.6g}, refitted {alone:.6g}, null {at.null:.6g}; {messages}"
    yield from of_certificate(drawn, held(model), model.certificate_, exact)


# --- what scorers see ------------------------------------------------------------------------------------------------
def scored(seed):
    """A scorer of folds sees the user's targets, and the predictors that predict."""
    rng = np.random.default_rng(seed)
    double, name = bool(seed % 2), ["squared", "huber", "poisson", "logistic", "quantile"][seed // 2 % 5]
    n, entry = 32, ["cross_validate", "choose", "estimator"][rng.integers(3)]
    dtype = np.float64 if double else np.float32
    far = 10.0 ** rng.uniform(0, 4) * (rng.random() < 0.6)
    X = (rng.standard_normal((n, FEW)) + far).astype(dtype)
    eta, offset = (X - X.mean(0)) @ rng.standard_normal(FEW), None
    if rng.random() < 0.7:
        offset = (
            rng.standard_normal(n)
            + rng.choice([0.0, 10.0, 100.0, -1000.0] if name in ("squared", "huber", "quantile") else [0.0, 5.0])
        ).astype(dtype)
    if name == "poisson":
        y = rng.poisson(np.exp(np.clip(eta, -2, 2))).astype(dtype)
    elif name == "logistic":
        y = np.where(eta + rng.logistic(size=n) > 0, 1.0, -1.0).astype(dtype)
    else:
        y = (eta + rng.standard_normal(n) + rng.choice([0.0, 100.0, 1e4])).astype(dtype)
        y = y if offset is None else y + offset
    weights = None if rng.random() < 0.5 else rng.integers(0, 3, n).astype(dtype)
    if weights is not None:
        weights[:10] = 1
    seen = []

    def scoring(y, eta, weights):
        seen.append((np.array(y, float), np.array(eta, float)))
        return float(np.mean((y - eta) ** 2))

    def scorer(estimator, X, y, sample_weight=None):
        seen.append((np.array(y, float), np.array(estimator.predict(X), float)))
        return -float(np.mean((y - estimator.predict(X)) ** 2))

    drawn = Drawn(X, y, np.zeros(FEW), weights, offset, True, True, 2, double, f"{entry} {name}")
    loss = {
        "squared": sht.Squared(),
        "huber": sht.Huber(),
        "poisson": sht.Poisson(),
        "logistic": sht.Logistic(),
        "quantile": sht.Quantile(),
    }[name]
    with precision(double), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if entry == "estimator":
            if name == "logistic":
                return drawn, []
            model = sht.SparseRegressor([1, 2], l2=1e-3, loss=loss, scoring=scorer, cv=3, rule="best")
            model.fit(X, y, weights, offset=offset)
        else:
            model = sht.LinearModel(X, y, loss, 1e-3, weights, True, True, offset)
            function = sht.choose if entry == "choose" else sht.cross_validate
            function(model, ks=[1, 2], folds=3, scoring=scoring)
    found, live = [], np.ones(n, bool) if weights is None else weights > 0
    users = np.sort(y[live].astype(float))
    for targets, eta in seen[:4]:
        place = np.clip(np.searchsorted(users, targets), 1, len(users) - 1)
        gap = np.minimum(np.abs(users[place] - targets), np.abs(users[place - 1] - targets))
        if gap.max() > 1e-5 * (np.abs(targets).max() + 1e-3) * (1e-6 if double else 1):
            found.append(("targets", f"a scorer saw {targets[:3]}, y holds {users[:3]} to {users[-3:]}"))
            break
        spread_y = np.std(y.astype(float) - (0 if offset is None else offset))
        if name == "squared" and not far and np.median(np.abs(eta - targets)) > 10 * spread_y + 10:
            found.append(("predictors", f"a scorer saw {targets[:3]} and {eta[:3]}"))
            break
    if not seen:
        found.append(("not called", entry))
    return drawn, found


# --- objectives of one's own -----------------------------------------------------------------------------------------
def _kinked(x, X, y):
    return jnp.mean(jnp.abs(X @ x - y))


def _scale(x, X, y):  # Student's t with a learned scale, the last entry
    r = (X[:, :-1] @ x[:-1] - y) / jnp.exp(x[-1])
    return jnp.mean(2 * jnp.log1p(r**2 / 3)) + x[-1]


def _upside(x, X, y):
    return -jnp.mean((X @ x - y) ** 2)


def _norm(x, X, y):
    return jnp.mean((X @ x - y) ** 2) / 2 + 0.1 * jnp.linalg.norm(x)


def _flat(x, X, y):
    return jnp.mean(1 - jnp.exp(-((X @ x - y) ** 2)))


def _unbounded(x, X, y):
    return -jnp.mean(y * (X @ x))


def _quartic(x, X, y):
    return jnp.mean((X @ x - y) ** 4) - jnp.mean((X @ x - y) ** 2)


def _root(x, X, y):
    return jnp.mean((X @ x - y) ** 2) + 0.1 * jnp.sum(jnp.sqrt(jnp.abs(x) + 1e-3)) + 0 * jnp.sum(jnp.log(2.0 + x))


OWN = (_kinked, _scale, _upside, _norm, _flat, _unbounded, _quartic, _root)
OWN_SOLVERS = (sht.BestSubset(), sht.HTP(), sht.FoBa(), sht.IHT(), sht.GraSP())
PAIRS = [(fun, solver) for i, fun in enumerate(OWN) for solver in (OWN_SOLVERS[i % 2], OWN_SOLVERS[2 + i % 3])]
PAIRS += [(fun, solver) for fun in (_kinked, _scale) for solver in OWN_SOLVERS if (fun, solver) not in PAIRS]


def own(seed):
    """What says that it converged cannot be left downhill within its support."""
    rng = np.random.default_rng(seed)
    fun, solver = PAIRS[seed % len(PAIRS)]
    X = rng.standard_normal((N, FEW)) * 10.0 ** rng.uniform(-1, 1)
    y = X @ np.where(rng.random(FEW) < 0.5, rng.standard_normal(FEW), 0) + 10.0 ** rng.uniform(
        -2, 0.5
    ) * rng.standard_normal(N)
    drawn = Drawn(X, y, np.zeros(FEW), None, None, False, False, 2, True, f"{fun.__name__} {type(solver).__name__}")
    with precision(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        objective, start = sht.Custom(fun, X, y), None
        if rng.random() < 0.3:
            start = rng.standard_normal(FEW) * (np.arange(FEW) < 2)
        solution = sht.solve(objective, sht.Sparsity(2), solver, start, throw=False)
        x, found = np.asarray(solution.x, float), []

        def value(x):
            return float(fun(x, X, y))

        with np.errstate(all="ignore"):
            here = _in_numpy(fun)(x, X, y)
            if int(solution.result) == sht.RESULTS.converged:
                down, how = downhill(lambda v: _in_numpy(fun)(v, X, y), x, chosen(solution), rng)
                if down:
                    found.append(
                        (
                            "converged",
                            f"{solution.describe()} x {x} F {here:.6g} value {float(solution.value):.6g}: {how}",
                        )
                    )
            if np.isfinite(float(solution.value)) and abs(float(solution.value) - here) > 1e-9 * (1 + abs(here)):
                found.append(("value", f"{float(solution.value)} is {here}"))
            if np.isfinite(float(solution.value)) and np.isfinite(x).all():
                certificate = sht.certificate(objective, sht.Sparsity(2), solution)
                if certificate.stationary:
                    down, how = downhill(lambda v: _in_numpy(fun)(v, X, y), x, chosen(solution), rng)
                    if down:
                        found.append(("stationary", f"{solution.describe()} F {here:.6g}: {how}"))
                if re.search("No exchange|This is the best subset", certificate.statement):
                    found.append(("no exchange", f"of a function that need not be convex: {certificate.statement}"))
    return drawn, found


def _in_numpy(fun):
    """The same function of NumPy arrays."""
    return lambda x, X, y: float(eval_with_numpy(fun, x, X, y))


def eval_with_numpy(fun, x, X, y):
    return types.FunctionType(fun.__code__, {"jnp": np})(x, X, y)


def downhill(value, x, members, rng):
    """Whether some small step within the support lowers a function by more than a share of what its slopes allow."""
    here, reach = value(x), 1 + np.abs(x).max()
    if not np.isfinite(here):
        return True, "F is not finite"
    directions = rng.standard_normal((60, members.size))
    directions = np.vstack(
        [directions / np.linalg.norm(directions, axis=1, keepdims=True), np.eye(members.size), -np.eye(members.size)]
    )
    zero = np.zeros_like(x)
    steep = max(abs(value(zero + 1e-3 * e) - value(zero - 1e-3 * e)) / 2e-3 for e in np.eye(x.size)) + 1e-9
    for h in (1e-1, 1e-2, 1e-3):
        for d in directions:
            at = x.copy()
            at[members] += h * reach * d
            if value(at) < here - 1e-3 * h * reach * steep - 1e-9 * abs(here):
                return True, f"a step of {h * reach:.0e} along {np.round(d, 2)} lowers F by {here - value(at):.2g}"
    return False, ""


# --- not a number ----------------------------------------------------------------------------------------------------
def spoiled(seed):
    """NaN and infinities in any argument raise a ValueError that names it."""
    rng = np.random.default_rng(seed)
    double = bool(seed % 2)
    dtype, n, p = (np.float64 if double else np.float32), int(rng.choice([8, 400, 5000])), int(rng.choice([3, 50]))
    name = [
        "LinearModel",
        "MultiResponse",
        "CoxModel",
        "OrdinalModel",
        "SparseRegressor",
        "SparseClassifier",
        "SparseCox",
        "QuadraticForm",
        "Precision",
    ][rng.integers(9)]
    X = rng.standard_normal((n, p)).astype(dtype, order=rng.choice(["C", "F"]))
    eta = X[:, 0]
    arrays = {"X": X, "sample_weight": np.ones(n, dtype), "offset": np.zeros(n, dtype), "l2": np.full(p, 0.1, dtype)}
    if name in ("LinearModel", "SparseRegressor"):
        arrays["y"] = eta.copy()
    elif name == "MultiResponse":
        arrays |= {"Y": np.column_stack([eta, -eta]), "offset": np.zeros((n, 2), dtype)}
    elif name in ("CoxModel", "SparseCox"):
        arrays |= {"time": np.abs(eta) + 1, "event": (eta > 0).astype(dtype)}
        arrays["event"][:2] = 1
    elif name == "OrdinalModel":
        arrays["y"] = np.arange(n) % 3
    elif name == "SparseClassifier":
        arrays["y"] = np.arange(n) % 2
    elif name == "QuadraticForm":
        arrays = {"Q": np.eye(p, dtype=dtype), "b": np.ones(p, dtype)}
    else:
        arrays = {"S": np.eye(p, dtype=dtype)} if name == "Precision" else arrays
    which = rng.choice([key for key, a in arrays.items() if a.dtype.kind == "f"])
    spoilt, bad = arrays[which].copy(order="K"), rng.choice([np.nan, np.inf, -np.inf])
    flat = rng.choice([0, spoilt.size - 1, rng.integers(spoilt.size)])
    spoilt[np.unravel_index(flat, spoilt.shape)] = bad
    arrays[which] = spoilt
    drawn = Drawn(
        X, eta, np.zeros(p), None, None, True, True, 2, double, f"{name} {which} {bad} at {flat} of {spoilt.shape}"
    )
    with precision(double), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if name.startswith("Sparse"):
                y = np.column_stack([arrays["time"], arrays["event"]]) if name == "SparseCox" else arrays["y"]
                estimator = getattr(sht, name)(2, l2=arrays["l2"])
                estimator.fit(arrays["X"], y, arrays["sample_weight"], offset=arrays["offset"])
            elif name == "Precision":
                sht.Precision(arrays["S"], n)
            else:
                first = {
                    "CoxModel": ("X", "time", "event"),
                    "MultiResponse": ("X", "Y"),
                    "QuadraticForm": ("Q", "b"),
                }.get(name, ("X", "y"))
                rest = {key: a for key, a in arrays.items() if key not in first}
                getattr(sht, name)(*(arrays[key] for key in first), **rest)
        except ValueError as refusal:
            words = {"Q": "A", "time": "time|y", "event": "event|y", "S": "S|covariance"}.get(which, which)
            known = re.search(rf"\b({words})\b", str(refusal))
            return drawn, [] if known else [("another argument", f"{which} {bad}: {refusal}")]
        except Exception as error:
            return drawn, [("raised", f"{type(error).__name__}: {error}")]
    return drawn, [("accepted", f"{which} with {bad}")]


def refused(drawn, message):
    """A refusal is an answer where it says why."""
    known = re.match("(X|y|l2|sample_weight|offset): ", message)
    return drawn, [] if known else [("refused", message)]


KINDS = {
    "proof": least_squares,
    "certificate": certified,
    "solution": solved,
    "other certificate": other_certified,
    "other solution": other_solved,
    "other proof": other_proof,
    "units": in_units,
    "estimator": estimated,
    "scorer": scored,
    "own": own,
    "spoiled": spoiled,
}


def violations(kind, seed):
    """(what was drawn, what was said and is not so)."""
    return KINDS[kind](seed)
