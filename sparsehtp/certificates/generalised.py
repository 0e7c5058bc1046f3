"""Logistic, Poisson and other losses in a tree: bounds of nodes by the dual with features fixed, and refits."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._programs import program
from .._types import replace
from ..columns import Columns
from ..designs import DenseDesign
from ..duality import Dual, Fixed, relax
from ..duality.relaxation import CHECK, NORM_STEPS
from ..losses import AbstractConjugateLoss
from ..objectives import LinearModel
from ..screening import screen
from ..solvers.refit import refit
from ..thresholds import Sparsity
from ..thresholds.base import next_power_of_two
from .data import ROWS, ProofData, members_of
from .tree import Tree, padded

LEAST_WIDTH = 8
BATCH_CPU, BATCH = 16, 256  # nodes that are bounded at a time: the slowest decides how long it takes
NODE = 2e-8  # seconds of a node, for each sample and feature
COMPILING = 3.0  # seconds that the program of another width takes
STEPS = 100  # of a node's relaxation; its children go on
ACCURACY = 1e-9  # of a relaxation, relative
SHARE = 0.3  # of what its bound lacks to the level, to which a relaxation below it is solved
NUMBERS = 1 << 24  # predictions, or columns of supports, that are worked on together
ROUNDINGS = 4  # times what `Dual.rounding` says
COPIES = 6  # of the data
AT_ONCE = 1e8  # (samples) (features) (nodes) of a batch: its steps take no second
LEAST_ZERO = 1e-12  # of F without features


def no_proof(model: LinearModel) -> str | None:
    """Why the loss of a linear model has no bound of this kind, or None if it has."""
    loss = model.loss
    if not (isinstance(loss, AbstractConjugateLoss) and loss.twice_differentiable):
        name = type(loss).__name__
        return f"objective: a proof needs the squared or another smooth loss with a conjugate, got {name}."
    if not np.all(np.asarray(model.l2) > 0):
        return (
            f"l2: a proof for {type(loss).__name__} needs l2 > 0 on every feature, since its bound comes from there; "
            "raise l2."
        )
    return None


class Generalised(ProofData):
    """F less its floor, on the usable features, each (centred and) in the units where its mean square is one.

    The floor is the sum of the least losses there could be, zero for most losses but not for Poisson or gamma. Values
    are of refits and therefore never too small; with each comes the dual's value there, which is never too large.

    Attributes:
        floor: see above.
        zero: below it F less its floor is zero but for rounding in a bound.
        noise: below it F less its floor is zero but for rounding in a fit.
        null: F less its floor without features.
        objective: the model in these units.
        norms: (p,) of the columns before they were centred.
    """

    copied = False
    last_places = most_direct = 0  # a support is refitted when no place is left

    @staticmethod
    def memory(model: LinearModel) -> float:
        """Bytes that a proof takes: copies of the dense data, and predictions of a batch."""
        n, p = model.y.shape[0], model.n_coefficients
        return 8.0 * (COPIES * n * next_power_of_two(max(p, LEAST_WIDTH)) + NUMBERS)

    def __init__(
        self, model: LinearModel, keep: Int[np.ndarray, "_"], k: int, stop_at: float = np.inf, gap: float = 1.0
    ) -> None:
        super().__init__(model, keep, k)
        self._stop_at = stop_at
        energy, raw = np.zeros(self.n_features), np.zeros(self.n_features)
        for start in range(0, len(self._rows), ROWS):
            rows = slice(start, start + ROWS)
            energy += self._weights[rows] @ self._columns(slice(None), rows) ** 2
            raw += self._weights[rows] @ self._columns(slice(None), rows, centred=False) ** 2
        self._use(energy, raw)
        scale = np.sqrt(energy[self.features])
        X = np.zeros((model.y.shape[0], next_power_of_two(max(len(scale), LEAST_WIDTH))))  # few compiled shapes
        X[self._rows, : len(scale)] = self._columns(self.features) / scale
        ridge = np.maximum(self._ridge[self.features], np.finfo(float).tiny) / scale**2
        self._scaling = self._scaling.copy()
        self._scaling[self.features] /= scale
        self.norms = np.sqrt(raw[self.features]) / scale
        most = BATCH_CPU if jax.default_backend() == "cpu" else BATCH
        # No less than the two nodes of a branching, which are taken together.
        self.batch = int(np.clip(min(NUMBERS // (X.shape[0] * max(self.size, 1)), AT_ONCE // X.size), 2, most))
        with jax.enable_x64(True):
            columns = self.model.columns
            offset = jnp.asarray(np.zeros(len(X))) if columns.offset is None else columns.offset
            l2 = jnp.asarray(np.append(ridge, np.ones(X.shape[1] - len(ridge))))
            plain = Columns(
                design=DenseDesign(X),
                sample_weight=columns.sample_weight,
                l2=l2,
                inverse_scale=jnp.asarray(np.ones(X.shape[1])),
                shift=jnp.asarray(np.zeros(X.shape[1])),
                offset=offset,
                centred=columns.centred,
                n_free=columns.n_free,
            )
            self.objective = jax.tree.map(jnp.asarray, replace(self.model, columns=plain, target_mean=None))
            self._threshold = _threshold(self.objective, self.size)
            self._norms = jnp.asarray(np.append(self.norms, np.ones(X.shape[1] - len(ridge))))
            self.floor = float(_floor(self.objective, self._threshold))
        none = np.zeros((1, 0), int)
        value, lower, _ = self._refit(none)
        self.zero = max(LEAST_ZERO * float(value[0]), float(value[0] - lower[0]))
        self.null = float(value[0])
        self.noise = LEAST_ZERO * self.null

    def _refit(self, members: Int[np.ndarray, "s m"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """F less its floor, the dual's value, and the coefficients on the usable features, of refits."""
        parts = []
        for start in range(0, len(members), self.batch):
            some = members[start : start + self.batch]
            inn = np.zeros((len(some), self.objective.n_coefficients), bool)
            np.put_along_axis(inn, some, True, 1)
            inn = padded(inn, self.batch, inn.shape[1])
            with jax.enable_x64(True):
                found = _refits(self.objective, self._threshold, inn, self._norms)
            parts.append([np.asarray(a)[: len(some)] for a in found])
        value, lower, x = (np.concatenate(part) for part in zip(*parts, strict=True))
        return value - self.floor, np.minimum(lower, value) - self.floor, x

    def fit(self, members: Int[np.ndarray, "m"]) -> tuple[float, Float[np.ndarray, "_"], float]:
        """F less its floor, the coefficients in original units and the intercept of the best fit on some features."""
        (value,), _, (x,) = self._refit(np.sort(members)[None])
        w, intercept = self._external(x[members], self.features[members], x[-1] if self.model.n_free else 0.0)
        return float(value), w, intercept

    def values(self, members: Int[np.ndarray, "s m"]) -> tuple[Float[np.ndarray, "s"], Float[np.ndarray, "s"]]:
        """F less its floor of the best fits on many supports, and what it is not below."""
        return self._refit(members)[:2]

    def exact(self, members: Int[np.ndarray, "m"]) -> None:
        """There is no exact arithmetic for exponentials."""

    def search(self, members: Int[np.ndarray, "m"]) -> Int[np.ndarray, "size"]:
        """A support to begin with: the features are added one by one that lower a quadratic model of F the most."""
        S = [int(j) for j in np.union1d(members, np.flatnonzero(self.kept))]
        while len(S) < self.size:
            late = time.monotonic() > self._stop_at
            x = self._refit(np.sort(np.array(S, int))[None])[2][0]
            with jax.enable_x64(True):
                gain = np.array(_gains(self.objective, x))[: len(self.features)]
            gain[S] = -1
            S += [int(j) for j in np.argsort(-gain)[: self.size - len(S) if late else 1]]
        return np.sort(np.array(S, int))


class DualBounds:
    """Bounds of nodes on the features in use, and values of supports."""

    def __init__(self, tree: Tree) -> None:
        self.problem, self.names, self._tree = tree.problem, tree.names, tree
        self._pace: float | None = None  # seconds of a step, once it is known
        self.batch, self.p = tree.problem.batch, len(tree.names)
        self.leaf_batch = self.batch
        objective = tree.problem.objective
        n = objective.y.shape[0]
        width = tree.width_for(next_power_of_two(max(self.p, LEAST_WIDTH)), NODE * n, COMPILING)
        use = np.zeros(width, int)
        use[: self.p] = tree.names
        # On the host, where each step takes no program of its own.
        columns = objective.columns
        X, weights = np.asarray(columns.design.array)[:, use], np.asarray(columns.weights)
        columns = columns.cut(DenseDesign(jnp.asarray(X)), lambda a: jnp.asarray(np.asarray(a)[use]))
        self._objective = objective.over(columns, False)
        own = X[:, : self.p]
        self._norm = jnp.asarray(_norm(own - weights @ own if columns.centred else own, weights))
        self._threshold = _threshold(self._objective, tree.k)
        self._norms = jnp.asarray(np.append(tree.problem.norms[tree.names], np.ones(width - self.p)))

    def _pad(self, a: np.ndarray, fill: Any) -> np.ndarray:
        return padded(a, self.batch, self._objective.n_coefficients, fill)

    def bound(
        self, inn: np.ndarray, out: np.ndarray, v: np.ndarray, u: np.ndarray, level: float
    ) -> tuple[np.ndarray, ...]:
        """Bounds of nodes, what they decide, and where to branch."""
        floor = self.problem.floor
        masks = Fixed(jnp.asarray(self._pad(out, True)), jnp.asarray(self._pad(inn, False)))
        levels = level + floor, level + floor + self.problem.zero
        steps, began = STEPS, time.monotonic()
        if self._pace is None and self._objective.columns.design.array.size * self.batch > AT_ONCE / 100:
            steps = CHECK  # the first call compiles, and the second tells how long a step takes
        elif self._pace is not None and self._pace * steps > self._tree.seconds_left:
            steps = max(CHECK, int(self._tree.seconds_left / self._pace))
        sizes = self._norms, self._norm
        found = _bounds(self._objective, self._threshold, masks, self._pad(v, 0), *levels, *sizes, steps)
        lower, w, inn, out, taken = (np.asarray(a)[: len(v)] for a in found)
        w, inn, out = (a[:, : self.p] for a in (w, inn, out))
        spent = (time.monotonic() - began) / max(float(np.max(taken)), CHECK)
        self._pace = spent if self._pace is None else min(spent, self._pace)
        weight = np.where(inn | out, -1.0, np.abs(w))
        return lower - floor, w.astype(np.float32), u, inn, out, weight

    def support_values(self, supports: np.ndarray) -> np.ndarray:
        """At most F of supports."""
        return self.problem.values(self.names[members_of(supports)])[1]


def _norm(X: Float[np.ndarray, "n p"], weights: Float[np.ndarray, "n"]) -> float:
    """The largest eigenvalue of X'diag(weights)X, estimated from below."""
    v, size = np.ones(X.shape[1]) / np.sqrt(max(X.shape[1], 1)), float(np.finfo(float).tiny)
    for _ in range(NORM_STEPS):
        v = X.T @ (weights * (X @ v))
        size = max(float(np.linalg.norm(v)), size)
        v = v / size
    return size


def _threshold(objective: LinearModel, size: int) -> Sparsity:
    p = objective.n_coefficients
    return Sparsity(size, k_max=min(next_power_of_two(max(size, LEAST_WIDTH)), p)).bind(objective)


@program
def _floor(objective: LinearModel, threshold: Sparsity) -> Float[Array, ""]:
    conjugate = Dual(objective, threshold).loss.conjugate(jnp.zeros_like(objective.y), objective.y)
    return -jnp.sum(jnp.where(objective.sample_weight > 0, objective.columns.weights * conjugate, 0))


@program
def _gains(objective: LinearModel, x: Float[Array, "d"]) -> Float[Array, "p"]:
    eta = objective.forward(x)
    columns, weights = objective.columns, objective.columns.weights
    slope = columns.transpose_product(weights * objective.loss.derivative(eta, objective.y))
    curvature = objective.loss.second_derivative(eta, objective.y)
    steep = columns.design.column_norms(weights * curvature, None) ** 2 + columns.l2
    return slope[: objective.n_coefficients] ** 2 / steep


@program
def _refits(
    objective: LinearModel, threshold: Sparsity, inn: Bool[Array, "B p"], norms: Float[Array, "p"]
) -> tuple[Float[Array, "B"], Float[Array, "B"], Float[Array, "B d"]]:
    """F, the dual's value and the coefficients of the best fits on supports."""

    def one(inn: Array) -> tuple[Array, Array, Array]:
        dual = Dual(objective, threshold, Fixed(~inn, inn))
        support = threshold.select(jnp.where(inn, 1.0, -1.0))
        support = support._replace(mask=support.mask & jnp.append(inn, True)[support.idx])
        x, _ = refit(objective, threshold, support, jnp.zeros(objective.n_coefficients + objective.n_free))
        eta = objective.forward(x)
        point = dual.point(dual.project(objective.loss.derivative(eta, objective.y)))
        return objective.value_at(eta, x), point.value - ROUNDINGS * dual.rounding(point, norms), x

    return jax.vmap(one)(inn)


@program
def _bounds(
    objective: LinearModel,
    threshold: Sparsity,
    masks: Fixed,
    v: Float[Array, "B p"],
    level: Float[Array, ""],
    enough: Float[Array, ""],
    norms: Float[Array, "p"],
    norm: Float[Array, ""],
    max_steps: Int[Array, ""],
) -> tuple[Float[Array, "B"], Float[Array, "B p"], Bool[Array, "B p"], Bool[Array, "B p"], Int[Array, "B"]]:
    """Bounds of nodes, the relaxations' coefficients, the nodes with what their bounds decide, and the steps taken."""
    energies = objective.columns.moments()[1]

    def one(zero: Array, nonzero: Array, v: Array) -> tuple[Array, Array, Array, Array, Array]:
        dual = Dual(objective, threshold, Fixed(zero, nonzero))

        start = v.astype(objective.dtype)
        found = relax(dual, ACCURACY, enough, max_steps=max_steps, w0=start, share=SHARE, norm=norm)
        point = found.point
        lost = ROUNDINGS * dual.rounding(point, norms)
        fixed, _ = screen(dual, point, energies, level + lost)
        return point.value - lost, found.w, fixed.nonzero, fixed.zero, found.num_steps

    return jax.vmap(one)(*masks, v)
