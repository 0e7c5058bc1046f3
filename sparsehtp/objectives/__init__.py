"""Objectives: what is minimised."""

from .base import AbstractObjective as AbstractObjective
from .base import AbstractRefittable as AbstractRefittable
from .base import AbstractRestrictable as AbstractRestrictable
from .base import AbstractRestricted as AbstractRestricted
from .base import AbstractScored as AbstractScored
from .cox import CoxModel as CoxModel
from .custom import Custom as Custom
from .custom import CustomSum as CustomSum
from .finite_sum import AbstractFiniteSum as AbstractFiniteSum
from .finite_sum import AbstractSamples as AbstractSamples
from .linear_model import LinearModel as LinearModel
from .model import AbstractModel as AbstractModel
from .multi_response import MultiResponse as MultiResponse
from .normal_equations import GramEquations as GramEquations
from .ordinal import OrdinalModel as OrdinalModel
from .precision import Precision as Precision
from .quadratic_form import QuadraticForm as QuadraticForm
