"""Settings of a fit, shared by the commands; no heavy imports."""

from dataclasses import dataclass
from typing import Literal

LossName = Literal["squared", "huber", "logistic", "hinge", "smoothed-hinge", "poisson"]
SolverName = Literal["htp", "iht", "grasp", "subspace-pursuit"]
Precision = Literal["float64", "float32"]


@dataclass(frozen=True)
class Options:
    """What `sparsehtp fit` can set, apart from files."""

    k: int = 10
    loss: LossName = "squared"
    solver: SolverName = "htp"
    l2: float = 1e-4
    standardize: bool = True
    intercept: bool = True
    test_size: float = 0.0
    seed: int = 0
    max_steps: int | None = None
    dtype: Precision = "float64"
