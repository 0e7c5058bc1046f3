"""Caveats of a fit: what it does not mean, and what its features could be exchanged for."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import sparsehtp as sht

EXACT = 1e-10  # 1 - R2 of a fit without an error
NEARLY = 0.01  # share of the objective that an exchange may cost to be called nearly free
SHOWN = 2  # substitutes of a feature by name


def caveat(estimator: Any, n: int, exact: Callable[[], bool]) -> dict[str, Any]:
    """A sentence (None: nothing to say) where a fit to n rows means less than it looks like, and whether a picture
    helps; `exact` says whether it makes no error on them."""
    chosen = int(np.count_nonzero(estimator.support_))
    known = chosen + getattr(estimator, "fit_intercept", False)
    sentence, drawn = None, False
    if not chosen:
        why = " No feature predicts held-out rows better." if estimator.cv_results_ is not None else ""
        sentence = f"No feature was chosen: the model predicts the same for every row, and nothing can be proved.{why}"
    elif n <= known:
        sentence = (
            f"{n} rows cannot determine {chosen} coefficients{' and an intercept' if known > chosen else ''}: "
            f"nearly any features fit them as well, so this choice means nothing; use a k far below {n}."
        )
    elif not exact():
        pass
    elif isinstance(estimator, sht.SparseClassifier | sht.SparseOrdinal):
        drawn = True
        sentence = (
            "The chosen features separate the classes without an error: the sizes of the coefficients are those of the "
            "ridge, and other features may separate them as well; judge the model on other rows (--test-size)."
        )
    elif isinstance(estimator, sht.SparseCox):
        drawn = True
        sentence = (
            "The chosen features order the events without an error: the sizes of the coefficients are those of the "
            "ridge; is one of them made from the time?"
        )
    else:
        sentence = (
            "The chosen features give the target exactly, so there is no error to learn from; is one of them made "
            "from the target?"
        )
    return {"caveat": sentence, "drawn": sentence is None or drawn}


def without_error(estimator: Any, X: Any, y: np.ndarray, offset: np.ndarray | None = None) -> bool:
    """Whether a fit makes no error on rows."""
    if isinstance(estimator, sht.SparseCox) and not comparable(y):
        return False
    return bool(estimator.score(X, y, offset=offset) > 1 - EXACT)


def comparable(y: np.ndarray) -> bool:
    """Whether any event comes before another row's time, so that there is a concordance."""
    return bool((y[:, 1] > 0).any() and y[y[:, 1] > 0, 0].min() < y[:, 0].max())


def add_substitutes(model: dict[str, Any], swaps: Any, near: Any, units: Sequence[str]) -> None:
    """To each chosen feature of a described fit its best substitute, the share of the objective it costs, and the names
    of all that cost less than the noise of the choice (None where folds did not choose); columns made of one text share
    theirs."""
    if swaps is None or not swaps.value or not model["drawn"]:
        return
    shares = -swaps.gains / abs(swaps.value)
    found = {
        units[i]: {"name": units[j], "more_loss": float(share)}
        for i, j, share in zip(swaps.features, swaps.substitutes, shares, strict=True)
    }
    named = {_name(i, units): [_name(j, units) for j, _ in others] for i, others in (near or {}).items()}
    for feature in model["coefficients"]:
        feature["substitute"] = found.get(feature["column"])
        feature["exchangeable"] = None if near is None else named.get(feature["column"], [])


def _name(unit: Any, units: Sequence[str]) -> str:
    """The name of what has a number or a name."""
    return unit if isinstance(unit, str) else units[unit]


def exchanges_told(model: dict[str, Any]) -> list[str]:
    """The exchanges that cost nearly nothing, or less than the folds could tell, as sentences."""
    features = {each["column"]: each for each in model["coefficients"]}
    if any(each.get("exchangeable") is not None for each in features.values()):
        found = [(name, each["exchangeable"]) for name, each in features.items() if each["exchangeable"]]
        lines = [f"{name} could be {_some(others)}" for name, others in found]
        return [f"within what the folds can tell, {'; '.join(lines)}"] if lines else []
    pairs = [(name, each["substitute"]) for name, each in features.items() if each.get("substitute")]
    return [
        f"{name} could be {other['name']} at {_cost(other['more_loss'])}"
        for name, other in sorted(pairs, key=lambda pair: pair[1]["more_loss"])
        if abs(other["more_loss"]) <= NEARLY
    ]


def _some(names: Sequence[str]) -> str:
    """A few names."""
    more = len(names) - SHOWN
    return " or ".join(names) if more <= 0 else f"{' or '.join(names[:SHOWN])} (or {more} more)"


def _cost(share: float) -> str:
    if abs(share) < 1e-6:
        return "no loss"
    return f"{abs(100 * share):.2g}% {'more' if share > 0 else 'less'} loss"


def substitute(feature: dict[str, Any]) -> str:
    """The best substitute of a feature, in a cell."""
    other = feature.get("substitute")
    if other is None:
        return ""
    share = 100 * other["more_loss"]
    cost = "0%" if abs(share) < 1e-4 else f"{share:+.2g}%" if abs(share) < 10 else f"{share:+.0f}%"
    return f"{other['name']} ({cost if share < 1000 else 'over +1000%'})"
