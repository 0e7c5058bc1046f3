"""Metamorphic laws: how a fit follows when its data change, which needs no reference.

A law maps `Data` to other data of the same shapes, so that one program serves all laws, and a fit to what it has to be
then. A row has no weight and some have two, offsets vary, and the last column is zero.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

N, P, C = 24, 6, 3
BY_ROW = ("X", "y", "weights", "offset", "fold")


class Data(NamedTuple):
    kind: str  # of the targets
    X: Any
    y: Any
    weights: Any
    offset: Any
    fold: Any  # number of the fold that holds a row out
    l2: Any  # per feature
    order: Any  # which column of the first data each one is
    unit: Any  # of every column
    size: float = 1.0  # of the targets; negative where they have the other sign


class Fit(NamedTuple):
    w: Any  # (p,), (p, c), or (p, p) of a precision matrix, in original units
    b: Any  # what is added to the predictor, in original units: minus the thresholds of ordered classes
    energies: Any  # the objective, and what changes as it does


Change = tuple[Data, Callable[[Fit], Fit]]

TARGETS = {
    "real": lambda eta, rng: eta + 0.3 * rng.standard_normal(N),
    "plain": lambda eta, rng: eta + 0.3 * rng.standard_normal(N),  # the same for what has no intercept and no offset
    "count": lambda eta, rng: 1.0 + rng.poisson(np.exp(0.3 * eta)),
    "sign": lambda eta, rng: np.where(eta + rng.logistic(size=N) > 0, 1.0, -1.0),
    "order": lambda eta, rng: np.digitize(eta + rng.logistic(size=N), [-2.0, 0, 2]),
    "class": lambda eta, rng: np.argmax(np.outer(eta, [1, 0, -1]) + rng.gumbel(size=(N, C)), axis=1),
    "several": lambda eta, rng: np.outer(eta, [1, -1, 0.5]) + 0.3 * rng.standard_normal((N, C)),
    # times with ties, events, strata
    "survival": lambda eta, rng: np.stack(
        [np.ceil(8 * rng.exponential(np.exp(-0.3 * eta))), rng.random(N) < 0.7, np.arange(N) % 2], 1
    ),
    "none": lambda eta, rng: np.zeros(N),
}


def draw(kind: str) -> Data:
    rng = np.random.default_rng(3)
    Z = rng.standard_normal((N, P))
    eta = Z @ [1.0, 0, -1.2, 0.8, 0, 0]
    X = Z * [1, 3, 0.5, 1, 2, kind == "none"] + [0, 1, 2, 0, -1, 0]
    offset = 0.5 * rng.standard_normal((N, C) if kind in ("class", "several") else N)
    weights, fold = np.where(np.arange(N) == 3, 0, np.resize([2.0, 1, 1, 1, 2], N)), np.arange(N) % 3
    l2 = np.linspace(0.05, 0.3, P)
    return Data(kind, X, TARGETS[kind](eta, rng), weights, offset, fold, l2, np.arange(P), np.ones(P))


def same(fit: Fit) -> Fit:
    return fit


def of_rows(d: Data, rows: Any) -> dict[str, Any]:
    return {name: getattr(d, name)[rows] for name in BY_ROW}


def rows(d: Data) -> Change:
    """Rows may come in any order."""
    return d._replace(**of_rows(d, np.random.default_rng(1).permutation(N))), same


def aside(d: Data) -> Change:
    """Rows without weight may stand anywhere, also for what draws the others by their number."""
    return d._replace(**of_rows(d, np.argsort(d.weights == 0, kind="stable"))), same


def columns(d: Data) -> Change:
    """Columns in another order have the coefficients in that order."""
    order = np.array([3, 5, 0, 4, 2, 1])
    X = np.ascontiguousarray(d.X[:, order])  # another memory order is another program
    other = d._replace(X=X, l2=d.l2[order], order=d.order[order])

    def moved(fit: Fit) -> Fit:
        w = fit.w[order]
        return fit._replace(w=w[:, order] if d.kind == "none" else w)

    return other, moved


def other_target(d: Data, rows: Any) -> int:
    """The first of some rows whose target is not that of the row without weight."""
    (idle,) = np.flatnonzero(d.weights == 0)
    return next((row for row in rows if np.any(d.y[row] != d.y[idle])), rows[0])


def weightless(d: Data) -> Change:
    """What a row without weight holds, be it out of all bounds, does not matter."""
    idle = d.weights == 0
    X = np.where(idle[:, None], d.X * (-1e3 if d.kind == "plain" else -1e100), d.X)
    y, offset = d.y.copy(), d.offset.copy()
    y[idle] = d.y[other_target(d, np.flatnonzero(~idle))] * (-1e3 if d.kind in ("real", "several") else 1)
    offset[idle] = 1e3
    return d._replace(X=X, y=y, offset=offset), same


def split(d: Data) -> Change:
    """A row of weight two is two equal rows."""
    idle, twice = d.weights == 0, other_target(d, np.flatnonzero(d.weights == 2))
    weights = np.where(idle | (np.arange(N) == twice), 1, d.weights)
    return d._replace(**of_rows(d, np.where(idle, twice, np.arange(N))) | {"weights": weights}), same


def multiples(d: Data) -> Change:
    """Multiples of the weights are the same weights."""
    return d._replace(weights=4 * d.weights), same


def units(d: Data) -> Change:
    """Columns that are standardised may have any unit, and sign."""
    unit = np.array([-2.0, 4, -0.5, 8, 1, 1])
    each = np.outer(unit, unit) if d.kind == "none" else unit
    return d._replace(X=d.X * unit, unit=d.unit * unit), lambda fit: fit._replace(w=(fit.w.T / each).T)


def shift(d: Data) -> Change:
    """A shift of the columns moves the intercept alone."""
    by = np.array([128.0, -32, 0, 64, 16, 0])
    bare = d.kind in ("survival", "none")
    return d._replace(X=d.X + by), lambda fit: fit if bare else fit._replace(b=fit.b - fit.w.T @ by)


def constant(d: Data) -> Change:
    """A constant column beside an intercept is a column of zeros."""
    return d._replace(X=d.X + 3.0 * (np.arange(P) == P - 1)), same


def known(d: Data) -> Change:
    """A constant that all offsets have more is taken from the intercept."""
    by = 64.0 * (1 + np.arange(C)) if d.offset.ndim == 2 else 64.0
    return d._replace(offset=d.offset + by), lambda fit: fit._replace(b=fit.b - (0 if d.kind == "survival" else by))


def level(d: Data) -> Change:
    """A constant that all targets have more is added to the intercept."""
    return d._replace(y=d.y + 256.0), lambda fit: fit._replace(b=fit.b + 256.0)


def taken(d: Data) -> Change:
    """What targets and offsets have more in common, row by row, does not matter."""
    by = np.resize([0.0, 1.0, -3.0, 2.0, 0.5], d.y.shape)
    return d._replace(y=d.y + by, offset=d.offset + by), same


def targets(d: Data) -> Change:
    """Targets may have any unit; here F becomes so small that no threshold of its own can stand for a share of it."""
    unit = 2.0**-20
    other = d._replace(y=unit * d.y, offset=unit * d.offset, size=unit * d.size)
    return other, lambda fit: Fit(unit * fit.w, unit * fit.b, unit**2 * fit.energies)


def mirror(d: Data) -> Change:
    """Targets and offsets of the other sign, or classes in the other order, turn all coefficients."""
    y = C - d.y if d.kind == "order" else -d.y
    b = (lambda b: -b[::-1]) if d.kind == "order" else np.negative
    return d._replace(y=y, offset=-d.offset, size=-d.size), lambda fit: fit._replace(w=-fit.w, b=b(fit.b))


def responses(d: Data) -> Change:
    """Responses, or classes, in another order have the coefficients in that order."""
    order = np.array([2, 0, 1])
    y = np.argsort(order)[d.y] if d.kind == "class" else d.y[:, order]
    return d._replace(y=y, offset=d.offset[:, order]), lambda fit: fit._replace(w=fit.w[:, order], b=fit.b[order])


LAWS = {
    law.__name__: law
    for law in (
        rows, aside, columns, weightless, split, multiples, units, shift, constant, known, level, taken, targets,
        mirror, responses,
    )
}  # fmt: skip
FREE, FIXED, BARE, ONE = (
    "there is no intercept",
    "the targets have a zero and a unit",
    "there is no offset",
    "one response",
)
# law -> why it says nothing of some kinds of targets
ABSENT = {
    "shift": {"plain": FREE},
    "constant": {"plain": FREE, "none": "a constant variable is refused"},
    "known": {"plain": BARE, "none": BARE},
    "level": {"plain": FREE} | dict.fromkeys(("count", "sign", "order", "class", "survival", "none"), FIXED),
    "taken": {"plain": BARE} | dict.fromkeys(("count", "sign", "order", "class", "survival", "none"), FIXED),
    "targets": dict.fromkeys(("count", "sign", "order", "class", "survival", "none"), FIXED),
    "mirror": dict.fromkeys(("count", "class", "survival", "none"), "the targets have a direction"),
    "responses": dict.fromkeys(("real", "plain", "count", "sign", "order", "survival", "none"), ONE),
}


def laws_of(kind: str) -> list[str]:
    return [law for law in LAWS if kind not in ABSENT.get(law, {})]


def check(law: str, found: Fit, expected: Fit, bits: bool, tol: float = 1e-9) -> None:
    """The law for what was found; NaN where there is no such thing."""
    for name, one, other in zip(Fit._fields, found, expected, strict=True):
        one, other = np.asarray(one, float), np.asarray(other, float)
        if bits:
            np.testing.assert_array_equal(one, other, f"{law}: {name}")
        else:
            np.testing.assert_allclose(one, other, tol, tol * np.abs(other).max(), err_msg=f"{law}: {name}")
