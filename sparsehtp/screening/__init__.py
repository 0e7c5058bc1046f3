"""Safe rules: which features are zero, or nonzero, in every optimum."""

from .bounds import Bounds as Bounds
from .bounds import lower_bound as lower_bound
from .rules import gap_sphere as gap_sphere
from .rules import screen as screen
