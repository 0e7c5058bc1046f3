"""Any number of rows, read once: what least squares knows of them."""

import dataclasses
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ._executors import in_order
from ._progress import Callback, reporting
from ._threads import one_blas_thread
from ._types import ArrayLike, check_kind
from .datasets.shards import Shards
from .io import memory
from .io.checkpoint import Checkpoint
from .linalg import empty_triangles, extend, few_rows, merged
from .objectives import LinearModel, MultiResponse

NUMBERS = 2**20  # of a batch that are looked at together
BATCH = 2**16  # rows of arrays that a task takes
SHARE = 4  # part of the free memory that triangles may take
SEED, MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


class Batch(NamedTuple):
    """Some rows: X (n, p), targets (n,) or (n, t), and weights (n,), None for one each."""

    X: Any
    y: Any
    weights: Any = None


class Triangles(NamedTuple):
    """Triangles (folds, m, m) of some rows, how many each fold has, the sums of their weights, and the largest."""

    triangles: Float[np.ndarray, "folds m m"]
    rows: Int[np.ndarray, "folds"]
    weights: Float[np.ndarray, "folds"]
    largest: float


@dataclasses.dataclass(frozen=True)
class SufficientStatistics:
    """All that least squares needs of any number of rows, in the space of a few: made in one pass, and merged.

    For every fold it holds the triangle R of the QR factorisation of the rows [1, X - c, y - d], times the roots of
    their weights; R'R are the sufficient statistics of the Gaussian linear model, and nothing was squared to get them.
    Everything that takes a squared-loss model takes `model()`: `solve`, `solve_path`, `cross_validate` (with `folds`),
    `choose`, `certificate`, `prove`. `SparseRegressor().fit(statistics)` does all of it. The answers are those of all
    rows in memory, but for rounding; in `solve_path` and `cross_validate` name `ks`, whose default counts the rows of a
    model.

    What needs the rows themselves cannot be had: other losses, absolute errors and scorers of one's own, folds of other
    rows (a number of folds would cut the rows that stand for all), and resampling of single rows: `stability_selection`
    draws `groups=statistics.blocks`, of which there should be some twenty (folds=20) or more.

    Make it by `from_arrays`, `from_batches` or `from_files`.

    Attributes:
        triangles: (folds, m, m) float64, m = 1 + features + targets.
        centre: (m - 1,) what was taken off features and targets, c and d: about their means, in few digits, so that
            nothing is lost of columns far from zero.
        rows: (folds,) numbers of rows with a weight.
        weights: (folds,) sums of their weights.
        largest_weight: of a row.
        feature_names: of the columns, or None.
        n_targets: 0 for (n,) targets.
    """

    triangles: Float[np.ndarray, "folds m m"]
    centre: Float[np.ndarray, "c"]
    rows: Int[np.ndarray, "folds"]
    weights: Float[np.ndarray, "folds"]
    largest_weight: float
    feature_names: list | None  # type: ignore[type-arg]
    n_targets: int

    # --- making ------------------------------------------------------------------------------------------------------
    @classmethod
    def from_arrays(
        cls, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *, folds: int = 5
    ) -> "SufficientStatistics":
        """Those of rows in memory.

        Args:
            X: (n, p) numbers.
            y: (n,) or (n, t) targets.
            sample_weight: (n,) weights >= 0; None: one.
            folds: as in `from_batches`.
        """
        whole, names = _arrays(Batch(X, y, sample_weight), 0)
        cut = (_cut(whole, low, low + BATCH) for low in range(0, max(len(whole.y), 1), BATCH))
        return cls.from_batches(cut, folds=folds, feature_names=names)

    @classmethod
    def from_batches(
        cls,
        batches: Iterable[Any],
        *,
        folds: int = 5,
        feature_names: Sequence[str] | None = None,
        executor: Executor | None = None,
        progress: Callback | bool | None = None,
    ) -> "SufficientStatistics":
        """Those of rows that come in batches, from anywhere.

        Args:
            batches: (X, y) or (X, y, sample_weight) each, as in `from_arrays`; a few are in memory at a time. Data
                frames need the same columns in the same order.
            folds: for cross-validation; each has one of as many rows that follow each other, whatever the batches are.
                1: none.
            feature_names: of the columns. None: those of data frames, if they are some.
            executor: factorises the batches, which are sent to it. None: threads.
            progress: a function of (rows read, 0), or True for a bar on stderr.

        Raises:
            ValueError: for batches of other shapes, missing or infinite numbers, negative weights, no rows, or more
                columns than memory allows the triangles of.
            RuntimeError: if a worker of the executor died.
        """
        names = None if feature_names is None else [str(name) for name in feature_names]

        def tasks() -> Iterator[tuple[Read, int]]:
            nonlocal names
            for number, each in enumerate(batches):
                batch, own = _arrays(Batch(*each), number)
                if own is not None and len(set(own)) < len(own):
                    raise ValueError(f"batches: two columns of part {number} have the same name; rename one.")
                if own is not None and names is not None and own != names:
                    raise ValueError(f"batches: part {number} has the columns {own}, others {names}; make them alike.")
                names = own if names is None else names
                yield partial(_given, batch), len(batch.y)

        made = _made(tasks(), folds, names, executor, progress)
        return dataclasses.replace(made, feature_names=names)

    @classmethod
    def from_files(
        cls,
        paths: str | Path | Sequence[str | Path] | Shards,
        target: str | Sequence[str] | None = None,
        *,
        weights: str | None = None,
        drop: Sequence[str] = (),
        folds: int = 5,
        executor: Executor | None = None,
        checkpoint: str | Path | None = None,
        progress: Callback | bool | None = None,
    ) -> "SufficientStatistics":
        """Those of the rows of many files, each of which is read once.

        Args:
            paths: files, a pattern such as "data/*.parquet", or a folder, as in `sht.datasets.Shards`; or that.
            target, weights, drop: as in `sht.datasets.Shards`.
            folds: as in `from_batches`.
            executor: reads and factorises the files (of Parquet their row groups): any of `concurrent.futures`, or of
                another package with `submit`. It is sent names of files. The result is the same to the last bit for
                any executor and any number of workers. None: threads.
            checkpoint: a folder, in which a pass that was killed goes on from the last part that was finished; one that
                was finished is not made again.
            progress: a function of (rows read, rows), or True for a bar on stderr.

        Raises:
            FileNotFoundError: if no file matches.
            ValueError: as in `from_batches`; for columns that are missing in a file or hold no numbers; or for a
                checkpoint of other files.
            ImportError: without pyarrow, for Parquet files.
        """
        shards = paths if isinstance(paths, Shards) else Shards(paths, target, weights=weights, drop=drop)
        shards.check_targets()
        files = [_stamp(file) for i in range(len(shards)) for file in shards.files(i)], shards.target, shards.labels
        plain = all(path.suffix == ".npy" for path in shards.paths)
        names = None if plain else list(shards.feature_names())
        tasks = [(partial(_shard, shards, i), n) for i, n in enumerate(shards.rows)]
        problem = (files, names, shards.weights)
        return _made(tasks, folds, names, executor, progress, checkpoint, problem)

    def merge(self, *others: "SufficientStatistics") -> "SufficientStatistics":
        """Those of the rows of all: fold by fold.

        Raises:
            ValueError: for others of other columns, targets or numbers of folds.
        """
        for other in others:
            check_kind("others", other, SufficientStatistics, "sht.SufficientStatistics.from_arrays(X, y)")
            if other.triangles.shape != self.triangles.shape or other.n_targets != self.n_targets:
                raise ValueError(
                    f"others: these have {self.n_features} features and {self.n_folds} folds, another "
                    f"{other.n_features} and {other.n_folds}; make them alike."
                )
            if other.feature_names != self.feature_names:
                raise ValueError("others: the columns have other names; make them from the same columns.")
        moved = [self.triangles, *(_about(each, self.centre) for each in others)]
        return dataclasses.replace(
            self,
            triangles=merged(moved),
            rows=np.sum([self.rows, *(each.rows for each in others)], axis=0),
            weights=np.sum([self.weights, *(each.weights for each in others)], axis=0),
            largest_weight=max(self.largest_weight, *(each.largest_weight for each in others)),
        )

    # --- use ---------------------------------------------------------------------------------------------------------
    def model(
        self, l2: ArrayLike = 0.0, *, fit_intercept: bool = True, standardize: bool = False
    ) -> LinearModel | MultiResponse:
        """The squared-loss objective of all rows, in the dtype of JAX's settings.

            F(w, b) = (1/(2 W)) sum_i s_i (y_i - x_i'w - b)^2 + (1/2) sum_j l2_j w_j^2,    W = sum_i s_i

        Its rows are `n_folds` times m that stand for all others; in float32 they are rounded to it.

        Args:
            l2, fit_intercept, standardize: as in `LinearModel`.
        """
        A, weights, centre = self.stand_ins(fit_intercept)
        dtype = jnp.result_type(float)
        X, Y = A[:, : self.n_features].astype(dtype), A[:, self.n_features :].astype(dtype)
        options: dict[str, Any] = {
            "l2": l2,
            "sample_weight": weights,
            "fit_intercept": fit_intercept,
            "standardize": standardize,
        }
        several = self.n_targets > 0
        model = MultiResponse(X, Y, **options) if several else LinearModel(X, Y[:, 0], **options)
        if not fit_intercept:
            return model
        level = centre[self.n_features :]
        return model.about(centre[: self.n_features], level if several else level[0])

    def stand_ins(
        self, centred: bool = True
    ) -> tuple[Float[np.ndarray, "n c"], Float[np.ndarray, "n"], Float[np.ndarray, "c"]]:
        """Rows of features and targets, their weights, and what was taken off the columns (nothing, unless `centred`):
        m for every fold, whose weighted sums of squares and products are those of all rows."""
        return few_rows(self.triangles, self.centre, self.n_features, centred)

    @property
    def folds(self) -> list[tuple[Int[np.ndarray, "train"], Int[np.ndarray, "test"]]]:
        """Pairs (train, test) of the rows of `model()`, for `cross_validate` and `choose`.

        Raises:
            ValueError: if there is one fold only.
        """
        if self.n_folds < 2:
            raise ValueError("folds: these statistics have none; make them with folds=5.")
        blocks = self.blocks
        return [(np.flatnonzero(blocks != i), np.flatnonzero(blocks == i)) for i in range(self.n_folds)]

    @property
    def blocks(self) -> Int[np.ndarray, "rows"]:
        """The fold of every row of `model()`: the groups that resampling may draw, for `stability_selection`."""
        return np.repeat(np.arange(self.n_folds), self.triangles.shape[1])

    @property
    def n_samples(self) -> int:
        """Rows with a weight."""
        return int(self.rows.sum())

    @property
    def total_weight(self) -> float:
        """Their weights' sum."""
        return float(self.weights.sum())

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return self.centre.size - max(self.n_targets, 1)

    @property
    def n_folds(self) -> int:
        """Folds."""
        return self.triangles.shape[0]


def _about(statistics: SufficientStatistics, centre: Float[np.ndarray, "c"]) -> Float[np.ndarray, "folds m m"]:
    """The triangles about another centre: the column of ones, as often as the centres differ, is added to others."""
    step = statistics.centre - centre
    moved = statistics.triangles.copy()
    moved[:, 0, 1:] += moved[:, 0, :1] * step
    return moved


def too_wide(features: int, targets: int, folds: int) -> int:
    """Bytes that the triangles of so many columns need, where that is more than a share of the free memory; else 0."""
    needed = 2 * folds * (1 + features + max(targets, 1)) ** 2 * 8 * (os.cpu_count() or 1)
    return needed if needed > memory.available() // SHARE else 0


# --- one pass ---------------------------------------------------------------------------------------------------------
Read = Callable[[], Iterator[Batch]]


class Layout(NamedTuple):
    """The columns of all batches: features, targets (0: (n,) targets), names; the centre, and the number of folds."""

    features: int
    targets: int
    names: list[str] | None
    centre: Float[np.ndarray, "c"]
    folds: int


def _made(
    tasks: Iterable[tuple[Read, int]],
    folds: int,
    names: Sequence[str] | None,
    executor: Executor | None,
    progress: Callback | bool | None,
    checkpoint: str | Path | None = None,
    files: Any = None,
) -> SufficientStatistics:
    """The statistics of the rows of all tasks (a function that reads them, and their number), merged in their order."""
    if not isinstance(folds, int | np.integer) or folds < 1:
        raise ValueError(f"folds: needs an integer >= 1, got {folds!r}.")
    sizes = [n for _, n in tasks] if isinstance(tasks, list) else []
    store = None if checkpoint is None else Checkpoint(checkpoint, (str(files), int(folds)), len(sizes), 1)
    done, read_rows, found, layout = 0, 0, None, None
    stored = None if store is None else store.load(0, jax.tree.structure((0, (0, 0, 0, 0), 0, 0)))
    if stored is not None:
        done, found, centre, targets = int(stored[0]), Triangles(*stored[1]), stored[2], int(stored[3])
        layout = Layout(centre.size - max(targets, 1), targets, _listed(names), centre, int(folds))
    skipped, sent = done, deque[int]()

    def work() -> Iterator[tuple[Any, ...]]:
        nonlocal done, read_rows, layout
        start = 0
        for number, (read, n) in enumerate(tasks):
            start += n
            if number >= skipped and layout is None:
                layout = _layout(read(), number, _listed(names), int(folds)) if n else None
            if number < skipped or layout is None:  # done before, or no row has a weight
                done, read_rows = max(done, number + 1), read_rows + n
            else:
                sent.append(n)
                yield read, number, start - n, layout

    threads = ThreadPoolExecutor(os.cpu_count()) if executor is None else nullcontext(executor)
    with reporting(progress, "rows", "rows") as report, threads as pool:
        for each in in_order(pool, _factorised, work()):
            part = Triangles(*each)
            found = part if found is None else _joined(found, part)
            done, read_rows = done + 1, read_rows + sent.popleft()
            if store is not None and layout is not None:
                store.store(0, (done, tuple(found), layout.centre, layout.targets))
            report(read_rows, sum(sizes))
    if found is None or layout is None or not found.rows.any():
        raise ValueError("batches: there are no rows with a weight; pass some.")
    if not found.rows.all():
        raise ValueError(f"folds: {found.rows.sum()} rows with a weight are too few for {folds} folds; lower it.")
    return SufficientStatistics(
        found.triangles,
        layout.centre,
        found.rows,
        found.weights,
        float(found.largest),
        layout.names,
        layout.targets,
    )


def _joined(a: Triangles, b: Triangles) -> Triangles:
    return Triangles(
        merged([a.triangles, b.triangles]),
        a.rows + b.rows,
        a.weights + b.weights,
        max(float(a.largest), float(b.largest)),
    )


def _listed(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else [str(name) for name in names]


def _layout(batches: Iterator[Batch], number: int, names: list[str] | None, folds: int) -> Layout | None:
    """That of the first rows with a weight, about whose medians all rows are taken, in few digits: exact in single
    precision too; None: there are none."""
    for batch in batches:
        first, _ = _arrays(batch, number)
        p, targets = first.X.shape[1], first.y.shape[1] if first.y.ndim == 2 else 0
        if p == 0 or 0 in first.y.shape[1:]:
            raise ValueError(
                f"batches: need X (n, p) and y (n,) or (n, t), got shapes {first.X.shape}, {first.y.shape}."
            )
        if names is not None and (len(names) != p or len(set(names)) < p):
            raise ValueError(f"feature_names: {len(names)} names, for {p} columns; pass one of its own for each.")
        m = 1 + p + max(targets, 1)
        needed = too_wide(p, targets, folds)
        if needed:
            raise ValueError(
                f"batches: the triangles of {p} columns take {needed / 2**30:.1f} GiB, more than a quarter of the free "
                "memory; choose columns first, or use sht.solve_stream."
            )
        layout = Layout(p, targets, names, np.zeros(m - 1), folds)
        for low in range(0, len(first.y), rows_at_once(m)):
            A, weights = _checked(_cut(first, low, low + rows_at_once(m)), number, layout, low)
            if weights.any():
                with np.errstate(over="ignore"):
                    centre = np.median(A[weights > 0], axis=0).astype(np.float32).astype(float)
                return layout._replace(centre=np.where(np.isfinite(centre), centre, 0))
    return None


def _arrays(batch: Batch, number: int) -> tuple[Batch, list[str] | None]:
    """A batch as arrays of as many rows, and the names of a data frame's columns."""
    names = [str(name) for name in batch.X.columns] if hasattr(batch.X, "columns") else None
    arrays = [np.asarray(each) for each in batch if each is not None]
    if any(each.dtype.kind not in "biufO" for each in arrays):
        raise ValueError(f"batches: part {number} holds something else than numbers; convert it first.")
    X, y, *weights = arrays
    n = X.shape[:1]
    if X.ndim != 2 or y.ndim not in (1, 2) or y.shape[:1] != n or any(each.shape != n for each in weights):
        shapes = ", ".join(str(each.shape) for each in arrays)
        raise ValueError(f"batches: part {number} needs X (n, p), y (n,) or (n, t) and weights (n,), got {shapes}.")
    return Batch(X, y, weights[0] if weights else None), names


def _checked(
    batch: Batch, number: int, layout: Layout, first: int = 0
) -> tuple[Float[np.ndarray, "n c"], Float[np.ndarray, "n"]]:
    """Features and targets of a batch side by side, and weights, in float64, or ValueError."""
    try:
        X, y = np.asarray(batch.X, float), np.asarray(batch.y, float)
        weights = np.ones(len(y)) if batch.weights is None else np.asarray(batch.weights, float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"batches: part {number} holds something else than numbers; convert it first.") from error
    if X.shape[1] != layout.features or y.shape[1:] != ((layout.targets,) if layout.targets else ()):
        raise ValueError(
            f"batches: part {number} has X of shape {X.shape} and y of {y.shape}; the first has {layout.features} "
            f"features and {max(layout.targets, 1)} targets."
        )
    A = np.hstack([X, y.reshape(len(y), max(layout.targets, 1))])
    if not np.isfinite(A).all():
        row, column = np.argwhere(~np.isfinite(A))[0]
        named = f"column {layout.names[column] if layout.names and column < layout.features else column}"
        named = "the target" if column >= layout.features else named
        raise ValueError(
            f"batches: {named} is missing or infinite in row {first + row} of part {number}; impute or drop it."
        )
    if not (np.isfinite(weights).all() and np.min(weights, initial=0) >= 0):
        raise ValueError(f"batches: a weight of part {number} is negative, missing or infinite; correct it.")
    return A, weights


def _factorised(read: Read, number: int, start: int, layout: Layout) -> tuple[Any, ...]:
    """`Triangles` of the rows of one task, the first of which is row `start` of all."""
    folds, m = layout.folds, layout.centre.size + 1
    triangles, rows, step = empty_triangles(folds, m), np.zeros(folds, int), rows_at_once(m)
    total, largest = np.zeros(folds), 0.0
    with one_blas_thread():
        for batch in read():
            batch, _ = _arrays(batch, number)
            for low in range(0, len(batch.y), step):
                A, weights = _checked(_cut(batch, low, low + step), number, layout, low)
                fold = fold_of(start, len(A), folds)
                start += len(A)
                some = weights > 0  # an outlier without weight would leave its rounding
                if not some.all():
                    A, weights, fold = A[some], weights[some], fold[some]
                rows += np.bincount(fold, minlength=folds)
                total += np.bincount(fold, weights, minlength=folds)
                largest = max(largest, weights.max(initial=0))
                A -= layout.centre
                extend(triangles, A, weights, fold)
    return triangles, rows, total, float(largest)


def rows_at_once(m: int) -> int:
    """Rows of m numbers that are looked at together."""
    return max(256, NUMBERS // m)


def _cut(batch: Batch, low: int, high: int) -> Batch:
    part = slice(low, high)
    return Batch(batch.X[part], batch.y[part], None if batch.weights is None else batch.weights[part])


def fold_of(start: int, n: int, folds: int) -> Int[np.ndarray, "n"]:
    """The folds of the rows start, ..., start + n - 1 of all, by their numbers alone: each has one of as many rows that
    follow each other."""
    first = start - start % folds
    blocks = -(-(start + n - first) // folds)
    mixed = np.arange(first, first + blocks * folds, dtype=np.uint64) * SEED  # a bijection, then its bits are mixed
    for shift in (np.uint64(30), np.uint64(27), np.uint64(31)):
        mixed = (mixed ^ (mixed >> shift)) * MIX
    order = np.argsort(mixed.reshape(blocks, folds), axis=1)
    return np.argsort(order, axis=1).ravel()[start - first : start - first + n]


# --- sources ----------------------------------------------------------------------------------------------------------
def _given(batch: Batch) -> Iterator[Batch]:
    yield batch


def _shard(shards: Shards, i: int) -> Iterator[Batch]:
    for rows in shards.batches(i, rows_at_once(shards.n_features + 1)):
        yield Batch(*rows)


def _stamp(path: Path) -> tuple[str, int, int]:
    facts = path.stat()
    return str(path), facts.st_size, facts.st_mtime_ns
