"""Data frames as people have them, made into columns of numbers."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np
from jaxtyping import Float, Int
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.impute import SimpleImputer
from sklearn.utils.validation import check_is_fitted

from .._types import check_collected
from ..datasets.numerals import AS_IT_SAYS, MOST_SHOWN, check_written, read_numerals, shown_cells, shown_names
from .failures import all_or_nothing

FILLS = ("mean", "median")
MISSING = ("error", "drop_columns", *FILLS)
NO_TEXT = "missing"  # the level of a text that is not there
_DATE = r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T].*)?"


@dataclass(eq=False, repr=False)
class TablePreprocessor(TransformerMixin, BaseEstimator):
    """Columns of numbers from a data frame: missing values filled, texts one-hot, some columns left out.

    Numbers stay as they are, in their order; behind them, a column of texts or categories with the sorted levels
    v_0, ..., v_m becomes m columns x_j = 1{x = v_j}, j = 1, ..., m: v_0 is where all are zero. Means and medians are
    those of scikit-learn's SimpleImputer.

    Args:
        missing: what to do about missing numbers: "error"; "drop_columns", those that miss some when fitted; or fill
            with the "mean" or "median" of the rows fitted. Unless it is "error", a missing text is a level of its own.
        dummies: columns of texts and categories become columns of zeros and ones; False: they are an error.
        drop: columns to leave out.
        id: a column that names the rows, which is left out too; `sparsehtp predict` writes it beside the predictions.
        decimal, thousands: the decimal sign of numbers in cells of text ("." or ","; None: a point), and the sign
            between their groups of three digits (".", ",", " " or "'"; None: as the cells of a column say). `sparsehtp
            predict` reads files so that do not say it themselves.

    Attributes:
        numbers_, texts_: the columns used.
        fill_: what stands for a missing number, for each of `numbers_`; None unless missing is "mean" or "median".
        categories_: the levels of each of `texts_`.
        groups_: one label per column made, equal for the columns made of one: the estimators' `groups`, so that they
            are chosen together.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Raises:
        ValueError: in `fit` and `transform`, for what is no data frame, a column that is missing or there twice,
            texts among numbers, dates, values that are missing or infinite, and levels that were not there in `fit`;
            the message names the column, the rows by their labels, and the cells.

    Means and medians are those of the rows fitted: for held-out scores, fit in the folds, as `sparsehtp fit` does, or
    with this as the first step of a scikit-learn pipeline. Filling makes a column look more certain than it is.

    Example:
        >>> table = TablePreprocessor(missing="median", dummies=True).fit(frame)
        >>> model = SparseRegressor(k=3, groups=table.groups_).fit(table.transform(frame), y)
    """

    missing: str = "error"
    _: KW_ONLY
    dummies: bool = False
    drop: Sequence[str] = ()
    id: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    numbers_: list = field(init=False)  # type: ignore[type-arg]
    texts_: list = field(init=False)  # type: ignore[type-arg]
    fill_: Float[np.ndarray, "numbers"] | None = field(init=False)
    categories_: dict = field(init=False)  # type: ignore[type-arg]
    groups_: Int[np.ndarray, "columns"] = field(init=False)

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the columns, the levels of texts, and what to fill.

        Args:
            X: (n, p) data frame of pandas or polars.
            y: not used.
        """
        if self.missing not in MISSING:
            raise ValueError(f"missing: must be one of {', '.join(MISSING)}, got {self.missing!r}.")
        X = as_pandas(X)
        names, X = _names(X), self._read(X)
        for name in (*self.drop, *([] if self.id is None else [self.id])):
            if name not in names:
                raise ValueError(f"X: there is no column {name!r} to leave out.")
        kinds = {name: kind for name, kind in kinds_of(X).items() if name not in self.drop and name != self.id}
        for name, kind in kinds.items():
            if kind == "date":
                raise ValueError(f"X: the column {name!r} holds dates; make numbers of them, or drop it.")
            if kind == "text" and not self.dummies:
                raise ValueError(f"X: the column {name!r} holds text; set dummies=True, or drop it.")
        if self.missing == "drop_columns":
            kinds = {name: kind for name, kind in kinds.items() if not X[name].isna().any()}
        if not kinds:
            raise ValueError("X: no column is left as a feature.")
        self.numbers_ = [name for name, kind in kinds.items() if kind != "text"]
        self.texts_ = [name for name, kind in kinds.items() if kind == "text"]
        self.categories_ = {name: sorted(set(self._texts(X, name))) for name in self.texts_}
        self.feature_names_in_, self.n_features_in_ = np.array(names, object), len(names)
        self.fill_ = self._fill(X)
        widths = [1] * len(self.numbers_) + [len(self.categories_[name]) - 1 for name in self.texts_]
        self.groups_ = np.repeat(np.arange(len(widths)), widths)
        self.transform(X)
        return self

    def transform(self, X: Any) -> Any:
        """The (n, columns) data frame of float64 numbers, with the rows' labels; columns not used are not looked at."""
        check_is_fitted(self)
        frame = self._checked(X)
        if not self.texts_ and self.fill_ is None:
            return frame
        numbers = frame[self.numbers_].to_numpy(np.float64)
        if self.fill_ is not None:
            numbers = np.where(np.isnan(numbers), self.fill_, numbers)
        texts = ((frame[name].to_numpy(object), self.categories_[name][1:]) for name in self.texts_)
        dummies = [column[:, None] == np.array(levels, object) for column, levels in texts]
        made = np.hstack([numbers, *dummies])
        return type(frame)(made, columns=self.get_feature_names_out(), index=frame.index)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """(columns,) names: those of the numbers, and "column=level" of the texts."""
        check_is_fitted(self)
        made = [f"{name}={level}" for name in self.texts_ for level in self.categories_[name][1:]]
        return np.array([*self.numbers_, *made], object)

    @property
    def group_names_(self) -> list[str]:
        """The column that each group was made of."""
        return [*self.numbers_, *self.texts_]

    def refilled(self, X: Any) -> "TablePreprocessor":
        """A copy of this preprocessor with the means or medians of other rows, such as the training rows of a fold."""
        check_is_fitted(self)
        other = clone(self)
        for name, value in vars(self).items():
            setattr(other, name, value)
        other.fill_ = other._fill(X)
        return other

    def _read(self, X: Any) -> Any:
        """The data frame with numbers in place of their texts, where they are not written as in Python."""
        given = check_written(self.decimal, self.thousands)
        if given == AS_IT_SAYS:
            return X
        used = set(X.columns) - {*self.drop, self.id}
        texts = {j: X.iloc[:, j] for j, dtype in enumerate(X.dtypes) if dtype.kind == "O" and X.columns[j] in used}
        read = read_numerals(texts, given, AS_IT_SAYS)
        for name, problem in read.unclear.items():
            raise ValueError(f"X: the column {name!r}: {problem}.")
        return X.assign(**{X.columns[j]: column for j, column in read.columns.items()})

    def _fill(self, X: Any) -> np.ndarray | None:
        """The means or medians of these rows."""
        if self.missing not in FILLS or not self.numbers_:
            return None
        imputer = SimpleImputer(strategy=self.missing, keep_empty_features=True)
        return imputer.fit(self._checked(X)[self.numbers_]).statistics_

    def _texts(self, X: Any, name: str) -> np.ndarray:
        column = X[name].astype(object)
        return column.where(column.notna(), NO_TEXT).astype(str).to_numpy(object)

    def _checked(self, X: Any) -> Any:
        """The columns used, numbers as float64, or ValueError."""
        X = as_pandas(X)
        names, X = _names(X), self._read(X)
        there = set(names)
        absent = [name for name in self.group_names_ if name not in there]
        if absent:
            raise ValueError(f"X: lacks {shown_names(absent)} of the columns of the fit; add what is missing.")
        numbers = X[self.numbers_]
        numbers.columns = self.numbers_
        if any(kind not in "fiub" for kind in {getattr(dtype, "kind", "O") for dtype in numbers.dtypes}):
            for name in self.numbers_:
                rows = bad_cells(numbers[name])
                if rows.size:
                    raise ValueError(
                        f"X: the column {name!r} held numbers in the fit, but now {shown_cells(numbers[name], rows)}; "
                        "correct it."
                    )
            numbers = numbers.apply(as_numbers)
        numbers = numbers.astype(np.float64)
        values = numbers.to_numpy()
        wrong = np.isinf(values) if self.missing in FILLS else ~np.isfinite(values)
        if wrong.any():
            j = int(wrong.any(axis=0).argmax())
            raise ValueError(
                f"X: the column {self.numbers_[j]!r} has missing or infinite values, in "
                f"{shown_rows(X.index, wrong[:, j])}; remove these rows, or fit with missing='mean' or 'median'."
            )
        texts = {}
        for name in self.texts_:
            empty = X[name].isna().to_numpy()
            if empty.any() and self.missing == "error":
                raise ValueError(
                    f"X: the column {name!r} has missing values, in {shown_rows(X.index, empty)}; remove these rows, "
                    "or fit with missing='mean' or 'median'."
                )
            texts[name] = self._texts(X, name)
            new = ~np.isin(texts[name], self.categories_[name])
            if new.any():
                level = str(texts[name][new.argmax()])
                raise ValueError(
                    f"X: the column {name!r} holds {level!r}, in {shown_rows(X.index, texts[name] == level)}, which "
                    "was not there in the fit; remove these rows, or fit with such rows."
                )
        return numbers.assign(**texts) if texts else numbers


# --- what a column is ------------------------------------------------------------------------------------------------
def kind_of(column: Any) -> str:
    """The kind of a column of a data frame: "number" (some cells may be none), "text" or "date"."""
    import pandas as pd

    dtype = column.dtype
    if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype):
        return "number"
    if isinstance(dtype, pd.PeriodDtype) or dtype.kind in "mM":
        return "date"
    cells = column.dropna()
    if isinstance(dtype, pd.CategoricalDtype):
        return "text"
    if not len(cells) or 2 * pd.to_numeric(cells, errors="coerce").notna().sum() >= len(cells):
        return "number"
    dates = cells.astype(str).str.fullmatch(_DATE)
    return "date" if 2 * dates.sum() >= len(cells) else "text"


def kinds_of(frame: Any) -> dict[str, str]:
    """The kind of every column of a data frame, quickly where there are many of numbers."""
    kinds = [getattr(dtype, "kind", "O") in "fiub" for dtype in frame.dtypes]
    return {name: "number" if known else kind_of(frame[name]) for name, known in zip(frame.columns, kinds, strict=True)}


def as_numbers(column: Any) -> Any:
    """The numbers of a column; NaN for a cell that is none."""
    import pandas as pd

    return pd.to_numeric(column, errors="coerce")


def bad_cells(column: Any) -> np.ndarray:
    """The places of cells that are there, and no numbers."""
    return np.flatnonzero((as_numbers(column).isna() & column.notna()).to_numpy())


def shown_rows(index: Any, wrong: np.ndarray) -> str:
    """The labels of some rows of a mask."""
    places = np.flatnonzero(wrong)
    rest = places.size - MOST_SHOWN
    labels = ", ".join(str(index[i]) for i in places[:MOST_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
    return ("row " if places.size == 1 else "rows ") + labels


def as_pandas(X: Any) -> Any:
    """A data frame of another library, such as polars, as pandas'; all else as it is."""
    check_collected("X", X)
    return X.to_pandas() if hasattr(X, "to_pandas") else X


def _names(X: Any) -> list[str]:
    """The column names of a data frame."""
    if not hasattr(X, "columns") or not hasattr(X, "iloc"):
        raise ValueError(f"X: needs a data frame of pandas or polars, got a {type(X).__name__}.")
    names = list(X.columns)
    if not all(isinstance(name, str) for name in names):
        raise ValueError("X: needs columns with text names; rename them, for example by X.columns.astype(str).")
    if len(set(names)) < len(names):
        name = next(name for j, name in enumerate(names) if name in names[:j])
        raise ValueError(f"X: the column name {name!r} occurs twice; rename or remove one.")
    return names
