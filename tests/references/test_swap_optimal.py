"""No exchange of one unit improves: every structure and loss, checked by refits of SciPy in float64."""

import itertools

import cases
import jax.numpy as jnp
import numpy as np
import pytest
from exact import Loss
from scipy.optimize import minimize
from scipy.special import logsumexp

import sparsehtp as sht

pytestmark = pytest.mark.usefixtures("x64")
N, P, K, L2 = 60, 8, 3, 0.01
GROUPS = np.array([0, 0, 1, 1, 1, 2, 3, 3])
PARTS = np.array([0, 1, 1, 2, 0, 3])

LOSSES = ("squared", "logistic", "poisson", "huber", "smoothed_hinge")
# structure -> (threshold, the entries of every unit, units that are always in, bounds)
ENTRIES, OF_GROUPS = [[j] for j in range(P)], [np.flatnonzero(GROUPS == g) for g in range(4)]
FREE = (-np.inf, np.inf)
STRUCTURES = {
    "entries": (sht.Sparsity(K), ENTRIES, [], FREE),
    "keep": (sht.Sparsity(2, keep=[3]), ENTRIES, [3], FREE),
    "box": (sht.Sparsity(K, lower=-0.3, upper=0.4), ENTRIES, [], (-0.3, 0.4)),
    "positive": (sht.Sparsity(K, lower=0), ENTRIES, [], (0, np.inf)),
    "groups": (sht.GroupSparsity(GROUPS, 2), OF_GROUPS, [], FREE),
    "groups_keep": (sht.GroupSparsity(GROUPS, 1, keep=[2]), OF_GROUPS, [2], FREE),
    "groups_box": (sht.GroupSparsity(GROUPS, 2, lower=-0.3, upper=0.4), OF_GROUPS, [], (-0.3, 0.4)),
}
QUICK = {("squared", name) for name in STRUCTURES if name not in ("box", "positive", "groups")}
QUICK |= {("logistic", "groups"), ("huber", "box"), ("poisson", "positive")}
PAIRS = [
    pytest.param(loss, structure, marks=() if (loss, structure) in QUICK else pytest.mark.slow)
    for loss in LOSSES
    for structure in STRUCTURES
]


def design(rng, n=N, p=P):
    """Columns that share much of their variance."""
    return 0.6 * rng.standard_normal((n, p)) + 0.8 * rng.standard_normal((n, 1))


def refits(parts, A, units, n_free, bounds=FREE):
    """The least mean loss and ridge by units: of all free columns of A, which come first, and of those of the units
    within bounds. `parts` gives values and slopes at the predictors, a row of A each."""

    def refit(chosen):
        places = np.concatenate([np.arange(n_free), *(n_free + np.asarray(units[u], int) for u in sorted(chosen))])
        B, penalised = A[:, places.astype(int)], np.arange(len(places)) >= n_free

        def F(z):
            value, slope = parts(B @ z)
            return np.sum(value) / N + L2 / 2 * z[penalised] @ z[penalised], B.T @ slope / N + L2 * penalised * z

        if not places.size:
            return F(np.zeros(0))[0]
        options = {"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-10}
        box = [FREE] * n_free + [bounds] * penalised.sum()
        return minimize(F, np.zeros(len(places)), jac=True, method="L-BFGS-B", bounds=box, options=options).fun

    return refit


def check(solution, units, kept, refit, pools=None, tol=1e-8):
    """F at the chosen units is their refit's, and no exchange of one of them refits to less."""
    value, chosen = float(solution.value), cases.members(solution.support).tolist()
    np.testing.assert_allclose(value, refit(chosen), rtol=1e-6)
    for out, new in itertools.product(set(chosen) - set(kept), set(range(units)) - set(chosen)):
        if pools is None or pools[out] == pools[new]:
            assert refit([*(set(chosen) - {out}), new]) >= value * (1 - tol) - 1e-12, (out, new)


@pytest.mark.parametrize(("name", "structure"), PAIRS)
@pytest.mark.parametrize("seed", [0, 1])
def test_linear_models(name, structure, seed):
    rng = np.random.default_rng(seed)
    X = design(rng)
    loss, exact = cases.BY_NAME[name](1.0), Loss(name, 1.0)
    y = loss.draw_targets(X @ np.where(np.arange(P) % 3 == 0, 0.7, -0.2), rng)
    threshold, units, kept, bounds = STRUCTURES[structure]

    refit = refits(lambda eta: exact.parts(eta, y)[0:3:2], np.column_stack([np.ones(N), X]), units, 1, bounds)
    solution = sht.solve(sht.LinearModel(X, y, loss, L2, fit_intercept=True), threshold)
    assert solution.result == sht.results.RESULTS.converged
    check(solution, len(units), kept, refit)


@pytest.mark.parametrize("loss", [sht.losses.Squared(), pytest.param(sht.losses.Softmax(3), marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "threshold",
    [
        pytest.param(sht.RowSparsity(2), marks=pytest.mark.slow),
        pytest.param(sht.RowSparsity(1, keep=[2]), marks=pytest.mark.slow),
        sht.RowSparsity(2, lower=-0.3, upper=0.4),
        pytest.param(sht.GroupSparsity(PARTS, 2), marks=pytest.mark.slow),
        pytest.param(sht.GroupSparsity(PARTS, 1, keep=[1], lower=0.0), marks=pytest.mark.slow),
        sht.Sparsity(5),
    ],
)
def test_several_responses(loss, threshold):
    rng = np.random.default_rng(2)
    X, c = design(rng, p=6), 3
    B = np.zeros((6, c))
    B[[0, 2, 5]] = rng.standard_normal((3, c))
    eta = X @ B
    vector = not loss.quadratic
    Y = eta + rng.standard_normal(eta.shape) if not vector else np.argmax(eta + rng.gumbel(size=eta.shape), 1)
    if isinstance(threshold, sht.Sparsity):
        units = [[e] for e in range(6 * c)]
    else:
        part = np.arange(6) if isinstance(threshold, sht.RowSparsity) else PARTS
        units = [np.flatnonzero(np.repeat(part == u, c)) for u in np.unique(part)]
    bounds = [-np.inf if threshold.lower is None else float(threshold.lower), np.inf]
    bounds[1] = np.inf if threshold.upper is None else float(threshold.upper)

    def parts(eta):
        eta = eta.reshape(N, c)
        if not vector:
            return 0.5 * (eta - Y) ** 2, (eta - Y).ravel()
        slope = np.exp(eta - logsumexp(eta, axis=1)[:, None]) - np.eye(c)[Y]
        return logsumexp(eta, axis=1) - eta[np.arange(N), Y], slope.ravel()

    refit = refits(parts, np.kron(np.column_stack([np.ones(N), X]), np.eye(c)), units, c, bounds)
    model = sht.MultiResponse(X, Y, loss, L2, fit_intercept=True)
    solution = sht.solve(model, threshold)
    check(solution, len(units), list(np.asarray(threshold.keep)), refit)


def two_parts(x, A, B, y):
    return 0.5 * jnp.mean((A @ x["a"] + B @ x["b"] - y) ** 2) + 0.005 * (jnp.sum(x["a"] ** 2) + jnp.sum(x["b"] ** 2))


@pytest.mark.parametrize(
    "threshold",
    [
        pytest.param(sht.LeafSparsity({"a": 2, "b": 1}), marks=pytest.mark.slow),
        sht.LeafSparsity({"a": None, "b": 2}),
        pytest.param(sht.Sparsity(3), marks=pytest.mark.slow),
    ],
)
def test_functions_of_the_users(threshold):
    rng = np.random.default_rng(3)
    X = design(rng, p=9)
    y = X[:, 0] - X[:, 5] + 0.5 * X[:, 7] + rng.standard_normal(N)
    custom = sht.Custom(two_parts, X[:, :4], X[:, 4:], y, like={"a": np.zeros(4), "b": np.zeros(5)})
    solution = sht.solve(custom, threshold)
    leaves = isinstance(threshold, sht.LeafSparsity)
    dense = leaves and threshold.ks["a"] is None

    refit = refits(lambda eta: (0.5 * (eta - y) ** 2, eta - y), X, [[j] for j in range(9)], 0)
    pools = np.repeat([0, 1], [4, 5]) if leaves else None
    check(solution, 9, range(4) if dense else [], refit, pools)
