"""Derivatives of a solution: implicit ones of a support and of a low-rank factorisation, and the support's margin.

Each module that is named here registers its equations with `implicit.equations`.
"""

from .implicit import drive_implicit as drive_implicit
from .margin import support_margin as support_margin
from .rank import RankEquations as RankEquations
