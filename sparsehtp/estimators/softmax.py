"""The multi-class fit of `SparseClassifier(loss="softmax")`: k features that all classes share."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._programs import program
from .._solve import solve
from .._types import replace
from ..grids.choose import BY_FOLDS
from ..grids.cross_validation import decide
from ..iteration.results import Solution
from ..losses import Softmax
from ..objectives import MultiResponse
from ..solvers import HTP, AbstractSolver
from ..thresholds import RowSparsity
from ..thresholds.base import check_units
from .padding import Padding
from .selection import KS


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
    k: int | str,
    l2: np.ndarray | None,
    default_l2: float,
    l2_grid: tuple[float, ...],
    folds: Any,
    keep: Any,
    solver: Any,
    max_steps: int | None,
    termination: Any,
    rule: str,
    fit_intercept: bool,
    standardize: bool,
    key: jax.Array,
    padding: Padding,
) -> SoftmaxFit:
    """Choose k (and l2, where it is None) by cross-validation if k is "cv", and fit all rows."""
    solver = HTP() if solver is None else solver
    n_keep = 0 if keep is None else len(keep)
    if not isinstance(k, str):
        check_units("k", k, None, n_keep, padding.p, "features")
    objective = MultiResponse(
        padding.design(X),
        padding.targets(code.astype(np.int32)),
        Softmax(n_classes),
        l2=padding.l2(default_l2 if l2 is None else l2),
        sample_weight=padding.weights(weights / weights.max()),
        fit_intercept=fit_intercept,
        standardize=standardize,
    )
    results = None
    if k == "cv":
        ks = np.array([each for each in KS if each <= min(len(code) // 2, X.shape[1] - n_keep)], np.int32)
        l2s = padding.l2s(l2_grid if l2 is None else l2[None])
        results, row = _cross_validate(objective, ks, l2s, folds, keep, solver, rule, key)
        k = int(results["ks"][row])
        objective = objective.reweighted(l2=results["l2s"][row])
    solution: Any = solve(
        objective,
        RowSparsity(k, keep=keep),
        solver,
        key=key,
        max_steps=max_steps,
        termination=termination,
        throw=False,
    )
    solution = padding.solution(jax.tree.map(np.asarray, solution._replace(key=None, state=None)))
    if results is not None:
        results["l2s"] = padding.user_l2(results["l2s"])
    l2 = padding.user_l2(np.asarray(objective.l2))[()]
    return SoftmaxFit(solution, int(k), l2, l2, results)


def _cross_validate(
    objective: MultiResponse,
    ks: np.ndarray,
    l2s: np.ndarray,
    folds: Any,
    keep: Any,
    solver: AbstractSolver,
    rule: str,
    key: jax.Array,
) -> tuple[dict[str, Any], int]:
    """The table over (l2, k), l2 major, and the chosen row."""
    base = np.asarray(objective.sample_weight)
    train, test = (np.zeros((len(folds), base.size), base.dtype) for _ in range(2))
    for row, (fit, held) in enumerate(folds):
        train[row, fit], test[row, held] = base[fit], base[held]
    grid_l2, grid_k = np.repeat(l2s, ks.size, axis=0), np.tile(ks, l2s.shape[0])
    template = RowSparsity(0, k_max=int(ks.max()), keep=keep)
    columns = [
        # One k at a time: the lanes of a batch all wait for the slowest.
        np.asarray(_scores(objective, replace(template, k=k), l2s, train, test, solver, key))
        for k in ks
    ]
    scores = np.stack(columns, axis=2).reshape(len(folds), -1)  # (folds, l2, k)
    results = {"ks": grid_k, "l2s": grid_l2, **decide(scores, test.sum(1), grid_k, grid_l2)}
    return results, results[BY_FOLDS[rule]]


@program
def _scores(objective: Any, threshold: Any, l2s: Any, train: Any, test: Any, solver: Any, key: Any) -> Any:
    """(folds, l2s) held-out mean losses."""

    def one(fit: jax.Array, held: jax.Array, l2: jax.Array) -> jax.Array:
        fold = objective.reweighted(fit, l2)
        solution = solve(fold, threshold, solver, key=key, record=None, throw=False)
        x = fold.to_internal(solution.x, solution.intercept)
        return fold.scorer(held).value(x)

    l2s = jnp.asarray(l2s, objective.dtype)
    return jax.vmap(lambda fit, held: jax.vmap(lambda l2: one(fit, held, l2))(l2s))(
        jnp.asarray(train), jnp.asarray(test)
    )
