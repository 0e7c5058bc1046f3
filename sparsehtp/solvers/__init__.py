"""Solvers: how a minimum is found."""

from .base import AbstractSolver as AbstractSolver
from .best_subset import BestSubset as BestSubset
from .cdss import CDSS as CDSS
from .dual_ascent import DIHT as DIHT
from .dual_ascent import SDIHT as SDIHT
from .foba import FoBa as FoBa
from .forward import ForwardSelection as ForwardSelection
from .htp import HTP as HTP
from .hybrid import HybridHT as HybridHT
from .iht import IHT as IHT
from .primal_dual import PrimalDual as PrimalDual
from .pursuit import GraSP as GraSP
from .pursuit import SubspacePursuit as SubspacePursuit
from .stochastic import SAGAHT as SAGAHT
from .stochastic import SVRGHT as SVRGHT
from .stochastic import StochasticHT as StochasticHT
