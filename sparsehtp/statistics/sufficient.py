"""Any number of rows, read once: what least squares knows of them."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from .._progress import Callback
from .._types import ArrayLike, check_kind
from ..datasets.shards import Shards
from ..linalg import few_rows, merged
from ..objectives import LinearModel, MultiResponse
from .passes import Batch, Layout, Read, Triangles, arrays_of, given, made_of, of_shard, part_of, stamp

BATCH = 2**16  # rows of arrays that a task takes


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
        whole, names = arrays_of(Batch(X, y, sample_weight), 0)
        cut = (part_of(whole, low, low + BATCH) for low in range(0, max(len(whole.y), 1), BATCH))
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
                batch, own = arrays_of(Batch(*each), number)
                if own is not None and len(set(own)) < len(own):
                    raise ValueError(f"batches: two columns of part {number} have the same name; rename one.")
                if own is not None and names is not None and own != names:
                    raise ValueError(f"batches: part {number} has the columns {own}, others {names}; make them alike.")
                names = own if names is None else names
                yield partial(given, batch), len(batch.y)

        found, layout = made_of(tasks(), folds, names, executor, progress)
        return cls._of(found, layout._replace(names=names))

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
        files = [stamp(file) for i in range(len(shards)) for file in shards.files(i)], shards.target, shards.labels
        plain = all(path.suffix == ".npy" for path in shards.paths)
        names = None if plain else list(shards.feature_names())
        tasks = [(partial(of_shard, shards, i), n) for i, n in enumerate(shards.rows)]
        problem = (files, names, shards.weights)
        return cls._of(*made_of(tasks, folds, names, executor, progress, checkpoint, problem))

    @classmethod
    def _of(cls, found: Triangles, layout: Layout) -> "SufficientStatistics":
        triangles, rows, weights, largest = found
        return cls(triangles, layout.centre, rows, weights, float(largest), layout.names, layout.targets)

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
            largest_weight=max([self.largest_weight, *(each.largest_weight for each in others)]),
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
