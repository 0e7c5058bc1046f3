"""One fit: what it chose, how it predicts, and how the solver came there."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._types import Info
from ..io.text import printable
from ..iteration.results import Solution
from .style import (
    LABEL_SIZE,
    MAX_BARS,
    PALETTE,
    STANDARDIZED,
    class_name,
    names_of,
    new_figure,
    set_title,
    short_name,
    signed_bars,
    tidy,
)

MAX_DOTS = 2000  # rows that are drawn; more hide each other


def plot_coefficients(
    names: Sequence[str],
    coefficients: Any,
    ax: Any = None,
    *,
    levels: Sequence[str] | None = None,
    title: str | None = None,
    caption: str = STANDARDIZED,
) -> Any:
    """The coefficients of the chosen features as bars, the largest first; the largest 30 are drawn.

    Args:
        names: names of the chosen features.
        coefficients: their coefficients.
        ax: axes to draw into; None: a new figure.
        levels: of a coefficient that belongs to one level of a category, that level ("": to none): the bars of one name
            stand together under it. None: there are no categories.
        title: None: how many there are.
        caption: of the bars' axis: what the coefficients' units are.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
        ValueError: for the wrong number of names.
    """
    coefficients = np.asarray(coefficients, float)
    names = names_of(names, coefficients.size)
    order = np.argsort(-np.abs(coefficients), kind="stable")[:MAX_BARS]
    notes = None
    if levels is not None:
        first = {names[j]: place for place, j in reversed([*enumerate(order)])}
        order = np.array(sorted(order, key=lambda j: first[names[j]]), int)
        notes = [short_name(printable(levels[j])) for j in order]
    ax = new_figure(9, 1.6 + 0.26 * order.size).subplots() if ax is None else ax
    signed_bars(ax, coefficients[order], [names[j] for j in order], notes=notes)
    ax.tick_params(axis="y", labelsize=LABEL_SIZE)
    ax.set_xlabel(caption)
    number, left = coefficients.size, coefficients.size - order.size
    title = f"{number} feature{' was' if number == 1 else 's were'} chosen" if title is None else title
    set_title(ax, title + (f" (the {left} with smaller coefficients are left out)" if left else ""))
    return ax.figure


def plot_predictions(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    rows: str = "held-out rows",
    target: str = "the target",
    offset: Any = None,
) -> Any:
    """How a fitted estimator predicts: predicted against actual numbers, or the errors of a classifier.

    A classifier of two classes gets its ROC curve with the area under it, the calibration of its probabilities where it
    has them, and its confusion matrix; of more classes the confusion matrix. The displays are scikit-learn's.

    Args:
        estimator: a fitted `SparseRegressor` or `SparseClassifier`, or a pipeline that ends in one.
        X: (n, p) features; best of rows that had no part in the fit.
        y: (n,) their targets.
        rows: what the title calls these rows.
        target: what the titles call the target.
        offset: (n,) that of the estimator's `predict`; None: none.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
    """
    y = np.asarray(y)
    told = f"{y.size:,} {rows}"
    known = {} if offset is None else {"offset": offset}
    if hasattr(estimator, "classes_"):
        return _plot_classes(estimator, X, y, target, told, known)
    from matplotlib.ticker import MaxNLocator
    from sklearn.metrics import PredictionErrorDisplay, r2_score

    predicted = np.asarray(estimator.predict(X, **known))
    ax = new_figure(6, 6).subplots()
    PredictionErrorDisplay.from_predictions(
        y,
        predicted,
        kind="actual_vs_predicted",
        subsample=min(MAX_DOTS, y.size),
        random_state=0,
        ax=ax,
        scatter_kwargs={"color": PALETTE[0], "alpha": 0.6, "s": 18, "linewidths": 0},
        line_kwargs={"color": "black", "linewidth": 1},
    )
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(6))  # round numbers, which the display's ticks are not
    dots, line = ax.collections[0], ax.lines[0]
    dots.set_label(rows + (f" ({MAX_DOTS:,} of them)" if y.size > MAX_DOTS else ""))
    line.set_label("predicted = actual")
    ax.legend(handles=[dots, line], frameon=False, loc="upper left", fontsize=9)
    ax.set_xlabel(f"predicted {target}", parse_math=False)
    ax.set_ylabel(f"actual {target}", parse_math=False)
    tidy(ax)
    reached = f"reach R2 = {r2_score(y, predicted):.3f} on" if y.size > 1 and np.ptp(y) else "are drawn for"
    set_title(ax, f"The predictions of {target} {reached} {told}")
    return ax.figure


def _plot_classes(estimator: Any, X: Any, y: np.ndarray, target: str, told: str, known: dict[str, Any]) -> Any:
    from sklearn.calibration import CalibrationDisplay
    from sklearn.metrics import ConfusionMatrixDisplay, RocCurveDisplay, roc_auc_score

    classes = getattr(estimator, "levels_", estimator.classes_)
    ranked = len(classes) == 2 and np.unique(y).size == 2
    likely = ranked and hasattr(estimator, "predict_proba")
    panels = ["roc"] * ranked + ["calibration"] * likely + ["confusion"]
    figure = new_figure(1 + 4.2 * len(panels), 4.8)
    axes = figure.subplot_mosaic([panels])
    positive = classes[-1]
    of = short_name(class_name(positive, target))
    titles = {}
    if ranked:
        score = getattr(estimator, "decision_function", None) or estimator.linear_predictor
        ax, scores = axes["roc"], score(X, **known)
        RocCurveDisplay.from_predictions(
            y,
            scores,
            pos_label=positive,
            ax=ax,
            name="model",
            curve_kwargs={"color": PALETTE[0], "linewidth": 1.5},
            plot_chance_level=True,
            chance_level_kw={"color": "black", "linewidth": 0.8, "label": "chance (area 0.5)"},
        )
        area = roc_auc_score(y == positive, scores)
        ax.set(xlabel=f"share of the others called {of}", ylabel=f"share of {of} called so")
        ax.lines[0].set_label(f"model (area {area:.3f})")
        titles["roc"] = f"The area under the ROC curve is {area:.3f}"
    if likely:
        ax = axes["calibration"]
        bins = int(np.clip(y.size // 20, 2, 10))
        CalibrationDisplay.from_predictions(
            y,
            estimator.predict_proba(X, **known)[:, list(estimator.classes_).index(positive)],
            pos_label=positive,
            n_bins=bins,
            strategy="quantile",
            ax=ax,
            name=f"{bins} groups of equal size",
            color=PALETTE[0],
        )
        ax.set(xlabel=f"mean predicted probability of {of}", ylabel=f"share of {of}")
        titles["calibration"] = "Calibrated probabilities lie on the diagonal"
    ConfusionMatrixDisplay.from_predictions(
        y,
        estimator.predict(X, **known),
        labels=classes,
        display_labels=[short_name(str(name)) for name in classes],
        ax=axes["confusion"],
        cmap="Blues",
        colorbar=False,
    )
    axes["confusion"].set(xlabel="predicted", ylabel="actual")
    axes["confusion"].set_yticklabels(axes["confusion"].get_yticklabels(), rotation=90, va="center")
    right = np.mean(estimator.predict(X, **known) == y)
    titles["confusion"] = f"{right:.1%} of {told} are predicted right"
    for name in panels[:-1]:
        ax = axes[name]
        ax.set_aspect("equal")
        ax.legend(loc="lower right" if name == "roc" else "upper left", fontsize=LABEL_SIZE, frameon=False)
        tidy(ax)
    for name, sentence in titles.items():
        set_title(axes[name], sentence)
    return figure


def plot_history(history: dict[str, np.ndarray] | Info | Solution | None) -> Any:
    """The objective and the norm of its gradient against the solver's steps.

    Args:
        history: arrays `value` and `grad_norm`, one entry per step: an estimator's `history_`; or a solution, or its
            `history`, whose rows behind the last step are left out. Of a solution the value at the start is step 0.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: for None, or the histories of a batch.
        ImportError: without matplotlib.
    """
    figure = new_figure(8, 6)
    objective, gradient = figure.subplots(2, sharex=True)
    start: Any = np.zeros(0)
    if isinstance(history, Solution):
        start = start if history.start_value is None else np.ravel(history.start_value)
        history = history.history
    if history is None:
        raise ValueError("history: there is none; solve with record=Record().")
    if isinstance(history, Info):
        if np.ndim(history.value) != 1:
            raise ValueError(f"history: needs that of one run, got shape {np.shape(history.value)}; pass one lane.")
        taken = np.any([history.ifo, history.hard_thresholds, history.design_products], axis=0)
        history = {name: np.asarray(getattr(history, name))[taken] for name in ("value", "grad_norm")}
    value, norm = np.append(start, history["value"]), np.append(np.full(start.size, np.nan), history["grad_norm"])
    steps_alone = value[start.size :]  # a start may have more entries than are allowed
    best = np.min(steps_alone[np.isfinite(steps_alone)], initial=np.inf)
    gap = value - best
    log = bool(np.sum((gap > 0) & np.isfinite(gap)) > 2)  # fewer points than that show more on a linear scale
    first = 1 - start.size
    _draw_steps(objective, gap if log else value, log, first)
    objective.set_ylabel("objective minus best" if log else "objective")
    _draw_steps(gradient, norm, bool(np.any((norm > 0) & np.isfinite(norm))), first)
    gradient.set_ylabel("norm of the gradient\non the support")
    gradient.set_xlabel("step")
    number = value.size - start.size
    steps = f"{number} step{'' if number == 1 else 's'}"
    set_title(objective, f"The search reached the objective {best:.6g} in {steps}")
    return figure


def _draw_steps(ax: Any, y: np.ndarray, log: bool, first: int) -> None:
    steps = np.arange(first, first + y.size)
    drawn = np.isfinite(y) & ((y > 0) | (not log))
    marker = "o" if y.size <= 60 else None
    ax.plot(steps[drawn], y[drawn], color=PALETTE[0], marker=marker, markersize=4, linewidth=1.5)
    if log:
        decades = np.log10(y[drawn])
        ax.set_yscale("log")
        ax.set_ylim(10 ** np.floor(decades.min() - 0.1), 10 ** np.ceil(decades.max() + 0.1))
    else:
        ax.ticklabel_format(axis="y", useOffset=False)
    ax.margins(x=0.03)
    ax.xaxis.get_major_locator().set_params(integer=True)
    tidy(ax)
