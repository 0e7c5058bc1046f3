"""Data of any array library as scikit-learn's checks take them."""

from typing import Any

import jax
import numpy as np
from sklearn.utils.validation import validate_data

from .._types import check_collected, host, imported
from ..datasets.numerals import MOST_SHOWN
from .tables import kinds_of

NO_TEXT = "y: holds text, such as {!r}; a classifier takes it, this needs numbers."


def as_numpy(value: Any) -> Any:
    """An array of another library as NumPy's, not copied where its memory is the host's; all else as it is.

    So it does not matter whether scikit-learn dispatches to array libraries (`array_api_dispatch`).
    """
    value = imported(value)
    return host(value) if isinstance(value, jax.Array) else value


def validated(estimator: Any, X: Any, *y: Any, **options: Any) -> Any:
    """scikit-learn's check of data in single or double precision, which says in a sentence where texts or dates are."""
    for name, value in zip(("X", "y"), (X, *y), strict=False):
        check_collected(name, value)
    try:
        data = validate_data(estimator, as_numpy(X), *map(as_numpy, y), dtype=[np.float64, np.float32], **options)
    except (ValueError, TypeError) as error:
        if hasattr(X, "iloc") and hasattr(X, "columns"):
            other = [f"{name!r} ({kind})" for name, kind in kinds_of(X).items() if kind != "number"]
            if other:
                raise ValueError(
                    f"X: {', '.join(other[:MOST_SHOWN])}: columns must be numbers; make them so, texts for example by "
                    "TablePreprocessor(dummies=True), or leave them out."
                ) from error
        if "Input X contains NaN" in str(error):
            names = X.columns[X.isna().any()] if hasattr(X, "isna") else []
            where = f", the first in {names[0]!r}" if len(names) else ""
            raise ValueError(
                f"X contains NaN, a missing value{where}: fill it, for example by TablePreprocessor('median'), or "
                "leave out its row or column."
            ) from error
        if "could not convert string to float" not in str(error):
            raise
        if options.get("y_numeric"):
            for each in np.ravel(np.asarray(y[0], object)):
                if isinstance(each, str) and str(error).endswith(repr(each)):
                    raise ValueError(NO_TEXT.format(each)) from error
        raise ValueError(f"X: holds text where numbers are needed ({error}); encode it as numbers.") from error
    if options.get("y_numeric") and data[1].dtype.kind == "U":
        raise ValueError(NO_TEXT.format(str(data[1].flat[0])))
    return data
