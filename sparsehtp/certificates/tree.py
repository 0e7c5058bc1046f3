"""Branch and bound for the best k features, a batch of nodes at a time, whatever bounds them."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Int

from .._threads import one_blas_thread
from .data import members_of

BATCH_CPU, BATCH = 64, 1024  # nodes that are bounded at a time
FIRST, GROWTH = 400, 4  # nodes of the first phase, and how many times as many those after it end at
POOL_BYTES = 2**30  # beyond which the tree goes depth first
MOST_COLLECTED = 10_000
MOST_EXACT = 2000  # supports that are fitted in exact arithmetic
VALUE_ERROR = 1e-6  # of a collected value, that rounding may have made
VALUE_ROUNDING = 1e-9  # of values that are compared with the level of a collection
REFITS = 100  # at a time
TOO_LATE = "its time was over"
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
        """The features that are in, and those that are out."""
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

    def on(self, use: Bool[np.ndarray, "p"]) -> "Pool":
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


def padded(a: np.ndarray, rows: int, width: int, fill: Any = 0) -> np.ndarray:
    """Features of nodes padded with a value, and rows with the first again."""
    a = np.pad(a, [(0, 0), (0, width - a.shape[1])], constant_values=fill)
    return np.concatenate([a, np.repeat(a[:1], max(rows - len(a), 0), 0)])


class Tree:
    """The search: what is proved, what was found and what is open. See `prove`.

    Best first, a batch of nodes at a time. In phases: each time there are four times as many nodes, features that none
    of the open ones may use are dropped, the bounds are made better for those that are left, and the tree goes on.

    The objective is a `problem` (`LeastSquares`, `Generalised`), on the host: which features are usable (`features`,
    `kept`, `size`), fits of supports from the data (`fit`, `values`), a `search` to begin with, what is zero but for
    rounding (`zero`), what F was lowered by to be at least 0 (`floor`), and how many `last_places` are filled exactly,
    all choices at once. `begin` makes a phase of it, on the device: bounds of nodes, and values of supports and leaves.
    """

    def __init__(
        self,
        problem: Any,
        begin: Callable[["Tree"], Any],
        limits: Limits,
        report: Callable[[int, int], None],
        began: float,
    ) -> None:
        self.problem, self.begin, self.limits, self.report = problem, begin, limits, report
        self.k, self.zero = problem.size, problem.zero
        p = len(problem.features)
        self.names = np.arange(p)  # features in use
        self.width = 0  # of the programs that this run has compiled
        self.upper, self.members = np.inf, np.zeros(0, int)
        self.lower = 0.0  # F is at least its floor
        self.sure = np.inf  # below which no support that was refitted is, whatever rounding did
        self.nodes = self.leaves = self.born = 0
        self.spent, self._began = 0.0, began  # seconds of earlier runs, and when this one began
        self.goal = float(FIRST)
        self.bounded = True  # False where Q is singular, so that nothing but F >= 0 is known
        self.stopped = ""
        self.cap = np.inf  # of the values that are collected, once there are too many
        self.found: dict[bytes, tuple[np.ndarray, float, float]] = {}  # supports, values, and how wrong these may be
        self.exacts = 0  # supports that were fitted in exact arithmetic
        self.history: list[Moment] = []
        self.pool = Pool(p)
        self.pending = (np.zeros(0), np.zeros((0, p), bool), np.zeros((0, p), bool))  # leaves: bounds, in, out
        self.d = np.ones(p)  # the diagonal of a quadratic problem
        root = problem.kept[None], np.zeros((1, p), bool)
        places = self.k - int(problem.kept.sum())
        if places == 0 or self.k == p:  # there is nothing to choose
            self._look(np.flatnonzero(problem.kept if places == 0 else np.ones(p, bool))[None])
        elif places <= problem.last_places:
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
        """The gap that the proof may leave open."""
        return max(self.limits.gap * self.upper, self.zero)

    @property
    def level(self) -> float:
        """Nodes without a support below this value are done with."""
        if self.limits.ratio is None:
            return max(self.upper - self.slack, 0.0)
        return max(self.reach, min(self.upper + self.zero, self.cap))

    @property
    def reach(self) -> float:
        """Supports up to this value belong to the collection, if there is room for them."""
        return min(self.claimed, self.cap)

    @property
    def claimed(self) -> float:
        """Supports up to this value are what a collection is said to hold."""
        wanted = max((self.limits.ratio or 1) * self.upper, self.upper + self.problem.noise) * (1 + VALUE_ROUNDING)
        return wanted + float(np.finfo(float).tiny)  # supports that are as good as it belong to it

    @property
    def done(self) -> bool:
        """Nothing is open."""
        return not self.pool.size and not len(self.pending[0])

    @property
    def seconds_left(self) -> float:
        """Of this run."""
        return self._stop_at - time.monotonic()

    def _learn(self) -> None:
        """Take over the bound of what is open."""
        opened = min((a.min() for a in (self.pool["bound"], self.pending[0]) if len(a)), default=np.inf)
        self.lower = max(self.lower, min(float(opened), self.level, self.upper, self.sure))
        last = self.history[-1] if self.history else None
        if last is None or self.upper < last.upper or self.lower - last.lower > 0.01 * (last.upper - last.lower):
            self.note()

    def note(self) -> None:
        """Add to the history."""
        self.history.append(Moment(self.seconds, self.lower, self.upper, self.nodes))

    def offer(self, members: Int[np.ndarray, "m"]) -> None:
        """A support (of the problem's features) that may be the best: refitted from the data."""
        if np.array_equal(np.sort(members), self.members) and np.isfinite(self.upper):
            return
        value = self.problem.fit(members)[0]
        if value < self.upper:
            self.upper, self.members = value, np.sort(members)

    def _collect(self, members: Int[np.ndarray, "s m"], values: np.ndarray, wrong: np.ndarray) -> None:
        for each, value, error in zip(members, values, wrong, strict=True):
            if value - error <= self.reach:
                self.found[np.sort(each).astype(np.int32).tobytes()] = np.sort(each), float(value), float(error)
        if len(self.found) > 2 * MOST_COLLECTED:
            self.trim()

    def trim(self) -> None:
        """Keep what may belong to the collection: at most `MOST_COLLECTED` supports, the best."""
        near = (item for item in self.found.items() if item[1][1] - item[1][2] <= self.reach)
        kept = sorted(near, key=lambda item: item[1][1])
        if len(kept) > MOST_COLLECTED:
            self.cap = kept[MOST_COLLECTED - 1][1][1]
        self.found = dict(kept[:MOST_COLLECTED])

    def settle_collection(self) -> None:
        """Decide in exact arithmetic, where there is one, what rounding leaves open of supports and values."""
        self.trim()
        for name, (members, value, error) in list(self.found.items()):
            open_ = value + error > self.claimed >= value - error or error > VALUE_ERROR * value
            if open_ and error > 0:
                found = self._exactly(members)
                self.found[name] = members, value if found is None else found, 0.0
        self.found = {name: each for name, each in self.found.items() if each[1] <= self.claimed}

    def _exactly(self, members: Int[np.ndarray, "m"]) -> float | None:
        if self.exacts >= MOST_EXACT:
            return None
        self.exacts += 1
        return self.problem.exact(members)

    # --- the run -----------------------------------------------------------------------------------------------------
    def run(self, save: Callable[["Tree"], None] | None = None) -> None:
        """Until it is proved or a limit is reached; `save` is called now and then, and at the end."""
        self._stop_at, self._save, self._saved = self._began + self.limits.seconds, save, time.monotonic()
        with _interrupts() as interrupted, jax.enable_x64(True), one_blas_thread():
            self._interrupted = interrupted
            while not self.done and not self._out_of_time():
                phase = self._phase()
                if phase is None:
                    self.stopped = TOO_LATE
                    break
                self._work(phase)
                self.goal *= GROWTH
        self._learn()
        self.note()
        if save is not None:
            save(self)

    def _out_of_time(self) -> bool:
        if self._interrupted():
            self.stopped = "it was interrupted"
        elif time.monotonic() >= self._stop_at:
            self.stopped = TOO_LATE
        elif self.nodes >= self.limits.nodes:
            self.stopped = "its nodes were used up"
        return bool(self.stopped)

    def _phase(self) -> Any:
        """Drop the features that are out everywhere, and begin a phase on the others."""
        use = self.problem.kept[self.names].copy()
        for _, out in (self.pool.masks(), self.pending[1:]):
            use |= (~out).any(0)
        self.pool = self.pool.on(use)
        self.pending = self.pending[0], self.pending[1][:, use], self.pending[2][:, use]
        self.names, self.d = self.names[use], self.d[use]
        return self.begin(self)

    def width_for(self, fitting: int, node: float, compiling: float) -> int:
        """The width of a phase's programs: the fitting one if there are none yet or if, by the seconds that a node
        takes for each feature, the phase's nodes gain more than it compiles; else the last one."""
        nodes = min(self.goal, self.limits.nodes) - self.nodes
        if not self.width or nodes * node * (self.width - fitting) > compiling:
            self.width = fitting
        return self.width

    def _work(self, phase: Any) -> None:
        while (self.pool.size or len(self.pending[0])) and not self._out_of_time() and self.nodes < self.goal:
            if self.pool.size:
                self._step(phase)
            if len(self.pending[0]) >= phase.leaf_batch or not self.pool.size:
                self._finish_leaves(phase)
            self._learn()
            self.report(self.nodes, 0)
            if self._save is not None and time.monotonic() > self._saved + SAVE_EVERY:
                self._save(self)
                self._saved = time.monotonic()
        self._finish_leaves(phase)
        self._learn()

    def _step(self, phase: Any) -> None:
        """Bound a batch of nodes, and branch."""
        bounds, inn, out, v, u = self._take(phase.batch)
        if not len(bounds):
            return
        self.nodes += len(bounds)
        lower, v, u, inn, out, weight = phase.bound(inn, out, v, u, self.level)
        lower = np.fmax(lower, bounds)  # NaN bounds nothing, and nothing starts from it
        v, u = (np.where(np.isfinite(a), a, 0) for a in (v, u))
        # The largest of what is free fill the node's places: a support of every node.
        left, free = self.k - inn.sum(1), ~(inn | out)
        size = free.sum(1)
        order = np.argsort(-np.where(free, np.abs(v), -1.0), 1)
        filled = np.zeros_like(inn)
        np.put_along_axis(filled, order, np.arange(inn.shape[1]) < left[:, None], 1)
        filled |= inn
        possible = (left >= 0) & (size >= left)
        if possible.any():
            self._settle(phase, filled[possible], (left == 0)[possible] | (size == left)[possible])
        level = self.level
        undecided = possible & (left > 0) & (size > left) & (lower < level)
        last = undecided & (left <= self.problem.last_places)
        self._wait(lower[last], inn[last], out[last])
        rows = np.flatnonzero(undecided & ~last)
        if not rows.size:
            return
        feature = np.argmax(weight, 1)[rows]
        direct = (left[rows] == self.problem.last_places + 1) & (len(self.names) <= self.problem.most_direct)
        if direct.any():  # with the feature only the last places are left
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
    def _settle(self, phase: Any, supports: Bool[np.ndarray, "s p"], last: Bool[np.ndarray, "s"]) -> None:
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
        values, lower = self.problem.values(members)
        values, lower = np.where(np.isnan(values), np.inf, values), np.where(np.isnan(lower), -np.inf, lower)
        best = int(np.argmin(values))
        if values[best] < self.upper:
            self.offer(members[best])
        for i in np.flatnonzero(lower < self.upper - self.slack):  # rounding could decide
            found = self._exactly(members[i])
            if found is not None:
                values[i] = lower[i] = found
                if found < self.upper:
                    self.offer(members[i])
        self.sure = min(self.sure, float(lower.min()))
        if self.limits.ratio is not None:
            self._collect(members, values, values - lower)

    def _finish_leaves(self, phase: Any) -> None:
        while len(self.pending[0]) and not self._out_of_time():
            bounds, inn, out = (a[: phase.leaf_batch] for a in self.pending)
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

    def _every_pair(self, phase: Any, inn: Bool[np.ndarray, "s p"], out: Bool[np.ndarray, "s p"]) -> bool:
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


@contextlib.contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Whether the user has asked to stop (SIGINT); a second time ends the program as usual."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = signal.getsignal(signal.SIGINT) or signal.SIG_DFL  # None: set by a program that holds the interpreter

    def ask(*_: Any) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
