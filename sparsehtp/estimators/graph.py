"""Shared by the estimators of precision matrices: the structure, the choice of k, and the fit."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._solve import solve
from .._types import replace, seeded
from ..grids.criteria import information_criterion
from ..grids.cross_validation import cross_validate
from ..grids.folds import Pair
from ..grids.path import Path, solve_path
from ..iteration.results import RESULTS, Solution
from ..objectives import Precision
from ..objectives.base import Counted
from ..solvers import HTP, IHT, AbstractSolver, FoBa, ForwardSelection, GraSP
from ..thresholds import OffDiagonal, pairs_of
from . import parameters, selection
from .failures import warn

SOLVERS: dict[str, type[AbstractSolver]] = {
    "htp": HTP,
    "iht": IHT,
    "grasp": GraSP,
    "forward": ForwardSelection,
    "foba": FoBa,
}
CRITERIA = ("ebic", "bic")
SHARES = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12)  # pairs per variable
FEW_PAIRS = 20


class GraphFit(NamedTuple):
    """A fit, and the path and the scores that its k was chosen from (None for a given k)."""

    k: int
    solution: Solution
    path: Path | None
    results: dict[str, Any] | None


def check_k(k: Any) -> int | str:
    """k as an int, "cv", or the name of a criterion."""
    if isinstance(k, str):
        if k not in ("cv", *CRITERIA):
            raise ValueError(f"k: needs an integer >= 0, 'cv', or one of {', '.join(CRITERIA)}, got {k!r}.")
        return k
    return parameters.checked_count("k", k, 0)


def pair_threshold(keep: Any, names: Sequence[str]) -> OffDiagonal:
    """The structure, with k = 0; pairs to keep by number or by name."""
    array = None if keep is None else np.asarray(keep)
    if array is not None and array.dtype.kind in "UO" and array.size:
        unknown = sorted({str(name) for name in array.ravel()} - set(names))
        if unknown:
            raise ValueError(f"keep: {', '.join(unknown)} is no column name of X; names need a data frame.")
        place = {name: j for j, name in enumerate(names)}
        array = np.array([place[str(name)] for name in array.ravel()]).reshape(array.shape)
    return OffDiagonal(0, keep=array)


def default_pairs(p: int, samples: float, kept: int) -> np.ndarray:
    """Every number of pairs where there are few; else multiples of p, up to a third of the samples per variable."""
    pairs = p * (p - 1) // 2 - kept
    if pairs <= FEW_PAIRS:
        return np.arange(pairs + 1)
    most = min(pairs, int(samples * p / 6))
    return np.unique([0, *(k for share in SHARES if (k := round(share * p)) <= most)])


def fit_graph(
    objective: Precision,
    k: int | str,
    threshold: OffDiagonal,
    solver: AbstractSolver,
    folds: Any,
    max_steps: int | None,
    seed: int,
) -> GraphFit:
    """Choose k, and fit; the row of the path is the fit where there is one."""
    key = seeded(seed)
    p = objective.n_variables
    path: Path | None = None
    results: dict[str, Any] | None = None
    row = 0
    if k == "cv":
        ks = default_pairs(p, float(objective.n) * (1 - 1 / len(folds)), threshold.keep.shape[0])
        cv = cross_validate(objective, ks=ks, folds=folds, threshold=threshold, solver=solver, key=key)
        path = cv.path
        results = {"ks": path.ks, "mean_loss": cv.mean, "se": cv.se, "scores": cv.scores, "best_index": cv.best}
        k, row = cv.k, cv.best
    elif isinstance(k, str):
        ks = default_pairs(p, float(objective.n), threshold.keep.shape[0])
        path = solve_path(objective, ks=ks, threshold=threshold, solver=solver, key=key)
        criterion = information_criterion(path, k)
        results = {"ks": path.ks, k: criterion.values, "best_index": criterion.best}
        k, row = int(path.ks[criterion.best]), criterion.best
    threshold = replace(threshold, k=np.int32(k))
    x0 = None if path is None else path.at(row)
    solution = solve(objective, threshold, solver, x0, key=key, max_steps=max_steps, throw=False)
    bare: Any = solution._replace(key=None, state=None)  # type: ignore[arg-type]
    return GraphFit(k, jax.tree.map(np.asarray, bare), path, results)


def needed_folds(cv: Any, X: np.ndarray, y: np.ndarray, weights: np.ndarray, counted: Counted) -> list[Pair]:
    """(train, test) among the rows that count."""
    folds = selection.make_folds(cv, X, y, weights, counted)
    if folds is None:
        raise ValueError("cv: needs at least two samples (of every class) for two folds; pass an integer k.")
    return folds


def warn_result(estimator: Any, fit: GraphFit) -> str:
    """The name of how a fit ended, with a warning unless it converged."""
    result = RESULTS(int(fit.solution.result))
    if result is not RESULTS.converged:
        sentence = result.sentence.replace("max_steps", "max_iter")
        warn(f"{type(estimator).__name__}: {sentence}", ConvergenceWarning)
    return result.name


def edge_mask(solution: Solution, p: int) -> np.ndarray:
    """(p, p) mask of the pairs in a support."""
    mask = np.zeros((p, p), bool)
    i, j = pairs_of(solution.support.idx[solution.support.mask], p).T
    mask[i, j] = mask[j, i] = True
    return mask


def partial_correlations(precision: Any) -> np.ndarray:
    """-O_ij / sqrt(O_ii O_jj), with ones on the diagonal.

    Raises:
        ValueError: unless the matrix is square with a positive diagonal.
    """
    O = np.asarray(precision, float)  # noqa: E741 (as in the formulas)
    if O.ndim != 2 or O.shape[0] != O.shape[1] or not (np.diagonal(O) > 0).all():
        raise ValueError(f"precision: needs a square matrix with a positive diagonal, got shape {O.shape}.")
    scale = np.sqrt(np.diagonal(O))
    partial = -O / (scale[:, None] * scale)
    np.fill_diagonal(partial, 1)
    return partial
