"""Sparsity- and rank-constrained learning by hard thresholding, on JAX."""

from ._record import Record as Record
from ._results import FIRED as FIRED
from ._results import RESULTS as RESULTS
from ._results import Solution as Solution
from ._results import SolveError as SolveError
from ._solve import solve as solve
from ._termination import Cycle as Cycle
from ._termination import DualGap as DualGap
from ._termination import SmallGradient as SmallGradient
from ._termination import SmallStep as SmallStep
from ._termination import StableSupport as StableSupport
from ._termination import SwapOptimal as SwapOptimal
from ._types import Info as Info
from ._types import Support as Support
from .designs import DenseDesign as DenseDesign
from .estimators import SparseClassifier as SparseClassifier
from .estimators import SparseRegressor as SparseRegressor
from .linalg import largest_eigenvalue as largest_eigenvalue
from .linalg import sparse_eigenvalue as sparse_eigenvalue
from .losses import Hinge as Hinge
from .losses import Huber as Huber
from .losses import Logistic as Logistic
from .losses import Poisson as Poisson
from .losses import SmoothedHinge as SmoothedHinge
from .losses import Squared as Squared
from .objectives import LinearModel as LinearModel
from .objectives import QuadraticForm as QuadraticForm
from .solvers import HTP as HTP
from .solvers import IHT as IHT
from .solvers import BestSubset as BestSubset
from .solvers import GraSP as GraSP
from .solvers import SubspacePursuit as SubspacePursuit
from .steps import BacktrackingStep as BacktrackingStep
from .steps import ConstantStep as ConstantStep
from .steps import NormalisedStep as NormalisedStep
from .steps import ScheduleStep as ScheduleStep
from .thresholds import GroupSparsity as GroupSparsity
from .thresholds import NonNegativeSparsity as NonNegativeSparsity
from .thresholds import Sparsity as Sparsity
from .thresholds import hard_threshold_bound as hard_threshold_bound

__version__ = "0.1.0"
