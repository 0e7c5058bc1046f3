"""Stopping criteria: when a run ends."""

from .iteration.termination import AbstractTermination as AbstractTermination
from .iteration.termination import Complete as Complete
from .iteration.termination import Cycle as Cycle
from .iteration.termination import DualGap as DualGap
from .iteration.termination import Never as Never
from .iteration.termination import SmallGradient as SmallGradient
from .iteration.termination import SmallStep as SmallStep
from .iteration.termination import StableSupport as StableSupport
from .iteration.termination import SwapOptimal as SwapOptimal
