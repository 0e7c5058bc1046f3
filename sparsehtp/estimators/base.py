"""What the scikit-learn estimators share: validation, the solve, and the fitted attributes."""

import numbers
import warnings

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from .._results import RESULTS
from .._solve import solve
from .._termination import Cycle, SmallGradient, SmallStep
from ..losses import AbstractLoss, Hinge, Huber, Logistic, Poisson, SmoothedHinge, Squared
from ..objectives import LinearModel
from ..solvers import HTP, IHT, AbstractSolver, GraSP, SubspacePursuit
from ..thresholds import GroupSparsity, NonNegativeSparsity, Sparsity

LOSSES = {
    "squared": Squared,
    "huber": Huber,
    "poisson": Poisson,
    "logistic": Logistic,
    "smoothed_hinge": SmoothedHinge,
    "hinge": Hinge,
}
SOLVERS = {"htp": HTP, "iht": IHT, "grasp": GraSP, "subspace_pursuit": SubspacePursuit}


class SparseLinearModel(SelectorMixin, BaseEstimator):
    """Base of `SparseRegressor` and `SparseClassifier`."""

    def _validate(self, X, y, sample_weight, **options):
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], **options)
        if sample_weight is not None and not np.asarray(sample_weight).any():
            raise ValueError("sample_weight: all weights are zero; at least one sample must count.")
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if weights.min() < 0:
            raise ValueError(f"sample_weight: must be >= 0, got {weights.min()}.")
        return X, y, weights

    def _fit(self, X, y, weights, loss, default_l2):
        """Solve, set the attributes in the solver's shapes, and return the result code."""
        p = X.shape[1]
        if not weights.all():  # a row without weight must not count, even where its loss is infinite
            X, y, weights = X[weights > 0], y[weights > 0], weights[weights > 0]
        solver = self._solver()
        threshold = self._threshold(p)
        max_steps = None if self.max_iter is None else check_count("max_iter", self.max_iter, 1)
        termination = self._termination(loss, solver)
        # Accuracy follows the data's dtype, whatever JAX's own setting is.
        with jax.enable_x64(X.dtype == np.float64):
            objective = LinearModel(
                X,
                y,
                loss,
                l2=self._l2(default_l2),
                sample_weight=weights / weights.max(),
                fit_intercept=self.fit_intercept,
                standardize=self.standardize,
            )
            solution = solve(objective, threshold, solver, max_steps=max_steps, termination=termination, throw=False)
            solution = jax.tree.map(np.asarray, solution._replace(key=None, state=None))
            self.l2_ = np.asarray(objective.l2)[()]
        result = RESULTS(int(solution.result))
        chosen = solution.support.idx[solution.support.mask]
        self.support_ = np.zeros(p, bool)
        if isinstance(threshold, GroupSparsity):
            self.support_[threshold.table[chosen][threshold.filled[chosen]]] = True
        else:
            self.support_[chosen] = True
        self.coef_ = solution.x
        self.intercept_ = float(solution.intercept)
        self.k_ = int(self.k)
        self.n_iter_ = int(solution.num_steps)
        self.objective_value_ = float(solution.value)
        self.result_ = result.name
        rows = self.n_iter_ - (result is RESULTS.nonfinite)  # a nonfinite step is not taken
        self.history_ = {name: column[:rows] for name, column in solution.history._asdict().items()}
        return result

    def _warn(self, sentence):
        warnings.warn(f"{type(self).__name__}: {sentence}", ConvergenceWarning, stacklevel=4)

    def _warn_result(self, result):
        if result is not RESULTS.converged:
            self._warn(result.sentence.replace("max_steps", "max_iter"))

    # --- parameters -----------------------------------------------------------------------------------------
    def _loss(self, names, classification):
        loss = self.loss
        if isinstance(loss, str) and loss in names:
            return LOSSES[loss]()
        if not isinstance(loss, AbstractLoss) or loss.classification != classification:
            raise ValueError(f"loss: needs one of {', '.join(names)}, or such a loss instance, got {loss!r}.")
        return loss

    def _solver(self):
        if isinstance(self.solver, AbstractSolver):
            return self.solver
        if not isinstance(self.solver, str) or self.solver not in ("auto", *SOLVERS):
            names = ", ".join(("auto", *SOLVERS))
            raise ValueError(f"solver: needs one of {names}, or a solver instance, got {self.solver!r}.")
        return None if self.solver == "auto" else SOLVERS[self.solver]()

    def _termination(self, loss, solver):
        if self.tol is None:
            return None
        if isinstance(self.tol, bool) or not isinstance(self.tol, numbers.Real) or not 0 < self.tol < np.inf:
            raise ValueError(f"tol: needs a positive number, got {self.tol!r}.")
        if isinstance(solver, IHT) or not loss.twice_differentiable:
            return (SmallStep(self.tol) & SmallGradient(self.tol)) | Cycle()
        return None  # the pursuits are exact on their support and stop when it is stable

    def _l2(self, default):
        if isinstance(self.l2, str):
            if self.l2 != "auto":
                raise ValueError(f"l2: needs 'auto' or a number >= 0, got {self.l2!r}.")
            return default
        l2 = np.asarray(self.l2)
        if l2.dtype.kind not in "fiu":
            raise ValueError(f"l2: needs 'auto' or a number >= 0, got {self.l2!r}.")
        return l2

    def _threshold(self, p):
        k = check_count("k", self.k, 0)
        keep = self._keep(p)
        if self.groups is not None and (self.positive or self.bounds is not None):
            raise ValueError("groups: cannot be combined with positive or bounds; leave one of them out.")
        if self.positive and self.bounds is not None:
            raise ValueError("positive: cannot be combined with bounds; use bounds=(0, upper).")
        if self.groups is not None:
            groups = np.asarray(self.groups)
            if groups.shape != (p,):
                raise ValueError(f"groups: needs one label per feature ({p}), got shape {groups.shape}.")
            if keep is not None:  # a kept feature keeps its group
                keep = np.unique(np.unique(groups, return_inverse=True)[1][keep])
            return GroupSparsity(groups, k, keep=keep)
        if self.positive:
            return NonNegativeSparsity(k, keep=keep)
        if self.bounds is None:
            return Sparsity(k, keep=keep)
        if not isinstance(self.bounds, (tuple, list)) or len(self.bounds) != 2:
            raise ValueError(f"bounds: needs a pair (lower, upper), got {self.bounds!r}.")
        return Sparsity(k, keep=keep, lower=self.bounds[0], upper=self.bounds[1])

    def _keep(self, p):
        if self.keep is None:
            return None
        keep = np.atleast_1d(np.asarray(self.keep))
        if keep.dtype.kind in "UO":
            names = list(getattr(self, "feature_names_in_", ()))
            unknown = [str(name) for name in keep if name not in names]
            if unknown:
                raise ValueError(f"keep: {', '.join(unknown)} is no column name of X; names need a data frame.")
            return np.array([names.index(name) for name in keep])
        if keep.dtype == bool:
            if keep.shape != (p,):
                raise ValueError(f"keep: a boolean mask needs shape ({p},), got {keep.shape}.")
            return np.flatnonzero(keep)
        if keep.size and (keep.dtype.kind not in "iu" or keep.min() < 0 or keep.max() >= p):
            raise ValueError(f"keep: needs feature indices in 0..{p - 1}, a mask or column names, got {self.keep!r}.")
        return keep

    # --- fitted ---------------------------------------------------------------------------------------------
    def _predictor(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return X @ self.coef_.ravel() + self.intercept_

    def _get_support_mask(self):
        check_is_fitted(self)
        return self.support_


def check_count(name, value, least):
    """`value` as an int, or ValueError unless it is an integer of at least `least`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name}: must be an integer >= {least}, got {value!r}.")
    return int(value)
