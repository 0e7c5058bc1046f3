"""The certificate of a point under `L0L1L2`, whose exchanges hold the other coefficients."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._programs import program
from .._tolerances import tolerance
from ..duality import Dual
from ..objectives import LinearModel, gather
from ..solvers.cdss import Swap, best_swap, state_at
from ..thresholds import L0L1L2
from .facts import Facts, of_a_penalised_point


def penalised_facts(objective: LinearModel, threshold: L0L1L2, x: Float[Array, "d"], dtype: Any) -> Facts:
    """Value, stationarity and best swap of a point in the solver's units, at the tolerance of a dtype."""
    value, slope, scale, found = jax.device_get(_penalised(objective, threshold, x))
    improves = float(found.gain) > tolerance("swap", dtype) * abs(float(value))
    return Facts(
        float(value),
        of_a_penalised_point,
        gain=float(found.gain) if improves else 0.0,
        swap=(int(found.out), int(found.new)) if improves else None,
        stationary=float(slope) <= tolerance("gradient", dtype) * 10 * float(scale),
    )


@program
def _penalised(
    objective: LinearModel, threshold: L0L1L2, x: Float[Array, "d"]
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""], Swap]:
    dual = Dual(objective, threshold)
    state = state_at(dual, x, threshold.support(x[: objective.n_coefficients]))
    zero = jnp.zeros_like(x)
    scale = jnp.linalg.norm(objective.grad_at(objective.forward(zero), zero))
    slope = jnp.linalg.norm(gather(threshold.free_gradient(x, state.grad), state.support))
    return state.value, slope, scale, best_swap(dual, state)
