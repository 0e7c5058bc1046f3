"""The best k features with a proof, or how far from the best they may be, by branch and bound."""

import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from .._progress import Callback, reporting
from .._types import Support, check_finite, is_concrete
from ..io.checkpoint import Checkpoint
from ..io.memory import available
from ..objectives import LinearModel
from ..thresholds import Sparsity
from . import quadratic
from .dual_bound import in_percent
from .generalised import DualBounds, Generalised, no_proof
from .least_squares import LeastSquares
from .tree import MOST_COLLECTED, Limits, Moment, Pool, Tree

MOST_HIDDEN = 1e-6  # of F less its floor without features, that rounding may hide of a proof


class Collected(NamedTuple):
    """All supports whose objective is within a factor of the best one.

    Attributes:
        masks: (m, p) the supports, best first, kept features included.
        values: (m,) the objective of each, its coefficients fitted.
        share: (p,) the share of the supports that hold each feature: 1 where every good model has it.
        complete: False if there are more: the limit of 10,000 was reached (the best ones are here), or the search ended
            before its time.
    """

    masks: Bool[np.ndarray, "m p"]
    values: Float[np.ndarray, "m"]
    share: Float[np.ndarray, "p"]
    complete: bool


class Proof(NamedTuple):
    """The best support that was found, and what is proved about it.

    Attributes:
        x: (p,) its coefficients in original units, fitted to the data in float64.
        intercept: its intercept; 0.0 if the model has none.
        support: its features, kept ones included.
        upper: F there.
        lower: no support has a smaller F than this.
        floor: what F is at least: the weighted mean of min_t l(t, y_i), 0.0 for most losses.
        gap: (upper - lower) / (upper - floor); 0.0 where F is at its floor but for rounding.
        proved: whether the gap is within what was asked for; or what it leaves open is rounding, and at most 1e-6 (or
            what was asked for) of F less its floor without features.
        nodes, leaves: of the tree, those of an earlier run with the same checkpoint included.
        seconds: the time of all runs.
        statement: all this in a sentence.
        history: dict of arrays seconds, lower, upper and nodes: how the bound rose and the incumbent fell.
        collected: `Collected` if asked for, else None.
    """

    x: Float[np.ndarray, "p"]
    intercept: float
    support: Support
    upper: float
    lower: float
    floor: float
    gap: float
    proved: bool
    nodes: int
    leaves: int
    seconds: float
    statement: str
    history: dict[str, np.ndarray]
    collected: Collected | None


def prove(
    objective: LinearModel,
    threshold: Sparsity,
    solution: Any = None,
    *,
    time_limit: float = 60.0,
    gap: float = 1e-4,
    max_nodes: int | None = None,
    collect: float | None = None,
    checkpoint: str | Path | None = None,
    progress: Callback | bool | None = None,
) -> Proof:
    """Find the best k features and prove that they are, or say how far from the best they may be.

        min F(w, b) = (1/W) sum_i s_i l(x_i'w + b + o_i, y_i) + (1/2) sum_j l2_j w_j^2   subject to ||w||_0 <= k

    Branch and bound on the features that are in or out. A node's bound is the dual of a perspective relaxation. For
    least squares,

        F(w) >= c - v'Mv/2 - (1/2) [sum over what is in and the largest others of (D^-1/2 b - Mv)_j^2]   for every v,
        M = D^-1/2 (X'SX/W + diag(l2)) D^-1/2 - I >= 0,   b = X'Sy/W,

    by ADMM for a batch of nodes at a time, with a diagonal D tuned for the open nodes as the tree grows. Two last
    features are chosen exactly, all pairs at once. Any number of samples; the p x p matrix has to fit in memory. For
    other losses, with conjugate l*, omega_i = s_i / W and tau_j = sum_i omega_i a_i x_ij,

        F(w, b) >= sum_i omega_i (a_i o_i - l*(a_i, y_i)) - [sum over what is in and the largest others of
                   tau_j^2 / (2 l2_j)]   for every a, with sum_i omega_i a_i = 0 beside an intercept,

    by accelerated proximal gradient steps; the data, dense, have to fit in memory. Whatever a bound decides is fixed,
    and the incumbent improves whenever a node finds a better support.

    Args:
        objective: a `LinearModel` with the squared loss or, with l2 > 0, another smooth one with a conjugate
            (`Logistic`, `Poisson`, `NegativeBinomial`, `Gamma`, `SmoothedHinge`, `SquaredHinge`, `Huber`, `Quantile`,
            or your own); with weights, offset, intercept, standardisation and l2 as it has them. Float32 data are
            proved for the float64 problem that they define.
        threshold: `Sparsity(k)`, with kept features or without; no bounds on coefficients.
        solution: a `Solution`, or anything with x (p,), to start from. None: a quick search.
        time_limit: seconds. The first call in a process compiles for some seconds. What there is no time for, such as
            the eigenvalues of a large X'SX, is not begun; then the proof holds the best features so far, and lower is
            floor.
        gap: relative gap at which the proof is done; 0 closes it to rounding. Here and in `collect`, F counts
            from the least that the losses could be, for `Poisson` sum_i omega_i (y_i - y_i log y_i).
        max_nodes: limit of nodes, counting those before a resumption; None: none.
        collect: at least 1, for example 1.01: collect all supports with F at most that many times the best one's.
        checkpoint: folder in which the open nodes are kept, now and then and at the end, to go on from with the same
            arguments (time_limit and max_nodes apart).
        progress: a function of (nodes, 0), or True for a bar on stderr.

    Returns:
        `Proof`. SIGINT (Ctrl-C) returns what is known.

    Raises:
        TypeError: for another objective, loss or threshold, or traced arguments.
        ValueError: for l2 = 0 with another loss than the squared one, arguments out of range, a solution of more than k
            features, a checkpoint of another problem, or more features than there is memory for: about 160 p^2 bytes
            for the squared loss, 50 n p for others.

    Guarantee: lower <= F(w, b) for every w with at most k nonzeros beside the kept ones and every b, in exact
    arithmetic on the objective's data: what rounding may have done to sums, factorisations and eigenvalues is taken
    off. Supports of nearly collinear features are fitted in exact arithmetic where rounding could decide, up to
    2e6 / (k + 1)^2 samples. Columns that copy others but for 16 roundings of their entries add nothing to them.

    Fails, for least squares, where X'SX is singular and l2 is 0: there is no D then, and only small problems are
    decided, by enumeration.
    Columns that are constant (beside an intercept) or zero are never chosen. Supports that add such columns, or have
    fewer than k features, are not collected.

    Source: the perspective relaxation of Frangioni and Gentile (2006), D as of Dong, Chen and Linderoth (2015), node
    bounds as in OKRidge (Liu, Rosen, Zhong and Rudin, 2023).
    """
    began = time.monotonic()
    _check(objective, threshold, gap, collect, time_limit, max_nodes)
    keep, k = np.asarray(threshold.keep), int(threshold.k)
    start = np.zeros(0, int) if solution is None else _start(objective, keep, k, solution)
    ratio = None if collect is None else float(collect)
    limits = Limits(float(time_limit), math.inf if max_nodes is None else int(max_nodes), float(gap), ratio)
    facts = objective, keep, k, limits.gap, limits.ratio or 0.0  # what decides the tree
    store = None if checkpoint is None else Checkpoint(checkpoint, facts, 1, 1)
    kind, begin = (LeastSquares, quadratic.begin) if objective.quadratic else (Generalised, DualBounds)
    problem = kind(objective, keep, k, began + limits.seconds, limits.gap)
    with reporting(progress, "nodes", "nodes") as report:
        tree = Tree(problem, begin, limits, report, began)
        state = None if store is None else store.load(0, _STRUCTURE)
        if state is not None:
            _resume(tree, state)
        begun = np.flatnonzero(np.isin(problem.features, start))
        if not tree.done:
            tree.offer(problem.search(begun))
        # The one that was given may be better than what exchanges lead to, in theory; refitted, it is never worse.
        if begun.size == problem.size:
            tree.offer(begun)
        tree.run(None if store is None else lambda tree: store.store(0, _state(tree)))
    return _proof(tree, threshold)


def fit_on(objective: LinearModel, features: np.ndarray) -> tuple[float, Float[np.ndarray, "p"], float]:
    """F, the coefficients and the intercept of the best fit on some features, in float64."""
    problem = (LeastSquares if objective.quadratic else Generalised)(objective, features, 0)
    value, x, intercept = problem.fit(np.flatnonzero(problem.kept))
    return value + problem.floor, x, intercept


def _check(
    objective: LinearModel,
    threshold: Sparsity,
    gap: float,
    collect: float | None,
    time_limit: float,
    max_nodes: int | None,
) -> None:
    if not isinstance(objective, LinearModel):
        raise TypeError(f"objective: proofs are for a LinearModel, got {type(objective).__name__}.")
    if not isinstance(threshold, Sparsity) or not threshold.plain:
        name = f"{type(threshold).__name__}{' with bounds' if isinstance(threshold, Sparsity) else ''}"
        raise TypeError(f"threshold: a proof needs sht.Sparsity(k) without bounds, got {name}.")
    if not is_concrete(objective, threshold):
        raise TypeError("objective: a proof needs concrete arrays; ask for it outside jax.jit and jax.vmap.")
    check_finite("objective", objective)
    threshold.bind(objective)
    reason = None if objective.quadratic else no_proof(objective)
    if reason is not None:
        raise (ValueError if reason.startswith("l2") else TypeError)(reason)
    if not 0 <= gap < 1:
        raise ValueError(f"gap: must be from 0 to 1, got {gap}.")
    if collect is not None and not 1 <= collect < math.inf:
        raise ValueError(f"collect: must be a number of at least 1 such as 1.01, got {collect}.")
    needed, room = (LeastSquares if objective.quadratic else Generalised).memory(objective), available()
    if needed > room:
        raise ValueError(
            f"objective: a proof for {objective.n_coefficients:,} features takes {needed / 2**30:,.0f} GiB of memory, "
            f"and {room / 2**30:.0f} GiB are free; prove on fewer features, for example those of a longer path."
        )
    if not time_limit > 0:
        raise ValueError(f"time_limit: must be a positive number of seconds, got {time_limit}.")
    if max_nodes is not None and not 1 <= max_nodes < math.inf:
        raise ValueError(f"max_nodes: must be at least 1, got {max_nodes}.")


def _start(objective: LinearModel, keep: np.ndarray, k: int, solution: Any) -> np.ndarray:
    x = np.asarray(solution.x)
    if x.shape != (objective.n_coefficients,):
        raise ValueError(f"solution: needs {objective.n_coefficients} coefficients x, got shape {x.shape}.")
    check_finite("solution", x, remedy="start from finite coefficients")
    chosen = np.flatnonzero(x)
    number = np.setdiff1d(chosen, keep).size
    if number > k:
        raise ValueError(f"solution: it has {number} nonzeros besides those in keep; k allows {k}.")
    return chosen


# --- checkpoints -----------------------------------------------------------------------------------------------------
_SCALARS = ("upper", "lower", "sure", "nodes", "leaves", "born", "goal", "cap")
_STRUCTURE = jax.tree.structure(tuple(range(len(Pool(0).columns) + 9)))


def _state(tree: Tree) -> tuple[np.ndarray, ...]:
    """All that a tree needs to go on."""
    tree.trim()
    scalars = np.array([*(getattr(tree, name) for name in _SCALARS), tree.seconds], float)
    supports = np.array([each[0] for each in tree.found.values()], np.int32).reshape(len(tree.found), tree.k)
    values = np.array([each[1:] for each in tree.found.values()]).reshape(-1, 2)
    return (
        *(tree.pool[name] for name in tree.pool.columns),
        *tree.pending,
        tree.names,
        tree.d,
        tree.members,
        scalars,
        np.array(tree.history, float).reshape(-1, len(Moment._fields)),
        np.column_stack([supports, values]),
    )


def _resume(tree: Tree, state: tuple[np.ndarray, ...]) -> None:
    *columns, bounds, inn, out, names, d, members, scalars, history, found = state
    tree.pool = Pool(len(names))
    tree.pool.columns = dict(zip(tree.pool.columns, columns, strict=True))
    tree.pool.size = len(columns[0])
    tree.pending, tree.names, tree.d, tree.members = (bounds, inn, out), names, d, members
    for name, value in zip(_SCALARS, scalars, strict=False):
        setattr(tree, name, int(value) if name in ("nodes", "leaves", "born") else float(value))
    tree.spent = float(scalars[-1])
    tree.history = [Moment(seconds, lower, upper, int(nodes)) for seconds, lower, upper, nodes in history.tolist()]
    for row in found:
        each = row[:-2].astype(int)
        tree.found[each.astype(np.int32).tobytes()] = each, float(row[-2]), float(row[-1])


# --- the answer ------------------------------------------------------------------------------------------------------
def _proof(tree: Tree, threshold: Sparsity) -> Proof:
    problem = tree.problem
    upper, x, intercept = problem.fit(tree.members)
    lower = min(tree.lower, upper)
    gap = 0.0 if upper <= problem.noise else (upper - lower) / upper
    # What rounding hides may be left open as long as it is little of the objective without features.
    hidden = min(tree.zero, max(tree.limits.gap, MOST_HIDDEN) * problem.null)
    slack = max(tree.limits.gap * upper, hidden)
    proved = upper - lower <= slack * (1 + 1e-9) + 4 * np.finfo(float).eps * upper
    members = np.union1d(problem.features[tree.members], np.asarray(threshold.keep)).astype(np.int32)
    collected = None if tree.limits.ratio is None else _collected(tree, threshold)
    history = {name: np.array([getattr(m, name) for m in tree.history]) for name in Moment._fields}
    for name in ("lower", "upper"):
        history[name] = history[name] + problem.floor
    return Proof(
        x=x,
        intercept=intercept,
        support=Support(members, np.ones(members.size, bool)),  # type: ignore[arg-type]
        upper=upper + problem.floor,
        lower=lower + problem.floor,
        floor=problem.floor,
        gap=gap,
        proved=bool(proved),
        nodes=tree.nodes,
        leaves=tree.leaves,
        seconds=tree.seconds,
        statement=_statement(tree, int(threshold.k), gap, proved, collected),
        history=history,
        collected=collected,
    )


def _collected(tree: Tree, threshold: Sparsity) -> Collected:
    tree.settle_collection()
    masks = np.zeros((len(tree.found), tree.problem.n_features), bool)
    for i, (members, *_) in enumerate(tree.found.values()):
        masks[i, tree.problem.features[members]] = True
    values = np.array([value for _, value, _ in tree.found.values()], float) + tree.problem.floor
    masks[:, np.asarray(threshold.keep)] = True
    share = masks.mean(0) if len(masks) else np.zeros(masks.shape[1])
    return Collected(masks, values, share, tree.done and not np.isfinite(tree.cap))


def _statement(tree: Tree, k: int, gap: float, proved: bool, collected: Collected | None) -> str:
    what, tried = f"the best choice of {k} feature{'' if k == 1 else 's'}", in_percent(gap) if gap > 0 else "rounding"
    if proved:
        known = f"to {tried} of the objective" if gap > 0 else "but for rounding"
        if gap > tree.limits.gap * (1 + 1e-9):
            known = f"to {tree.zero / tree.problem.null:.0e} of the objective without features"
        text = f"Proved: this is {what}, {known}"
    elif not tree.bounded and tree.lower == 0:
        text = (
            f"Not proved to be {what}, since {tree.stopped or 'rounding decides'}: features are collinear and l2 is 0, "
            "so that nothing bounds the objective but a look at all choices; raise l2"
        )
    elif tree.stopped and tree.lower == 0:
        text = f"Not proved to be {what}, since {tree.stopped} before there was a bound"
    elif tree.stopped:
        text = f"Not proved to be {what}, since {tree.stopped}: a better one lowers the objective by at most {tried}"
    else:
        text = (
            f"Not proved to be {what}, since rounding in float64 hides the rest: a better one lowers the objective by "
            f"at most {tried}; raise l2, or leave out columns that others nearly copy"
        )
    if tree.problem.copied:
        text += "; columns that copy others but for rounding add nothing to them"
    if collected is None:
        return f"{text}."
    number, share = len(collected.values), f"{100 * ((tree.limits.ratio or 1) - 1):.3g}%"
    if tree.problem.noise > ((tree.limits.ratio or 1) - 1) * tree.upper:
        share = "rounding"
    more = "" if collected.complete else " (there may be more)" if number < MOST_COLLECTED else " (there are more)"
    return f"{text}; {number} choice{' is' if number == 1 else 's are'} within {share} of it{more}."
