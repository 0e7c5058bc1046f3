"""A 784-300-100-10 network trained with `keep_top_k` at 95% sparsity against its dense twin, on MNIST or digits."""

import functools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import sparsehtp as sht

from .scores import aim, finish

BATCH = 128
KEPT = 0.05


def images(data):
    """(name, X_train, X_test, y_train, y_test): MNIST's own split from the folder of data sets, else digits."""
    path = None if data is None else Path(data) / "mnist.npz"
    if path is None or not path.exists():
        X, y = load_digits(return_X_y=True)
        return "digits", *train_test_split(X.astype(np.float32) / 16, y, test_size=0.3, random_state=0)
    stored = np.load(path)
    X, y = stored["X"].reshape(-1, 784).astype(np.float32) / 255, stored["y"].astype(int)
    return "MNIST", X[:60_000], X[60_000:], y[:60_000], y[60_000:]


def network(sizes, key):
    """Weights by He's rule, and zero biases."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"w": jax.random.normal(k, (a, b)) * jnp.sqrt(2 / a), "b": jnp.zeros(b)}
        for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def logits(params, X):
    """The network's output."""
    for layer in params[:-1]:
        X = jax.nn.relu(X @ layer["w"] + layer["b"])
    return X @ params[-1]["w"] + params[-1]["b"]


def nonzero_weights(params):
    """Nonzero entries of the weight matrices."""
    return sum(jnp.count_nonzero(layer["w"]) for layer in params)


@functools.partial(jax.jit, static_argnums=0)
def epoch(optimiser, params, state, X, y, order):
    """One pass over the batches, and the number of nonzero weights after each of its steps."""

    def step(carry, rows):
        params, state = carry

        def loss(params):
            return optax.softmax_cross_entropy_with_integer_labels(logits(params, X[rows]), y[rows]).mean()

        updates, state = optimiser.update(jax.grad(loss)(params), state, params)
        params = optax.apply_updates(params, updates)
        return (params, state), nonzero_weights(params)

    (params, state), counts = jax.lax.scan(step, (params, state), order)
    return params, state, counts


def train(X, y, epochs, prune, seed=0):
    """Trained parameters, the counts after every step, and the number k that was asked for."""
    params = network((X.shape[1], 300, 100, 10), jax.random.key(seed))
    steps = epochs * (len(y) // BATCH)
    total = int(sum(layer["w"].size for layer in params))
    k = round(KEPT * total)
    optimiser = optax.adam(optax.cosine_decay_schedule(1e-3, steps))
    if prune:
        schedule = optax.polynomial_schedule(0.0, 1.0, power=3, transition_steps=steps // 2)
        weights = [{"w": True, "b": False} for _ in params]
        optimiser = optax.chain(optimiser, optax.masked(sht.keep_top_k(k, schedule=schedule), weights))
    state, rng, counts = optimiser.init(params), np.random.default_rng(seed), []
    for _ in range(epochs):
        order = rng.permutation(len(y))[: len(y) // BATCH * BATCH].reshape(-1, BATCH)
        params, state, count = epoch(optimiser, params, state, X, y, order)
        counts.append(np.asarray(count))
    return params, np.concatenate(counts), k, total


def accuracy(params, X, y):
    """Percentage of right answers."""
    return 100 * float(jnp.mean(jnp.argmax(logits(params, X), 1) == y))


def main(quick=False, data=None):
    """Test accuracy, dense and sparse, by the same optimiser and number of steps."""
    name, X, X_test, y, y_test = images(data)
    epochs = 2 if quick else (10 if name == "MNIST" else 120)
    found, seconds = {}, {}
    for kind in ("dense", "sparse"):
        start = time.perf_counter()
        params, counts, k, total = train(jnp.asarray(X), jnp.asarray(y), epochs, kind == "sparse")
        found[kind], seconds[kind] = accuracy(params, X_test, y_test), time.perf_counter() - start
    after = counts[len(counts) // 2 + 1 :]
    difference = found["dense"] - found["sparse"]
    finish(
        "pruning",
        [
            {"name": f"{name}: dense test accuracy", "value": found["dense"], "unit": "%", "seconds": seconds["dense"]},
            {
                "name": f"{name}: test accuracy with {k} of {total} weights",
                "value": found["sparse"],
                "unit": "%",
                "seconds": seconds["sparse"],
            },
            aim({"name": f"{name}: accuracy lost", "value": difference, "unit": "points"}, "<= 1", difference <= 1),
            aim(
                {"name": f"{name}: most weights after a step, once pruned", "value": int(after.max()), "unit": ""},
                f"<= {k}",
                after.max() <= k,
            ),
        ],
        quick,
    )
