"""Settings of the commands; no heavy imports."""

from dataclasses import dataclass
from typing import Literal

LossName = Literal[
    "squared",
    "huber",
    "quantile",
    "poisson",
    "negative-binomial",
    "gamma",
    "tweedie",
    "logistic",
    "smoothed-hinge",
    "squared-hinge",
    "hinge",
]
SolverName = Literal["auto", "best-subset", "forward", "foba", "htp", "iht", "grasp", "subspace-pursuit"]
CriterionName = Literal["ebic", "bic", "aic", "sic", "gic"]
GraphSolverName = Literal["auto", "htp", "iht", "grasp", "forward", "foba"]
RuleName = Literal["strong-ridge", "one-se", "best"]
MissingName = Literal["drop-rows", "drop-columns", "mean", "median"]
DecimalName = Literal["point", "comma"]
ThousandsName = Literal["point", "comma", "space", "apostrophe"]
Precision = Literal["float64", "float32"]
LOSS: LossName = "squared"


@dataclass(frozen=True)
class Problem:
    """What `fit` and `path` have in common: how the data enter the problem.

    loss_parameter is delta, level, dispersion, power, gamma or margin_scale of the loss; None: its default. `levels`
    are the classes of an ordinal model, in their order.
    """

    loss: LossName | Literal["cox", "ordinal"] = LOSS
    solver: SolverName = "auto"
    standardize: bool = True
    intercept: bool = True
    seed: int = 0
    dtype: Precision = "float64"
    loss_parameter: float | None = None
    levels: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableOptions:
    """What is made of the columns of a table; missing None: missing values are an error.

    offset is a column of known parts of the linear predictor, exposure one of which the logarithm is. With the column
    `event` the target is the time until the event, or until the row was last seen. The signs in numbers are found out
    where they are None.
    """

    drop: tuple[str, ...] = ()
    missing: MissingName | None = None
    dummies: bool = False
    id: str | None = None
    offset: str | None = None
    exposure: str | None = None
    event: str | None = None
    decimal: DecimalName | None = None
    thousands: ThousandsName | None = None


@dataclass(frozen=True)
class Options:
    """What `sparsehtp fit` can set, apart from files; k is a number, "cv" or a criterion, l2 None is the default.

    0 seconds to prove: no proof.
    """

    problem: Problem = Problem()
    k: str = "cv"
    l2: float | None = None
    cv: int = 5
    rule: RuleName = "strong-ridge"
    test_size: float = 0.0
    max_steps: int | None = None
    prove: float = 0.0


@dataclass(frozen=True)
class GraphOptions:
    """What `sparsehtp precision` can set, apart from files; k is a number, "cv" or a criterion.

    Shrinkage None: by the rule. 0 resamples: none.
    """

    k: str = "cv"
    solver: GraphSolverName = "auto"
    standardize: bool = True
    shrinkage: float | None = None
    cv: int = 5
    stability: int = 0
    seed: int = 0
    dtype: Precision = "float64"


@dataclass(frozen=True)
class PathOptions:
    """What `sparsehtp path` can set, apart from files; 0 folds, resamples or seconds to prove: none."""

    problem: Problem = Problem()
    k_max: int | None = None
    l2: tuple[float, ...] = (1e-4,)
    criterion: CriterionName = "ebic"
    cv: int = 0
    stability: int = 0
    prove: float = 0.0


@dataclass(frozen=True)
class LowRankOptions:
    """What `sparsehtp lowrank` can set, apart from files; rank is a number, "cv" or a criterion."""

    rank: str = "cv"
    l2: float = 1e-6
    cv: int = 5
    one_se: bool = True
    standardize: bool = True
    intercept: bool = True
    seed: int = 0
    dtype: Precision = "float64"
    decimal: DecimalName | None = None
    thousands: ThousandsName | None = None
