"""What the library says of a drawn problem, sentence by sentence, against references of another kind.

`violations(kind, seed)` draws a case and returns it with the sentences and numbers that are false: (law, what was said
and what is so). Shapes and static settings are few, so that thousands of cases share their programs.
"""

import itertools
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from cases import BY_NAME, chained
from exact import LOG_LINK, Loss, Problem
from laws import chosen
from rational import Quadratic
from scipy.special import xlogy

import sparsehtp as sht
from sparsehtp.certificates.exchanges import best_swaps

N, P = 24, 6
EPS = {False: float(np.finfo(np.float32).eps), True: float(np.finfo(float).eps)}


SQUARED = Loss("squared", np.longdouble(1))


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
    loss: Loss = SQUARED
    keep: Any = ()

    def options(self):
        """Keyword arguments of `LinearModel`."""
        options = dict(l2=self.l2, sample_weight=self.weights, offset=self.offset)
        return options | dict(fit_intercept=self.intercept, standardize=self.standardize)

    def model(self):
        return sht.LinearModel(self.X, self.y, BY_NAME[self.loss.name](float(self.loss.parameter)), **self.options())

    def threshold(self):
        return sht.Sparsity(self.k, keep=list(self.keep) or None)

    def problem(self):
        """In extended precision."""
        exact = self.X, self.y, self.loss, self.l2, self.weights, self.offset, self.intercept, self.standardize
        return Problem(*exact)


def columns(rng, n, p, double):
    """(columns, what they are): far, near, tiny, rounded; every case has some of these and few have all."""
    Z, about = rng.standard_normal((n, p)), []
    rho = rng.choice([0.0, 0.5, 0.95])
    Z = chained(Z, rho)
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


def draw(rng, double, intercept, standardize, n=N, p=P):
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
    if rng.random() < 0.3:
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
    weights, offset = (None if each is None else each.astype(dtype) for each in (weights, offset))
    l2, k = np.broadcast_to(l2, p).astype(dtype), int(rng.integers(1, 4))
    return Drawn(X, y.astype(dtype), l2, weights, offset, intercept, standardize, k, double, "; ".join(about))


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


def margin(sentence, said, here):
    """What an exchange may lower F by beside a sentence, None if it is not said."""
    found = re.search(sentence + r".*?\(by more than ([0-9.e+-]*[0-9])( of its value)?", said)
    return found and float(found.group(1)) * (abs(here) if found.group(2) else 1) * 1.01


COPIES = 3e-14  # columns that differ by less, of their size, may count as copies, or as what they are


class Choices(NamedTuple):
    """What a proof is held against."""

    values: dict[frozenset, float]  # the least F on every choice
    copied: dict[frozenset, float]  # the same where columns that nearly copy others add nothing
    value: Callable  # F(w, b)
    floor: float  # no F is less, whatever the predictor is; what is relative is so without it
    null: float  # F - floor without features, where rounding may hide less than a share of it
    blur: Callable  # of F and a point: what rounding may do to F there


def by_fractions(drawn):
    """Of least squares."""
    exact, at = rational(drawn), spread(drawn)
    usable = np.flatnonzero(~exact.constant) if drawn.intercept else np.flatnonzero(np.abs(drawn.X).max(0) > 0)
    every = (exact.choices(drawn.k, drawn.keep, usable, copies) for copies in (0.0, COPIES))
    values, copied = ({s: float(v) for s, v in each.items()} for each in every)

    def blur(F, w, b):
        return 16 * blurred(at, F, w, EPS[True], b) + 1e-40

    return Choices(values, copied, lambda w, b: float(exact.value(w, b)), 0.0, at.null, blur)


def by_search(drawn):
    """Of any loss, in extended precision."""
    problem = drawn.problem()
    masks, values, _ = problem.minima()
    usable, kept = np.isfinite(problem.size), np.isin(np.arange(masks.shape[1]), drawn.keep)
    right = np.all(masks >= (kept & usable), 1) & ~np.any(masks & ~usable, 1)
    right &= np.sum(masks & ~kept, 1) == min(drawn.k, np.sum(usable & ~kept))
    masks, values = masks[right] | kept, values[right].astype(float)  # a kept column may be constant
    found = {frozenset(np.flatnonzero(mask).tolist()): float(v) for mask, v in zip(masks, values, strict=True)}
    y, c = np.asarray(drawn.y, float), float(drawn.loss.parameter)
    if drawn.loss.name == "negative_binomial":
        each = xlogy(y, (1 + c * y) / np.where(y > 0, c * y, 1)) + np.log1p(c * y) / c
    else:
        each = {"poisson": y - xlogy(y, y), "gamma": 1 + np.log(np.maximum(y, 1e-300))}.get(drawn.loss.name, 0 * y)
    floor = float(problem.omega @ each)

    def blur(F, w, b):
        return 16 * reach(drawn, problem, w, b, EPS[True]) + 1e-10 * (abs(F) + abs(floor))

    return Choices(found, found, lambda w, b: float(problem.value(w, b)), floor, 0.0, blur)


def of_proof(drawn, proof, choices, ratio, digits=1e-6):
    """Every sentence and number of a `Proof`, values to so many digits."""
    said, values, copied, floor, null = proof.statement, choices.values, choices.copied, choices.floor, choices.null
    if not np.isfinite([proof.upper, proof.lower, proof.intercept, *proof.x]).all():
        yield "finite", said
        return
    here = choices.value(proof.x, proof.intercept)
    best, most, size = min(values.values()), min(copied.values()), here - floor
    if not null:  # a search may end above what the proof found
        best = most = min(best, here)
    blur, where = choices.blur(here, proof.x, proof.intercept), f"F {here:.9g}, best {best:.9g} or {most:.9g}: {said}"
    if abs(proof.floor - floor) > 1e-9 * (1 + abs(floor)):
        yield "floor", f"{proof.floor:.9g}, is {floor:.9g}"
    if abs(proof.upper - here) > digits * size + blur:
        yield "upper", f"upper {proof.upper:.9g}, {where}"
    if not proof.lower <= most + 1e-9 * abs(most - floor) + 1e-15 * null + blur:
        yield "lower", f"lower {proof.lower:.9g}, {where}"
    members = set(chosen(proof).tolist())
    inside = set(np.flatnonzero(proof.x)) <= members and {*drawn.keep} <= members
    if len(members) > drawn.k + len(drawn.keep) or not inside:
        yield "support", f"{proof.support.idx}"
    if proof.proved != said.startswith("Proved"):
        yield "words", said
    history, share = proof.history, (proof.upper - proof.lower) / max(proof.upper - proof.floor, 1e-300)
    if abs(proof.gap - share) > 1e-9 and proof.gap:
        yield "gap", f"{proof.gap}, is {share}"
    rises = [*np.diff(history["lower"]), *-np.diff(history["upper"]), *np.diff(history["nodes"])]
    if history["nodes"][-1] != proof.nodes or min(rises, default=0) < 0:
        yield "history", f"{history}"
    found = re.search("to ([0-9.e+-]+)% of the objective", said)
    share = re.search("to ([0-9.e+-]+) of the objective w", said)
    room = float(found.group(1)) / 100 * size if found else float(share.group(1)) * null if share else 1e-9 * size
    if proof.proved and here - most > room * (1 + 1e-6) + blur:
        yield "proved", where
    open_ = re.search("lowers the objective by at most ([0-9.e+-]+)%", said)
    if open_ and here - most > float(open_.group(1)) / 100 * size * (1 + 1e-6) + blur:
        yield "at most", where
    if not proof.proved and "rounding in float64 hides the rest" not in said:
        yield "not proved", said
    if ratio is None:
        return
    exactly = "within rounding" in said
    noise = 1e-13 * null if exactly else 0
    level = floor + (1 if exactly else ratio) * (best - floor) + noise
    masks = [frozenset(np.flatnonzero(mask).tolist()) for mask in proof.collected.masks]
    if len(masks) != len(set(masks)):
        yield "collected twice", said
    edge = digits * (best - floor) + noise + blur
    missing = {s for s in values if max(values[s], copied[s]) < level - edge} - set(masks)
    if proof.collected.complete and proof.proved and missing:
        yield "collected misses", f"{sorted(map(sorted, missing))} at {[values[s] for s in missing]}, {where}"
    level = max(level, floor + ratio * (most - floor))
    more = [s for s in masks if values.get(s, np.inf) > level + digits * (level - floor) + noise + blur]
    if more and proof.proved:
        yield "collected more", f"{[values.get(s, np.inf) for s in more]}, {where}"
    near = 1e-13 * null + (1e-40 if null else blur)
    for s, v in zip(masks, proof.collected.values, strict=True):
        room = digits * (values.get(s, np.inf) - floor) + near
        if s in values and not values[s] - room <= v <= copied[s] + room:
            yield "collected value", f"{sorted(s)}: {v:.6g}, is {values[s]:.6g}"
            break


def of_value(solution, here, near):
    """`value`, for one who takes x and the intercept as they are."""
    value, rise = float(solution.value), float(np.sum(solution.intercept_rounding))
    if np.isfinite(value) and not -near <= here - value <= near + 2 * rise:
        yield "value", f"value {value:.6g}, F(x, b) = {here:.6g}, intercept_rounding {rise:.2g}; {solution.describe()}"


def near_of(drawn, here, spreads, null=0.0):
    """How far a value may be from F: of (Spread, coefficients)."""
    blur = sum(32 * blurred(at, here, w, EPS[drawn.double]) for at, w in spreads)
    return (1e-8 if drawn.double else 1e-4) * here + blur + EPS[drawn.double] * null


class Facts(NamedTuple):
    """What a certificate is held against."""

    least: Callable  # the least F on a choice of units
    units: int
    usable: Any  # those of which one can be in a best choice
    here: float  # F
    blur: float  # what rounding may hide of it
    upper: float  # and of its value
    lower: float  # and of a lower bound, beside 1e-9 of it
    scale: float  # of which tolerances of slopes are shares
    exact: bool = True  # else a search may end a little above what it looks for
    kept: Any = ()


def of_sentences(drawn, solution, c, facts, k=None):
    """Every sentence and number of a `Certificate`, at the numbers that the solution holds; all exchanges and choices
    are enumerated."""
    said, here, blur, kept, k = c.statement, facts.here, facts.blur, facts.kept, drawn.k if k is None else k
    mine = [int(u) for u in chosen(solution) if u not in kept]
    others = [u for u in range(facts.units) if u not in (*kept, *mine)]
    free = [int(u) for u in facts.usable if u not in kept]

    def least(some):
        return facts.least(sorted([*kept, *some]))

    def where(what, value):
        return f"F {here:.9g}, {what} {value:.9g} ({value - here:.1e}): {said}"

    alone = least(mine)
    places = [*mine] + [None] * (len(mine) < k)
    swaps = {(i, j): least([*(m for m in mine if m != i), j]) for j in others for i in places}
    values = {frozenset(s): least(s) for s in itertools.combinations(free, min(k, len(free)))}
    best, swap = min(values.values()), min(swaps.values(), default=np.inf)
    other = min((v for s, v in values.items() if s != set(mine)), default=np.inf)
    if abs(c.upper_bound - here) > facts.upper and (facts.exact or np.isfinite(c.upper_bound)):
        yield "upper_bound", f"{c.upper_bound:.9g}, F(x, b) = {here:.9g}"
    if c.lower_bound is not None and not c.lower_bound <= best + 1e-9 * abs(best) + facts.lower:
        yield "lower_bound", f"{c.lower_bound:.9g}, best {best:.9g}"
    if c.stationary and here - alone > (1e-12 if drawn.double else 1e-6) * facts.scale * 1.01 + blur:
        yield "stationary", where("refitted", alone)
    refitting = c.stationary is False or "refitting them lowers" in said
    if facts.exact and refitting and alone >= here * (1 - 1e-12 * (c.stationary is False)):
        yield "not stationary", where("refitted", alone)
    for sentence, rival in (("No exchange", swap), ("This is the best subset", other)):
        none = margin(sentence, said, here)
        if none is not None and here - rival > none + blur:
            yield sentence, where("another has", rival)
    if c.best_swap is not None and swaps[c.best_swap] > here - c.swap_gain * (1 - 1e-3) + blur:
        yield "gain", f"{c.best_swap} gains {c.swap_gain:.6g}; {where('after it', swaps[c.best_swap])}"
    if facts.exact and c.stationary and c.swap_gain is not None and here - c.swap_gain > swap * (1 + 1e-3) + 2 * blur:
        yield "not the best exchange", f"{c.best_swap} gains {c.swap_gain:.6g}; {where('another has', swap)}"
    optimal = re.search("no other choice lowers the objective by more than ([0-9.e+-]+) of its value", said)
    if optimal and here - best > float(optimal.group(1)) * abs(here) * 1.01 + blur:
        yield "proved optimal", where("best", best)
    within = re.search("within ([0-9.e+-]+)% of the best possible", said)
    if within and here - best > float(within.group(1)) / 100 * abs(best) * 1.001 + blur:
        yield "within", where("best", best)
    if "a better one exists" in said and best >= here:
        yield "a better one", where("best", best)
    if re.search(r"\bnan\b|\binf\b", said):
        yield "words", said


def of_certificate(drawn, solution, certificate, exact):
    """A `Certificate` of least squares."""
    at, x, b = spread(drawn), np.asarray(solution.x, float), float(solution.intercept)
    here = float(exact.value(x, b))
    blur = 32 * blurred(at, here, x, EPS[True], b) + 1e-7 * here + 1e-20 * at.null
    usable = np.flatnonzero(~exact.constant) if drawn.intercept else np.arange(P)
    scale = here + 2 * at.null
    facts = Facts(lambda s: float(exact.without_copies(s, COPIES)), P, usable, here, blur, blur, 1e-14 * at.null, scale)
    yield from of_sentences(drawn, solution, certificate, facts)


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
    for j in map(int, bounds.zero):
        if all(j in s for s in optima):
            yield "fixed at zero", f"{j} of {bounds}: {optima}"
    for j in map(int, bounds.nonzero):
        if all(j not in s for s in optima):
            yield "fixed in", f"{j} of {bounds}: {optima}"


SETTINGS = [(True, True), (True, False), (False, False)]  # an intercept, standardised columns


def least_squares(rng, seed, double):
    """A proof of a drawn problem."""
    drawn = draw(rng, double, *SETTINGS[seed // 2 % 3])
    ratio = rng.choice([None, 1.0001, 1.05])
    yield drawn
    proof = sht.prove(drawn.model(), drawn.threshold(), collect=ratio, time_limit=120)
    yield from of_proof(drawn, proof, by_fractions(drawn), ratio)


class Point(NamedTuple):
    """What is certified: a point of the reference's, rounded to the user's dtype; or what an estimator holds."""

    x: np.ndarray
    intercept: Any
    support: Any
    value: float
    result: int = int(sht.results.RESULTS.converged)
    intercept_rounding: float = np.inf

    def describe(self):
        return sht.results.RESULTS(self.result).name


def point(rng, drawn, w, b, members, value):
    """Coefficients of the reference as a `Solution` would hold them, exact but for rounding, or a little off."""
    dtype = drawn.X.dtype
    if rng.random() < 0.3:
        w = w * (1 + 10.0 ** rng.uniform(-12, -2) * rng.standard_normal(w.size))
    intercept = np.asarray(b, np.float64 if rng.random() < 0.5 else dtype)
    support = sht.results.Support(np.array(members, np.int32), np.ones(len(members), bool))
    return Point(w.astype(dtype), intercept, support, float(value))


def certified(rng, seed, double):
    """The certificate of a point of the reference's."""
    drawn = draw(rng, double, *SETTINGS[seed // 2 % 2])
    exact = rational(drawn)
    choices = exact.choices(drawn.k, usable=np.flatnonzero(~exact.constant))
    supports = sorted(choices, key=choices.get)
    members = sorted(supports[0] if rng.random() < 0.6 else supports[rng.integers(len(supports))])
    members = members[: rng.integers(1, len(members) + 1)] if rng.random() < 0.15 else members
    value, (z,) = exact.solve(members)
    w = np.zeros(P)
    w[members] = [float(each) for each in z[: len(members)]]
    solution = point(rng, drawn, w, float(z[-1]) if drawn.intercept else 0.0, members, value)
    yield drawn
    if not np.isfinite(solution.x).all():
        return
    model = drawn.model()
    yield from of_certificate(drawn, solution, sht.certificate(model, drawn.threshold(), solution), exact)
    here = float(exact.value(solution.x, float(solution.intercept)))
    if here <= float(value) * (1 + 1e-6):  # it tells of exchanges from where coefficients are fitted
        yield from of_exchanges(drawn, solution, best_swaps(model, solution), exact)
    if np.all(drawn.l2 > 0):
        yield from of_bounds(drawn, sht.lower_bound(model, drawn.threshold(), here), exact)


def unknown(solution):
    """Whether a solution is no number, and what is wrong with that: only what does not say that it ended is none."""
    finite = np.isfinite(np.asarray(solution.x)).all() and np.isfinite(float(solution.value))
    return not finite, [("finite", solution.describe())] * (int(solution.result) in (0, 1))


def solved(rng, seed, double):
    """A solution of a drawn problem, by exchanges, and its certificate."""
    drawn = draw(rng, double, *SETTINGS[1 - double])
    yield drawn
    model, exact = drawn.model(), rational(drawn)
    solution = sht.solve(model, drawn.threshold(), throw=False)
    none, wrong = unknown(solution)
    yield from wrong if none else ()
    if not none:
        at, x = spread(drawn), np.asarray(solution.x, float)
        here = float(exact.value(x, float(solution.intercept)))
        yield from of_value(solution, here, near_of(drawn, here, [(at, x)], at.null))
        yield from of_certificate(drawn, solution, sht.certificate(model, drawn.threshold(), solution), exact)


# --- other losses ----------------------------------------------------------------------------------------------------
PARAMETERS = {
    "logistic": (1.0, 2.0),
    "poisson": (1.0,),
    "smoothed_hinge": (0.25, 1.0),
    "huber": (0.125, 1.0),
    "negative_binomial": (0.25, 1.0),
    "gamma": (1.0,),
    "squared_hinge": (1.0,),
    "quantile": (0.125, 1.0),
    "tweedie": (1.5, 1.25),
}
FEW = 5


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
    parameter = rng.choice(PARAMETERS[name])
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
    l2 = max(rng.choice([least_l2, 1e-8, 1e-6, 1e-4, 1e-2, 1.0]), least_l2)
    if not standardize:
        l2 = l2 * (np.abs(X.astype(float)).max(0) ** 2 if rng.random() < 0.7 else 1.0)
    weights, offset = (None if each is None else each.astype(dtype) for each in (weights, offset))
    l2, k, about = np.broadcast_to(l2, FEW).astype(dtype), int(rng.integers(1, 4)), "; ".join(about)
    about, loss = f"{name} {parameter}; {about}", Loss(name, np.longdouble(parameter))
    return Drawn(X, y.astype(dtype), l2, weights, offset, intercept, standardize, k, double, about, loss)


def reach(d, problem, w, b, eps):
    """What rounding the centred terms of the predictor by eps may do to F(w, b)."""
    live, regression = problem.omega > 0, d.loss.name in ("huber", "quantile", "squared")
    w, mean = np.asarray(w, np.longdouble), problem.mean
    level = np.longdouble(b) + mean @ w
    offset = problem.offset - (problem.omega @ problem.offset if d.intercept else 0)
    eta = problem.X @ w + np.longdouble(b) + problem.offset
    y = np.abs(problem.y - (problem.omega @ problem.y if d.intercept else 0)) * regression
    size = np.abs(problem.X - mean) @ np.abs(w) + np.abs(offset) + y
    if not regression:
        size = size + abs(level) + np.abs(problem.offset)
    with np.errstate(over="ignore", invalid="ignore"):
        at = d.loss.value(eta, problem.y)
        up, down = (d.loss.value(eta + sign * eps * size, problem.y) - at for sign in (1, -1))
        terms = d.loss.parts(eta, problem.y)[1]
    total = problem.omega[live] @ (np.maximum(np.abs(up), np.abs(down)) + 4 * eps * np.abs(terms))[live]
    total = total + eps * np.sum(problem.ridge * w**2) + np.longdouble(1e-290)  # the end of the range
    if d.loss.name == "quantile" and not d.double:  # a level of 0.3 is rounded to single precision
        total = total + EPS[False] * problem.value(w, b)
    return float(total) if np.isfinite(total) else np.inf


def of_other_certificate(drawn, solution, certificate, problem):
    """The sentences of a certificate of another loss, and the value of the solution."""
    x, b = np.asarray(solution.x, float), float(solution.intercept)
    here = float(problem.value(x, b))
    if not np.isfinite(here):  # exponentials beyond the range
        return
    blur = 16 * reach(drawn, problem, x, b, EPS[True]) + 1e-10 * abs(here)
    masks, values, _ = problem.minima()
    found = {tuple(np.flatnonzero(mask)): float(value) for mask, value in zip(masks, values, strict=True)}
    members, null = tuple(chosen(solution)), float(problem.null()[1])
    found[members] = min(found[members], here)
    near = 16 * reach(drawn, problem, x, b, EPS[drawn.double]) + (1e-8 if drawn.double else 1e-4) * abs(here)
    yield from of_value(solution, here, near)
    scale = abs(here) + abs(null) + abs(float(problem.value(np.zeros(FEW))))
    usable, upper, lower = np.flatnonzero(np.isfinite(problem.size)), blur + 1e-7 * abs(here), 1e-13 * abs(null) + blur
    facts = Facts(lambda s: found[tuple(s)], FEW, usable, here, blur, upper, lower, scale, False)
    yield from of_sentences(drawn, solution, certificate, facts)
    converged = int(solution.result) == sht.results.RESULTS.converged
    if converged and here > null + near + 2 * float(solution.intercept_rounding):
        yield "above the null model", f"F {here:.9g}, null {null:.9g}"


def other_certified(rng, seed, double):
    """The certificate of a point of the reference's under another loss."""
    drawn = draw_other(rng, list(PARAMETERS)[seed // 2 % len(PARAMETERS)], double, *SETTINGS[1 - double])
    problem = drawn.problem()
    masks, values, (w, b) = problem.minima()
    allowed = np.flatnonzero((masks.sum(1) == drawn.k) & ~np.any(masks & ~np.isfinite(problem.size), 1))
    yield drawn
    if allowed.size:
        row = allowed[np.argmin(values[allowed])] if rng.random() < 0.6 else rng.choice(allowed)
        solution = point(rng, drawn, w[row].astype(float), float(b[row]), np.flatnonzero(masks[row]), values[row])
        certificate = sht.certificate(drawn.model(), drawn.threshold(), solution)
        yield from of_other_certificate(drawn, solution, certificate, problem)


def other_solved(rng, seed, double):
    """A solution of another loss and its certificate."""
    drawn = draw_other(rng, ("logistic", "poisson", "huber")[seed // 2 % 3], double, *SETTINGS[1 - double])
    yield drawn
    model = drawn.model()
    solution = sht.solve(model, drawn.threshold(), throw=False)
    none, wrong = unknown(solution)
    yield from wrong if none else ()
    if not none:
        certificate = sht.certificate(model, drawn.threshold(), solution)
        yield from of_other_certificate(drawn, solution, certificate, drawn.problem())


PROVED = [name for name in PARAMETERS if name != "tweedie"]


def other_proof(rng, seed, double):
    """A proof of another loss, of which a feature may be kept."""
    drawn = draw_other(rng, PROVED[seed // 2 % len(PROVED)], double, *SETTINGS[1 - double], 1e-8)
    ratio, keep = rng.choice([None, 1.05]), [int(rng.integers(FEW))] if rng.random() < 0.3 else ()
    drawn = drawn._replace(keep=keep)
    yield drawn
    proof = sht.prove(drawn.model(), drawn.threshold(), collect=ratio, time_limit=120)
    yield from of_proof(drawn, proof, by_search(drawn), ratio)


# --- units: kept features, bounds, signs, groups, rows ---------------------------------------------------------------
GROUPS = np.array([0, 0, 1, 2, 2, 3])
STRUCTURES = {  # of k units, at most two, and a size that bounds are shares of
    "keep": lambda k, reach: sht.Sparsity(k, keep=[1]),
    "box": lambda k, reach: sht.Sparsity(k, lower=-0.3 * reach, upper=0.4 * reach),
    "positive": lambda k, reach: sht.Sparsity(k, lower=0),
    "groups": lambda k, reach: sht.GroupSparsity(GROUPS, k),
    "groups keep": lambda k, reach: sht.GroupSparsity(GROUPS, 1, keep=[2]),
    "groups positive": lambda k, reach: sht.GroupSparsity(GROUPS, k, lower=0.0, upper=np.full(P, np.inf)),
    "rows": lambda k, reach: sht.RowSparsity(k),
}


def in_units(rng, seed, double):
    """A solution of kept features, bounds, groups or rows, and what its certificate says of exchanges of units."""
    name = list(STRUCTURES)[seed // 2 % len(STRUCTURES)]
    drawn = draw(rng, double, *SETTINGS[1 - double])
    size = np.abs(drawn.X.astype(float) - drawn.X.astype(float).mean(0)).max(0)
    spread_y = float(np.std(drawn.y.astype(float)))
    reach = np.where(size > 0, spread_y / np.where(size > 0, size, 1), 1.0).astype(drawn.X.dtype)
    threshold, rows = STRUCTURES[name](min(drawn.k, 2), reach), name == "rows"
    drawn = drawn._replace(about=f"{name}; {drawn.about}")
    if rows:
        drawn = drawn._replace(y=np.column_stack([drawn.y, drawn.y[::-1]]), offset=None)
    yield drawn
    model = sht.MultiResponse(drawn.X, drawn.y, **drawn.options()) if rows else drawn.model()
    solution = sht.solve(model, threshold, throw=False)
    none, wrong = unknown(solution)
    yield from wrong if none else ()
    if not none:
        yield from of_units(drawn, name, threshold, solution, sht.certificate(model, threshold, solution))


def of_units(drawn, name, threshold, solution, certificate):
    """The sentences about exchanges of units, all of which are enumerated."""
    members_of = [np.flatnonzero(g == GROUPS) for g in range(4)] if "groups" in name else [[j] for j in range(P)]
    kept, exact = [int(u) for u in np.asarray(threshold.keep)], rational(drawn)
    lower, upper = (
        np.broadcast_to(none if bound is None else np.asarray(bound, float), P)
        for bound, none in ((getattr(threshold, side, None), none) for side, none in zip(SIDES, FREE, strict=True))
    )
    bounded = np.isfinite(lower).any() or np.isfinite(upper).any()

    def least(units):
        features = sorted(int(j) for u in units for j in members_of[u])
        return float(exact.bounded(features, lower, upper) if bounded else exact.minimum(features))

    x, b = np.asarray(solution.x, float), np.asarray(solution.intercept, float)
    here, columns = float(exact.value(x, b)), range(exact.responses)
    spreads = [(spread(drawn._replace(y=drawn.y.reshape(N, -1)[:, r])), x.reshape(P, -1)[:, r]) for r in columns]
    null, near = sum(at.null for at, _ in spreads), near_of(drawn, here, spreads)
    blur = 32 * sum(blurred(at, here, w, EPS[True]) for at, w in spreads) + 1e-7 * here + 1e-20 * null
    yield from of_value(solution, here, near)
    if not all((w >= lower).all() and (w <= upper).all() for _, w in spreads):
        yield "bounds", f"{x} outside {lower} to {upper}"
    mine = [int(u) for u in chosen(solution) if u not in kept]
    if len(mine) > int(threshold.k):
        yield "support", f"{mine}"
    facts = Facts(least, len(members_of), range(len(members_of)), here, blur, blur, 0.0, here + 2 * null, True, kept)
    yield from of_sentences(drawn, solution, certificate, facts, int(threshold.k))
    slow = (1e-9 if drawn.double else 1e-5) * (here + 2 * null) + near + 2 * float(np.sum(solution.intercept_rounding))
    if int(solution.result) == sht.results.RESULTS.converged and here - least([*kept, *mine]) > slow:
        yield "converged", f"F {here:.9g}, refitted {least([*kept, *mine]):.9g}, null {null:.6g}"


SIDES, FREE = ("lower", "upper"), (-np.inf, np.inf)


# --- estimators ------------------------------------------------------------------------------------------------------
def estimated(rng, seed, double):
    """An estimator of least squares: what it holds, predicts, says and proves is of one function."""
    drawn = draw(rng, double, *SETTINGS[seed // 2 % 3])
    l2, k = float(rng.choice([0.0, 1e-6, 1e-3, 1.0])), drawn.k if rng.random() < 0.8 else "bic"
    yield drawn
    with jax.enable_x64(False), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = sht.SparseRegressor(k, l2=l2, fit_intercept=drawn.intercept, standardize=drawn.standardize)
        model.fit(drawn.X, drawn.y, drawn.weights, offset=drawn.offset)
        if drawn.weights is not None:  # as the model has them, in the dtype of X
            drawn = drawn._replace(weights=(drawn.weights.astype(float) / drawn.weights.max()).astype(drawn.X.dtype))
        drawn = drawn._replace(l2=np.full(P, l2, drawn.X.dtype), k=int(model.k_))
        exact = rational(drawn)
        about = f"k={k}; {[str(each.message) for each in caught]}"
        found = list(of_estimator(drawn, model, exact, about))
        if rng.random() < 0.3 and not found:
            model.prove(20)
            found = [(f"after prove: {law}", what) for law, what in of_estimator(drawn, model, exact, about)]
    yield from found


def of_estimator(drawn, model, exact, about):
    """objective_value_, predictions and certificate of a fitted estimator of one response."""
    x, b, value = np.asarray(model.coef_, float), float(model.intercept_), model.objective_value_
    if not np.isfinite([value, b, *x]).all():
        if model.result_ == "converged":
            yield "finite", f"{value} {x} {b}"
        return
    at = spread(drawn)
    here = float(exact.value(x, b))
    where = f"objective_value_ {value:.6g}, F(coef_, intercept_) = {here:.6g}, null {at.null:.6g}; {about}"
    near = 4 * blurred(at, here, x, EPS[True], b) + (1e-12 if drawn.double else 1e-6) * (here + at.null)
    if abs(value - here) > near:
        yield "objective_value_", where
    said = np.asarray(model.predict(drawn.X, drawn.offset), np.longdouble)
    ridge = [float(r) * (w * 2.0**-e) ** 2 for r, w, e in zip(exact.ridge, x, exact.exponents, strict=True)]
    predicted = float(at.omega @ (said - drawn.y.astype(np.longdouble)) ** 2 + sum(ridge)) / 2
    terms = np.abs(drawn.X.astype(float)) @ np.abs(x) + abs(b) + (0 if drawn.offset is None else np.abs(drawn.offset))
    digits = EPS[True] * float(np.sqrt(at.omega @ terms**2))
    if abs(predicted - value) > near + 8 * (np.sqrt(2 * value) * digits + digits**2):
        yield "predict", f"that of predict {predicted:.6g}, {where}"
    alone = float(exact.minimum(np.flatnonzero(model.support_)))
    if model.result_ == "converged" and here - alone > (1e-9 if drawn.double else 1e-5) * (here + 2 * at.null) + near:
        yield "converged", f"refitted {alone:.6g}, {where}"
    yield from of_certificate(drawn, held(model), model.certificate_, exact)


def held(model):
    """What a fitted estimator holds, as a solution."""
    features = np.flatnonzero(model.support_).astype(np.int32)
    support = sht.results.Support(features, np.ones(features.size, bool))
    return Point(np.ravel(model.coef_), np.ravel(model.intercept_)[0], support, model.objective_value_)


def other_estimated(rng, seed, double):
    """An estimator of another loss, and its certificate; targets have more digits than columns."""
    drawn = draw_other(rng, list(PARAMETERS)[seed // 2 % len(PARAMETERS)], double, True, True)
    digits = 1 + 1e-9 * rng.standard_normal(N) * (drawn.loss.name in ("huber", "quantile"))
    drawn = drawn._replace(y=drawn.y * digits, offset=None)
    if drawn.weights is not None:
        drawn = drawn._replace(weights=(drawn.weights.astype(float) / drawn.weights.max()).astype(drawn.X.dtype))
    yield drawn
    loss = BY_NAME[drawn.loss.name](float(drawn.loss.parameter))
    kind = sht.SparseClassifier if loss.classification else sht.SparseRegressor
    with jax.enable_x64(False):
        model = kind(drawn.k, loss=loss, l2=drawn.l2, solver="htp").fit(drawn.X, drawn.y, drawn.weights)
        eta = model.decision_function(drawn.X) if loss.classification else model._predictor(drawn.X)
    exact, (x, b, *_) = drawn.problem(), held(model)
    live = exact.omega > 0
    own = exact.omega[live] @ drawn.loss.value(np.longdouble(eta[live]), exact.y[live])
    own, here = float(own + np.sum(exact.ridge * np.longdouble(x) ** 2) / 2), float(exact.value(x, b))
    if abs(own - here) > 16 * reach(drawn, exact, x, b, EPS[True]) + 1e-8 * abs(here):
        yield "predict", f"that of predictions {own:.9g}, F(coef_, intercept_) = {here:.9g}"
    if not model.certificate_.stationary and (double or drawn.loss.name != "quantile"):
        yield "not stationary", model.certificate_.statement
    solution = held(model)._replace(intercept_rounding=0.0)
    yield from of_other_certificate(drawn, solution, model.certificate_, exact)


KINDS = {
    "proof": least_squares,
    "certificate": certified,
    "solution": solved,
    "other certificate": other_certified,
    "other solution": other_solved,
    "other proof": other_proof,
    "units": in_units,
    "estimator": estimated,
    "other estimator": other_estimated,
}


def violations(kind, seed):
    """(what was drawn, what was said and is not so); a refusal is an answer where it says why."""
    double, found = bool(seed % 2), []
    with jax.enable_x64(double), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = KINDS[kind](np.random.default_rng(seed), seed, double)
        drawn = next(case)
        try:
            found.extend(case)
        except ValueError as refusal:
            if not re.match("(X|y|l2|sample_weight|offset): ", str(refusal)):
                found.append(("refused", str(refusal)))
    return drawn, found
