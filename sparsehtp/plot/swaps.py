"""What each chosen feature is worth: by how much its best substitute changes the objective."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from .._solve import solve
from ..iteration.results import Solution
from ..objectives import LinearModel
from ..solvers import ForwardSelection
from ..thresholds import Sparsity
from .style import LABEL_SIZE, names_of, new_figure, signed_bars

MAX_BARS = 30


class Swaps(NamedTuple):
    """The best exchange of each chosen feature, all coefficients fitted again. NumPy arrays.

    Attributes:
        features: (m,) the chosen features.
        substitutes: (m,) the feature that replaces each one best.
        gains: (m,) decrease of F by that exchange: positive where it is an improvement.
        value: F at the solution.
        n_features: p.
    """

    features: Int[np.ndarray, "m"]
    substitutes: Int[np.ndarray, "m"]
    gains: Float[np.ndarray, "m"]
    value: float
    n_features: int


def best_swaps(objective: LinearModel, solution: Solution) -> Swaps:
    """Exchange each chosen feature for its best substitute, and fit again.

        gain_i = F(x) - min over j not in S of min {F(w) : supp w in S - i + j}

    Args:
        objective: the smooth objective that was minimised, with concrete arrays.
        solution: a `Solution` on some but not all features; without bounds.

    Returns:
        `Swaps`, in the order of the features. For losses other than the squared one the substitute is the best to
        second order, and its gain is exact.

    Raises:
        ValueError: if every feature is chosen, or none.
    """
    chosen = np.sort(np.asarray(solution.support.idx)[np.asarray(solution.support.mask)])
    p = objective.n_coefficients
    if not 0 < chosen.size < p:
        raise ValueError(f"solution: needs some but not all of the {p} features, got {chosen.size} of them.")

    # Of the features without i, those that stay come first; one of the others enters.
    threshold = Sparsity(1, keep=np.arange(chosen.size - 1))

    @jax.jit
    def exchange(idx: Int[Array, "m"]) -> Solution:
        return solve(objective.subset(idx), threshold, ForwardSelection(), throw=False)

    substitutes, values = [], []
    outside = np.setdiff1d(np.arange(p), chosen)
    for i in range(chosen.size):
        idx = np.concatenate([np.delete(chosen, i), outside])
        fit = exchange(idx)
        members = np.asarray(fit.support.idx)[np.asarray(fit.support.mask)]
        substitutes.append(idx[members.max()])
        values.append(float(fit.value))
    return Swaps(chosen, np.array(substitutes), float(solution.value) - np.array(values), float(solution.value), p)


def plot_swap_gains(swaps: Swaps, feature_names: Sequence[str] | None = None, ax: Any = None) -> Any:
    """By how much the best exchange of each chosen feature raises or lowers the objective, in percent of its value.

    Bars to the right are features that nothing replaces well; a bar to the left is an exchange that improves the
    solution. The 30 that are replaced most easily are drawn.

    Args:
        swaps: from `best_swaps`.
        feature_names: p names; None: their numbers.
        ax: axes to draw into; None: a new figure.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
        ValueError: for the wrong number of names.
    """
    names = names_of(feature_names, swaps.n_features)
    rise = -swaps.gains * (100 / abs(swaps.value) if swaps.value else 1)
    order = np.argsort(rise, kind="stable")[:MAX_BARS][::-1]
    ax = new_figure(9, 1.6 + 0.26 * order.size).subplots() if ax is None else ax
    labels = [f"{names[swaps.features[i]]} → {names[swaps.substitutes[i]]}" for i in order]
    signed_bars(ax, rise[order], labels, "+.3g")
    ax.tick_params(axis="y", labelsize=LABEL_SIZE)
    improving = int(np.sum(rise < 0))
    verdict = {0: "No exchange lowers", 1: "1 exchange lowers"}.get(improving, f"{improving} exchanges lower")
    left_out = rise.size - order.size
    ax.set_title(
        f"{verdict} the objective" + (f" ({left_out} costlier ones left out)" if left_out else ""),
        fontsize=11,
    )
    ax.set_xlabel("change of the objective" + (" in %" if swaps.value else "") + ", chosen feature → best substitute")
    return ax.figure
