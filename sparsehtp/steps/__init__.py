"""Step sizes."""

from .base import AbstractStep as AbstractStep
from .base import At as At
from .constant import ConstantStep as ConstantStep
from .constant import ScheduleStep as ScheduleStep
from .constant import inverse_sqrt as inverse_sqrt
from .sample import SampleStep as SampleStep
from .search import BacktrackingStep as BacktrackingStep
from .search import NormalisedStep as NormalisedStep
