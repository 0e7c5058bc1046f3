"""Compressed sensing for many signals at once, in NumPy: projected gradients, and HT-SVRG on shared samples."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from sparsehtp._threads import one_blas_thread

NEAR = 1e-3  # the paper's success: the distance to the signal
DONE = 1e-5  # a run ends there: it only comes nearer
FAR = 1e140  # and there: it has diverged, well beyond the 1e120 that the paper reports of F


class Recovery(NamedTuple):
    """How the runs ended.

    Attributes:
        success: (signals,) found to `NEAR`.
        diverged: (signals,)
        stages: (signals,) stages taken.
        values: (stages, signals) F = ||A x - y||^2 / 2 after every stage (NaN from divergence on), None unless traced.
    """

    success: Bool[np.ndarray, "signals"]
    diverged: Bool[np.ndarray, "signals"]
    stages: np.ndarray
    values: Float[np.ndarray, "stages signals"] | None


def threshold(z: Float[np.ndarray, "signals d"], k: int, size: Float[np.ndarray, "signals d"]) -> None:
    """Keep the k largest entries of every row, in place; `size` is room for their magnitudes."""
    d = z.shape[1]
    np.abs(z, out=size)
    least = np.partition(size, d - k, axis=1)[:, d - k, None]
    z *= size >= least


def projected_gradient(
    A: Float[np.ndarray, "n d"], signals: Float[np.ndarray, "signals d"], k: int, step: float, steps: int
) -> Recovery:
    """x <- H_k(x - step A'(A x - y)) from zero, y = A signal: IHT for step 1, PGD else."""
    gram, x, size = A.T @ A, np.zeros_like(signals), np.empty_like(signals)
    left, taken = np.arange(len(signals)), np.full(len(signals), steps)
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(steps):
            z = x[left]
            z -= step * ((z - signals[left]) @ gram)
            threshold(z, k, size[: len(z)])
            x[left] = z
            if t % 10 == 9:
                left = _left(x, signals, left, taken, t + 1)
                if not left.size:
                    break
    return _recovery(x, signals, taken, None)


def ht_svrg(
    A: Float[np.ndarray, "n d"],
    signals: Float[np.ndarray, "signals d"],
    k: int,
    m: int,
    step: float,
    stages: int,
    rng: np.random.Generator,
    *,
    random_iterate: bool,
    trace: bool = False,
) -> Recovery:
    """HT-SVRG (the paper's Algorithm 1) from zero on f_i(x) = (a_i'x - y_i)^2 / 2.

    All signals share the samples that are drawn and, with a random iterate, its index among 0, ..., m - 1: an inner
    step is a rank-one update of all. No step after that index is taken, since nothing depends on it.
    """
    n = len(A)
    x, size, values = np.zeros_like(signals), np.empty_like(signals), np.full((stages, len(signals)), np.nan)
    left, taken = np.arange(len(signals)), np.full(len(signals), stages)
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        for stage in range(stages):
            z, room = x[left], size[: len(left)]
            residual = (z - signals[left]) @ A.T
            drift = (step / n) * (residual @ A)
            at_snapshot = step * (z @ A.T)
            number = int(rng.integers(m)) if random_iterate else m
            for i in rng.integers(n, size=number):
                scores = step * (z @ A[i])
                scores -= at_snapshot[:, i]
                np.multiply(scores[:, None], A[i], out=room)
                z -= room
                z -= drift
                threshold(z, k, room)
            x[left] = z
            if trace:
                values[stage] = _value(A, x, signals)
            left = _left(x, signals, left, taken, stage + 1)
            if not left.size:
                values[stage + 1 :] = values[stage]
                break
    return _recovery(x, signals, taken, values if trace else None)


def _value(A: np.ndarray, x: np.ndarray, signals: np.ndarray) -> np.ndarray:
    value = 0.5 * np.sum(((x - signals) @ A.T).astype(float) ** 2, axis=1)
    return np.where(value < FAR, value, np.nan)


def _left(x: np.ndarray, signals: np.ndarray, left: np.ndarray, taken: np.ndarray, stage: int) -> np.ndarray:
    """The runs that go on."""
    error = np.linalg.norm(x[left] - signals[left], axis=1)
    on = (error > DONE) & (error < FAR)  # NaN is far
    taken[left[~on]] = stage
    return left[on]


def _recovery(x: np.ndarray, signals: np.ndarray, taken: np.ndarray, values: np.ndarray | None) -> Recovery:
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.linalg.norm(x - signals, axis=1)
    return Recovery(error < NEAR, ~(error < FAR), taken, values)
