"""Survival curves by predicted risk."""

from typing import Any

import numpy as np

from ..estimators.cox import concordance, survival
from .style import LABEL_SIZE, PALETTE, new_figure, set_title, tidy

GROUPS = ("third at the lowest risk", "middle third", "third at the highest risk")


def plot_survival(
    estimator: Any, X: Any, y: Any, *, rows: str = "held-out rows", target: str = "time", offset: Any = None
) -> Any:
    """The survival of rows in thirds of the risk that a model predicts: as observed, and as predicted.

    Observed is the Kaplan-Meier estimate of every third, with a tick where a row is censored; predicted is the mean of
    the survival functions of its rows. Curves of thirds that lie apart show that the model ranks; observed and
    predicted curves that lie together show that its probabilities hold.

    Args:
        estimator: a fitted `SparseCox` without strata, or a pipeline that ends in one.
        X: (n, p) features; best of rows that had no part in the fit.
        y: times and events, in a form that `SparseCox.fit` takes.
        rows: what the title calls these rows.
        target: what the axis calls the time.
        offset: (n,) the known part of the linear predictor, where the model was fitted with one.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
        ValueError: for y in another form.
    """
    model = estimator[-1] if hasattr(estimator, "steps") else estimator
    X = estimator[:-1].transform(X) if hasattr(estimator, "steps") else X
    risk = np.asarray(model.predict(X, offset))
    time, event = survival(y, risk.size)
    times = np.append(0, model.event_times_)
    third = np.searchsorted(np.quantile(risk, [1 / 3, 2 / 3]), risk, side="left")
    ax = new_figure(8, 5).subplots()
    for number, colour in enumerate((PALETTE[0], PALETTE[7], PALETTE[1])):
        own = third == number
        if not own.any():  # where many rows have one risk
            continue
        steps, share, censored = kaplan_meier(time[own], event[own])
        label = f"{GROUPS[number]}: {own.sum():,} rows, {event[own].sum():,} events"
        ax.step(steps, share, where="post", color=colour, linewidth=1.8, label=label)
        at = share[np.searchsorted(steps, censored, side="right") - 1]
        ax.plot(censored, at, linestyle="none", marker="|", color=colour, markersize=5, alpha=0.6)
        part = X.iloc[own] if hasattr(X, "iloc") else X[own]
        known_part = None if offset is None else np.asarray(offset)[own]
        ax.step(
            times,
            model.predict_survival_function(part, times, offset=known_part).mean(axis=0),
            where="post",
            color=colour,
            linewidth=1.2,
            linestyle=(0, (4, 2)),
        )
    ax.plot([], [], color="black", linewidth=1.2, linestyle=(0, (4, 2)), label="as the model predicts")
    ax.plot([], [], color="black", linewidth=1.8, label="as observed (Kaplan-Meier)")
    ax.set(ylim=(-0.02, 1.02), xlim=(0, time.max() * 1.02), ylabel="share without an event")
    ax.set_xlabel(target, parse_math=False)
    ax.legend(frameon=False, fontsize=LABEL_SIZE + 1)
    tidy(ax)
    known = (event[:, None] & (time[:, None] < time)).any()
    reached = f"concordance {concordance(time, event, risk, np.ones(risk.size)):.3f} on " if known else ""
    set_title(ax, f"Survival by predicted risk: {reached}{risk.size:,} {rows}")
    return ax.figure


def kaplan_meier(time: np.ndarray, event: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The steps of the estimate from 0 to the last time, the share without an event from each on, and the times of
    censored rows."""
    steps, number = np.unique(time[event], return_counts=True)
    at_risk = time.size - np.searchsorted(np.sort(time), steps)
    share = np.cumprod(1 - number / at_risk)
    last = time.max()
    return (
        np.concatenate([[0], steps, [last]]),
        np.concatenate([[1], share, [share[-1] if share.size else 1]]),
        np.sort(time[~event]),
    )
