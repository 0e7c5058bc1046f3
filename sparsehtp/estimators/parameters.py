"""The parameters that the estimators share, as parts of a solve; errors name the parameter."""

import numbers
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from sklearn.utils import check_random_state

from .. import losses, solvers
from .._types import Support
from ..grids.choose import BY_FOLDS, checked_rule
from ..grids.criteria import NAMES, Rule
from ..iteration.termination import AbstractTermination, Cycle, SmallGradient, SmallStep
from ..losses import AbstractLoss, AbstractVectorLoss
from ..solvers import IHT, AbstractSolver
from ..thresholds import L0L1L2, AbstractThreshold, GroupSparsity, RowSparsity, Sparsity
from ..thresholds.bounded import check_bounds

LOSSES: dict[str, Any] = {
    "squared": losses.Squared,
    "huber": losses.Huber,
    "quantile": losses.Quantile,
    "poisson": losses.Poisson,
    "negative_binomial": losses.NegativeBinomial,
    "gamma": losses.Gamma,
    "tweedie": losses.Tweedie,
    "logistic": losses.Logistic,
    "smoothed_hinge": losses.SmoothedHinge,
    "squared_hinge": losses.SquaredHinge,
    "hinge": losses.Hinge,
}
OF_NUMBERS = tuple(name for name, loss in LOSSES.items() if not loss.classification)
OF_LABELS = tuple(name for name, loss in LOSSES.items() if loss.classification)
SOLVERS: dict[str, type[AbstractSolver]] = {
    "best_subset": solvers.BestSubset,
    "forward": solvers.ForwardSelection,
    "foba": solvers.FoBa,
    "htp": solvers.HTP,
    "iht": solvers.IHT,
    "grasp": solvers.GraSP,
    "subspace_pursuit": solvers.SubspacePursuit,
}


def checked_count(name: str, value: Any, least: int) -> int:
    """`value` as an int, or ValueError unless it is a whole number of at least `least`."""
    whole = isinstance(value, numbers.Real) and value == value // 1
    if isinstance(value, (bool, np.bool_)) or not whole or value < least:
        raise ValueError(f"{name}: must be an integer >= {least}, got {value!r}.")
    return int(value)


def checked_tolerance(tol: Any) -> float:
    """`tol` as a float, or ValueError unless it is a positive number."""
    if isinstance(tol, bool) or not isinstance(tol, numbers.Real) or not 0 < float(tol) < np.inf:
        raise ValueError(f"tol: needs a positive number, got {tol!r}.")
    return float(tol)


class PriceGrid(NamedTuple):
    """Prices of features and of magnitude.

    Attributes:
        l0s: candidates, one where l0 is given; None: those of a path.
        l1s: candidates.
    """

    l0s: Float[np.ndarray, "candidates"] | None
    l1s: Float[np.ndarray, "candidates"]

    @property
    def given(self) -> bool:
        """True if there is nothing to choose."""
        return self.l0s is not None and self.l0s.size == self.l1s.size == 1


class Plan(NamedTuple):
    """How to fit: k and l2, or what they are chosen from and by which rule, and how each model is solved.

    Attributes:
        k: the number of units; None where it is chosen.
        rule: of the choice, by folds or a criterion; None where there is nothing to choose.
        ks: candidates; None for the default ones.
        l2: the ridge strength, () or (p,), where folds do not choose.
        l2s: candidates, (candidates,) or (1, p).
        listed: the candidates are the user's own, which a criterion compares too.
        refit: the part of l2 of the coefficients; None: that of the rule.
        solver, max_steps, termination: of a solve; None: the default.
        seed: of the solver.
        weighted_by: the argument that weights come from.
        prices: those that stand in place of k; None: none do.
    """

    k: int | None
    rule: Rule | None
    ks: Int[np.ndarray, "candidates"] | None
    l2: np.ndarray
    l2s: np.ndarray
    listed: bool
    refit: float | None
    solver: AbstractSolver | None
    max_steps: int | None
    termination: AbstractTermination | None
    seed: int
    weighted_by: str
    prices: PriceGrid | None

    @property
    def by_folds(self) -> bool:
        """True if held-out scores decide."""
        return self.rule in BY_FOLDS

    @property
    def sizes(self) -> dict[str, Any]:
        """The fields of a threshold that say how many units are taken, as far as they are given."""
        if self.prices is None:
            return {"k": np.int32(self.k or 0)}
        return {"l0": 0.0 if self.prices.l0s is None else float(self.prices.l0s[0]), "l1": float(self.prices.l1s[0])}

    @property
    def searches_l2(self) -> bool:
        """True if l2 is chosen from its candidates."""
        return self.by_folds or self.listed


def make_plan(estimator: Any, loss: AbstractLoss | AbstractVectorLoss | None) -> Plan:
    """The plan of an estimator's parameters."""
    prices = _make_prices(estimator)
    k, rule, ks = _make_choice(estimator.k, checked_rule(estimator.rule))
    if prices is not None and prices.given:
        rule = None
    l2, l2s, refit = np.asarray(estimator._default_l2), np.asarray(estimator._l2_grid), None
    if prices is not None:  # nothing is fitted again, so that a stronger ridge would shrink the model
        l2s = l2[None]
    if listed := isinstance(estimator.l2, list | tuple):
        l2s = _candidates("l2", estimator.l2)
        if rule is None:
            k, rule, ks = None, checked_rule(estimator.rule), None if prices else np.array([k])
    elif (given := make_l2(estimator.l2)) is not None:
        l2, l2s, refit = given, given[None], 1.0  # an l2 that the user gives is that of the model
    solver = make_solver(estimator.solver)
    return Plan(
        k,
        rule,
        ks,
        l2,
        l2s,
        listed,
        refit,
        solver,
        make_limit(estimator.max_iter),
        make_termination(estimator.tol, loss, solver),
        make_seed(estimator.random_state),
        "sample_weight" if getattr(estimator, "class_weight", None) is None else "class_weight",
        prices,
    )


def _make_prices(estimator: Any) -> PriceGrid | None:
    l0, l1 = getattr(estimator, "l0", None), getattr(estimator, "l1", 0.0)
    if l0 is None:
        if np.any(np.asarray(l1) != 0):
            raise ValueError("l1: stands beside a price l0; pass l0='cv', or a number.")
        return None
    if not isinstance(estimator.k, str) or estimator.k != "cv":
        raise ValueError("k: a price l0 stands in its place; leave k out.")
    if estimator.groups is not None:
        raise ValueError("groups: features are paid for one by one; pass k in place of l0.")
    paths = isinstance(l0, str) and l0 == "cv"
    return PriceGrid(None if paths else _candidates("l0", l0), _candidates("l1", l1))


def _make_choice(k: Any, rule: Rule) -> tuple[int | None, Rule | None, np.ndarray | None]:
    """A given k; or the rule that chooses it, and its candidates."""
    if callable(k):
        return None, k, None
    if isinstance(k, str):
        if k not in ("cv", *NAMES):
            raise ValueError(
                f"k: needs an integer >= 0, 'cv', or one of {', '.join(NAMES)} (in Python also candidates, such as "
                f"range(10)), got {k!r}."
            )
        return None, rule if k == "cv" else k, None
    if isinstance(k, Iterable) and not (isinstance(k, np.ndarray) and k.ndim == 0):
        ks = np.unique([checked_count("k", each, 0) for each in k])
        if not ks.size:
            raise ValueError("k: there are no candidates; pass at least one.")
        return None, rule, ks
    return checked_count("k", k, 0), None, None


def _candidates(name: str, values: Any) -> Float[np.ndarray, "candidates"]:
    array = np.asarray(values) if name == "l2" else np.atleast_1d(values)
    numbers_only = array.ndim == 1 and array.size and array.dtype.kind in "fiu"
    if not numbers_only or not (np.isfinite(array) & (array >= 0)).all():
        if name == "l2":
            raise ValueError(f"l2: a list holds candidates >= 0, and an array values by feature; got {values!r}.")
        raise ValueError(f"{name}: needs a number >= 0 or a list of them, got {values!r}.")
    return array.astype(float)


def make_loss(loss: str | AbstractLoss, classification: bool) -> AbstractLoss:
    """The loss of a name or instance."""
    names = OF_LABELS if classification else OF_NUMBERS
    if isinstance(loss, str) and loss in names:
        return LOSSES[loss]()
    if not isinstance(loss, AbstractLoss) or loss.classification != classification:
        raise ValueError(f"loss: needs one of {', '.join(names)}, or such a loss instance, got {loss!r}.")
    return loss


def make_solver(
    solver: str | AbstractSolver, known: Mapping[str, type[AbstractSolver]] = SOLVERS
) -> AbstractSolver | None:
    """The solver of a name or instance; None for "auto"."""
    if isinstance(solver, AbstractSolver):
        return solver
    if not isinstance(solver, str) or solver not in ("auto", *known):
        raise ValueError(f"solver: needs one of {', '.join(('auto', *known))}, or a solver instance, got {solver!r}.")
    return None if solver == "auto" else known[solver]()


def pads(solver: AbstractSolver | None) -> bool:
    """True if rows and columns may be added: others may draw samples, which would be others then."""
    return solver is None or type(solver) in SOLVERS.values()


def make_termination(
    tol: float | None, loss: AbstractLoss | AbstractVectorLoss | None, solver: AbstractSolver | None
) -> AbstractTermination | None:
    """Stopping criteria for a tolerance; None: the solver's own."""
    if tol is None:
        return None
    tol = checked_tolerance(tol)
    if isinstance(solver, IHT) or (loss is not None and not loss.twice_differentiable):
        return (SmallStep(tol) & SmallGradient(tol)) | Cycle()
    return None  # the others are exact on their support


def make_limit(max_iter: Any) -> int | None:
    """A step limit; None: the solver's."""
    return None if max_iter is None else checked_count("max_iter", max_iter, 1)


def make_l2(l2: Any) -> np.ndarray | None:
    """l2 as an array; None for "auto"."""
    if isinstance(l2, str) and l2 == "auto":
        return None
    array = np.asarray(l2)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"l2: needs 'auto' or a number >= 0, got {l2!r}.")
    return array


def make_seed(random_state: Any) -> int:
    """A seed for solvers, always the same for None."""
    try:
        return int(check_random_state(0 if random_state is None else random_state).randint(2**31 - 1))
    except ValueError:
        raise ValueError(f"random_state: needs None, a seed or a RandomState, got {random_state!r}.") from None


def make_threshold(estimator: Any, p: int, names: Any, *, rows: bool, priced: bool) -> Any:
    """The structure, with k = 0 or, `priced`, a price of zero; of rows where features have several coefficients."""
    keep, groups, bounds = _keep(estimator.keep, p, list(names)), estimator.groups, estimator.bounds
    if estimator.positive and bounds is not None:
        raise ValueError("positive: cannot be combined with bounds; use bounds=(0, upper).")
    bounds = (0.0, None) if estimator.positive else (None, None) if bounds is None else bounds
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise ValueError(f"bounds: needs a pair (lower, upper), got {bounds!r}.")
    lower, upper = check_bounds(*bounds)  # with zero: columns that pad the data stay out
    box: dict[str, Any] = {"lower": lower, "upper": upper}
    if groups is not None:
        groups = np.asarray(groups)
        if groups.shape != (p,):
            raise ValueError(f"groups: needs one label per feature ({p}), got shape {groups.shape}.")
        if keep is not None:  # a kept feature keeps its group
            keep = np.unique(np.unique(groups, return_inverse=True)[1][keep])
        return GroupSparsity(groups, 0, keep=keep, **box)
    if priced and rows:
        raise ValueError("l0: features are paid for in models of one response; pass k.")
    return L0L1L2(0.0, keep=keep, **box) if priced else (RowSparsity if rows else Sparsity)(0, keep=keep, **box)


def unit_total(threshold: AbstractThreshold, p: int) -> int:
    """Number of units that a structure chooses from."""
    return len(threshold.table) if isinstance(threshold, GroupSparsity) else p


def features_of(threshold: AbstractThreshold, support: Support) -> Any:
    """The features of a support."""
    chosen = support.idx[support.mask]
    return threshold.table[chosen][threshold.filled[chosen]] if isinstance(threshold, GroupSparsity) else chosen


def _keep(keep: Any, p: int, names: list[str]) -> np.ndarray | None:
    if keep is None:
        return None
    chosen = np.atleast_1d(keep)
    if not chosen.size:
        return np.zeros(0, int)
    if chosen.dtype.kind in "UO":
        unknown = [str(name) for name in chosen if name not in names]
        if unknown:
            raise ValueError(f"keep: {', '.join(unknown)} is no column name of X; names need a data frame.")
        return np.array([names.index(name) for name in chosen])
    if chosen.dtype == bool:
        if chosen.shape != (p,):
            raise ValueError(f"keep: a boolean mask needs shape ({p},), got {chosen.shape}.")
        return np.flatnonzero(chosen)
    if chosen.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= p:
        raise ValueError(f"keep: needs feature indices in 0..{p - 1}, a mask or column names, got {keep!r}.")
    return chosen
