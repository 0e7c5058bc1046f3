"""The numbers that are made of a table, in all rows and in folds."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

from ..estimators import TablePreprocessor
from ..estimators.selection import make_folds
from ..grids.folds import Pair, repeats_of
from ..objectives.base import Counted
from .options import FitOptions, PathOptions
from .tables import TableData


class Numbers(NamedTuple):
    """A table as numbers.

    Attributes:
        X: (n, columns) data frame.
        preprocessor: that made it.
        raw: the data frame that it was made of.
    """

    X: pd.DataFrame
    preprocessor: TablePreprocessor
    raw: pd.DataFrame

    @property
    def groups(self) -> np.ndarray | None:
        """Labels of columns that are chosen together; None where each is alone."""
        groups = self.preprocessor.groups_
        return None if np.array_equal(groups, np.arange(len(self.unit_names))) else groups

    @property
    def wide_texts(self) -> list[str]:
        """The texts that are several columns."""
        return [name for name in self.preprocessor.texts_ if len(self.preprocessor.categories_[name]) > 2]

    @property
    def reference_levels(self) -> dict[str, str]:
        """The level of each text where all of its columns are zero."""
        return {name: levels[0] for name, levels in self.preprocessor.categories_.items()}

    @property
    def unit_names(self) -> list[str]:
        """The name of the units that k counts."""
        return self.preprocessor.group_names_

    def pipeline(self, estimator: Any) -> Pipeline:
        """The preprocessor and a fitted estimator, as one model of tables."""
        return Pipeline([("table", self.preprocessor), ("model", estimator)])

    @property
    def gaps(self) -> bool:
        """True if something is filled."""
        return bool(self.raw[self.preprocessor.numbers_].isna().to_numpy().any())

    def triples(self, pairs: Sequence[Pair]) -> list[tuple[np.ndarray, np.ndarray, Any]]:
        """(train, test, X) with what is missing filled from the training rows."""
        return [(train, test, self._filled(train)) for train, test in pairs]

    def _filled(self, train: np.ndarray) -> pd.DataFrame:
        return self.preprocessor.refilled(self.raw.iloc[train]).transform(self.raw).astype(self.X.dtypes.iloc[0])


def folds_of_rows(
    options: FitOptions | PathOptions, X: Any, y: Any, counted: Counted, table: Numbers | None, groups: Any = None
) -> list[Any] | None:
    """(train, test) of the folds of `fit` and `path`, and the features with what is missing filled from the training
    rows where there are such; None where there are too few rows."""
    X = X.to_numpy() if isinstance(X, pd.DataFrame) else X
    labels = y[:, 1] > 0 if counted == "events" else np.asarray(y)
    others = [y[:, 0]] if counted == "events" else []
    repeats = repeats_of(*X.shape)
    pairs = make_folds(options.cv, X, labels, np.ones(len(labels)), counted, groups, repeats, others)
    return pairs if pairs is None or table is None or not table.gaps else table.triples(pairs)


def numbers(data: TableData, rows: np.ndarray | None, dtype: str) -> Numbers:
    """The numbers of some rows (None: all), learned from them."""
    raw = data.X if rows is None else data.X.iloc[rows]
    preprocessor = data.preprocessor.fit(raw)
    return Numbers(preprocessor.transform(raw).astype(dtype), preprocessor, raw)
