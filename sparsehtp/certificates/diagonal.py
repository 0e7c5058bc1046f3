"""The diagonal d with Q - diag(d) >= 0 whose perspective relaxation bounds the open nodes of a tree best."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

LOG_SHARE = 0.1  # of the barrier of d > 0 beside that of Q - diag(d) > 0
ACCURACY = 1e-4  # of a relaxation
NEWTON_STEPS = 15


class Nodes(NamedTuple):
    """Open nodes: places left, and the features that are in and out."""

    left: Int[np.ndarray, "T"]
    inn: Bool[np.ndarray, "T p"]
    out: Bool[np.ndarray, "T p"]


class _Relaxed(NamedTuple):
    """The relaxations of nodes: dual and primal values, coefficients and shares."""

    lower: Float[np.ndarray, "T"]
    upper: Float[np.ndarray, "T"]
    w: Float[np.ndarray, "T p"]
    z: Float[np.ndarray, "T p"]


def _relax(
    Q: np.ndarray, b: np.ndarray, c0: float, d: np.ndarray, nodes: Nodes, z: np.ndarray, iterations: int
) -> _Relaxed:
    """min over w and z of c0 - b'w + w'(Q - D) w / 2 + sum_j d_j w_j^2 / (2 z_j), w and z in turn.

    w is a linear system, z a water level: z_j = min(1, theta sqrt(d_j) |w_j|).
    """
    s, inn, out = nodes
    lower, free, rows = np.full(len(s), -np.inf), ~(inn | out), np.arange(len(s))
    slot = np.arange(len(b))
    for _ in range(iterations):
        z = np.where(inn, 1.0, np.where(out, 1e-9, np.maximum(z, 1e-6)))
        H = np.repeat(Q[None], len(s), 0)
        H[:, slot, slot] += d * (1 / z - 1)
        w = np.linalg.solve(H, np.broadcast_to(b, (len(s), len(b)))[..., None])[..., 0]
        t = b - w @ Q + d * w
        G = t * t / (2 * d)
        top = -np.sort(-np.where(free, G, 0), 1)
        taken = np.where(inn, G, 0).sum(1) + np.where(slot < s[:, None], top, 0).sum(1)
        lower = np.maximum(lower, c0 - 0.5 * (w * (b - t)).sum(1) - taken)
        upper = c0 - 0.5 * w @ b
        if np.all(upper - lower <= ACCURACY * np.abs(upper)):
            break
        v = np.where(free, np.sqrt(d) * np.abs(w), 0)
        ordered = -np.sort(-v, 1)
        tail = ordered[:, ::-1].cumsum(1)[:, ::-1]
        theta = np.maximum(s[:, None] - slot, 0) / np.maximum(tail, 1e-300)  # if the `slot` largest are at one
        full = np.argmax((theta * ordered <= 1) | (slot >= s[:, None] - 1), 1)
        z = np.minimum(1, theta[rows, full][:, None] * v)
    return _Relaxed(lower, upper, w, z)


def _barrier(Q: np.ndarray, d: np.ndarray) -> float:
    """log det(Q - diag d) + 0.1 sum_j log d_j, -infinity outside."""
    if d.min() <= 0:
        return -np.inf
    try:
        factor = np.linalg.cholesky(Q - np.diag(d))
    except np.linalg.LinAlgError:
        return -np.inf
    return float(2 * np.log(np.diag(factor)).sum() + LOG_SHARE * np.log(d).sum())


def _gradient(P: np.ndarray, d: np.ndarray, w: np.ndarray, e: np.ndarray, T: int, mu: float) -> np.ndarray:
    """Of sum_t L_t / T + mu (barrier) with P = (Q - diag d)^-1 and the nodes' w and e = 1/z - 1."""
    slope: np.ndarray = (0.5 * e * w * w).sum(0) / T - mu * np.diag(P) + LOG_SHARE * mu / d
    return slope


def tuned_diagonal(
    Q: Float[np.ndarray, "p p"], b: Float[np.ndarray, "p"], c0: float, nodes: Nodes, level: float
) -> Float[np.ndarray, "p"]:
    """A diagonal that is good for several open nodes at once.

        max over d of mean_t min(L_t(d), level) + mu (log det(Q - diag d) + 0.1 sum_j log d_j),

    with L_t the relaxation's value at node t: concave, by damped Newton steps while mu falls, from
    dL_t/dd_j = w_j^2 (1/z_j - 1) / 2. With one node and no masks this is the root's best perspective, whose bound is
    that of the semidefinite relaxation. Q is positive definite.
    """
    p, T = len(b), len(nodes.left)
    d = 1 / np.diag(np.linalg.inv(Q))
    d = d * 0.5 * np.linalg.eigvalsh(Q / np.sqrt(d * d[:, None]))[0]  # inside, and well scaled

    def score(values: np.ndarray) -> float:
        return float(np.minimum(values, level).mean())

    at, inside = _relax(Q, b, c0, d, nodes, np.full((T, p), 0.1), 40), _barrier(Q, d)
    best, best_d = score(at.lower), d
    mu = max(c0 - float(at.upper.mean()), 1e-12) * 0.05 / p
    for _ in range(NEWTON_STEPS):
        live = at.lower < level
        if not live.any():
            break
        z = np.where(nodes.inn, 1.0, np.maximum(at.z, 1e-6))[live]
        out, w = nodes.out[live], at.w[live]
        e = np.where(out, 0, 1 / z - 1)
        ew = e * w
        P = np.linalg.inv(Q - np.diag(d))
        H = mu * P * P + np.diag(LOG_SHARE * mu / d**2)
        for i in range(0, len(z), 4):  # curvature from every fourth node
            inverse = np.linalg.inv(Q + np.diag(np.where(out[i], 1e9, e[i] * d)))
            H += np.outer(ew[i], ew[i]) * inverse * min(4, len(z) - i) / T
        step = np.linalg.solve(H, _gradient(P, d, w, e, T, mu))
        a, moved = min(1.0, 0.95 / max((-step / d).max(), 1e-9)), False
        for _ in range(8):
            new_inside = _barrier(Q, d + a * step)
            if np.isfinite(new_inside):
                new = _relax(Q, b, c0, d + a * step, nodes, at.z, 15)
                least = score(at.upper) + mu * inside - 0.1 * ACCURACY * abs(level)
                if score(new.upper) + mu * new_inside >= least:
                    moved = True
                    break
            a *= 0.5
        if moved:
            d, inside, at = d + a * step, new_inside, new
            if score(at.lower) > best:
                best, best_d = score(at.lower), d
        if mu * p < 1e-5 * abs(level):
            break
        if not moved or a > 0.5:
            mu *= 0.5
    return best_d
