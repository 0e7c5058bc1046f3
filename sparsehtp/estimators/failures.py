"""A fit that fails leaves the estimator as it was; warnings name the user's line."""

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from sklearn.exceptions import ConvergenceWarning

from ..iteration.results import RESULTS

Fit = TypeVar("Fit", bound=Callable[..., Any])


def all_or_nothing(fit: Fit) -> Fit:
    """A method that takes back what it set of the estimator where it raises."""

    @functools.wraps(fit)
    def fitted(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(vars(self))
        try:
            return fit(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return fitted  # type: ignore[return-value]


def warn(sentence: str, category: type[Warning] = UserWarning) -> None:
    """A warning at the line that called this package."""
    package, frame, level = __name__.split(".")[0], sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, category, stacklevel=level)


def warn_result(estimator: Any, result: RESULTS) -> None:
    """A warning of a fit that did not converge."""
    if result is not RESULTS.converged:
        sentence = result.sentence.replace("max_steps", "max_iter")
        warn(f"{type(estimator).__name__}: {sentence}", ConvergenceWarning)
