"""Duality: dual values and links, the convex form of the dual."""

from .dual import Dual as Dual
from .dual import DualPoint as DualPoint
from .dual import Fixed as Fixed
from .dual import dual_of as dual_of
from .dual import no_dual as no_dual
from .dual import require_dual as require_dual
from .relaxation import Relaxed as Relaxed
from .relaxation import relax as relax
