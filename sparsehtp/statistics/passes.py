"""One pass over rows in batches: a triangle for every fold."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from .._executors import in_order
from .._progress import Callback, reporting
from .._threads import one_blas_thread
from ..datasets.shards import Shards
from ..io import memory
from ..io.checkpoint import Checkpoint
from ..linalg import empty_triangles, extend, merged

NUMBERS = 2**20  # of a batch that are looked at together
SHARE = 4  # part of the free memory that triangles may take
SEED, MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


class Batch(NamedTuple):
    """Some rows: X (n, p), targets (n,) or (n, t), and weights (n,); None, until `arrays_of`: one each."""

    X: Any
    y: Any
    weights: Any = None


class Triangles(NamedTuple):
    """Triangles (folds, m, m) of some rows, how many each fold has, the sums of their weights, and the largest."""

    triangles: Float[np.ndarray, "folds m m"]
    rows: Int[np.ndarray, "folds"]
    weights: Float[np.ndarray, "folds"]
    largest: float


def too_wide(features: int, targets: int, folds: int) -> int:
    """Bytes that the triangles of so many columns need, where that is more than a share of the free memory; else 0."""
    needed = 2 * folds * (1 + features + max(targets, 1)) ** 2 * 8 * (os.cpu_count() or 1)
    return needed if needed > memory.available() // SHARE else 0


Read = Callable[[], Iterator[Batch]]


class Layout(NamedTuple):
    """The columns of all batches: features, targets (0: (n,) targets), names; the centre, and the number of folds."""

    features: int
    targets: int
    names: list[str] | None
    centre: Float[np.ndarray, "c"]
    folds: int


def made_of(
    tasks: Iterable[tuple[Read, int]],
    folds: int,
    names: Sequence[str] | None,
    executor: Executor | None,
    progress: Callback | bool | None,
    checkpoint: str | Path | None = None,
    files: Any = None,
) -> tuple[Triangles, Layout]:
    """Triangles of the rows of all tasks (a function that reads them, and their number), merged in their order, and
    their columns."""
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
    return found, layout


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
        first, _ = arrays_of(batch, number)
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
            A, weights = _checked(part_of(first, low, low + rows_at_once(m)), number, layout, low)
            if weights.any():
                with np.errstate(over="ignore"):
                    centre = np.median(A[weights > 0], axis=0).astype(np.float32).astype(float)
                return layout._replace(centre=np.where(np.isfinite(centre), centre, 0))
    return None


def arrays_of(batch: Batch, number: int) -> tuple[Batch, list[str] | None]:
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
    return Batch(X, y, weights[0] if weights else np.ones(len(y))), names


def _checked(
    batch: Batch, number: int, layout: Layout, first: int = 0
) -> tuple[Float[np.ndarray, "n c"], Float[np.ndarray, "n"]]:
    """Features and targets of a batch side by side, and weights, in float64, or ValueError."""
    try:
        X, y, weights = (np.asarray(each, float) for each in batch)
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
            batch, _ = arrays_of(batch, number)
            for low in range(0, len(batch.y), step):
                A, weights = _checked(part_of(batch, low, low + step), number, layout, low)
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


def part_of(batch: Batch, low: int, high: int) -> Batch:
    return Batch(*(each[low:high] for each in batch))


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
def given(batch: Batch) -> Iterator[Batch]:
    yield batch


def of_shard(shards: Shards, i: int) -> Iterator[Batch]:
    for rows in shards.batches(i, rows_at_once(shards.n_features + 1)):
        yield Batch(*rows)


def stamp(path: Path) -> tuple[str, int, int]:
    facts = path.stat()
    return str(path), facts.st_size, facts.st_mtime_ns
