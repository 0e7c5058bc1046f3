"""The base of the estimators of precision matrices: the structure, the choice of k, and the fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator

from .._solve import solve
from .._types import ArrayLike, replace, seeded
from ..grids.choose import choose
from ..grids.folds import Pair
from ..grids.path import Path
from ..iteration.results import RESULTS
from ..objectives import Precision
from ..objectives.base import Counted
from ..solvers import HTP, IHT, AbstractSolver, FoBa, ForwardSelection, GraSP
from ..thresholds import OffDiagonal, pairs_of
from . import parameters, selection
from .failures import warn_result

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


@dataclass(eq=False, repr=False)
class SparseGraphModel(BaseEstimator):
    """Base of `SparsePrecision` and `SparseLDA`, with the parameters and the fitted attributes of both."""

    k: int | str = "cv"
    _: KW_ONLY
    solver: AbstractSolver | str = "auto"
    standardize: bool = True
    keep: ArrayLike | None = None
    shrinkage: float | str = "oas"
    bounds: Any = "valid"
    cv: Any = 5
    random_state: Any = None
    max_iter: int | None = None
    # What `fit` sets, and `sht.load` takes: nothing else, in these types and shapes.
    precision_: Float[np.ndarray, "p p"] = field(init=False)
    support_: Bool[np.ndarray, "p p"] = field(init=False)
    shrinkage_: float = field(init=False)
    k_: int = field(init=False)
    path_: Path | None = field(init=False)
    cv_results_: dict | None = field(init=False)  # type: ignore[type-arg]  # for isinstance
    n_iter_: int = field(init=False)
    objective_value_: float = field(init=False)
    result_: str = field(init=False)

    def _checked_k(self) -> int | str:
        """k as an int, "cv", or the name of a criterion."""
        if not isinstance(self.k, str):
            return parameters.checked_count("k", self.k, 0)
        if self.k not in ("cv", *CRITERIA):
            raise ValueError(f"k: needs an integer >= 0, 'cv', or one of {', '.join(CRITERIA)}, got {self.k!r}.")
        return self.k

    @property
    def _scaling(self) -> dict[str, Any]:
        """Parameters of the objective."""
        return {"bounds": self.bounds, "standardize": bool(self.standardize), "shrinkage": self.shrinkage}

    def _folds(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray, counted: Counted) -> list[Pair]:
        """(train, test) among the rows that count."""
        folds = selection.make_folds(self.cv, X, y, weights, counted)
        if folds is None:
            raise ValueError("cv: needs at least two samples (of every class) for two folds; pass an integer k.")
        return folds

    def _fit_graph(self, objective: Precision, k: int | str, folds: list[Pair] | None) -> None:
        """Choose k, by folds for "cv", fit, and set the attributes."""
        p, solver = objective.n_variables, parameters.make_solver(self.solver, SOLVERS) or HTP()
        threshold = pair_threshold(self.keep, list(getattr(self, "feature_names_in_", ())))
        key, limit = seeded(parameters.make_seed(self.random_state)), parameters.make_limit(self.max_iter)
        ending: dict[str, Any] = {"solver": solver, "key": key, "max_steps": limit, "throw": False}
        self.path_ = self.cv_results_ = None
        solution: Any
        if isinstance(k, str):
            samples = float(objective.n) * (1 if folds is None else 1 - 1 / len(folds))
            ks, rule = default_pairs(p, samples, threshold.keep.shape[0]), k if folds is None else "best"
            choice: Any = choose(objective, threshold, ks=ks, rule=rule, folds=folds, **ending)
            self.k_, solution, path, scores = choice.k, choice.solution, choice.path, choice.scores
            self.path_, self.cv_results_ = path, {"ks": path.ks, "best_index": choice.row}
            if folds is None:
                self.cv_results_ |= {rule: scores.values}
            else:
                self.cv_results_ |= {"mean_loss": scores.mean, "se": scores.se, "scores": scores.scores}
        else:
            self.k_, solution = k, solve(objective, replace(threshold, k=np.int32(k)), **ending)
        self.precision_ = np.asarray(solution.x)
        self.support_ = np.zeros((p, p), bool)
        i, j = pairs_of(np.asarray(solution.support.idx)[np.asarray(solution.support.mask)], p).T
        self.support_[i, j] = self.support_[j, i] = True
        self.shrinkage_ = float(objective.shrinkage)
        self.n_iter_, self.objective_value_ = int(solution.num_steps), float(solution.value)
        result = RESULTS(int(solution.result))
        self.result_ = result.name
        warn_result(self, result)


def pair_threshold(keep: Any, names: Sequence[str]) -> OffDiagonal:
    """The structure, with k = 0; pairs to keep by number or by name."""
    array = None if keep is None else np.asarray(keep)
    if array is not None and array.dtype.kind in "UO":
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
