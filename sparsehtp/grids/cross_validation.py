"""Cross-validation over a grid of sparsity and ridge."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path as Folder
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from .._progress import Callback
from .._solve import default_solver
from .._types import ArrayLike, Support, host, seeded
from ..objectives import AbstractObjective
from ..solvers import AbstractSolver
from ..thresholds import AbstractThreshold
from . import grid as _grid
from . import tall
from .folds import Pair, folds_of, repeats_of, residuals, tied, weights_of
from .path import Path, path_of, solve_path
from .penalised_path import over_l0, penalised_parts, penalised_scores

PATIENCE = 0.5  # standard errors that a smaller size may be worse, where n >= 4 p
Scoring = Callable[[np.ndarray, np.ndarray, np.ndarray], float]  # (y, eta, weights) of held-out rows; smaller is better


@dataclasses.dataclass(frozen=True, eq=False)
class CrossValidation:
    """Held-out scores over a grid; smaller is better. NumPy arrays.

    Attributes:
        scores: (folds, grid) weighted mean held-out loss without l2, or what `scoring` asked for.
        results: (folds, grid) how the fits ended, see `RESULTS`.
        fold_weight: (folds,) sum of the held-out sample weights (of `CoxModel`: of those with an event).
        path: the fits to all data over the same grid.
        n_rows: number of rows that are ever held out (of `CoxModel`: of those with an event).
        times: how often they are, on average.
        support: (folds, grid, m) units in the supports of the folds' fits, see `Support`; None over l0.
    """

    scores: Float[np.ndarray, "folds grid"]
    results: Int[np.ndarray, "folds grid"]
    fold_weight: Float[np.ndarray, "folds"]
    path: Path
    n_rows: int
    times: float
    support: Support | None

    @functools.cached_property
    def table(self) -> dict[str, Any]:
        """The scores, their `mean_loss` and `se` over the folds, and the rows that the rules take, see `decide`."""
        ks, l2s, patience = self.path.ks, self.path.l2s, PATIENCE * min(1.0, self.n_rows / (4 * self.path.n_units))
        return {"ks": ks, "l2s": l2s} | decide(self.scores, self.fold_weight, ks, l2s, self.times, patience)

    def shares(self, row: int) -> Float[np.ndarray, "units"] | None:
        """(units,) share of the folds whose fits at a row of the grid hold the unit; None over l0."""
        if self.support is None:
            return None
        idx, mask = (part[:, row] for part in self.support)
        taken = np.zeros((len(idx), self.path.n_units), bool)
        taken[np.nonzero(mask)[0], idx[mask]] = True
        return taken.mean(axis=0)

    def as_good(self, row: int) -> Int[np.ndarray, "sizes"]:
        """Sizes at the l2 of a row of the grid that no more than one standard error of the difference separates, over
        the folds, from the best of them."""
        level = np.flatnonzero((self.path.l2s == self.path.l2s[row]).reshape(len(self.path), -1).all(axis=1))
        best = level[np.argmin(np.nan_to_num(self.mean[level], nan=np.inf))]
        with np.errstate(invalid="ignore"):  # where a score is infinite
            difference, se = moments(self.scores[:, level] - self.scores[:, [best]], self.fold_weight, self.times)
        return np.unique(self.path.ks[level[(difference <= se) | (level == best)]])

    @property
    def mean(self) -> Float[np.ndarray, "grid"]:
        """Mean over the folds, weighted by `fold_weight`."""
        return self.table["mean_loss"]

    @property
    def se(self) -> Float[np.ndarray, "grid"]:
        """Standard error of the mean: the root of (weighted variance over the folds) / (folds / times - 1); 0 for one.

        It treats folds that hold every row out once as independent, which they nearly are, and repeats of them as one.
        """
        return self.table["se"]

    @property
    def best(self) -> int:
        """Row of the grid with the smallest mean score."""
        return self.table["best_index"]

    @property
    def best_1se(self) -> int:
        """Row with the fewest units whose mean is within one standard error of the best; then the largest l2."""
        return self.table["best_1se_index"]

    @property
    def strong_ridge(self) -> int:
        """Row of the largest l2 whose best k is not clearly worse than the best row, and there of the fewest units that
        are as good, see `choose`."""
        return self.table["strong_ridge_index"]

    @property
    def k(self) -> int:
        """Sparsity of the row `best`."""
        return int(self.path.ks[self.best])

    @property
    def l2(self) -> Any:
        """Ridge of the row `best`."""
        return self.path.l2s[self.best]

    @property
    def l0(self) -> Any:
        """Price of a nonzero of the row `best`; None where the grid has none."""
        return None if self.path.l0s is None else self.path.l0s[self.best]


def cross_validate(
    objective: AbstractObjective,
    threshold: AbstractThreshold | None = None,
    *,
    ks: ArrayLike | None = None,
    l2s: ArrayLike | None = None,
    folds: Any = 5,
    solver: AbstractSolver | None = None,
    l0s: ArrayLike | None = None,
    key: jax.Array | None = None,
    groups: ArrayLike | None = None,
    scoring: str | Scoring | None = None,
    refit: float = 1.0,
    checkpoint: str | Folder | None = None,
    progress: Callback | bool | None = None,
    memory: int | None = None,
    executor: Executor | None = None,
) -> CrossValidation:
    """Score every (k, l2) of a grid on held-out folds, and fit all data over the same grid, in one batch.

        score(fold) = sum_i t_i l(x_i'w + b + o_i, y_i) / sum_i t_i,   (w, b) fitted with the weights of the other rows

    A fold is a set of sample weights, so that standardisation, intercept and support are those of its training rows:
    nothing leaks from the rows that are held out. t are the sample weights of those. The score of a `CoxModel` is the
    partial likelihood of the held-out rows alone.

    With l0s, or an `L0L1L2` as threshold, the grid is one of prices l0, see `solve_path`: the folds take those of the
    path of all data.

    Args:
        objective: as in `solve_path`; its own weights are split.
        ks, l2s, l0s, threshold, key, checkpoint, progress, memory, executor: as in `solve_path`.
        solver: as in `solve_path`, but where that takes `BestSubset` this takes `BestSubset("fast")`, for entries in
            working sets (`FoBa` for losses that are not squared), since a choice of k needs no swap-optimal folds, and
            over l0 `PricedSubset("fast")`.
            `choose` solves again at the chosen (k, l2), from the row of the path. Where rows are many (n >= 50 p and
            n p >= 2^18, p <= 512) and a smooth loss is not squared, folds and path are searched in the quadratic model
            around the fit with all features, and what is found is fitted to the rows; then checkpoint, memory and
            executor are not used. Not where all features nearly separate labels, or that fit does not exist.
        folds: a number of folds, made of the data alone, so that rows in another order and other keys give the same
            ones (stratified by the class, or by having an event; whole groups if there are groups; four times over
            where n >= 4 p and n p <= 16384, but not over l0), any scikit-learn splitter, an iterable of (train, test)
            indices or masks, or (n,) integers that number the fold of each row (-1: in every training part, never held
            out). A list of triples (train, test, see) changes the data in each fold, by a function of the objective
            that gives one of the same shape, for example with missing values filled from the training rows.
        groups: (n,) group label of every sample, for the splitter.
        scoring: None: the mean loss; "error": the share of wrong labels of a classification loss; or a function
            (y, eta, weights) -> float of the held-out rows, smaller is better, with their targets, linear predictors
            x'w + b + o ((m, c) for c responses) and weights as NumPy arrays. It is called on the host, so that the
            predictors of all rows under every fit are held: folds x grid x n numbers.
        refit: score every support with its coefficients fitted again at this part of l2 (`path` keeps those at l2).

    Returns:
        A `CrossValidation`.

    Raises:
        TypeError: if the objective has no samples, and as in `solve_path`.
        ValueError: if a fold has no weight to train or to test on, trains without one of the classes, or tests on rows
            it is trained on; for a bad grid, splitter or scoring; for a checkpoint of another problem.

    The score of the chosen row is optimistic, as it is a minimum over the grid: judge a model on data that had no part
    in the choice, or by an outer cross-validation.
    """
    if isinstance(folds, list) and folds and all(isinstance(fold, tuple) and len(fold) == 3 for fold in folds):
        pairs = [(train, test) for train, test, _ in folds]
        if l0s is None and over_l0(l0s, threshold):
            raise ValueError("l0s: where every fold has data of its own, they share prices; pass candidates.")

        def of_part(part: str, objective: AbstractObjective) -> CrossValidation:
            store = None if checkpoint is None else Folder(checkpoint) / part
            options: Any = {"scoring": scoring, "refit": refit, "checkpoint": store, "progress": progress}
            options |= {"l0s": l0s, "key": key, "groups": groups, "memory": memory, "executor": executor}
            return cross_validate(objective, ks=ks, l2s=l2s, folds=pairs, threshold=threshold, solver=solver, **options)

        # All folds of every objective, so that all are one program.
        runs = [of_part(str(i), see(objective)) for i, (*_, see) in enumerate(folds)]
        return dataclasses.replace(
            of_part("all", objective),
            scores=np.stack([run.scores[i] for i, run in enumerate(runs)]),
            results=np.stack([run.results[i] for i, run in enumerate(runs)]),
            support=_stacked([run.support for run in runs]),
        )
    if objective.sample_weight is None:
        kind = type(objective).__name__
        raise TypeError(f"objective: folds are sample weights; {kind} has none, and a CustomSum has them.")
    own = scoring if callable(scoring) else None
    labelled = objective.scorable and objective.counted == "classes"
    if own is None and scoring is not None and not (scoring == "error" and labelled):
        known = 'None, "error" for a classification loss, or a function (y, eta, weights)'
        raise ValueError(f"scoring: must be {known}, got {scoring!r}.")
    if own is not None and not objective.scorable:
        raise TypeError(f"scoring: {type(objective).__name__} has no linear predictors to give to a function.")
    score = "predictors" if callable(scoring) else scoring
    key = seeded(0) if key is None else key
    grid = None
    if over_l0(l0s, threshold):
        if refit != 1 or checkpoint is not None or memory is not None:
            raise ValueError("refit, checkpoint, memory: a cross-validation over l0 has none of them; leave them out.")
        model, penalty = penalised_parts(objective, threshold)
        chain = default_solver(model, penalty, "folds") if solver is None else solver
        path = solve_path(model, penalty, ks=ks, l2s=l2s, l0s=l0s, solver=chain, key=key, executor=executor)
    else:
        grid = _grid.prepare(objective, ks, l2s, threshold, solver, key, search="folds", refit=refit, score=score)
    weights = host(objective.sample_weight)
    labels = np.zeros(weights.size) if objective.labels is None else host(objective.labels)
    if isinstance(folds, int | np.integer):
        folds = _numbered(int(folds), [objective], groups, repeated=grid is not None)  # a path over l0 is a loop
    train, test = weights_of(folds_of(folds, labels, weights, objective.counted, groups), weights)
    held, support = (test > 0).any(axis=0), None
    if objective.counted == "events":
        held &= labels > 0
    if grid is None:
        scores, results = penalised_scores(model, penalty, path, train, test, chain, score, key, progress)
    else:
        # The fits to all data are one more row, scored on the data themselves.
        rows = [jnp.asarray(np.vstack([part, weights]), objective.dtype) for part in (train, test)]
        grid = dataclasses.replace(grid, weights=_grid.Weights(*rows))
        fits = tall.tall_fits(grid, progress) if solver is None and tall.suits(grid) else None
        fits = _grid.run(grid, memory, progress, checkpoint, executor) if fits is None else fits
        scores, results = (fits.loss if fits.score is None else fits.score)[:-1], fits.result[:-1]
        support = jax.tree.map(lambda a: a[:-1], fits.support)
        path = path_of(grid, jax.tree.map(lambda a: a[-1], fits), np.asarray(grid.ks))
    return CrossValidation(
        scores=scores if own is None else _own_scores(own, objective, scores, test),
        results=results,
        fold_weight=np.asarray(objective.total_weight(test.astype(float))),
        path=path,
        n_rows=int(held.sum()),
        times=float(np.mean((test > 0).sum(axis=0)[held])),
        support=support,
    )


def shared_folds(folds: int, objectives: Sequence[AbstractObjective]) -> list[Pair]:
    """A number of folds for several objectives of the same rows, stratified by all their labels."""
    return _numbered(folds, objectives, None, True)


def _numbered(folds: int, objectives: Sequence[AbstractObjective], groups: Any, repeated: bool) -> list[Pair]:
    objective = objectives[0]
    weights = host(objective.sample_weight)
    labels = [np.zeros(weights.size) if each.labels is None else host(each.labels) for each in objectives]
    y = labels[0]
    if len(labels) > 1 and objective.counted == "classes":
        y = np.unique(np.stack(labels), axis=1, return_inverse=True)[1].ravel()
    repeats = repeats_of(int(np.count_nonzero(weights)), objective.external_shape[0]) if repeated else 1
    content: list[np.ndarray] = []
    if tied(y, weights):
        spread = objective.spread(*(jnp.asarray(each, objective.dtype) for each in (residuals(y, weights), weights)))
        content = [*([] if spread is None else [np.nan_to_num(host(spread))]), *labels[1:], weights]
    return folds_of(folds, y, weights, objective.counted, groups, content, repeats)


def _stacked(supports: list[Support | None]) -> Support | None:
    """The supports of fold i in run i; None over l0."""
    if any(support is None for support in supports):
        return None
    return jax.tree.map(lambda *parts: np.stack([part[i] for i, part in enumerate(parts)]), *supports)


def _own_scores(
    scoring: Scoring,
    objective: AbstractObjective,
    eta: Float[np.ndarray, "folds grid n *c"],
    test: Float[np.ndarray, "folds n"],
) -> Float[np.ndarray, "folds grid"]:
    y = host(objective.labels)
    # As the user has them: the targets were centred.
    if objective.target_mean is not None:
        mean = host(objective.target_mean).astype(float)
        y, eta = ((part.astype(float) + mean).astype(part.dtype) for part in (y, eta))
    scores = np.empty(eta.shape[:2])
    for fold, weights in enumerate(test):
        rows = weights > 0
        scores[fold] = [scoring(y[rows], each[rows], weights[rows]) for each in eta[fold]]
    if np.isnan(scores).any():
        raise ValueError("scoring: the function gave NaN; return infinity where a fit cannot be scored.")
    return scores


def decide(
    scores: Float[np.ndarray, "folds grid"],
    fold_weight: Float[np.ndarray, "folds"],
    sizes: Int[np.ndarray, "grid"],
    l2s: np.ndarray | None = None,
    times: float = 1.0,
    patience: float = 0.0,
) -> dict[str, Any]:
    """The scores with their mean over the folds and its standard error, and the rows that the rules take.

    best_index: the least mean. best_1se_index: the smallest size within one standard error of it, then the largest l2.
    strong_ridge_index: among the best sizes of every l2, contenders (L,), that of the largest l2 whose difference (L,)
    to the best row is at most two standard errors, difference_se (L,), of these differences over the folds; then the
    smallest size at this l2 whose difference to its contender is at most `patience` standard errors.
    """
    mean, se = moments(scores, fold_weight, times)
    # One level for each different l2, of features too, in the order of their sums.
    each = np.reshape(np.zeros(mean.size) if l2s is None else l2s, (mean.size, -1))
    level = np.unique(np.column_stack([each.sum(1), each]), axis=0, return_inverse=True)[1].ravel()
    size = np.asarray(sizes)
    order = np.lexsort((-level, size, np.nan_to_num(mean, nan=np.inf, posinf=np.inf)))
    best = simplest = int(order[0])
    near = np.flatnonzero(mean <= mean[best] + se[best])
    if near.size:  # there is a finite score
        simplest = int(near[np.lexsort((mean[near], -level[near], size[near]))[0]])
    contenders = np.array([order[level[order] == one][0] for one in np.unique(level)[::-1]])
    with np.errstate(invalid="ignore"):
        difference, difference_se = moments(scores[:, contenders] - scores[:, [best]], fold_weight, times)
    unknown = ~np.isfinite(difference_se)  # where a score is infinite
    difference[unknown], difference_se[unknown] = np.where(contenders[unknown] == best, 0, np.inf), 0
    strong = int(contenders[np.argmax(difference <= 2 * difference_se)])
    smaller = np.flatnonzero((level == level[strong]) & (size < size[strong]) & np.isfinite(mean))
    if smaller.size:
        more, more_se = moments(scores[:, smaller] - scores[:, [strong]], fold_weight, times)
        near = smaller[more <= patience * more_se]
        strong = int(near[np.lexsort((mean[near], size[near]))[0]]) if near.size else strong
    return {
        "mean_loss": mean,
        "se": se,
        "scores": scores,
        "fold_weight": fold_weight,
        "times": times,
        "best_index": best,
        "best_1se_index": simplest,
        "strong_ridge_index": strong,
        "contenders": contenders,
        "difference": difference,
        "difference_se": difference_se,
    }


def folds_told(folds: int, times: float) -> str:
    """The number of folds, and how often they hold a row out, in words."""
    return f"{folds} fold{'s' * (folds > 1)}" + (f", each row held out {times:.3g} times" if times > 1 else "")


def sizes_told(sizes: Int[np.ndarray, "sizes"], grid: Int[np.ndarray, "grid"], l2: float | None = None) -> str:
    """The sizes that are as good as the best (at an l2, where there are others), in words: a range where no candidate
    of the grid is left out."""
    at = "" if l2 is None else f" at l2 = {l2:g}"
    if sizes.size == 1:
        return f"no other k is as good as k = {sizes[0]}{at}"
    between = np.unique(grid[(grid >= sizes.min()) & (grid <= sizes.max())])
    whole = sizes.size > 2 and np.array_equal(between, sizes)
    said = f"{sizes.min()} to {sizes.max()}" if whole else ", ".join(map(str, sizes))
    return f"k = {said} are as good as the best{at}"


def moments(
    scores: Float[np.ndarray, "folds m"], weight: Float[np.ndarray, "folds"], times: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the folds and its standard error, columns that hold an infinite score apart; folds that hold every row
    out several times count as often as once."""
    with np.errstate(invalid="ignore"):
        mean = np.average(scores, axis=0, weights=weight)
        variance = np.average((scores - mean) ** 2, axis=0, weights=weight)
    return mean, np.sqrt(variance / max(len(scores) / times - 1, 1))


def seed_from(key: jax.Array) -> int:
    """A seed for NumPy and scikit-learn, made on the host: JAX would compile four programs for one number."""
    words = host(jax.random.key_data(key)).ravel()
    return int(np.random.SeedSequence([int(word) for word in words]).generate_state(1)[0])
