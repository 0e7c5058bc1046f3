"""What the estimators keep of a fit; a fit that fails leaves them as they were; warnings name the user's line."""

import functools
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

# What certificates are computed from, beside the estimators, so that no pickle or saved file holds the data.
EVIDENCE: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

Fit = TypeVar("Fit", bound=Callable[..., Any])


def all_or_nothing(fit: Fit) -> Fit:
    """A method `fit` that takes back what it set of the estimator where it raises."""

    @functools.wraps(fit)
    def fitted(self: Any, *args: Any, **kwargs: Any) -> Any:
        before, evidence = dict(vars(self)), EVIDENCE.get(self)
        try:
            return fit(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            EVIDENCE.pop(self, None)
            if evidence is not None:
                EVIDENCE[self] = evidence
            raise

    return fitted  # type: ignore[return-value]


def warn(sentence: str, category: type[Warning] = UserWarning) -> None:
    """A warning at the line that called this package."""
    package, frame, level = __name__.split(".")[0], sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, category, stacklevel=level)
