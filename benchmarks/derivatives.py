"""Implicit derivatives: cost over a solve, against unrolling in time and memory, and against a dense linear system."""

import jax
import jax.numpy as jnp
import numpy as np

import sparsehtp as sht

from .problems import generate
from .scores import aim, finish
from .timing import best_of, compile_time

UNROLLED_STEPS = 200


def fit(X, y, l2, solver, k, **options):
    """Coefficients of a sparse fit."""
    model = sht.LinearModel(X, y, l2=l2)
    return sht.solve(model, sht.Sparsity(k), solver, record=None, **options).x


def loss(x, X, y):
    """A validation loss."""
    return 0.5 * jnp.mean((X @ x - y) ** 2)


def dense_gradient(X, y, l2, X_val, y_val, x):
    """The same gradient from the linear system over all p coefficients, masked to the support."""
    n = X.shape[0]
    on = x != 0
    H = jnp.where(on[:, None] & on, X.T @ X / n, 0) + jnp.diag(jnp.where(on, l2, 1.0))
    upstream = jnp.where(on, jax.grad(loss)(x, X_val, y_val), 0)
    return -jnp.linalg.solve(H, upstream) * x


def peak(compiled):
    """Bytes of temporary memory that a compiled program needs."""
    return compiled.memory_analysis().temp_size_in_bytes


def compare(n, p, k, repeats, dense):
    """Rows of one size: gradients in one l2 per feature of the loss on n more samples."""
    X, y, _ = generate(2 * n, p, k, seed=1)
    data = jnp.asarray(X[:n], jnp.float32), jnp.asarray(y[:n], jnp.float32)
    held_out = jnp.asarray(X[n:], jnp.float32), jnp.asarray(y[n:], jnp.float32)
    l2 = jnp.full(p, 0.01, jnp.float32)
    iht = sht.solvers.IHT(sht.steps.ConstantStep())
    kinds = {
        "BestSubset": (sht.solvers.BestSubset(), {}),
        "HTP": (sht.solvers.HTP(), {}),
        "IHT, constant step": (iht, {"max_steps": UNROLLED_STEPS}),
    }
    label, rows, answers = f"n={n}, p={p}, k={k}", [], {}
    for name, (solver, options) in kinds.items():

        def plain(l2, X, y, X_val, y_val, solver=solver, options=options):
            return loss(fit(X, y, l2, solver, k, **options), X_val, y_val)

        def through(l2, X, y, X_val, y_val, solver=solver, options=options):
            return loss(fit(X, y, l2, solver, k, implicit=False, **options), X_val, y_val)

        programs = {"solve": jax.jit(plain), "implicit": jax.jit(jax.value_and_grad(plain))}
        if solver is iht:
            programs["unrolled"] = jax.jit(jax.value_and_grad(through))
        compiled = {key: compile_time(program, l2, *data, *held_out) for key, program in programs.items()}

        def call(key, name=name, compiled=compiled):
            answers[name, key] = out = compiled[key][0](l2, *data, *held_out)
            return out

        seconds = best_of({key: (lambda key=key: call(key)) for key in compiled}, repeats)
        extra = (seconds["implicit"] - seconds["solve"]) / seconds["solve"]
        rows.append(
            aim(
                {"name": f"{label}: {name}, gradient over solve", "value": extra, "unit": "times"},
                "<= 0.5",
                extra <= 0.5,
            )
            | {
                "solve_seconds": seconds["solve"],
                "solve_and_gradient_seconds": seconds["implicit"],
                "compile_seconds": {key: each[1] for key, each in compiled.items()},
            }
        )
        if solver is iht:
            extra_unrolled = seconds["unrolled"] - seconds["solve"]
            implicit, unrolled = (np.asarray(answers[name, key][1]) for key in ("implicit", "unrolled"))
            rows += [
                {
                    "name": f"{label}: unrolled gradient over implicit gradient, time",
                    "value": extra_unrolled / (seconds["implicit"] - seconds["solve"]),
                    "unit": "times",
                    "relative_difference": float(np.abs(unrolled - implicit).max() / np.abs(implicit).max()),
                },
                {
                    "name": f"{label}: unrolled over implicit, temporary memory",
                    "value": peak(compiled["unrolled"][0]) / peak(compiled["implicit"][0]),
                    "unit": "times",
                    "implicit_bytes": peak(compiled["implicit"][0]),
                    "unrolled_bytes": peak(compiled["unrolled"][0]),
                },
            ]
        if name == "HTP" and dense:
            x = fit(*data, l2, solver, k)
            system, _ = compile_time(jax.jit(dense_gradient), *data, l2, *held_out, x)
            slow = best_of({"dense": lambda system=system, x=x: system(*data, l2, *held_out, x)}, 1)["dense"]
            rows.append(
                {
                    "name": f"{label}: dense linear system over implicit gradient, time",
                    "value": slow / (seconds["implicit"] - seconds["solve"]),
                    "unit": "times",
                    "seconds": slow,
                    "relative_difference": float(
                        np.abs(
                            np.asarray(system(*data, l2, *held_out, x)) - np.asarray(answers[name, "implicit"][1])
                        ).max()
                        / np.abs(np.asarray(answers[name, "implicit"][1])).max()
                    ),
                }
            )
    return rows


def main(quick=False):
    """p = 1,000 to 100,000 with n = 500 and k = 20."""
    sizes = [(60, 200)] if quick else [(500, 1000), (500, 10_000), (500, 100_000)]
    rows = []
    for n, p in sizes:
        rows += compare(n, p, 3 if quick else 20, 2 if quick else 7, dense=p <= 10_000)
    finish("derivatives", rows, quick)
