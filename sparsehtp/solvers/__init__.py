"""HOW."""

from .base import AbstractSolver as AbstractSolver
from .htp import HTP as HTP
from .iht import IHT as IHT
from .pursuit import GraSP as GraSP
from .pursuit import SubspacePursuit as SubspacePursuit
