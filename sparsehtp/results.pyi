from ._keep_top_k import KeepTopKState as KeepTopKState
from ._stream import Streamed as Streamed
from ._types import Factors as Factors
from ._types import Info as Info
from ._types import Support as Support
from .certificates.certificate import Certificate as Certificate
from .certificates.prove import Collected as Collected
from .certificates.prove import Proof as Proof
from .grids.choose import Choice as Choice
from .grids.criteria import Criterion as Criterion
from .grids.cross_validation import CrossValidation as CrossValidation
from .grids.path import Path as Path
from .grids.stability import ErrorBound as ErrorBound
from .grids.stability import Stability as Stability
from .iteration.record import Record as Record
from .iteration.results import FIRED as FIRED
from .iteration.results import RESULTS as RESULTS
from .iteration.results import Solution as Solution
from .iteration.results import SolveError as SolveError
from .screening import Bounds as Bounds
from .solvers.reduced_rank import ReducedRank as ReducedRank
from .tuning.step_search import StepSearch as StepSearch
from .tuning.tune import Tuned as Tuned

__all__: list[str]
