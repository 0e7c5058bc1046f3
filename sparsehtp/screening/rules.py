"""Safe screening from one feasible dual point and one feasible value; no strong duality is assumed.

With tau, G and the value D of a dual point, UB the objective at any feasible w, 1/mu the loss's smoothness and
A_j = sum_i omega_i x_ij^2 (about the mean where there is an intercept):

`L0L1L2`, the phi test. For every w, P(w) - L(w, a) >= (mu/2) sum_i omega_i (l'(eta_i) - a_i)^2, so the ball of the gap
holds l'(X w*) of every primal optimum w*; and L(w*, a) - D(a) is at least its j-th term. Stationarity and optimality of
one coordinate give |tau_j(a*)| = l1 + l2 |w_j| and |w_j| >= m = sqrt(2 l0 / (A_j/mu + l2)); the least sum of both
bounds over |w_j| >= m is phi. With t = |tau_j| - l1 and psi = l0 - t_+^2 / (2 l2),

    phi = psi if t >= l2 m, else l0 - t m + (l2/2) m^2 + (mu/(2 A_j)) (l2 m - t)^2
    OUT:  D - min(0, psi) + phi > UB  =>  w_j = 0 in every optimum
    IN:   D - min(0, psi) + (mu/(2 A_j)) (|tau_j| - l1 - sqrt(2 l0 (A_j/mu + l2)))_+^2 > UB  =>  w_j != 0 in every one

`Sparsity`, with G_(1) >= G_(2) >= ... over the features that are not fixed and k the number still to choose:

    OUT (j not among the k largest):  D + G_(k) - G_j > UB;      IN (j among them):  D + G_j - G_(k+1) > UB

UB stands for the upper bound plus what rounding may have done to D and the terms (`Dual.rounding`), so that no test is
decided by it. A fixed feature changes D, since the restricted problem has the same optima and a larger dual, so tests
are repeated.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from .._types import replace
from ..duality.dual import Dual, DualPoint, Fixed

ROUNDS = 3  # repetitions with the features that were just fixed


def screen(
    dual: Dual, point: DualPoint, energies: Float[Array, "p"], upper: Float[Array, ""]
) -> tuple[Fixed, DualPoint]:
    """Features that are zero (nonzero) in every optimum, and the dual point of the problem that knows it.

    Args:
        dual: with the features that are fixed already.
        point: a feasible dual point.
        energies: (p,) those of `dual.columns.moments()`.
        upper: objective plus penalty at a feasible w.
    """
    no, norms = jnp.zeros(point.tau.shape, bool), dual.columns.norms()
    rule = _phi if dual.penalised else _ranks

    def repeat(_: Int[Array, ""], fixed: Fixed) -> Fixed:
        known = replace(dual, fixed=fixed)
        here = known.point(point.a, point.tau)
        new = rule(known, here, energies, upper + known.rounding(here, norms))
        return Fixed(fixed.zero | (new.zero & ~fixed.nonzero), fixed.nonzero | (new.nonzero & ~fixed.zero))

    fixed = lax.fori_loop(0, ROUNDS, repeat, Fixed(no, no) if dual.fixed is None else dual.fixed)
    return fixed, replace(dual, fixed=fixed).point(point.a, point.tau)


def gap_sphere(dual: Dual, point: DualPoint, energies: Float[Array, "p"], upper: Float[Array, ""]) -> Fixed:
    """[DIOM] rule (16), under its own name: |tau_j| + sqrt(A_j) r < l1 + sqrt(2 l0 l2) gives w_j = 0, r^2 = 2 gap / mu.

    Safe for every primal optimum with mu = 1 / smoothness, by another proof than the paper's (the gap ball above); the
    larger strong concavity of its Theorem 2.1 fails on 72 of 300 small problems. It fixes nothing in: the paper's
    inclusion test with the absolute value outside is wrong, and without it speaks of the dual maximiser only. `screen`
    fires wherever this rule does.
    """
    l0, l1 = dual.prices
    gap = upper + dual.rounding(point, dual.columns.norms()) - point.value
    radius = jnp.sqrt(2 * jnp.maximum(gap, 0) * dual.objective.loss.smoothness)
    bound = jnp.abs(point.tau) + jnp.sqrt(energies) * radius
    return Fixed(bound < l1 + jnp.sqrt(2 * l0 * dual.ridge), jnp.zeros(bound.shape, bool))


def _phi(dual: Dual, point: DualPoint, energies: Float[Array, "p"], upper: Float[Array, ""]) -> Fixed:
    l0, l1 = dual.prices
    ridge = dual.ridge
    smoothness = jnp.asarray(dual.objective.loss.smoothness, ridge.dtype)
    smooth = jnp.isfinite(smoothness)
    energy = jnp.maximum(energies, jnp.finfo(ridge.dtype).tiny)
    curvature = energy * jnp.where(smooth, smoothness, 1) + ridge
    pull = jnp.where(smooth, 1 / (2 * energy * jnp.where(smooth, smoothness, 1)), 0)  # mu / (2 A)
    # A column without energy, such as a constant one beside an intercept, pulls nowhere: its tau is rounding.
    pull = jnp.where(energies > 0, jnp.minimum(pull, jnp.finfo(ridge.dtype).max ** 0.5), 0)
    m = jnp.where(smooth, jnp.sqrt(2 * l0 / curvature), 0)
    t = jnp.abs(point.tau) - l1
    psi = -point.terms
    far = l0 - t * m + 0.5 * ridge * m**2 + pull * (ridge * m - t) ** 2
    phi = jnp.where(t >= ridge * m, psi, far)
    rest = point.value - jnp.minimum(psi, 0)
    most = l1 + jnp.sqrt(2 * l0 * curvature)
    excess = jnp.maximum(jnp.abs(point.tau) - most, 0)
    free = ~(dual.masks().zero | dual.masks().nonzero)
    nonzero = free & (rest + jnp.where(smooth, pull * excess**2, 0) > upper)
    return Fixed(free & (rest + phi > upper) & ~nonzero, nonzero)


def _ranks(dual: Dual, point: DualPoint, energies: Float[Array, "p"], upper: Float[Array, ""]) -> Fixed:
    fixed = dual.masks()
    free = ~(fixed.zero | fixed.nonzero)
    k = dual.slots()
    gains = jnp.where(free, point.terms, -1.0)
    order = jnp.sort(gains)[::-1]
    p = gains.shape[0]
    last = jnp.where(k > 0, order[jnp.clip(k - 1, 0, p - 1)], jnp.inf)
    following = jnp.where(k < p, order[jnp.clip(k, 0, p - 1)], 0)
    following = jnp.maximum(following, 0)
    member, _ = dual.select(point.terms)
    zero = free & ~member & (point.value + jnp.maximum(last, 0) - gains > upper)
    nonzero = free & member & (point.value + gains - following > upper)
    return Fixed(zero, nonzero)
