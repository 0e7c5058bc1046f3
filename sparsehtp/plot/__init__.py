"""Figures; they need matplotlib, that of a graph networkx (the extra `plot`)."""

from ..certificates.exchanges import Swaps as Swaps
from ..certificates.exchanges import best_swaps as best_swaps
from .cv import plot_cv as plot_cv
from .cv import plot_shares as plot_shares
from .fit import plot_coefficients as plot_coefficients
from .fit import plot_history as plot_history
from .fit import plot_predictions as plot_predictions
from .graph import as_graph as as_graph
from .graph import plot_graph as plot_graph
from .graph import plot_precision as plot_precision
from .matrices import plot_components as plot_components
from .matrices import plot_parts as plot_parts
from .path import plot_path as plot_path
from .proof import plot_collected as plot_collected
from .proof import plot_proof as plot_proof
from .ranks import plot_ranks as plot_ranks
from .stability import plot_stability as plot_stability
from .style import new_figure as new_figure
from .survival import plot_survival as plot_survival
from .swaps import plot_swap_gains as plot_swap_gains
