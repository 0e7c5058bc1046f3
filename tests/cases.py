"""One list of instances per kind of part: a new public class belongs here (contracts/test_completeness.py)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.sparse import BCOO
from scipy import sparse

import sparsehtp as sht
from sparsehtp._programs import CPU_OPTIONS, PLAIN

# References are run once or twice: they are compiled as the library compiles what has little work.
jit = functools.partial(jax.jit, compiler_options=CPU_OPTIONS | PLAIN if jax.default_backend() == "cpu" else None)


def decreasing(t):
    """A step-size schedule that sums to infinity."""
    return 0.5 * (1.0 + t) ** -0.25


LOSSES = {
    "squared": sht.Squared(),
    "logistic": sht.Logistic(),
    "logistic_2": sht.Logistic(margin_scale=2.0),
    "hinge": sht.Hinge(),
    "smoothed_hinge": sht.SmoothedHinge(),
    "smoothed_hinge_wide": sht.SmoothedHinge(gamma=1.5),
    "huber": sht.Huber(),
    "huber_narrow": sht.Huber(delta=0.3),
    "poisson": sht.Poisson(),
    "gamma": sht.Gamma(),
    "tweedie": sht.Tweedie(),
    "tweedie_1": sht.Tweedie(power=1.0),
    "tweedie_2": sht.Tweedie(power=2.0),
    "negative_binomial": sht.NegativeBinomial(),
    "negative_binomial_narrow": sht.NegativeBinomial(dispersion=0.2),
    "squared_hinge": sht.SquaredHinge(),
    "quantile": sht.Quantile(),
    "quantile_upper": sht.Quantile(level=0.8, gamma=0.5),
}

# of several responses; contracts/test_multi_response.py
VECTOR_LOSSES = {"softmax": sht.Softmax(3)}

# name -> function of a NumPy matrix
DESIGNS = {
    "dense": sht.DenseDesign,
    "dense_fortran": lambda X: sht.DenseDesign(np.asfortranarray(X)),
    "dense_jax": lambda X: sht.DenseDesign(jnp.asarray(X)),
    "csr": lambda X: sht.SparseDesign(sparse.csr_array(X)),
    "csc": lambda X: sht.SparseDesign(sparse.csc_matrix(X)),
    "coo": lambda X: sht.SparseDesign(sparse.coo_array(X)),
    "bcoo": lambda X: sht.SparseDesign(BCOO.fromdense(jnp.asarray(X), nse=X.size + 3)),
}


def squares(x, X, y):
    """Mean squared error, for `Custom`."""
    return 0.5 * jnp.mean((X @ x - y) ** 2)


def square(x, sample):
    """A squared error, for `CustomSum`."""
    row, y = sample
    return 0.5 * (row @ x - y) ** 2


# name -> function of (X, y)
OBJECTIVES = {
    "linear_model": lambda X, y: sht.LinearModel(X, y, l2=0.1, fit_intercept=True),
    "quadratic_form": lambda X, y: sht.QuadraticForm.from_data(X, y, l2=0.1),
    "custom": lambda X, y: sht.Custom(squares, X, y),
    "custom_sum": lambda X, y: sht.CustomSum(square, (X, y)),
    "multi_response": lambda X, y: sht.MultiResponse(X, np.column_stack([y, -y]), l2=0.1, fit_intercept=True),
    "cox": lambda X, y: sht.CoxModel(X, y, y >= np.median(y), l2=0.1),
    "ordinal": lambda X, y: sht.OrdinalModel(X, np.digitize(y, np.quantile(y, [0.3, 0.7])), l2=0.1),
    "precision": lambda X, y: sht.Precision(np.eye(X.shape[1]), X.shape[0]),
}

# for six features
GROUPS = np.array([0, 1, 0, 2, 2, 0])
THRESHOLDS = {
    "sparsity": sht.Sparsity(2),
    "sparsity_keep": sht.Sparsity(2, keep=[4, 1]),
    "sparsity_box": sht.Sparsity(2, lower=-0.5, upper=[0.1, 0.2, 0.5, 1.0, 2.0, np.inf]),
    "nonnegative": sht.Sparsity(2, lower=0),
    "nonnegative_upper": sht.Sparsity(2, keep=[0], lower=0, upper=0.7),
    "simplex": sht.Simplex(2),
    "simplex_keep": sht.Simplex(2, total=3.0, keep=[4]),
    "group": sht.GroupSparsity(GROUPS, 2),
    "group_keep": sht.GroupSparsity(GROUPS, 1, keep=[2]),
    "group_box": sht.GroupSparsity(GROUPS, 2, lower=-0.5, upper=[0.1, 0.2, 0.5, 1.0, 2.0, np.inf]),
    "leaf": sht.LeafSparsity(2),  # needs a Custom; contracts/test_custom.py
    "group_within": sht.GroupSparsity(GROUPS, 2, within=2),
    "rank": sht.Rank(2),
    "rows": sht.RowSparsity(2),
    "rows_keep": sht.RowSparsity(2, keep=[1]),
    "rows_box": sht.RowSparsity(2, lower=[-1.0, -0.1, 0.0], upper=0.7),
    "off_diagonal": sht.OffDiagonal(2, keep=[(3, 1)]),
    "l0l1l2": sht.L0L1L2(0.1, 0.05),
    "l0l1l2_prices": sht.L0L1L2(0.1, 0.05, prices=[1, 2, 0, 0.5, 1, 1], keep=[4]),
    "l0l1l2_box": sht.L0L1L2(0.1, 0.05, lower=-0.5, upper=[0.1, 0.2, 0.5, 1.0, 2.0, np.inf]),
}


def bound_to(threshold):
    """A small objective that a threshold can be bound to; None: any of six features."""
    if isinstance(threshold, sht.Rank | sht.RowSparsity):
        return sht.MultiResponse(np.ones((2, 3)), np.ones((2, 2)), fit_intercept=True)
    if isinstance(threshold, sht.OffDiagonal):
        return sht.Precision(np.eye(4), 9)
    if isinstance(threshold, sht.LeafSparsity):
        return sht.Custom(lambda x: jnp.sum(x["a"]) + jnp.sum(x["b"]), like={"a": np.zeros(2), "b": np.zeros(4)})
    return None


STEPS = {
    "constant": sht.ConstantStep(),
    "constant_size": sht.ConstantStep(0.25),
    "normalised": sht.NormalisedStep(),
    "backtracking": sht.BacktrackingStep(),
    "schedule": sht.ScheduleStep(decreasing),
    "sample": sht.SampleStep(),
    "sample_batch": sht.SampleStep(0.5, batch_size=4),
}

TERMINATIONS = {
    "stable_support": sht.StableSupport(),
    "small_step": sht.SmallStep(1e-3),
    "small_gradient": sht.SmallGradient(1e-3),
    "dual_gap": sht.DualGap(1e-3),
    "cycle": sht.Cycle(),
    "never": sht.Never(),
}

SOLVERS = {
    "iht": sht.IHT(),
    "iht_constant": sht.IHT(sht.ConstantStep()),
    "iht_backtracking": sht.IHT(sht.BacktrackingStep()),
    "iht_schedule": sht.IHT(sht.ScheduleStep(decreasing)),
    "iht_heavy_ball": sht.IHT(sht.ConstantStep(), momentum=0.5),
    "iht_nesterov": sht.IHT(sht.ConstantStep(), momentum=0.5, nesterov=True),
    "htp": sht.HTP(),
    "htp_constant": sht.HTP(sht.ConstantStep(scale=0.5)),
    "htp_backtracking": sht.HTP(sht.BacktrackingStep()),
    "htp_newton": sht.HTP(newton_steps=3),
    "grasp": sht.GraSP(),
    "cosamp": sht.GraSP(debias=False),
    "subspace_pursuit": sht.SubspacePursuit(),
}


# Those with a state or an objective of their own; tested in contracts/test_best_subset.py.
SWAP_SOLVERS = {"best_subset": sht.BestSubset(), "best_subset_fast": sht.BestSubset("fast")}
SWAP_TERMINATIONS = {"swap_optimal": sht.SwapOptimal()}

# Those that grow a support from nothing: its size changes with every step, and x0 is unused; contracts/test_forward.py.
GREEDY_SOLVERS = {"forward": sht.ForwardSelection(), "omp": sht.ForwardSelection("omp"), "foba": sht.FoBa()}
GREEDY_TERMINATIONS = {"complete": sht.Complete()}

# Those that draw samples; tested in contracts/test_stochastic.py.
STOCHASTIC_SOLVERS = {
    "stochastic": sht.StochasticHT(),
    "stochastic_batch": sht.StochasticHT(batch_size=5, epoch=3, replacement=False),
    "svrg": sht.SVRGHT(inner_steps=40),
    "svrg_random": sht.SVRGHT(inner_steps=40, batch_size=3, random_iterate=True, radius=10.0),
    "saga": sht.SAGAHT(),
    "saga_batch": sht.SAGAHT(batch_size=4),
    "hybrid": sht.HybridHT(growth=1.2),
    "hybrid_momentum": sht.HybridHT(momentum=0.3, growth=1.5, iterations=4),
}

# Those that climb the dual, or take the L0 + L1 + L2 penalty; tested in duality/.
DUAL_SOLVERS = {
    "diht": sht.DIHT(),
    "sdiht": sht.SDIHT(),
    "primal_dual": sht.PrimalDual(),
    "dual_ascent": sht.PrimalDual(dual_ascent=True),
    "cdss": sht.CDSS(),
}


def data(loss, n=20, p=6, seed=0):
    """(X, y, w): a small random problem with a planted w."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    w = np.zeros(p)
    w[:3] = [1.0, -0.8, 0.6]
    return X, loss.draw_targets(X @ w, rng), w


def planted(loss, n=100, p=30, seed=0):
    """(X, y, support): three coefficients that every sensible method finds."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    support = np.array([4, 11, 23])
    w = np.zeros(p)
    w[support] = [2.0, -2.5, 3.0]
    if loss.classification:
        return X, np.where(X @ w + rng.logistic(size=n) > 0, 1.0, -1.0), support
    return X, X @ w + 0.3 * rng.standard_normal(n), support


def refused(error, sentence, call):
    """A call ends in an error that says so."""
    with pytest.raises(error, match=sentence):
        call()


def members(support):
    """The indices in one support, sorted."""
    return np.sort(np.asarray(support.idx)[np.asarray(support.mask)])


def central_difference(function, x, h=1e-6):
    """Gradient (or Jacobian, last axis the entries of x) of a function of a vector, by central differences."""
    x = np.asarray(x, float)
    columns = []
    for j in range(x.size):
        step = np.zeros_like(x)
        step[j] = h
        columns.append((np.asarray(function(x + step)) - np.asarray(function(x - step))) / (2 * h))
    return np.stack(columns, axis=-1)
