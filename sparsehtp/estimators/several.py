"""Several responses, or classes under one softmax: k features that all of them share."""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from .._solve import solve
from .._types import replace, seeded
from ..grids.choose import BY_FOLDS, choose
from ..grids.cross_validation import Scoring
from ..grids.path import Path
from ..iteration.results import RESULTS, Solution
from ..losses import AbstractLoss, AbstractVectorLoss
from ..objectives import MultiResponse
from ..thresholds.base import default_k_max
from . import parameters
from .fitting import Evidence
from .padding import Padding
from .parameters import Plan
from .selection import check_total, default_ks


class SharedFit(NamedTuple):
    """A fitted problem: what a certificate needs, the solution and its structure, the k and l2 of the choice, the l2 of
    the coefficients, the path of all data, and the table of a cross-validation."""

    evidence: Evidence
    solution: Solution
    structure: Any
    k: int
    l2: Any
    refit_l2: Any
    path: Path | None
    results: dict[str, Any] | None


def solve_from(objective: Any, threshold: Any, solver: Any, start: Any, **ending: Any) -> Solution:
    """`solve` from a start, and from zero too where that does not converge: it may be far out of what data can tell."""
    solution = solve(objective, threshold, solver, start, **ending)
    if start is None or int(solution.result) == RESULTS.converged:
        return solution
    cold = solve(objective, threshold, solver, **ending)
    return solution if solution.value <= cold.value else cold


def on_host(objective: Any, solution: Solution) -> Solution:
    """A solution in NumPy without its key and state, and with an intercept that suits its coefficients in float64."""
    solution = jax.tree.map(np.asarray, solution._replace(key=None, state=None))  # type: ignore[arg-type]
    return solution._replace(intercept=objective.intercept_of(solution.x, solution.free))


def fit_shared(
    estimator: Any,
    X: Any,
    Y: np.ndarray,
    loss: AbstractLoss | AbstractVectorLoss,
    weights: Float[np.ndarray, "n"],
    offset: Float[np.ndarray, "n t"] | None,
    plan: Plan,
    folds: Any,
    scoring: Scoring | None,
    seed: int,
) -> SharedFit:
    """Choose k and l2 where the plan says so, and fit all rows, by the parameters of an estimator."""
    names = list(getattr(estimator, "feature_names_in_", ()))
    shape = estimator.groups, estimator.keep, estimator.positive, estimator.bounds
    template = parameters.make_threshold(*shape, X.shape[1], names, rows=True)
    solver = parameters.make_solver(estimator.solver)
    units = parameters.unit_total(template, X.shape[1])
    available = units - template.keep.size
    ending: dict[str, Any] = {
        "key": seeded(seed),
        "max_steps": parameters.make_limit(estimator.max_iter),
        "termination": parameters.make_termination(estimator.tol, loss, solver),
        "throw": False,
    }
    padding = Padding(X.shape[0], X.shape[1], parameters.pads(solver), plan.l2_by_feature)
    template = replace(template, k=np.int32(plan.k or 0 if plan.ks is None else plan.ks.max()))
    l2, l2s = plan.l2, estimator._l2_grid if plan.l2s is None else plan.l2s
    objective = MultiResponse(
        padding.design(X),
        padding.targets(Y),
        loss,
        l2=padding.l2(estimator._default_l2 if l2 is None else l2),
        sample_weight=padding.weights(weights / weights.max()),
        fit_intercept=estimator.fit_intercept,
        standardize=estimator.standardize,
        offset=None if offset is None else padding.offset(offset),
    )
    threshold = padding.threshold(template, objective.n_responses)
    refit, path, results = 1.0, None, None
    if plan.rule is None:
        k: Any = plan.k
        last = estimator._last(objective.n_responses, X.shape[1])
        start = None if last is None else padding.start(last[0].T, last[1])
        solution = selected = solve_from(objective, threshold, solver, start, **ending)
    else:
        ks = default_ks(len(X), available) if plan.ks is None else plan.ks
        if not plan.by_folds:
            check_total(estimator, float(weights.sum()), len(X), ks)

        def own_samples(path: Path) -> Path:  # the objective's weights are scaled, and its columns may be padded
            return dataclasses.replace(path, n_units=units, total_weight=float(weights.sum()))

        choice: Any = choose(
            objective,
            replace(threshold, k_max=default_k_max(ks, available, template.least_k_max)),
            ks,
            padding.l2s(l2s if l2 is None else l2[None]) if plan.by_folds else None,
            scoring=scoring,
            rule=plan.rule,
            refit=None if l2 is None else 1.0,
            folds=folds,
            solver=solver,
            samples=own_samples,
            **ending,
        )
        k, solution, selected, refit = choice.k, choice.solution, choice.selected, choice.refit
        path = own_samples(padding.path(choice.path))
        if plan.by_folds:
            results = choice.scores.table | {"rule": plan.rule, "l2s": path.l2s}
            results["row"] = results[BY_FOLDS[plan.rule]]
            objective = objective.reweighted(l2=choice.l2)
    solution, selected = (padding.solution(on_host(objective, each)) for each in (solution, selected))
    chosen_l2 = padding.user_l2(np.asarray(objective.l2))[()]
    template = replace(template, k=np.int32(k))
    evidence = Evidence(padding, [(objective, template, selected)])
    return SharedFit(evidence, solution, template, int(k), chosen_l2, refit * chosen_l2, path, results)
