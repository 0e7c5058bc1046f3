"""Branch and bound for the best k features of a least-squares problem, a batch of nodes at a time."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from .._threads import one_blas_thread
from ..thresholds.base import next_power_of_two
from .diagonal import Nodes, tune
from .least_squares import EPS, LeastSquares, members_of
from .nodes import Problem, Scaled, bound, leaf_pairs, leaves, leaves_at_once, support_values

BATCH_CPU, BATCH = 64, 1024  # nodes that are bounded at a time
FEW, WIDE = 8, 512  # nodes, where there are no more, and features from which this saves more than it compiles
FIRST, GROWTH = 400, 4  # nodes before the diagonal is tuned, and how much later it is tuned again
SAMPLE = 16  # open nodes that it is tuned for
TUNING = 2e-8  # seconds of tuning, a node and p^3
POOL_BYTES = 2**30  # beyond which the tree goes depth first
DIRECT = 256  # features up to which two places are filled at once instead of bounded
PENALTIES = (1.0, 3.0, 10.0, 30.0)
MOST_CHUNKS, TRIAL_CHUNKS = 10, 2
LEAST_DIAGONAL = 1e-9  # of Q's, below which nothing is bounded
SCOUT = 1e-4  # the diagonal in place of it
ZERO = 1e-13  # of F(0), below which F is zero but for rounding
MOST_COLLECTED = 10_000
VALUE_ROUNDING = 1e-9  # of values that are compared with the level of a collection
REFITS = 1000  # at a time
LEAST_K_MAX = 16
SAVE_EVERY = 20.0  # seconds


class Limits(NamedTuple):
    """When to stop: seconds, nodes, relative gap; and how much above the minimum supports are collected, None: not."""

    seconds: float
    nodes: float
    gap: float
    ratio: float | None


class Moment(NamedTuple):
    """How far a tree had come."""

    seconds: float
    lower: float
    upper: float
    nodes: int


class Pool:
    """Open branchings in arrays: a row is a node that was bounded and the feature it is split on.

    A row stands for two nodes, without that feature and, if `both`, with it.
    """

    def __init__(self, p: int) -> None:
        self.p, self.size = p, 0
        width = -(-p // 8)
        self.columns: dict[str, np.ndarray] = {
            "bound": np.zeros(0),
            "born": np.zeros(0, np.int64),
            "feature": np.zeros(0, np.int32),  # -1: the node itself
            "both": np.zeros(0, bool),
            "inn": np.zeros((0, width), np.uint8),
            "out": np.zeros((0, width), np.uint8),
            "v": np.zeros((0, p), np.float32),
            "u": np.zeros((0, p), np.float32),
        }

    @property
    def row_bytes(self) -> int:
        """Of a row."""
        return sum(column.dtype.itemsize * int(np.prod(column.shape[1:])) for column in self.columns.values())

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name][: self.size]

    def masks(self, rows: Any = slice(None)) -> tuple[Bool[np.ndarray, "r p"], Bool[np.ndarray, "r p"]]:
        """What is in and out."""
        inn, out = (np.unpackbits(self[name][rows], axis=1, count=self.p) for name in ("inn", "out"))
        return inn.astype(bool), out.astype(bool)

    def add(self, inn: np.ndarray, out: np.ndarray, **new: np.ndarray) -> None:
        """Append rows."""
        new = {**new, "inn": np.packbits(inn, axis=1), "out": np.packbits(out, axis=1)}
        end = self.size + len(inn)
        for name, column in self.columns.items():
            if end > len(column):
                room = max(end, 2 * len(column), 256) - len(column)
                self.columns[name] = np.concatenate([column, np.zeros((room, *column.shape[1:]), column.dtype)])
            self.columns[name][self.size : end] = new[name]
        self.size = end

    def remove(self, rows: Int[np.ndarray, "r"]) -> None:
        """Drop rows; the last ones take their places."""
        gone = np.zeros(self.size, bool)
        gone[rows] = True
        left = self.size - len(rows)
        holes, movers = np.flatnonzero(gone[:left]), left + np.flatnonzero(~gone[left:])
        for column in self.columns.values():
            column[holes] = column[movers]
        self.size = left

    def on(self, use: Bool[np.ndarray, "p"], unit: Float[np.ndarray, "_"] | None = None) -> "Pool":
        """The rows on some of the features; none of the others is open or in."""
        new, place = Pool(int(use.sum())), np.cumsum(use) - 1
        inn, out = self.masks()
        feature = self["feature"]
        new.add(
            inn[:, use],
            out[:, use],
            bound=self["bound"],
            born=self["born"],
            feature=np.where(feature < 0, -1, place[feature]),
            both=self["both"],
            v=self["v"][:, use],
            u=self["u"][:, use],
        )
        return new


class Tree:
    """The search: what is proved, what was found and what is open. See `prove`.

    Best first, a batch of nodes at a time. In phases: d is the smallest eigenvalue and the ridge for the first nodes,
    which ends most problems; then, each time there are four times as many nodes, d is tuned for a sample of the open
    ones, features that none of them may use are dropped, and the tree goes on. Two last places are filled exactly, all
    pairs at once.
    """

    def __init__(self, problem: LeastSquares, limits: Limits, report: Callable[[int, int], None], began: float) -> None:
        self.problem, self.limits, self.report = problem, limits, report
        self.k, self.zero = problem.size, ZERO * problem.null_value
        p = len(problem.features)
        self.names = np.arange(p)  # features in use
        self.upper, self.members = np.inf, np.zeros(0, int)
        self.lower = 0.0  # F is a sum of squares
        self.nodes = self.leaves = self.born = 0
        self.spent, self._began = 0.0, began  # seconds of earlier runs, and when this one began
        self.goal = float(FIRST)
        self.bounded = True  # False where Q is singular, so that nothing but F >= 0 is known
        self.stopped = ""
        self.cap = np.inf  # of the values that are collected, once there are too many
        self.found: dict[bytes, tuple[np.ndarray, float]] = {}
        self.history: list[Moment] = []
        self.pool = Pool(p)
        self.pending = (np.zeros(0), np.zeros((0, p), bool), np.zeros((0, p), bool))  # leaves: bounds, in, out
        self.d = np.full(p, SCOUT)
        root = problem.kept[None], np.zeros((1, p), bool)
        places = self.k - int(problem.kept.sum())
        if places == 0 or self.k == p:  # there is nothing to choose
            self._look(np.flatnonzero(problem.kept if places == 0 else np.ones(p, bool))[None])
        elif places <= 2:
            self.pending = (np.zeros(1), *root)
        else:
            self._open(np.zeros(1), *root, np.full(1, -1), np.zeros(1, bool), np.zeros((1, p)), np.zeros((1, p)))

    # --- what is known -----------------------------------------------------------------------------------------------
    @property
    def seconds(self) -> float:
        """Of all runs."""
        return self.spent + time.monotonic() - self._began

    @property
    def slack(self) -> float:
        """What the proof may leave open."""
        return max(self.limits.gap * self.upper, self.zero)

    @property
    def level(self) -> float:
        """Nodes without a support below this value are done with."""
        if self.limits.ratio is None:
            return max(self.upper - self.slack, 0.0)
        wanted = max(self.limits.ratio * self.upper, self.upper + self.zero) * (1 + VALUE_ROUNDING)
        return min(wanted, self.cap) + float(np.finfo(float).tiny)  # supports that are as good as it belong to it

    @property
    def done(self) -> bool:
        """Nothing is open."""
        return not self.pool.size and not len(self.pending[0])

    def _learn(self) -> None:
        """Take over the bound of what is open."""
        opened = min((a.min() for a in (self.pool["bound"], self.pending[0]) if len(a)), default=np.inf)
        self.lower = max(self.lower, min(float(opened), self.level, self.upper))
        last = self.history[-1] if self.history else None
        if last is None or self.upper < last.upper or self.lower - last.lower > 0.01 * (last.upper - last.lower):
            self.note()

    def note(self) -> None:
        """Add to the history."""
        self.history.append(Moment(self.seconds, self.lower, self.upper, self.nodes))

    def offer(self, members: Int[np.ndarray, "m"]) -> None:
        """A support (of the problem's features) that may be the best: refitted from the data."""
        value = self.problem.fit(members)[0]
        if value < self.upper:
            self.upper, self.members = value, np.sort(members)

    def _collect(self, members: Int[np.ndarray, "s m"], values: Float[np.ndarray, "s"]) -> None:
        for each, value in zip(members, values, strict=True):
            if value <= self.level:
                self.found[np.sort(each).astype(np.int32).tobytes()] = np.sort(each), float(value)
        if len(self.found) > 2 * MOST_COLLECTED:
            self.trim()

    def trim(self) -> None:
        """Keep what belongs to the collection: at most `MOST_COLLECTED` supports, the best."""
        kept = sorted((item for item in self.found.items() if item[1][1] <= self.level), key=lambda item: item[1][1])
        if len(kept) > MOST_COLLECTED:
            self.cap = kept[MOST_COLLECTED - 1][1][1]
        self.found = dict(kept[:MOST_COLLECTED])

    # --- the run -----------------------------------------------------------------------------------------------------
    def run(self, save: Callable[["Tree"], None] | None = None) -> None:
        """Until it is proved or a limit is reached; `save` is called now and then, and at the end."""
        self._stop_at, self._save, self._saved = self._began + self.limits.seconds, save, time.monotonic()
        with _interrupts() as interrupted, jax.enable_x64(True), one_blas_thread():
            self._interrupted = interrupted
            while not self.done and not self._out_of_time():
                self._work(self._phase())
                self.goal *= GROWTH
        self._learn()
        self.note()
        if save is not None:
            save(self)

    def _out_of_time(self) -> bool:
        if self._interrupted():
            self.stopped = "it was interrupted"
        elif time.monotonic() >= self._stop_at:
            self.stopped = "its time was over"
        elif self.nodes >= self.limits.nodes:
            self.stopped = "its nodes were used up"
        return bool(self.stopped)

    def _phase(self) -> "_Phase":
        """Drop the features that are out everywhere, choose d, and put the matrices on the device."""
        use = self.problem.kept[self.names].copy()
        for _, out in (self.pool.masks(), self.pending[1:]):
            use |= (~out).any(0)
        self.pool = self.pool.on(use)
        self.pending = self.pending[0], self.pending[1][:, use], self.pending[2][:, use]
        self.names, old = self.names[use], self.d[use]
        problem, p = self.problem, len(self.names)
        Q, b, ridge = problem.Q[np.ix_(self.names, self.names)], problem.b[self.names], problem.ridge[self.names]
        least = float(np.linalg.eigvalsh(Q - np.diag(ridge))[0]) if p else 0.0
        d = ridge + least * (1 - 1e-7)  # the smallest eigenvalue that is not the ridge's
        self.bounded = p > 0 and float(d.min()) > LEAST_DIAGONAL
        affordable = min(self.seconds, self._stop_at - time.monotonic()) / (TUNING * max(p, 1) ** 3)
        sample = min(SAMPLE, self.pool.size, int(max(affordable, 0)))  # no longer than what was spent so far
        # Without an eigenvalue above the ridge there is nothing to gain.
        if self.bounded and self.nodes and least > LEAST_DIAGONAL and sample >= min(4, max(self.pool.size, 1)):
            pick = np.random.default_rng(self.nodes).permutation(self.pool.size)[:sample]
            inn, out = self.pool.masks(pick)
            d = tune(Q, b, problem.c0, Nodes(self.k - inn.sum(1), inn, out), self.level)
        if self.bounded:
            r = 1 / np.sqrt(d)
            spectrum = np.linalg.eigh(Q * r * r[:, None])
            # d times this is feasible, whatever rounding did.
            share = min(float(spectrum[0][0] - 10 * p * EPS * spectrum[0][-1]), 1.0)
            self.bounded = share > 0.1
        if not self.bounded:
            share, d = 1.0, np.full(p, SCOUT)
            spectrum = np.linalg.eigh(Q / SCOUT)
        self.d = d * share
        return _Phase(self, Q, b, spectrum[0] / share, spectrum[1], old)

    def _work(self, phase: "_Phase") -> None:
        while (self.pool.size or len(self.pending[0])) and not self._out_of_time() and self.nodes < self.goal:
            if self.pool.size:
                self._step(phase)
            if len(self.pending[0]) >= phase.batch or not self.pool.size:
                self._finish_leaves(phase)
            self._learn()
            self.report(self.nodes, 0)
            if self._save is not None and time.monotonic() > self._saved + SAVE_EVERY:
                self._save(self)
                self._saved = time.monotonic()
        self._finish_leaves(phase)
        self._learn()

    def _step(self, phase: "_Phase") -> None:
        """Bound a batch of nodes, and branch."""
        bounds, inn, out, v, u = self._take(phase.batch)
        if not len(bounds):
            return
        self.nodes += len(bounds)
        got = phase.bound(inn, out, v, u, self.level, MOST_CHUNKS)
        lower, v, u, inn, out, weight = got
        lower = np.maximum(lower, bounds)
        # The largest of what is free fill the node's places: a support of every node.
        left, free = self.k - inn.sum(1), ~(inn | out)
        size = free.sum(1)
        order = np.argsort(-np.where(free, np.abs(v) + 1e-12, -1.0), 1)
        filled = np.zeros_like(inn)
        np.put_along_axis(filled, order, np.arange(inn.shape[1]) < left[:, None], 1)
        filled = inn | (filled & free)
        possible = (left >= 0) & (size >= left)
        if possible.any():
            self._settle(phase, filled[possible], (left == 0)[possible] | (size == left)[possible])
        level = self.level
        undecided = possible & (left > 0) & (size > left) & (lower < level)
        last = undecided & (left <= 2)
        self._wait(lower[last], inn[last], out[last])
        rows = np.flatnonzero(undecided & ~last)
        if not rows.size:
            return
        feature = np.argmax(np.where(weight >= 0, weight * phase.r, -1.0), 1)[rows]
        direct = (left[rows] == 3) & (len(self.names) <= DIRECT)
        if direct.any():  # with the feature two places are left
            chosen = inn[rows[direct]].copy()
            chosen[np.arange(len(chosen)), feature[direct]] = True
            self._wait(lower[rows[direct]], chosen, out[rows[direct]])
        self._open(lower[rows], inn[rows], out[rows], feature, ~direct, v[rows], u[rows])

    def _open(self, bound: Any, inn: Any, out: Any, feature: Any, both: Any, v: Any, u: Any) -> None:
        born = self.born + np.arange(len(bound))
        self.pool.add(inn, out, bound=bound, born=born, feature=feature, both=both, v=v, u=u)
        self.born += len(bound)

    def _wait(self, bound: np.ndarray, inn: np.ndarray, out: np.ndarray) -> None:
        """Put leaves aside until there is a batch of them."""
        self.pending = tuple(np.concatenate([a, n]) for a, n in zip(self.pending, (bound, inn, out), strict=True))  # type: ignore[assignment]

    def _take(self, batch: int) -> tuple[np.ndarray, ...]:
        """Take nodes out of the pool: those with the least bounds or, where it is full, the youngest."""
        pool, level = self.pool, self.level
        full = pool.size * pool.row_bytes > POOL_BYTES
        rank = -pool["born"] if full else pool["bound"]
        rows = np.argpartition(rank, batch - 1)[:batch] if pool.size > batch else np.arange(pool.size)
        rows = rows[np.argsort(rank[rows], kind="stable")]
        live = pool["bound"][rows] < level
        if not (full or live.any()):  # nothing else can be
            pool.size = 0
            rows, live = rows[:0], live[:0]
        nodes = np.cumsum(np.where(live, 1 + (pool["both"][rows] & (pool["feature"][rows] >= 0)), 0))
        rows, live = rows[nodes <= batch], live[nodes <= batch]
        bounds, feature, both = pool["bound"][rows[live]], pool["feature"][rows[live]], pool["both"][rows[live]]
        inn, out = pool.masks(rows[live])
        v, u = pool["v"][rows[live]], pool["u"][rows[live]]
        pool.remove(rows)
        split = np.flatnonzero(feature >= 0)
        out_of = out.copy()
        out_of[split, feature[split]] = True
        two = np.flatnonzero((feature >= 0) & both)
        inn_two = inn[two].copy()
        inn_two[np.arange(len(two)), feature[two]] = True
        parts = (bounds, bounds[two]), (inn, inn_two), (out_of, out[two]), (v, v[two]), (u, u[two])
        return tuple(np.concatenate(part) for part in parts)

    # --- exact values ------------------------------------------------------------------------------------------------
    def _settle(self, phase: "_Phase", supports: Bool[np.ndarray, "s p"], last: Bool[np.ndarray, "s"]) -> None:
        """Look at supports of k features; the `last` ones are all that is left of their nodes."""
        values = phase.support_values(supports)
        best = np.where(np.isfinite(values), values, np.inf)
        if best.min() < self.upper:
            self.offer(self.names[np.flatnonzero(supports[np.argmin(best)])])
        if not last.any():
            return
        rest = supports[last]
        near = ~(values[last] >= self.level)  # True for NaN
        if near.any():
            self._look(self.names[members_of(rest[near])])

    def _look(self, members: Int[np.ndarray, "s m"]) -> None:
        """Refit supports that may be below the level from the data."""
        values = self.problem.values(members)
        best = int(np.argmin(values))
        if values[best] < self.upper:
            self.offer(members[best])
        if self.limits.ratio is not None:
            self._collect(members, values)

    def _finish_leaves(self, phase: "_Phase") -> None:
        while len(self.pending[0]) and not self._out_of_time():
            bounds, inn, out = (a[: phase.batch] for a in self.pending)
            values, place, doubt = phase.leaves(inn, out)
            best = int(np.argmin(values))
            if values[best] < self.upper:
                chosen = inn[best].copy()
                chosen[[place[best] // phase.width, place[best] % phase.width]] = True
                self.offer(self.names[np.flatnonzero(chosen)])
            near = np.flatnonzero((values < self.level) | (doubt > 0))
            for start in range(0, near.size, phase.at_once):
                some = near[start : start + phase.at_once]
                if not self._every_pair(phase, inn[some], out[some]):
                    self.pending = tuple(a[some[0] :] for a in self.pending)  # type: ignore[assignment]
                    return
            self.leaves += len(bounds)
            self.pending = tuple(a[len(bounds) :] for a in self.pending)  # type: ignore[assignment]

    def _every_pair(self, phase: "_Phase", inn: Bool[np.ndarray, "s p"], out: Bool[np.ndarray, "s p"]) -> bool:
        """Refit all pairs of some leaves that may be below the level; False if there was no time for it."""
        values, doubt = phase.leaf_pairs(inn, out)
        leaf, first, second = np.nonzero((values < self.level) | doubt)
        supports = inn[leaf]
        supports[np.arange(len(leaf)), first] = supports[np.arange(len(leaf)), second] = True
        members = self.names[members_of(supports)] if len(leaf) else np.zeros((0, self.k), int)
        for start in range(0, len(members), REFITS):
            if self._out_of_time():
                return False
            self._look(members[start : start + REFITS])
        return True


class _Phase:
    """The problem on the features in use, in the units of one diagonal, on the device."""

    def __init__(
        self, tree: Tree, Q: np.ndarray, b: np.ndarray, eigenvalues: np.ndarray, E: np.ndarray, old: np.ndarray
    ) -> None:
        p, c0, d = len(b), tree.problem.c0, tree.d
        # Few compiled shapes.
        self.width = max(32, -(-p // 32) * 32 if p <= 256 else -(-p // 128) * 128)
        self.p, self.batch = p, BATCH_CPU if jax.default_backend() == "cpu" else BATCH
        self.at_once = leaves_at_once(self.width, self.batch)
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
        self.problem = Problem(jnp.asarray(self._square(Q)), jnp.asarray(self._row(b)), jnp.asarray(c0))
        terms = self._row(np.sqrt(np.maximum(np.diag(scaled), 0)), 1.0)
        fixed = [jnp.asarray(a) for a in (self._square(M), terms, self._row(b * self.r), c0, tree.bounded)]
        self.at = self._scaled(fixed, eigenvalues - less, E, PENALTIES[0])
        if not tree.pool.size:
            return
        # The penalty with the best bounds on one batch.
        rows = np.argsort(tree.pool["bound"], kind="stable")[: self.batch]
        inn, out = tree.pool.masks(rows)
        v, u, best = tree.pool["v"][rows], tree.pool["u"][rows], -np.inf
        for penalty in PENALTIES:
            at = self._scaled(fixed, eigenvalues - less, E, penalty)
            self.at, kept = at, self.at
            value = float(np.minimum(self.bound(inn, out, v, u, tree.level, TRIAL_CHUNKS)[0], tree.level).mean())
            if value > best:
                best = value
            else:
                self.at = kept

    def _scaled(self, fixed: list[Any], eigenvalues: np.ndarray, E: np.ndarray, penalty: float) -> Scaled:
        M, terms, b, c0, safe = fixed
        K = (E / (np.maximum(eigenvalues, 0) + penalty)) @ E.T
        return Scaled(M, jnp.asarray(self._square(K)), terms, b, c0, jnp.asarray(penalty), safe)

    def _row(self, a: np.ndarray, fill: Any = 0) -> np.ndarray:
        """Padded features."""
        return np.concatenate([a, np.full((*a.shape[:-1], self.width - self.p), fill, a.dtype)], -1)

    def _square(self, A: np.ndarray) -> np.ndarray:
        padded = np.eye(self.width)
        padded[: self.p, : self.p] = A
        return padded

    def _batch(self, a: np.ndarray, fill: Any = 0) -> np.ndarray:
        """Padded features, and the first row again for padded rows."""
        a = self._row(a, fill)
        size = FEW if len(a) <= FEW and self.width >= WIDE else self.batch
        return np.concatenate([a, np.repeat(a[:1], size - len(a), 0)]) if len(a) < size else a

    def bound(
        self, inn: np.ndarray, out: np.ndarray, v: np.ndarray, u: np.ndarray, level: float, chunks: int
    ) -> tuple[np.ndarray, ...]:
        """Bounds of nodes, what they decide, and where to branch; the dual in units without the penalty."""
        rho, m, p = float(self.at.rho), len(inn), self.p
        masks = self._batch(inn), self._batch(out, True)
        found = bound(
            self.at, *masks, self._batch(v), self._batch(u / np.float32(rho)), level, self.k, chunks, k_max=self.k_max
        )
        lower, v, u, inn, out, weight = (np.asarray(a)[:m] for a in found)
        v, u = v[:, :p].astype(np.float32), (rho * u[:, :p]).astype(np.float32)
        return lower, v, u, inn[:, :p], out[:, :p], weight[:, :p]

    def support_values(self, supports: np.ndarray) -> np.ndarray:
        """F of supports."""
        return np.asarray(support_values(self.problem, self._batch(supports), k_max=self.k_max))[: len(supports)]

    def leaves(self, inn: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, ...]:
        """The best pair of every leaf."""
        found = leaves(self.problem, self._batch(inn), self._batch(out, True), self.k, k_max=self.k_max)
        return tuple(np.asarray(a)[: len(inn)] for a in found)

    def leaf_pairs(self, inn: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, ...]:
        """Every pair of at most `at_once` leaves."""
        masks = (self._batch(a, fill)[: self.at_once] for a, fill in ((inn, False), (out, True)))
        found = leaf_pairs(self.problem, *masks, self.k, k_max=self.k_max)
        return tuple(np.asarray(a)[: len(inn), : self.p, : self.p] for a in found)


@contextlib.contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Whether the user has asked to stop (SIGINT); a second time ends the program as usual."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(*_: Any) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
