"""A phase of a tree for least squares: its diagonal, and the batches that `nodes` bounds on the device."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..thresholds.base import next_power_of_two
from .data import EPS
from .diagonal import Nodes, tuned_diagonal
from .nodes import NodeData, Scaled, bound, leaf_pairs, leaves, leaves_at_once, support_values
from .tree import BATCH, BATCH_CPU, Tree, padded

FEW, WIDE = 8, 1024  # nodes, where there are no more, and features from which this saves more than it compiles
SAMPLE = 16  # open nodes that the diagonal is tuned for
TUNING = 2e-8  # seconds of tuning, a node and p^3
NODE, LEAF = 3e-6, 3e-8  # seconds of a node, for each feature, and of a leaf, for each pair of them
COMPILING = 1.5  # seconds that the programs of another width take
PENALTIES = (1.0, 3.0, 10.0, 30.0)
TRIAL_CHUNKS, MOST_CHUNKS = 2, 10
LEAST_DIAGONAL = 1e-9  # of Q's, below which nothing is bounded
SCOUT = 1e-4  # the diagonal in place of it
LEAST_K_MAX = 16
SMALL, EIGENS = 256, 2.5  # features of which the eigenvalues take no time, and how many such times a phase takes
VAST = 2048  # features from which few nodes take long


def begin(tree: Tree) -> "LeastSquaresBounds | None":
    """Choose d, and put the matrices on the device; None where there is no time for their eigenvalues.

    d is the smallest eigenvalue and the ridge for the first nodes, which ends most problems; then it is tuned for a
    sample of the open ones.
    """
    old, problem, p = tree.d, tree.problem, len(tree.names)
    if not problem.prepare() or tree.seconds_left < _eigen_seconds(problem.Q, p):
        return None
    Q, b, ridge = problem.Q[np.ix_(tree.names, tree.names)], problem.b[tree.names], problem.ridge[tree.names]
    least = float(np.linalg.eigvalsh(Q - np.diag(ridge))[0]) if p else 0.0
    d = ridge + least * (1 - 1e-7)  # the smallest eigenvalue that is not the ridge's
    tree.bounded = p > 0 and float(d.min()) > LEAST_DIAGONAL
    # No longer than nodes and leaves took so far; the clock would count what was compiled.
    spent = min(tree.nodes * NODE * p + tree.leaves * LEAF * p**2, tree.seconds, tree.seconds_left)
    sample = min(SAMPLE, tree.pool.size, int(max(spent, 0) / (TUNING * max(p, 1) ** 3)))
    # Without an eigenvalue above the ridge there is nothing to gain.
    if tree.bounded and tree.nodes and least > LEAST_DIAGONAL and sample >= min(4, max(tree.pool.size, 1)):
        pick = np.random.default_rng(tree.nodes).permutation(tree.pool.size)[:sample]
        inn, out = tree.pool.masks(pick)
        d = tuned_diagonal(Q, b, problem.c0, Nodes(tree.k - inn.sum(1), inn, out), tree.level)
    if tree.bounded:
        r = 1 / np.sqrt(d)
        spectrum = np.linalg.eigh(Q * r * r[:, None])
        # d times this is feasible, whatever rounding did.
        share = min(float(spectrum[0][0] - 10 * p * EPS * spectrum[0][-1]), 1.0)
        tree.bounded = share > 0.1
    if not tree.bounded:
        share, d = 1.0, np.full(p, SCOUT)
        spectrum = np.linalg.eigh(Q / SCOUT)
    tree.d = d * share
    return LeastSquaresBounds(tree, Q, b, spectrum[0] / share, spectrum[1], old)


def _eigen_seconds(Q: np.ndarray, p: int) -> float:
    """Of a phase's dense factorisations and products, judged by those of a small part."""
    if p <= SMALL:
        return 0.0
    began = time.monotonic()
    np.linalg.eigh(Q[:SMALL, :SMALL])
    return EIGENS * (time.monotonic() - began) * (p / SMALL) ** 3


class LeastSquaresBounds:
    """The problem on the features in use, in the units of one diagonal, on the device."""

    def __init__(
        self, tree: Tree, Q: np.ndarray, b: np.ndarray, eigenvalues: np.ndarray, E: np.ndarray, old: np.ndarray
    ) -> None:
        p, c0, d = len(b), tree.problem.c0, tree.d
        # Few compiled shapes, and another one only where it saves more than it compiles.
        self.width = tree.width_for(max(32, -(-p // 32) * 32 if p <= 256 else -(-p // 128) * 128), NODE, COMPILING)
        self.p, self.batch = p, BATCH_CPU if jax.default_backend() == "cpu" else BATCH
        self.batch = FEW if self.width > VAST else self.batch
        self.leaf_batch = 1 if self.width > VAST else FEW if self.width >= WIDE else self.batch
        self._tree, self._pace = tree, 0.0  # seconds between two looks at the bounds
        self.at_once = leaves_at_once(self.width, self.leaf_batch)
        self.k = jnp.asarray(tree.k)
        self.k_max = min(next_power_of_two(max(tree.k, LEAST_K_MAX)), self.width)
        self.r = 1 / np.sqrt(d)
        scaled = Q * self.r * self.r[:, None]
        less = float(tree.bounded)  # elsewhere M would have negative eigenvalues, and only points are wanted
        M = scaled - less * np.eye(p)
        # Warm starts keep w and the dual, whose scaled forms change with d.
        unit = np.sqrt(d / old)
        tree.pool["v"][:] *= unit.astype(np.float32)
        tree.pool["u"][:] /= unit.astype(np.float32)
        self.problem = NodeData(jnp.asarray(self._square(Q)), jnp.asarray(self._row(b)), jnp.asarray(c0))
        terms = self._row(np.sqrt(np.maximum(np.diag(scaled), 0)), 1.0)
        fixed = [jnp.asarray(a) for a in (self._square(M), terms, self._row(b * self.r), c0, tree.bounded)]
        self.at = self._scaled(fixed, eigenvalues - less, E, PENALTIES[0])
        if not tree.pool.size:
            return
        # The penalty with the best bounds on one batch.
        rows = np.argsort(tree.pool["bound"], kind="stable")[: self.batch]
        inn, out = tree.pool.masks(rows)
        v, u, best, pace = tree.pool["v"][rows], tree.pool["u"][rows], -np.inf, np.inf
        for penalty in PENALTIES:
            began = time.monotonic()
            at = self._scaled(fixed, eigenvalues - less, E, penalty)
            self.at, kept = at, self.at
            value = float(np.minimum(self.bound(inn, out, v, u, tree.level, TRIAL_CHUNKS)[0], tree.level).mean())
            if value > best:
                best = value
            else:
                self.at = kept
            pace = min(pace, (time.monotonic() - began) / TRIAL_CHUNKS)  # but for compiling, in the first one
            if self.width >= WIDE and tree.seconds_left < 2 * len(PENALTIES) * TRIAL_CHUNKS * pace:
                break
        self._pace = pace

    def _scaled(self, fixed: list[Any], eigenvalues: np.ndarray, E: np.ndarray, penalty: float) -> Scaled:
        M, terms, b, c0, safe = fixed
        K = (E / (np.maximum(eigenvalues, 0) + penalty)) @ E.T
        return Scaled(M, jnp.asarray(self._square(K)), terms, b, c0, jnp.asarray(penalty), safe)

    def _row(self, a: np.ndarray, fill: float = 0) -> np.ndarray:
        """Padded features."""
        return np.append(a, np.full(self.width - self.p, fill))

    def _square(self, A: np.ndarray) -> np.ndarray:
        padded = np.eye(self.width)
        padded[: self.p, : self.p] = A
        return padded

    def _batch(self, a: np.ndarray, fill: Any = 0, most: int | None = None) -> np.ndarray:
        """Padded features, and the first row again for padded rows."""
        return padded(a, most or (FEW if len(a) <= FEW and self.width >= WIDE else self.batch), self.width, fill)

    def bound(
        self, inn: np.ndarray, out: np.ndarray, v: np.ndarray, u: np.ndarray, level: float, chunks: int = MOST_CHUNKS
    ) -> tuple[np.ndarray, ...]:
        """Bounds of nodes, what they decide, and where to branch; the dual in units without the penalty."""
        rho, m, p = float(self.at.rho), len(inn), self.p
        if chunks * self._pace > self._tree.seconds_left:
            chunks = max(1, int(self._tree.seconds_left / self._pace)) if self._pace > 0 else 1
        masks = self._batch(inn), self._batch(out, True)
        found = bound(
            self.at, *masks, self._batch(v), self._batch(u / np.float32(rho)), level, self.k, chunks, k_max=self.k_max
        )
        lower, v, u, inn, out, weight = (np.asarray(a)[:m] for a in found)
        v, u = v[:, :p].astype(np.float32), (rho * u[:, :p]).astype(np.float32)
        return lower, v, u, inn[:, :p], out[:, :p], np.where(weight[:, :p] >= 0, weight[:, :p] * self.r, -1)

    def support_values(self, supports: np.ndarray) -> np.ndarray:
        """F of supports."""
        batch = self._batch(supports, most=self.batch)
        return np.asarray(support_values(self.problem, batch, k_max=self.k_max))[: len(supports)]

    def leaves(self, inn: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, ...]:
        """The best pair of every leaf."""
        masks = (self._batch(a, fill, self.leaf_batch) for a, fill in ((inn, False), (out, True)))
        found = leaves(self.problem, *masks, self.k, k_max=self.k_max)
        return tuple(np.asarray(a)[: len(inn)] for a in found)

    def leaf_pairs(self, inn: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, ...]:
        """Every pair of at most `at_once` leaves."""
        masks = (self._batch(a, fill, self.at_once) for a, fill in ((inn, False), (out, True)))
        found = leaf_pairs(self.problem, *masks, self.k, k_max=self.k_max)
        return tuple(np.asarray(a)[: len(inn), : self.p, : self.p] for a in found)
