"""What the scikit-learn estimators share: validation, the choice of k and l2, the solve, and the fitted attributes."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_array
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from .._tolerances import tolerance
from .._types import ArrayLike, Support, replace, seeded
from ..certificates.certificate import Certificate, certificate
from ..certificates.exchanges import Swaps, best_swaps, near_exchanges
from ..certificates.prove import Proof, fit_on, prove
from ..grids.choose import BY_FOLDS, choose
from ..grids.cross_validation import Scoring
from ..grids.path import Path
from ..iteration.results import FIRED, RESULTS, Solution
from ..losses import AbstractLoss, AbstractVectorLoss
from ..objectives import LinearModel
from ..thresholds import Sparsity
from . import parameters, selection
from .fitting import Evidence, all_or_nothing, warn
from .padding import Padding
from .several import fit_shared, on_host, solve_from


def check_weights(sample_weight: Any, X: Any) -> np.ndarray:
    """(n,) float64 weights of the rows of X, or ValueError unless they are nonnegative and one is positive."""
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
    offset = check_array(offset, ensure_2d=False, dtype=np.float64, input_name="offset")
    n = X.shape[0]
    if offset.shape not in {(n,), (n, responses)}:
        each = f", or ({n}, {responses}), one per row and response" if responses > 1 else ""
        raise ValueError(f"offset: needs shape ({n},), one value per row of X{each}, got {offset.shape}.")
    return np.broadcast_to(offset.reshape(n, -1), (n, responses)).copy() if responses > 1 else offset.ravel()


def _rounded(model: LinearModel, x: np.ndarray, intercept: float) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients in a model's dtype, and the intercept that makes up for their rounding at the columns' means."""
    w = x.astype(model.dtype)
    return w, intercept + model.units.centre[: x.size] @ (x - w)


class SparseLinearModel(SelectorMixin, BaseEstimator):
    """Base of `SparseRegressor`, `SparseClassifier`, `SparseOrdinal` and `SparseCox`."""

    penalty: ClassVar[str] = "l1"  # what makes `SelectFromModel` keep all coefficients above 1e-5
    _default_l2: ClassVar[float]
    _l2_grid: ClassVar[tuple[float, ...]]
    # What `fit` sets, and `sht.load` takes: nothing else, in these types and shapes (lists and dicts of anything, since
    # `isinstance` looks no further).
    support_: Bool[np.ndarray, "p"]
    k_: int
    l2_: np.floating | Float[np.ndarray, "p"]
    refit_l2_: np.floating | Float[np.ndarray, "p"]
    n_iter_: int
    path_: Path | list | None  # type: ignore[type-arg]
    cv_results_: dict | None  # type: ignore[type-arg]
    history_: dict | list  # type: ignore[type-arg]
    objective_value_: float | list  # type: ignore[type-arg]
    result_: str | list  # type: ignore[type-arg]
    fired_: str | list  # type: ignore[type-arg]
    _certificates: Certificate | list | None  # type: ignore[type-arg]
    _evidence = cast(Evidence | None, None)  # without an annotation: nothing that a file holds

    def __getstate__(self) -> dict[str, Any]:
        """The state for copies, pickles and files: without the training data."""
        return {name: value for name, value in super().__getstate__().items() if name != "_evidence"}

    def _validate(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, **options: Any
    ) -> tuple[Any, np.ndarray, Float[np.ndarray, "n"]]:
        # A sparse iterate touches few columns: contiguous by feature is fastest. Sparse matrices stay sparse.
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], order="F", accept_sparse="csr", **options)
        return X, y, check_weights(sample_weight, X)

    def _fit(
        self,
        X: Any,
        y: np.ndarray,
        targets: list[np.ndarray],
        weights: Float[np.ndarray, "n"],
        loss: AbstractLoss | None,
        *,
        offset: Float[np.ndarray, "n"] | None = None,
        groups: ArrayLike | None = None,
        scoring: Scoring | None = None,
    ) -> list[RESULTS]:
        """Choose k and l2 for all models together, fit each, and set the attributes, one row or item per model.

        Without a loss a boolean y says which rows have an event; others are no samples where k is chosen.
        """
        plan = parameters.make_plan(self.k, self.l2, self.rule)
        k: Any = plan.k
        rule, l2, refit = plan.rule, plan.l2, 1.0
        solver = parameters.make_solver(self.solver)
        max_steps = parameters.make_limit(self.max_iter)
        termination = parameters.make_termination(self.tol, loss, solver)
        seed = parameters.make_seed(self.random_state)
        counted = weights > 0
        folds: Any = None
        cv, seen = selection.split_triples(self.cv, X)
        if plan.by_folds:
            folds = selection.make_folds(cv, y, counted, is_classifier(self), seed, groups)
            if folds is None:
                rule = "ebic"
                self._warn(
                    "k: cross-validation needs two samples (of every class, or with an event), so that ebic is used "
                    "instead.",
                    UserWarning,
                )
        if not counted.all():  # a row without weight must not count, even where its loss is infinite
            X = X[counted] if issparse(X) else np.asfortranarray(X[counted])
            weights = weights[counted]
            targets = [target[counted] for target in targets]
            offset = None if offset is None else offset[counted]
            y = y[counted]
            seen = [part[counted] for part in seen]
        names = getattr(self, "feature_names_in_", ())
        template = parameters.make_threshold(self.groups, self.keep, self.positive, self.bounds, X.shape[1], names)
        template = replace(template, k=np.int32(plan.k or 0))
        padding = Padding(X.shape[0], X.shape[1], parameters.pads(solver), plan.l2_by_feature)
        threshold = padding.threshold(template)
        units = parameters.unit_total(template, X.shape[1])
        sampled = y if loss is None and y.dtype == bool else np.ones(len(y), bool)
        n, total = int(sampled.sum()), float(weights[sampled].sum())
        # A weight counts as that many rows; weights of another scale must not shorten the grid of folds, nor add to
        # that of a criterion, where a saturated least-squares fit would win.
        samples = max(total, n) if folds else n
        l2s = self._l2_grid if plan.l2s is None else plan.l2s
        if rule is not None:
            levels = selection.make_levels(samples, units - template.keep.size, padding, threshold, plan.ks)
            if folds is None:
                selection.check_total(self, total, n, levels.ks)
        # Accuracy follows the data's dtype, whatever JAX's own setting is.
        with jax.enable_x64(X.dtype == np.float64):
            key = seeded(seed)

            def models_of(X: Any) -> list[Any]:
                return self._models(
                    padding.design(X),
                    [padding.targets(target) for target in targets],
                    loss,
                    l2=padding.l2(self._default_l2 if l2 is None else l2),
                    sample_weight=padding.weights(weights / weights.max()),
                    standardize=self.standardize,
                    offset=None if offset is None else padding.offset(offset),
                )

            models = models_of(X)
            if folds is not None and seen:
                views = [selection.view(models_of(part)[0]) for part in seen]
                folds = [(*fold, see) for fold, see in zip(folds, views, strict=True)]
            ending: dict[str, Any] = {"key": key, "max_steps": max_steps, "termination": termination, "throw": False}
            paths: list[Path] | None = None
            results: dict[str, Any] | None = None
            if rule is None:
                starts = padding.starts(self._last(len(models), X.shape[1]), len(models))
                solutions = selected = [
                    solve_from(model, threshold, solver, start, **ending)
                    for model, start in zip(models, starts, strict=True)
                ]
            else:

                def own_samples(path: Path) -> Path:  # the models' weights are scaled, and their columns may be padded
                    return dataclasses.replace(path, n_units=units, total_weight=total)

                # One program for whatever k is chosen, where room for more costs less than a second one.
                shared = padding.active and not padding.large
                choice: Any = choose(
                    models,
                    replace(threshold, k_max=levels.k_max) if shared else threshold,
                    levels.padded,
                    None if folds is None else padding.l2s(l2s if l2 is None else l2[None]),
                    scoring=scoring,
                    rule=rule,
                    refit=None if l2 is None else refit,  # an l2 that the user gives is that of the model
                    folds=folds,
                    solver=solver,
                    samples=own_samples,
                    **ending,
                )
                k, solutions, selected, refit = choice.k, choice.solution, choice.selected, choice.refit
                paths = [own_samples(padding.path(levels.cut_path(path))) for path in choice.path]
                if folds is not None:
                    results = levels.table(choice.scores) | {"l2s": paths[0].l2s, "rule": rule}
                    results["row"] = results[BY_FOLDS[rule]]
                    models = [model.reweighted(l2=choice.l2) for model in models]
            solutions, selected = (
                [padding.solution(on_host(model, each)) for model, each in zip(models, fits, strict=True)]
                for fits in (solutions, selected)
            )
            self.l2_ = padding.user_l2(np.asarray(models[0].l2))[()]
            self.refit_l2_ = refit * self.l2_
        template = replace(template, k=np.int32(k))
        self.k_, self.cv_results_ = int(k), results
        self._certificates = None
        self._evidence = Evidence(
            padding, [(model, template, each) for model, each in zip(models, selected, strict=True)]
        )
        return self._set_attributes(template, paths, solutions)

    def _last(self, m: int, p: int) -> tuple[Float[np.ndarray, "m p"], Float[np.ndarray, "m"]] | None:
        """The coefficients and intercepts of the last fit to start m models from; None: from zero."""
        if not (getattr(self, "warm_start", False) and hasattr(self, "coef_")):  # SparseCox has none
            return None
        coef, intercept = np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)
        usable = coef.shape == (m, p) and np.isfinite(coef).all() and np.isfinite(intercept).all()
        return (coef, intercept) if usable else None

    def _models(self, X: Any, targets: list[np.ndarray], loss: AbstractLoss | None, **options: Any) -> list[Any]:
        """The objectives of the rows, one for every target."""
        first = LinearModel(X, targets[0], loss, fit_intercept=self.fit_intercept, **options)
        return [first, *(replace(first, y=jnp.asarray(target, first.dtype)) for target in targets[1:])]

    def _fit_shared(
        self,
        X: Any,
        Y: np.ndarray,
        loss: AbstractLoss | AbstractVectorLoss,
        weights: Float[np.ndarray, "n"],
        *,
        offset: Float[np.ndarray, "n t"] | None = None,
        groups: ArrayLike | None,
        scoring: Scoring | None,
    ) -> list[RESULTS]:
        """The same for k features that all responses, or all classes of a softmax, share."""
        plan = parameters.make_plan(self.k, self.l2, self.rule)
        seed, counted = parameters.make_seed(self.random_state), weights > 0
        folds = None
        if plan.by_folds:
            folds = selection.make_folds(self.cv, Y, counted, loss.classification, seed, groups)
            if folds is None:
                raise ValueError("k: cross-validation needs two samples (of every class); pass an integer.")
        X, Y, weights = X[counted], Y[counted], weights[counted]
        offset = None if offset is None else offset[counted]
        with jax.enable_x64(X.dtype == np.float64):
            fit = fit_shared(self, X, Y, loss, weights, offset, plan, folds, scoring, seed)
        solution: Any = fit.solution
        self.coef_, self.intercept_ = solution.x.T, solution.intercept
        self.support_ = np.zeros(X.shape[1], bool)
        self.support_[parameters.features_of(fit.structure, solution.support)] = True
        self.k_, self.l2_, self.refit_l2_, self.cv_results_ = fit.k, fit.l2, fit.refit_l2, fit.results
        self.path_, self._certificates = fit.path, None
        self._evidence = fit.evidence
        self.n_iter_ = int(solution.num_steps)
        result = RESULTS(int(solution.result))
        rows = self.n_iter_ - (result is RESULTS.nonfinite)
        self.history_ = {name: column[:rows] for name, column in solution.history._asdict().items()}
        self.objective_value_, self.result_ = float(solution.value), result.name
        self.fired_ = FIRED(int(solution.fired)).sentence
        return [result]

    def _set_attributes(self, threshold: Any, paths: list[Path] | None, solutions: list[Solution]) -> list[RESULTS]:
        results = [RESULTS(int(each.result)) for each in solutions]
        self.support_ = np.zeros(solutions[0].x.size, bool)
        for each in solutions:
            self.support_[parameters.features_of(threshold, each.support)] = True
        self.coef_ = np.stack([each.x for each in solutions])
        self.intercept_ = np.array([each.intercept for each in solutions])
        self.n_iter_ = max(int(each.num_steps) for each in solutions)
        histories = []
        for each, result in zip(solutions, results, strict=True):
            rows = int(each.num_steps) - (result is RESULTS.nonfinite)  # a nonfinite step is not taken
            histories.append({name: column[:rows] for name, column in each.history._asdict().items()})
        self.history_ = self._one_or_all(histories)
        self.objective_value_ = self._one_or_all([float(each.value) for each in solutions])
        self.result_ = self._one_or_all([result.name for result in results])
        self.fired_ = self._one_or_all([FIRED(int(each.fired)).sentence for each in solutions])
        self.path_ = None if paths is None else self._one_or_all(paths)
        return results

    @staticmethod
    def _one_or_all(items: list[Any]) -> Any:
        return items[0] if len(items) == 1 else items

    @property
    def certificate_(self) -> Certificate | list[Certificate] | None:
        """The `Certificate` of the features chosen at l2_ (a list for several classes), computed at first access.

        It is computed from the training data, as `swaps_`, `exchangeable_` and `prove` are. So the estimator keeps them
        for as long as it lives: X once more, in its dtype (a sparse matrix twice, by row and by column) and up to an
        eighth longer each way, beside targets and weights. Copies, pickles and saved files leave them out: there
        `certificate_` is what was read before, else None, the other two are None, and `prove` raises. `copy.copy` gives
        an estimator that predicts, without the data.
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
                x, intercept = _rounded(model, proof.x, proof.intercept)
                better = {"x": x, "intercept": intercept, "support": proof.support, "value": np.array(proof.upper)}
                fits[i] = model, threshold, solution._replace(**better)
                self._take(i, bare, [fit[-1].support for fit in fits])
                self._evidence, self._certificates = Evidence(padding, fits), None
        return self._one_or_all(proofs)

    def _take(self, i: int, model: LinearModel, supports: list[Support]) -> None:
        """Fit the model of one target under `refit_l2_` on other features than those that were chosen."""
        ratio = np.divide(self.refit_l2_, self.l2_, out=np.ones(np.shape(self.l2_)), where=np.asarray(self.l2_) > 0)
        chosen = [np.asarray(support.idx)[np.asarray(support.mask)] for support in supports]
        with jax.enable_x64(True):
            value, x, intercept = fit_on(replace(model, l2=np.asarray(model.l2, float) * ratio), chosen[i])
        coef, intercepts = np.atleast_2d(self.coef_).copy(), np.atleast_1d(self.intercept_).copy()
        coef[i], intercepts[i] = _rounded(model, x, intercept)
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

        For plain sparsity (`keep` counted as chosen) and a smooth loss. It is computed from the training data at every
        access: None in copies, pickles and files.
        """
        return self._exchanged(best_swaps)

    @property
    def exchangeable_(self) -> dict[Any, list[tuple[Any, float]]] | list[Any] | None:
        """For each chosen feature the substitutes that cost less than the noise of the choice.

        {feature: [(substitute, rise of the objective at l2_), ...]}, by name where there are names; 20 substitutes at
        most (4 for losses other than the squared one). The noise is the standard error over the folds of the difference
        in held-out loss between the chosen row and that of the next smaller k at the same l2: the folds could not tell
        such a substitute from the feature. None without k="cv", and where `swaps_` is.
        """
        check_is_fitted(self)
        noise = None if self.cv_results_ is None else selection.noise_of_choice(self.cv_results_)
        if noise is None:
            return None
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))

        def near(model: LinearModel, solution: Solution) -> dict[Any, list[tuple[Any, float]]]:
            found = near_exchanges(model, solution, noise)
            return {names[i]: [(names[j], rise) for j, rise in others] for i, others in found.items()}

        return self._exchanged(near)

    def _exchanged(self, function: Callable[[LinearModel, Solution], Any]) -> Any:
        """What a function says of the exchanges of each target's features; None where there are none."""
        check_is_fitted(self)
        if self._evidence is None:
            return None
        padding, fits = self._evidence
        found: list[Any] = []
        for model, threshold, solution in fits:
            plain = isinstance(threshold, Sparsity) and threshold.structure == "entries"
            some = 0 < np.count_nonzero(solution.support.mask) < padding.p
            loss = getattr(model, "loss", None)
            exchanged = plain and some and (loss is None or loss.twice_differentiable)
            found.append(function(padding.model(model), solution) if exchanged else None)
        return self._one_or_all(found)

    def _warn(self, sentence: str, category: type[Warning] = ConvergenceWarning) -> None:
        warn(f"{type(self).__name__}: {sentence}", category)

    def _warn_results(self, results: list[RESULTS]) -> None:
        for result in dict.fromkeys(results):
            if result is not RESULTS.converged:
                self._warn(result.sentence.replace("max_steps", "max_iter"))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # --- fitted ------------------------------------------------------------------------------------------------------
    def _predictor(self, X: ArrayLike, offset: ArrayLike | None = None) -> Float[np.ndarray, "n *targets"]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], accept_sparse="csr", reset=False)
        known = check_offset(offset, X, 1 if self.coef_.ndim == 1 else len(self.coef_))
        return linear(X, self.coef_, self.intercept_, known)

    def _get_support_mask(self) -> Bool[np.ndarray, "p"]:
        check_is_fitted(self)
        return self.support_
