"""Figures; they need `pip install sparsehtp[plot]`."""

from .fit import plot_fit as plot_fit
from .style import new_figure as new_figure
from .style import solver_colour as solver_colour
