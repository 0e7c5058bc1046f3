"""HOW."""

from .base import AbstractSolver as AbstractSolver
from .best_subset import BestSubset as BestSubset
from .foba import FoBa as FoBa
from .forward import ForwardSelection as ForwardSelection
from .htp import HTP as HTP
from .hybrid import HybridHT as HybridHT
from .iht import IHT as IHT
from .pursuit import GraSP as GraSP
from .pursuit import SubspacePursuit as SubspacePursuit
from .stochastic import SAGAHT as SAGAHT
from .stochastic import SVRGHT as SVRGHT
from .stochastic import StochasticHT as StochasticHT
