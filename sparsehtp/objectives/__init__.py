"""WHAT is minimised."""

from .base import AbstractObjective as AbstractObjective
from .base import AbstractRestrictable as AbstractRestrictable
from .base import AbstractRestricted as AbstractRestricted
from .base import gather as gather
from .base import scatter as scatter
from .linear_model import LinearModel as LinearModel
from .normal_equations import GramEquations as GramEquations
from .precision import Precision as Precision
from .quadratic_form import QuadraticForm as QuadraticForm
