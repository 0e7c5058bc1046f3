"""The list of experiments: one row each."""

from collections.abc import Callable
from typing import Any, NamedTuple

from . import grahtp, graphs, tight
from .run import Run


class Experiment(NamedTuple):
    """A figure or table of a paper.

    Attributes:
        function: does the work in a `Run`, records the claims, and returns the figure.
        paper: short name of the paper.
        title: what the figure shows.
    """

    function: Callable[[Run], Any]
    paper: str
    title: str


EXPERIMENTS = {
    "grahtp-fig2": Experiment(grahtp.fig2, "GraHTP", "support recovery, sparse linear regression"),
    "grahtp-fig3": Experiment(grahtp.fig3, "GraHTP", "support recovery, sparse logistic regression"),
    "grahtp-fig4": Experiment(grahtp.fig4, "GraHTP", "objective, test error and time on real data"),
    "grahtp-fig5": Experiment(grahtp.fig5, "GraHTP", "hard thresholding against L1 at equal sparsity on real data"),
    "grahtp-fig6": Experiment(graphs.fig6, "GraHTP", "sparse precision matrices, simulated"),
    "grahtp-table4": Experiment(graphs.table4, "GraHTP", "discriminant analysis with sparse precision matrices"),
    "tight-fig1": Experiment(tight.fig1, "Tight", "phase transition of compressed sensing"),
    "tight-fig3": Experiment(tight.fig3, "Tight", "measurements needed for 95% and 99% success"),
}
