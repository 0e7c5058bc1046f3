"""Compressed sensing for many signals at once: projected gradients, and HT-SVRG on shared samples.

What every step of every signal does is compiled: in NumPy most of a step's time went into the threshold.
"""

from typing import NamedTuple

import numba
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


@numba.njit
def _cut(size: np.ndarray, k: int, last: float) -> float:
    """A number that k entries are not below, or more of them if they tie.

    Counts from the last one's cut, which most often still parts k entries from the others, and then by bisection.
    """
    low, high, cut = 0.0, np.inf, last
    while True:
        count = 0
        for each in size:
            count += each >= cut
        if count == k:
            return cut
        if count > k:
            low = cut
        else:
            high = cut
        before = cut
        cut = max(2 * low, 1e-300) if high == np.inf else 0.5 * (low + high)
        if cut in (low, high, before):  # ties, or NaN
            return low


@numba.njit(cache=True)
def threshold(z: np.ndarray, k: int, cuts: np.ndarray) -> None:
    """Keep the k largest entries of every row, in place; `cuts` are what the rows were last cut at, or any guess."""
    for row in range(len(z)):
        size = np.abs(z[row])
        cuts[row] = _cut(size, k, cuts[row])
        for j in range(size.size):
            if not size[j] >= cuts[row]:
                z[row, j] = 0.0


@numba.njit(cache=True, fastmath={"reassoc", "contract"})  # the order of a sum is free, so that it is one of vectors
def inner_steps(
    z: np.ndarray,
    A: np.ndarray,
    at_snapshot: np.ndarray,
    drift: np.ndarray,
    order: np.ndarray,
    k: int,
    step: float,
    cuts: np.ndarray,
) -> None:
    """Inner steps of HT-SVRG on the rows of z, in place: one row after the other, so that it stays in the cache.

    What the last step's cut leaves out is dropped where the next one reads it, and entries are counted where they are
    made: two passes over a row in place of four.
    """
    size = np.empty(z.shape[1])
    for row in range(len(z)):
        x, shift, cut = z[row], drift[row], cuts[row]
        size[:] = np.inf
        for i in order:
            a, score, count = A[i], 0.0, 0
            for j in range(x.size):
                x[j] = x[j] if size[j] >= cut else 0.0
                score += a[j] * x[j]
            score = step * score - at_snapshot[row, i]
            for j in range(x.size):
                x[j] -= score * a[j] + shift[j]
                size[j] = abs(x[j])
                count += size[j] >= cut
            if count != k:
                cut = _cut(size, k, cut)
        for j in range(x.size):
            x[j] = x[j] if size[j] >= cut else 0.0
        cuts[row] = cut


def projected_gradient(
    A: Float[np.ndarray, "n d"], signals: Float[np.ndarray, "signals d"], k: int, step: float, steps: int
) -> Recovery:
    """x <- H_k(x - step A'(A x - y)) from zero, y = A signal: IHT for step 1, PGD else."""
    gram, x, cuts = A.T @ A, np.zeros_like(signals), np.ones(len(signals))
    left, taken = np.arange(len(signals)), np.full(len(signals), steps)
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        for t in range(steps):
            z = x[left]
            z -= step * ((z - signals[left]) @ gram)
            last = cuts[left]
            threshold(z, k, last)
            x[left], cuts[left] = z, last
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
    x, cuts, values = np.zeros_like(signals), np.ones(len(signals)), np.full((stages, len(signals)), np.nan)
    left, taken = np.arange(len(signals)), np.full(len(signals), stages)
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        for stage in range(stages):
            z, last = x[left], cuts[left]
            drift = (step / n) * ((z - signals[left]) @ A.T @ A)
            number = int(rng.integers(m)) if random_iterate else m
            inner_steps(z, A, step * (z @ A.T), drift, rng.integers(n, size=number), k, step, last)
            x[left], cuts[left] = z, last
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
