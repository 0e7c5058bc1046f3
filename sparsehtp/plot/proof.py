"""How a proof went, and which features the nearly best supports share."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..certificates.dual_bound import in_percent
from ..certificates.prove import Collected, Proof
from .stability import draw_shares
from .style import MAX_BARS, PALETTE, names_of, new_figure, set_title, tidy


def plot_proof(proof: Proof, ax: Any = None) -> Any:
    """The best objective that was found and the bound below which there is none, against the time.

    The bound is drawn from where it is positive. What is between the two is not decided.

    Args:
        proof: from `prove`.
        ax: axes to draw into; None: a new figure.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
    """
    ax = new_figure(9, 4.5).subplots() if ax is None else ax
    history = proof.history
    known = history["lower"] > 0
    first = int(np.argmax(known)) if known.any() else 0
    seconds, lower, upper = (history[name][first:] for name in ("seconds", "lower", "upper"))
    ax.fill_between(seconds, lower, upper, step="post", color=PALETTE[0], alpha=0.12, linewidth=0)
    ax.step(seconds, upper, where="post", color=PALETTE[1], linewidth=1.5, label="best found")
    ax.step(seconds, lower, where="post", color=PALETTE[0], linewidth=1.5, label="bound: none is below")
    ax.set(xlabel="seconds", ylabel="objective")
    left = f"{in_percent(proof.gap)} left after" if proof.gap > 0 else "closed in"
    verdict = "Proved" if proof.proved else "Not proved"
    ax.margins(x=0.02, y=0.08)
    ax.legend(frameon=False, loc="best")
    tidy(ax)
    set_title(ax, f"{verdict}: gap {left} {proof.seconds:.3g} s and {proof.nodes:,} nodes")
    return ax.figure


def plot_collected(collected: Collected, feature_names: Sequence[str] | None = None, ax: Any = None) -> Any:
    """The share of the collected supports that hold each feature: which are in every good model, and which are not.

    The 30 that are in most are drawn.

    Args:
        collected: the `collected` of a `Proof`.
        feature_names: p names; None: their numbers.
        ax: axes to draw into; None: a new figure.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ImportError: without matplotlib.
        ValueError: for the wrong number of names.
    """
    names = names_of(feature_names, len(collected.share))
    used = int(np.count_nonzero(collected.share))
    order = np.argsort(-collected.share, kind="stable")[: min(used, MAX_BARS)]
    everywhere = collected.share == 1
    ax = new_figure(9, 1.6 + 0.26 * order.size).subplots() if ax is None else ax
    labels = ("in all of them", "not in all of them")
    draw_shares(ax, [names[j] for j in order], collected.share[order], everywhere[order], labels)
    number, all_of_them = len(collected.values), int(everywhere.sum())
    models = f"{'' if collected.complete else 'the best '}{number:,} good model{'' if number == 1 else 's'}"
    left = used - order.size
    ax.set_xlabel("share of the good models" + (f" ({left} features in fewer left out)" if left else ""))
    set_title(ax, f"{all_of_them} of {used} features are in all of {models}")
    return ax.figure
