"""The list of experiments: one row each."""

from collections.abc import Callable
from typing import Any, NamedTuple

from . import diht, diht_text, diom, grahtp, grahtp_rates, grahtp_real, graphs, hsg, theorems, tight, tight_svrg
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
    "grahtp-fig1": Experiment(grahtp_rates.fig1, "GraHTP", "contraction factors, and the bounds that they are in"),
    "grahtp-fig2": Experiment(grahtp.fig2, "GraHTP", "support recovery, sparse linear regression"),
    "grahtp-fig3": Experiment(grahtp.fig3, "GraHTP", "support recovery, sparse logistic regression"),
    "grahtp-fig4": Experiment(grahtp_real.fig4, "GraHTP", "objective, test error and time on real data"),
    "grahtp-fig5": Experiment(
        grahtp_real.fig5, "GraHTP", "hard thresholding against L1 at equal sparsity on real data"
    ),
    "grahtp-fig6": Experiment(graphs.fig6, "GraHTP", "sparse precision matrices, simulated"),
    "grahtp-table4": Experiment(graphs.table4, "GraHTP", "discriminant analysis with sparse precision matrices"),
    "grahtp-theorems": Experiment(theorems.grahtp, "GraHTP", "theorems on instances in their conditions"),
    "tight-fig1": Experiment(tight.fig1, "Tight", "phase transition of compressed sensing"),
    "tight-fig2": Experiment(tight.fig2, "Tight", "success of HT-SVRG against measurements and sparsity"),
    "tight-fig3": Experiment(tight.fig3, "Tight", "measurements needed for 95% and 99% success"),
    "tight-fig4": Experiment(tight_svrg.fig4, "Tight", "HT-SVRG under other k, m and step sizes"),
    "tight-fig5": Experiment(tight_svrg.fig5, "Tight", "HT-SVRG with very small steps"),
    "tight-fig7-8": Experiment(tight_svrg.fig78, "Tight", "sparse logistic regression of MNIST pairs"),
    "tight-theorems": Experiment(theorems.tight, "Tight", "theorems on instances in their conditions"),
    "hsg-fig1": Experiment(hsg.fig1, "HSG", "a single pass over the data, sparse logistic regression"),
    "hsg-fig2": Experiment(hsg.fig2, "HSG", "several passes, sparse softmax and rank-constrained regression"),
    "hsg-theorems": Experiment(theorems.hsg, "HSG", "theorems on instances in their conditions"),
    "diht-fig1": Experiment(diht.fig1, "DIHT", "optimal gap against the ridge"),
    "diht-fig2": Experiment(diht.fig2, "DIHT", "optimal gap against the noise"),
    "diht-fig3": Experiment(diht.fig3, "DIHT", "optimal gap against the condition number"),
    "diht-fig4": Experiment(diht.fig4, "DIHT", "dual against primal methods on correlated designs"),
    "diht-fig5-7": Experiment(diht_text.smoothed, "DIHT", "loss, test error and gap on text, smoothed hinge"),
    "diht-fig8-10": Experiment(diht_text.plain, "DIHT", "loss, test error and gap on text, hinge"),
    "diht-theorems": Experiment(theorems.diht, "DIHT", "theorems on instances in their conditions"),
    "diom-fig1": Experiment(diom.fig1, "DIOM", "L0 + L1 + L2 methods on simulated data"),
    "diom-fig2": Experiment(diom.fig2, "DIOM", "L0 + L1 + L2 methods on text"),
    "diom-theorems": Experiment(theorems.diom, "DIOM", "theorems on instances in their conditions"),
}
