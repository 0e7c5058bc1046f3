"""The base of the scikit-learn estimators: validation, the parts of a fit, and the fitted attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_array
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from .._tolerances import tolerance
from .._types import ArrayLike, DType, Support, TableLike, check_collected, replace
from ..certificates.certificate import REFIT_WORK, Certificate, certificate
from ..certificates.exchanges import Swaps, best_swaps, near_exchanges
from ..certificates.prove import Proof, fit_on, prove
from ..grids.cross_validation import Scoring
from ..grids.folds import Pair, repeats_of
from ..grids.path import Path
from ..iteration.results import FIRED, RESULTS, Solution
from ..losses import AbstractLoss, AbstractVectorLoss
from ..objectives import LinearModel, MultiResponse
from ..objectives.base import Counted
from ..solvers import AbstractSolver
from . import parameters, selection
from .arrays import as_numpy, validated
from .failures import all_or_nothing, warn, warn_result
from .fit import Evidence, Fitted, Problem, Rows, fit_targets


def checked_weights(sample_weight: Any, X: Any) -> np.ndarray:
    """(n,) float64 weights of the rows of X, or ValueError unless they are nonnegative and one is positive."""
    sample_weight = as_numpy(sample_weight)
    if sample_weight is not None and not np.asarray(sample_weight).any():
        raise ValueError("sample_weight: all weights are zero; at least one sample must count.")
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if weights.min() < 0:
        raise ValueError(f"sample_weight: must be >= 0, got {weights.min()}.")
    return weights


def linear(
    X: Any, coef: Float[np.ndarray, "*c p"], intercept: Any = 0.0, offset: Float[np.ndarray, "n *c"] | None = None
) -> Float[np.ndarray, "n *c"]:
    """Linear predictors, in float64: beside columns far from zero the intercept is large, and the sum with it small.
    Only columns with a coefficient are read."""
    used = np.flatnonzero(np.any(np.atleast_2d(coef), axis=0))
    eta = X[:, used].astype(float) @ coef[..., used].astype(float).T + intercept
    return eta if offset is None else eta + offset.reshape(eta.shape)


def check_offset(offset: Any, X: Any, responses: int = 1) -> Float[np.ndarray, "n *t"] | None:
    """(n,) float64 offsets of the rows of X, or (n, t) of several responses, which may share one; None for None, or
    ValueError."""
    if offset is None:
        return None
    offset = check_array(as_numpy(offset), ensure_2d=False, dtype=np.float64, input_name="offset")
    n = X.shape[0]
    if offset.shape not in {(n,), (n, responses)}:
        each = f", or ({n}, {responses}), one per row and response" if responses > 1 else ""
        raise ValueError(f"offset: needs shape ({n},), one value per row of X{each}, got {offset.shape}.")
    return np.broadcast_to(offset.reshape(n, -1), (n, responses)).copy() if responses > 1 else offset.ravel()


def _rounded(model: LinearModel, x: np.ndarray, intercept: float, dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients in the data's dtype, and the intercept that makes up for their rounding at the columns' means."""
    w = x.astype(dtype)
    return w, intercept + model.units.centre[: x.size] @ (x - w)


@dataclass(eq=False, repr=False)
class SparseLinearModel(SelectorMixin, BaseEstimator):
    """Base of `SparseRegressor`, `SparseClassifier`, `SparseOrdinal` and `SparseCox`, with the parameters of all."""

    k: int | str | Iterable[int] | Callable[..., np.ndarray] = "cv"
    _: KW_ONLY
    l2: ArrayLike | str = "auto"
    solver: AbstractSolver | str = "auto"
    standardize: bool = True
    groups: ArrayLike | None = None
    keep: ArrayLike | None = None
    positive: bool = False
    bounds: tuple[Any, Any] | None = None
    cv: Any = 5
    rule: str = "strong-ridge"
    random_state: Any = None
    max_iter: int | None = None
    tol: float | None = None
    penalty: ClassVar[str] = "l1"  # what makes `SelectFromModel` keep all coefficients above 1e-5
    _default_l2: ClassVar[float]
    _l2_grid: ClassVar[tuple[float, ...]]
    _counted: ClassVar[Counted] = "rows"
    # What `fit` sets, and `sht.load` takes: nothing else, in these types and shapes (lists and dicts of anything, since
    # `isinstance` looks no further).
    support_: Bool[np.ndarray, "p"] = field(init=False)
    k_: int = field(init=False)
    l0_: float | None = field(init=False)
    l1_: float | None = field(init=False)
    l2_: np.floating | Float[np.ndarray, "p"] = field(init=False)
    refit_l2_: np.floating | Float[np.ndarray, "p"] = field(init=False)
    n_iter_: int = field(init=False)
    path_: Path | list | None = field(init=False)  # type: ignore[type-arg]
    cv_results_: dict | None = field(init=False)  # type: ignore[type-arg]
    history_: dict | list = field(init=False)  # type: ignore[type-arg]
    objective_value_: float | list = field(init=False)  # type: ignore[type-arg]
    result_: str | list = field(init=False)  # type: ignore[type-arg]
    fired_: str | list = field(init=False)  # type: ignore[type-arg]
    _certificates: Certificate | list | None = field(init=False)  # type: ignore[type-arg]
    _evidence = cast(Evidence | None, None)  # without an annotation: nothing that a file holds

    def __getstate__(self) -> dict[str, Any]:
        """The state for copies, pickles and files: without the training data."""
        return {name: value for name, value in super().__getstate__().items() if name != "_evidence"}

    def _validate(
        self, X: TableLike, y: TableLike, sample_weight: ArrayLike | None, **options: Any
    ) -> tuple[Any, np.ndarray, Float[np.ndarray, "n"]]:
        # A sparse iterate touches few columns: contiguous by feature is fastest. Sparse matrices stay sparse.
        X, y = validated(self, X, y, order="F", accept_sparse="csr", **options)
        return X, y, checked_weights(sample_weight, X)

    def _fit(
        self,
        X: Any,
        y: np.ndarray,
        targets: list[np.ndarray],
        weights: Float[np.ndarray, "n"],
        loss: AbstractLoss | AbstractVectorLoss | None,
        *,
        responses: int | None = None,
        offset: np.ndarray | None = None,
        groups: ArrayLike | None = None,
        folds: Any = None,
        scoring: Scoring | None = None,
    ) -> list[RESULTS]:
        """Choose k and l2 for all models together, fit each, and set the attributes, one row or item per model.

        y is what folds are made by. With several responses, or classes of a softmax, there is one target and one model.
        """
        plan, pairs = parameters.make_plan(self, loss), None
        cv, seen = selection.split_triples(self.cv if folds is None else folds, X)
        if plan.by_folds:
            repeats = 1 if plan.prices else repeats_of(int(np.count_nonzero(weights)), X.shape[1])
            others = targets if offset is None else [*targets, offset]
            pairs = selection.make_folds(cv, X, y, weights, self._counted, groups, repeats, others)
            if pairs is None:
                plan = plan._replace(rule="ebic")
                apart = "" if groups is None else ", in two of the groups"
                self._warn(
                    f"k: cross-validation needs two samples (of every class, or with an event){apart}, so that ebic is "
                    "used instead.",
                    UserWarning,
                )
        event = y if self._counted == "events" else None  # others are no samples where k is chosen
        rows = Rows(X, targets, weights, offset, event, seen, responses).counted()
        if self._counted == "rows" and loss is not None and loss.quadratic and scoring is None and plan.solver is None:
            rows, pairs = rows.condensed(pairs, self.fit_intercept)
        return self._fit_rows(rows, pairs, plan, loss, scoring)

    def _fit_rows(
        self,
        rows: Rows,
        pairs: list[Pair] | None,
        plan: parameters.Plan,
        loss: AbstractLoss | AbstractVectorLoss | None,
        scoring: Scoring | None = None,
    ) -> list[RESULTS]:
        """Choose k and l2 by folds of the rows where the plan says so, fit them, and set the attributes."""
        p, names, several = rows.X.shape[1], getattr(self, "feature_names_in_", ()), rows.responses is not None
        threshold = parameters.make_threshold(self, p, names, rows=several, priced=plan.prices is not None)

        def build(X: Any, targets: list[np.ndarray], **data: Any) -> list[Any]:
            return self._models(X, targets, loss, standardize=self.standardize, **data)

        last = self._last(rows.responses or len(rows.targets), p)
        return self._take(fit_targets(Problem(rows, plan, threshold, build), pairs, scoring, last), several)

    def _last(self, m: int, p: int) -> tuple[Float[np.ndarray, "m p"], Float[np.ndarray, "m"]] | None:
        """The coefficients and intercepts of the last fit to start m models from; None: from zero."""
        if not (getattr(self, "warm_start", False) and hasattr(self, "coef_")):  # SparseCox has none
            return None
        coef, intercept = np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)
        usable = coef.shape == (m, p) and np.isfinite(coef).all() and np.isfinite(intercept).all()
        return (coef, intercept) if usable else None

    def _models(
        self, X: Any, targets: list[np.ndarray], loss: AbstractLoss | AbstractVectorLoss | None, **options: Any
    ) -> list[Any]:
        """The objectives of the rows, one for every target."""
        options["fit_intercept"] = self.fit_intercept
        if targets[0].ndim == 2 or isinstance(loss, AbstractVectorLoss):
            return [MultiResponse(X, targets[0], loss, **options)]
        first = LinearModel(X, targets[0], loss, **options)
        return [first, *(replace(first, y=jnp.asarray(target, first.dtype)) for target in targets[1:])]

    def _take(self, fitted: Fitted, several: bool) -> list[RESULTS]:
        """Set the attributes."""
        solutions: Any = fitted.solutions
        one_or_all = self._one_or_all
        results = [RESULTS(int(each.result)) for each in solutions]
        self.k_, self.l2_, self.refit_l2_ = fitted.k, fitted.l2, fitted.refit * fitted.l2
        self.l0_, self.l1_ = fitted.prices
        self.coef_ = solutions[0].x.T if several else np.stack([each.x for each in solutions])
        self.intercept_ = solutions[0].intercept if several else np.array([each.intercept for each in solutions])
        self.support_ = np.zeros(self.coef_.shape[1], bool)
        for each in solutions:
            self.support_[parameters.features_of(fitted.threshold, each.support)] = True
        if fitted.threshold.penalises:
            self.support_[fitted.threshold.keep] = True
        self.n_iter_ = max(int(each.num_steps) for each in solutions)
        # A nonfinite step is not taken.
        steps = [int(each.num_steps) - (end is RESULTS.nonfinite) for each, end in zip(solutions, results, strict=True)]
        self.history_ = one_or_all(
            [
                {name: column[:length] for name, column in each.history._asdict().items()}
                for each, length in zip(solutions, steps, strict=True)
            ]
        )
        self.objective_value_ = one_or_all([float(each.value) for each in solutions])
        self.result_ = one_or_all([result.name for result in results])
        self.fired_ = one_or_all([FIRED(int(each.fired)).sentence for each in solutions])
        self.path_ = None if fitted.paths is None else one_or_all(fitted.paths)
        self.cv_results_, self._certificates, self._evidence = fitted.results, None, fitted.evidence
        return results

    @staticmethod
    def _one_or_all(items: list[Any]) -> Any:
        return items[0] if len(items) == 1 else items

    @property
    def certificate_(self) -> Certificate | list[Certificate] | None:
        """The `Certificate` of the features chosen at l2_ (a list for several classes), computed at first access.

        It is computed from the training data, as `swaps_`, `exchangeable_` and `prove` are. So the estimator keeps them
        for as long as it lives: X once more, in its dtype (a sparse matrix twice, by row and by column) and up to an
        eighth longer each way, beside targets and weights; of tall data the few rows that stand for them. Copies,
        pickles and saved files leave them out: there `certificate_` is what was read before, else None, the other two
        are None, and `prove` raises. `copy.copy` gives an estimator that predicts, without the data.
        """
        check_is_fitted(self)
        if self._certificates is None and self._evidence is not None:
            padding, fits = self._evidence
            certificates = [certificate(padding.model(model), *fit) for model, *fit in fits]
            self._certificates = self._one_or_all(certificates)
        return self._certificates

    @all_or_nothing
    def prove(self, seconds: float = 60.0, **options: Any) -> Proof | list[Proof]:
        """Prove that the chosen features are the best of their number under `l2_`, or find better ones; see `prove`.

        Better features, fitted under `refit_l2_`, take the place of the chosen ones.

        Args:
            seconds: the time limit, of each model where there are several.
            options: other arguments of `sht.prove`, for example collect=1.01.

        Returns:
            `Proof`; with several classes a list with an item for each.

        Raises:
            ValueError: in a copy or from a pickle or a file, where the training data are gone; for another loss than
                the squared one, where l2 is 0.
            TypeError: for a loss without a smooth conjugate, or with groups, signs or bounds.
        """
        check_is_fitted(self)
        if self._evidence is None:
            raise ValueError(
                "prove: copies, pickles and files of an estimator leave out the training data; fit it again, and prove."
            )
        padding, fits = self._evidence
        fits, proofs = list(fits), []
        for i, (model, threshold, solution) in enumerate(fits):
            bare = padding.model(model)
            proof = prove(bare, threshold, solution, time_limit=seconds, **options)
            proofs.append(proof)
            value = float(solution.value)
            if proof.upper < value - tolerance("swap", model.dtype) * abs(value):
                x, intercept = _rounded(model, proof.x, proof.intercept, self.coef_.dtype)
                better = {"x": x, "intercept": intercept, "support": proof.support, "value": np.array(proof.upper)}
                fits[i] = model, threshold, solution._replace(**better)
                self._replace_fit(i, bare, [fit[-1].support for fit in fits])
                self._evidence, self._certificates = Evidence(padding, fits), None
        return self._one_or_all(proofs)

    def _replace_fit(self, i: int, model: LinearModel, supports: list[Support]) -> None:
        """Fit the model of one target under `refit_l2_` on other features than those that were chosen."""
        ratio = np.divide(self.refit_l2_, self.l2_, out=np.ones(np.shape(self.l2_)), where=np.asarray(self.l2_) > 0)
        chosen = [np.asarray(support.idx)[np.asarray(support.mask)] for support in supports]
        with jax.enable_x64(True):
            value, x, intercept = fit_on(
                model.over(replace(model.columns, l2=np.asarray(model.l2, float) * ratio), False), chosen[i]
            )
        coef, intercepts = np.atleast_2d(self.coef_).copy(), np.atleast_1d(self.intercept_).copy()
        coef[i], intercepts[i] = _rounded(model, x, intercept, coef.dtype)
        shape = np.shape(self.intercept_)
        self.coef_, self.intercept_ = coef.reshape(self.coef_.shape), intercepts if shape else float(intercepts[0])
        values = np.atleast_1d(self.objective_value_).tolist()
        values[i] = value
        self.objective_value_ = self._one_or_all(values)
        self.support_ = np.zeros(self.support_.size, bool)
        for support in chosen:
            self.support_[support] = True

    @property
    def swaps_(self) -> Swaps | list[Swaps | None] | None:
        """For each chosen feature its best substitute, see `plot.best_swaps`; None where there is nothing to exchange.

        For plain sparsity (`keep` counted as chosen) and a smooth loss; with `groups`, whole groups by their numbers in
        sorted order, unless there are too many to refit. It is computed from the training data at every access: None in
        copies, pickles and files.
        """
        return self._exchanged(best_swaps)

    @property
    def exchangeable_(self) -> dict[Any, list[tuple[Any, float]]] | list[Any] | None:
        """For each chosen feature the substitutes that cost less than the noise of the choice.

        {feature: [(substitute, rise of the objective at l2_), ...]}, by name where there are names (with `groups`, by
        their labels); 20 substitutes at
        most (4 for losses other than the squared one). The noise is the standard error over the folds of the difference
        in held-out loss between the chosen row and that of the next smaller k at the same l2: the folds could not tell
        such a substitute from the feature. None without k="cv", and where `swaps_` is.
        """
        check_is_fitted(self)
        noise = None if self.cv_results_ is None else selection.noise_of_choice(self.cv_results_)
        if noise is None:
            return None
        names: Any = getattr(self, "feature_names_in_", range(self.n_features_in_))
        if self.groups is not None:
            names = np.unique(self.groups).tolist()

        def near(model: LinearModel, solution: Solution, groups: Any) -> dict[Any, list[tuple[Any, float]]]:
            found = near_exchanges(model, solution, noise, groups)
            return {names[i]: [(names[j], rise) for j, rise in others] for i, others in found.items()}

        return self._exchanged(near)

    def _exchanged(self, function: Callable[[LinearModel, Solution, Any], Any]) -> Any:
        """A function of the exchanges of each target's features; None where there are none."""
        check_is_fitted(self)
        if self._evidence is None:
            return None
        padding, fits = self._evidence
        found: list[Any] = []
        for model, threshold, solution in fits:
            chosen, units = int(np.count_nonzero(solution.support.mask)), parameters.unit_total(threshold, padding.p)
            groups = None if self.groups is None else threshold
            possible = threshold.plain
            if groups is not None:
                size, pairs = chosen * groups.entries_per_unit, chosen * (units - chosen)
                work = pairs * (model.ifo_per_gradient + size) * size**2
                possible = work <= REFIT_WORK and not groups.bounded and solution.x.ndim == 1
            exchanged = possible and 0 < chosen < units and model.twice_differentiable
            found.append(function(padding.model(model), solution, groups) if exchanged else None)
        return self._one_or_all(found)

    def _warn(self, sentence: str, category: type[Warning] = ConvergenceWarning) -> None:
        warn(f"{type(self).__name__}: {sentence}", category)

    def _warn_results(self, results: list[RESULTS]) -> None:
        for result in dict.fromkeys(results):
            warn_result(self, result)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # --- fitted ------------------------------------------------------------------------------------------------------
    def _predictor(self, X: TableLike, offset: ArrayLike | None = None) -> Float[np.ndarray, "n *targets"]:
        check_is_fitted(self)
        X = validated(self, X, accept_sparse="csr", reset=False)
        known = check_offset(offset, X, 1 if self.coef_.ndim == 1 else len(self.coef_))
        return linear(X, self.coef_, getattr(self, "intercept_", 0.0), known)  # SparseCox has none, nor SparseOrdinal

    def transform(self, X: TableLike) -> Any:
        """The columns of X that are in the support."""
        check_collected("X", X)
        return super().transform(as_numpy(X))

    def _get_support_mask(self) -> Bool[np.ndarray, "p"]:
        check_is_fitted(self)
        return self.support_
