"""One list of instances per kind of part: a new public class belongs here (contracts/test_completeness.py)."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact import LEVEL, Loss
from jax.experimental.sparse import BCOO
from scipy import sparse

import sparsehtp as sht
from sparsehtp._programs import PLAIN, compiler_options

# References are run once or twice: they are compiled as the library compiles what has little work.
OPTIONS = compiler_options(jax.default_backend())
jit = functools.partial(jax.jit, compiler_options=OPTIONS if OPTIONS is None else OPTIONS | PLAIN)


def decreasing(t):
    """A step-size schedule that sums to infinity."""
    return 0.5 * (1.0 + t) ** -0.25


LOSSES = {
    "squared": sht.losses.Squared(),
    "logistic": sht.losses.Logistic(),
    "logistic_2": sht.losses.Logistic(margin_scale=2.0),
    "hinge": sht.losses.Hinge(),
    "smoothed_hinge": sht.losses.SmoothedHinge(),
    "smoothed_hinge_wide": sht.losses.SmoothedHinge(gamma=1.5),
    "huber": sht.losses.Huber(),
    "huber_narrow": sht.losses.Huber(delta=0.3),
    "poisson": sht.losses.Poisson(),
    "gamma": sht.losses.Gamma(),
    "tweedie": sht.losses.Tweedie(),
    "tweedie_1": sht.losses.Tweedie(power=1.0),
    "tweedie_2": sht.losses.Tweedie(power=2.0),
    "negative_binomial": sht.losses.NegativeBinomial(),
    "negative_binomial_narrow": sht.losses.NegativeBinomial(dispersion=0.2),
    "squared_hinge": sht.losses.SquaredHinge(),
    "quantile": sht.losses.Quantile(),
    "quantile_upper": sht.losses.Quantile(level=0.8, gamma=0.5),
}

# the same by the names and with the one parameter that `exact.Loss` has
BY_NAME = {
    "squared": lambda c: sht.losses.Squared(),
    "logistic": sht.losses.Logistic,
    "smoothed_hinge": sht.losses.SmoothedHinge,
    "huber": sht.losses.Huber,
    "poisson": lambda c: sht.losses.Poisson(),
    "gamma": lambda c: sht.losses.Gamma(),
    "tweedie": sht.losses.Tweedie,
    "negative_binomial": sht.losses.NegativeBinomial,
    "quantile": lambda c: sht.losses.Quantile(float(LEVEL), c),
    "squared_hinge": lambda c: sht.losses.SquaredHinge(),
    "hinge": lambda c: sht.losses.Hinge(),
}


def exact(loss):
    """The reference of a loss of the library: its name, and its own numbers."""
    name, own = re.sub("(?<=[a-z])(?=[A-Z])", "_", type(loss).__name__).lower(), [*map(float, vars(loss).values())]
    return Loss(name, *reversed(own or [1.0]))


# of several responses; contracts/test_multi_response.py
VECTOR_LOSSES = {"softmax": sht.losses.Softmax(3)}

# name -> function of a NumPy matrix
DESIGNS = {
    "dense": sht.designs.DenseDesign,
    "dense_fortran": lambda X: sht.designs.DenseDesign(np.asfortranarray(X)),
    "dense_jax": lambda X: sht.designs.DenseDesign(jnp.asarray(X)),
    "csr": lambda X: sht.designs.SparseDesign(sparse.csr_array(X)),
    "csc": lambda X: sht.designs.SparseDesign(sparse.csc_matrix(X)),
    "coo": lambda X: sht.designs.SparseDesign(sparse.coo_array(X)),
    "bcoo": lambda X: sht.designs.SparseDesign(BCOO.fromdense(jnp.asarray(X), nse=X.size + 3)),
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
    "simplex_signed": sht.Simplex(2, total=-1.0, keep=[4], positive=False),
    "group": sht.GroupSparsity(GROUPS, 2),
    "group_keep": sht.GroupSparsity(GROUPS, 1, keep=[2]),
    "group_box": sht.GroupSparsity(GROUPS, 2, lower=-0.5, upper=[0.1, 0.2, 0.5, 1.0, 2.0, np.inf]),
    "leaf": sht.LeafSparsity(2),  # needs a Custom; contracts/test_custom.py
    "group_within": sht.GroupSparsity(GROUPS, 2, within=2),
    "rank": sht.Rank(2),
    "rows": sht.RowSparsity(2),
    "rows_keep": sht.RowSparsity(2, k_max=8, keep=[1]),
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
    "constant": sht.steps.ConstantStep(),
    "constant_size": sht.steps.ConstantStep(0.25),
    "normalised": sht.steps.NormalisedStep(),
    "backtracking": sht.steps.BacktrackingStep(),
    "schedule": sht.steps.ScheduleStep(decreasing),
    "sample": sht.steps.SampleStep(),
    "sample_batch": sht.steps.SampleStep(0.5, batch_size=4),
}

TERMINATIONS = {
    "stable_support": sht.stopping.StableSupport(),
    "small_step": sht.stopping.SmallStep(1e-3),
    "small_gradient": sht.stopping.SmallGradient(1e-3),
    "dual_gap": sht.stopping.DualGap(1e-3),
    "cycle": sht.stopping.Cycle(),
    "never": sht.stopping.Never(),
}

SOLVERS = {
    "iht": sht.solvers.IHT(),
    "iht_constant": sht.solvers.IHT(sht.steps.ConstantStep()),
    "iht_backtracking": sht.solvers.IHT(sht.steps.BacktrackingStep()),
    "iht_schedule": sht.solvers.IHT(sht.steps.ScheduleStep(decreasing)),
    "iht_heavy_ball": sht.solvers.IHT(sht.steps.ConstantStep(), momentum=0.5),
    "iht_nesterov": sht.solvers.IHT(sht.steps.ConstantStep(), momentum=0.5, nesterov=True),
    "htp": sht.solvers.HTP(),
    "htp_constant": sht.solvers.HTP(sht.steps.ConstantStep(scale=0.5)),
    "htp_backtracking": sht.solvers.HTP(sht.steps.BacktrackingStep()),
    "htp_newton": sht.solvers.HTP(newton_steps=3),
    "grasp": sht.solvers.GraSP(),
    "cosamp": sht.solvers.GraSP(debias=False),
    "subspace_pursuit": sht.solvers.SubspacePursuit(),
}


# Those with a state or an objective of their own; tested in contracts/test_best_subset.py.
SWAP_SOLVERS = {"best_subset": sht.solvers.BestSubset(), "best_subset_fast": sht.solvers.BestSubset("fast")}
SWAP_TERMINATIONS = {"swap_optimal": sht.stopping.SwapOptimal()}

# Those that grow a support from nothing: its size changes with every step, and x0 is unused; contracts/test_forward.py.
GREEDY_SOLVERS = {
    "forward": sht.solvers.ForwardSelection(),
    "omp": sht.solvers.ForwardSelection("omp"),
    "foba": sht.solvers.FoBa(),
}
GREEDY_TERMINATIONS = {"complete": sht.stopping.Complete()}

# Those that draw samples; tested in contracts/test_stochastic.py.
STOCHASTIC_SOLVERS = {
    "stochastic": sht.solvers.StochasticHT(),
    "stochastic_batch": sht.solvers.StochasticHT(batch_size=5, epoch=3, replacement=False),
    "svrg": sht.solvers.SVRGHT(inner_steps=40),
    "svrg_random": sht.solvers.SVRGHT(inner_steps=40, batch_size=3, random_iterate=True, radius=10.0),
    "saga": sht.solvers.SAGAHT(),
    "saga_batch": sht.solvers.SAGAHT(batch_size=4),
    "hybrid": sht.solvers.HybridHT(growth=1.2),
    "hybrid_momentum": sht.solvers.HybridHT(momentum=0.3, growth=1.5, iterations=4),
}

# Those that climb the dual, or take the L0 + L1 + L2 penalty; tested in duality/.
DUAL_SOLVERS = {
    "diht": sht.solvers.DIHT(),
    "sdiht": sht.solvers.SDIHT(),
    "primal_dual": sht.solvers.PrimalDual(),
    "dual_ascent": sht.solvers.PrimalDual(dual_ascent=True),
    "cdss": sht.solvers.CDSS(),
    "priced": sht.solvers.PricedSubset(),
}

ALL_SOLVERS = SOLVERS | SWAP_SOLVERS | GREEDY_SOLVERS | STOCHASTIC_SOLVERS | DUAL_SOLVERS


def solvers(*names):
    """Some of them by their names; "default" is none of them."""
    return {name: None if name == "default" else ALL_SOLVERS[name] for name in names}


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


def names(error, argument, call):
    """A call ends in an error of one sentence that opens with the argument's name."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert message.startswith(f"{argument}: ") and "\n" not in message and message.endswith("."), message


def members(support):
    """The indices in one support, sorted."""
    return np.sort(np.asarray(support.idx)[np.asarray(support.mask)])


def spoiled(array, value):
    """A copy of an array with another number in the second place."""
    array = np.array(array, float)
    array.flat[1] = value
    return array


def chained(Z, rho):
    """Independent columns, made to have the correlation rho with their neighbours."""
    for j in range(1, Z.shape[1]):
        Z[:, j] = rho * Z[:, j - 1] + np.sqrt(1 - rho**2) * Z[:, j]
    return Z


def central_difference(function, x, h=1e-6):
    """Gradient (or Jacobian, last axis the entries of x) of a function of a vector, by central differences."""
    x = np.asarray(x, float)
    columns = []
    for j in range(x.size):
        step = np.zeros_like(x)
        step[j] = h
        columns.append((np.asarray(function(x + step)) - np.asarray(function(x - step))) / (2 * h))
    return np.stack(columns, axis=-1)
