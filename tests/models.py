"""Twenty models of drawn settings; `python tests/models.py` keeps what they compute in references/models.npz.

A change of how models are put together must not change what they compute; what is right the laws say.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

import sparsehtp as sht
from sparsehtp._types import Support
from sparsehtp.columns import gather
from sparsehtp.objectives.model import in_double

FILE = Path(__file__).parent / "references" / "models.npz"
NUMBER, N, P = 20, 60, 9
SINGLE = (
    sht.losses.Squared(),
    sht.losses.Logistic(),
    sht.losses.Poisson(),
    sht.losses.Huber(),
    sht.losses.Quantile(0.7, 0.2),
)
SEVERAL = (sht.losses.Squared(), sht.losses.Softmax(3), sht.losses.Huber())


def drawn(seed):
    """A name and a model; kinds and losses in turn, the settings at random."""
    rng, kind = np.random.default_rng(seed), seed % 10
    single, scattered, wild, intercept, standardize, offset = rng.integers(0, 2, 6).astype(bool).tolist()
    X = rng.standard_normal((N, P)) * (rng.random((N, P)) < (0.4 if scattered else 1))
    if wild:  # sizes from 1e-8 to 1e8, a mean of 1e6 of dense columns, and a constant
        X[:, 1:3] *= (1e-8, 1e8)
        X[:, 0], X[:, 3] = X[:, 0] + 1e6 * (not scattered), 7.0
    X = X.astype(np.float32 if single else float)
    X = sparse.csr_array(X) if scattered else X
    c = (3,) if kind >= 7 else ()
    options = {
        "standardize": standardize,
        "l2": 0.1 if offset else rng.uniform(0, 1, P),
        "sample_weight": np.where(np.arange(N) % 7, rng.uniform(0.5, 2, N), 0),
        "offset": 3 + 0.1 * rng.standard_normal((N, *c)) if offset else None,
    }
    flags = {"float32": single, "sparse": scattered, "wild": wild, "standardized": standardize, "offset": offset}
    names = [name for name, flag in flags.items() if flag]
    if kind == 5:
        event = rng.random(N) < 0.6
        options |= {"ties": "efron" if intercept else "breslow", "strata": rng.integers(0, 2, N)}
        return " ".join(["Cox", options["ties"], *names]), sht.CoxModel(
            X, np.round(rng.exponential(3, N)), event, **options
        )
    if kind == 6:
        return " ".join(["ordinal", *names]), sht.OrdinalModel(X, np.arange(N) % 4, **options)
    loss = SEVERAL[kind - 7] if c else SINGLE[kind]
    y = loss.draw_targets(0.3 * rng.standard_normal((N, *c)), rng)
    y = y + 1e4 if wild and loss.location else y
    name = " ".join([type(loss).__name__, f"of {len(c) * 2 + 1}", *["intercept"] * intercept, *names])
    return name, (sht.MultiResponse if c else sht.LinearModel)(X, y, loss, fit_intercept=intercept, **options)


@jax.jit
def observed(model, x, v, support, folds, l2s):
    """At x and v on a support, over folds and over l2, and of the restriction to the support."""

    def at(weights, l2):
        new = model.reweighted(weights, l2)
        return *new.value_and_grad(x), new.to_external(x)

    part, z, u = model.restrict(support), gather(x, support), gather(v, support)
    return {
        "value and gradient": model.value_and_grad(x),
        "original units": model.to_external(x),
        "scorer": model.scorer().value(x),
        "lipschitz": model.lipschitz(),
        "on support": (model.value(x, support), model.curvature_at(model.forward(x, support), v, support)),
        "folds": jax.vmap(lambda weights: at(weights, None))(folds),
        "grid of l2": jax.vmap(lambda l2: at(None, l2))(l2s),
        "part": (part.value(z), part.grad(z), part.grad_terms(z), part.hvp(z, u), part.hess(z, 0.1)),
    }


def facts(seed):
    """{name: array} of a model, inside `jax.enable_x64`."""
    name, model = drawn(seed)
    rng, p, free, dtype = np.random.default_rng(seed), model.n_coefficients, model.n_free, model.dtype
    chosen = rng.choice(p, 4, replace=False)
    idx = np.concatenate([p + np.arange(free), chosen, chosen[:1]]).astype(np.int32)
    support = Support(jnp.asarray(idx), jnp.arange(idx.size) < free + 4)
    there = np.isin(np.arange(p + free), idx)
    x, v = jnp.asarray(np.where(there, 0.1 * rng.standard_normal((2, p + free)), 0), dtype)
    weights = np.asarray(model.sample_weight)
    folds = jnp.asarray(np.stack([np.where(np.arange(N) % 3 == f, 0, weights) for f in range(3)]))
    found = observed(model, x, v, support, folds, jnp.asarray([0.0, 0.1, 3.0], dtype))
    w, b = jax.device_get(found["original units"])
    found["own units"] = model.to_internal(jnp.asarray(w), b)
    exact = in_double(model)
    found["in float64"] = exact.value(x.astype(float)), exact.to_external(x.astype(float))
    if free < 4:  # supports of k features and all levels
        solved = sht.solve(model, sht.Sparsity(3), sht.solvers.HTP())
        found["solve"] = solved.x, solved.value
    leaves, _ = jax.tree_util.tree_flatten_with_path(jax.device_get(found))
    return {f"{name}: {path[0].key}{jax.tree_util.keystr(path[1:])}": np.asarray(leaf) for path, leaf in leaves}


def all_facts():
    """Of all models."""
    with jax.enable_x64(True):
        return {f"{seed:02} {name}": value for seed in range(NUMBER) for name, value in facts(seed).items()}


if __name__ == "__main__":
    np.savez_compressed(FILE, **all_facts())
