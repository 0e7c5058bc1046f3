"""Sufficient statistics of least squares, from rows that are read once."""

from .passes import too_wide as too_wide
from .sufficient import SufficientStatistics as SufficientStatistics
