"""Conditions under which the sparse duality gap is closed."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._programs import program
from .._tolerances import tolerance
from .._types import all_finite, check_finite
from .dual import Dual, dual_of


class SparseDuality(NamedTuple):
    """What a primal and a dual point say about each other.

    Attributes:
        primal: F at x.
        dual: D(a).
        gap: primal - dual, never negative but for rounding.
        condition_c: x solves its own support and min |x_j| over its k nonzeros is at least ||P'(x)||_inf / l2, with P'
            formed at a_i = l'(x_i'x): [DIHT] equation (4). It proves that x is a global optimum and the gap closed.
        unique: the k-th and (k+1)-th largest |tau_j| / sqrt(l2_j) differ by more than rounding, so that the link w(a)
            is unique and D is differentiable at a.
        link_matches: the link w(a) has the support of x.
    """

    primal: Float[Array, ""]
    dual: Float[Array, ""]
    gap: Float[Array, ""]
    condition_c: Bool[Array, ""]
    unique: Bool[Array, ""]
    link_matches: Bool[Array, ""]


def sparse_duality(objective: Any, threshold: Any, solution: Any, a: Any = None) -> SparseDuality:
    """Primal and dual value, gap, condition (c), and uniqueness of the link.

    Args:
        objective: a `LinearModel` with l2 > 0 and a conjugate loss.
        threshold: `Sparsity` without bounds.
        solution: a `Solution`, or anything with `x` (p,) and `intercept`.
        a: (n,) dual variables, projected on the feasible set; None: l'(prediction of x), projected.

    Raises:
        TypeError, ValueError: see `dual_of`.

    Guarantee: condition (c) is sufficient and, for a global optimum with the top-k unique, necessary for a closed gap
    ([DIHT] Theorem 2 and Corollary 7). The paper's counter-example (y = [2, 2, 1], X = I, l2 = 1, k = 1) has the primal
    optimum 4/3, but its largest dual value is 55/42 at a = (-12/7, -12/7, -1), not the printed 7/6.
    """
    dual = dual_of(objective, threshold)
    check_finite("objective", objective)
    check_finite("solution", solution.x, solution.intercept, remedy="solve again")
    check_finite("a", a, remedy="pass finite dual variables, or None")
    x = dual.objective.to_internal(jnp.asarray(solution.x, objective.dtype), solution.intercept)
    return _pair(dual, x, None if a is None else jnp.asarray(a, objective.dtype))


@program
def _pair(dual: Dual, x: Float[Array, "d"], a: Float[Array, "n"] | None) -> SparseDuality:
    objective, threshold = dual.objective, dual.threshold
    p = objective.n_coefficients
    eta = objective.forward(x)
    slope = objective.loss.derivative(eta, objective.y)
    feasible = dual.project(slope if a is None else a)
    point = dual.point(feasible)
    primal = objective.value_at(eta, x) + threshold.value(x)
    w, grad = x[:p], objective.grad_at(eta, x)
    nonzero = w != 0
    kept = dual.masks().nonzero
    chosen = nonzero & ~kept
    scale = jnp.max(jnp.abs(objective.grad_at(objective.forward(jnp.zeros_like(x)), jnp.zeros_like(x))))
    on_support = jnp.append(nonzero | kept, jnp.ones(objective.n_free, bool))
    stationary = jnp.all(~on_support | (jnp.abs(grad) <= tolerance("gradient", x.dtype) * scale)) & all_finite(grad)
    # Scaled by sqrt(l2), so that a ridge of its own for every feature fits too.
    root = jnp.sqrt(dual.ridge)
    smallest = jnp.min(jnp.where(chosen, jnp.abs(w) * root, jnp.inf), initial=jnp.inf)
    smallest = jnp.where(jnp.sum(chosen) < threshold.k, 0, smallest)
    steepest = jnp.max(jnp.where(on_support[:p], 0, jnp.abs(grad[:p]) / root), initial=0)
    room = tolerance("gradient", x.dtype) * scale / jnp.min(root)
    scores = jnp.sort(jnp.where(kept, -1.0, jnp.sqrt(jnp.maximum(point.terms, 0))))[::-1]
    k = dual.slots()
    last, following = scores[jnp.clip(k - 1, 0, p - 1)], jnp.maximum(scores[jnp.clip(k, 0, p - 1)], 0)
    eps = 64 * jnp.finfo(x.dtype).eps
    unique = (k == 0) | (k >= p) | (last - following > eps * jnp.abs(last))
    return SparseDuality(
        primal=primal,
        dual=point.value,
        gap=primal - point.value,
        condition_c=stationary & (steepest <= smallest + room * (smallest > 0)) | (stationary & (steepest <= room)),
        unique=unique,
        link_matches=jnp.all((point.x[:p] != 0) == nonzero),
    )
