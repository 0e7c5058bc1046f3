"""The multi-class fit of `SparseClassifier(loss="softmax")`: k features that all classes share."""

from typing import Any, NamedTuple

import jax
import numpy as np

from .._solve import solve
from ..grids.choose import BY_FOLDS, choose
from ..grids.cross_validation import Scoring
from ..iteration.results import Solution
from ..losses import Softmax
from ..objectives import MultiResponse
from ..thresholds import RowSparsity
from ..thresholds.base import check_units, default_k_max
from .padding import Padding
from .parameters import Plan
from .selection import default_ks


class SoftmaxFit(NamedTuple):
    """A fitted problem: the solution, the k and l2 of the choice, the l2 of the coefficients, and the table of a
    cross-validation."""

    solution: Solution
    k: int
    l2: Any
    refit_l2: Any
    results: dict[str, Any] | None


def fit_softmax(
    X: Any,
    code: np.ndarray,
    n_classes: int,
    weights: np.ndarray,
    *,
    plan: Plan,
    default_l2: float,
    l2_grid: tuple[float, ...],
    folds: Any,
    scoring: Scoring | None,
    keep: Any,
    solver: Any,
    max_steps: int | None,
    termination: Any,
    fit_intercept: bool,
    standardize: bool,
    key: jax.Array,
    padding: Padding,
) -> SoftmaxFit:
    """Choose k and l2 on folds where the plan says so, and fit all rows."""
    n_keep, l2 = 0 if keep is None else len(keep), plan.l2
    most = plan.k if plan.ks is None else plan.ks.max()
    if most is not None:
        check_units("k", most, None, n_keep, padding.p, "features")
    objective = MultiResponse(
        padding.design(X),
        padding.targets(code.astype(np.int32)),
        Softmax(n_classes),
        l2=padding.l2(default_l2 if l2 is None else l2),
        sample_weight=padding.weights(weights / weights.max()),
        fit_intercept=fit_intercept,
        standardize=standardize,
    )
    ending: dict[str, Any] = {"key": key, "max_steps": max_steps, "termination": termination, "throw": False}
    results, refit, solution = None, 1.0, None
    if plan.rule is not None:
        ks = default_ks(len(code), X.shape[1] - n_keep) if plan.ks is None else plan.ks
        l2s = l2_grid if plan.l2s is None else plan.l2s
        choice: Any = choose(
            objective,
            RowSparsity(0, k_max=default_k_max(ks, padding.p - n_keep), keep=keep),
            ks,
            padding.l2s(l2s if l2 is None else l2[None]),
            scoring=scoring,
            rule=plan.rule,
            refit=None if l2 is None else 1.0,
            folds=folds,
            solver=solver,
            **ending,
        )
        k, solution, refit = choice.k, choice.solution, choice.refit
        results = choice.scores.table
        results |= {"rule": plan.rule, "row": results[BY_FOLDS[plan.rule]], "l2s": padding.user_l2(results["l2s"])}
        objective = objective.reweighted(l2=choice.l2)
    else:
        k = plan.k
        solution = solve(objective, RowSparsity(k, keep=keep), solver, **ending)
    bare: dict[str, Any] = {"key": None, "state": None}  # neither is kept
    solution = padding.solution(jax.tree.map(np.asarray, solution._replace(**bare)))
    chosen_l2 = padding.user_l2(np.asarray(objective.l2))[()]
    return SoftmaxFit(solution, int(k), chosen_l2, refit * chosen_l2, results)
