"""Paths inside jit and grad: the whole grid as one batch, with derivatives on the supports that it found."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from .._types import Support, answer_where, is_sound, replace
from ..columns import gather, scatter
from ..derivatives import implicit as _implicit
from ..iteration.results import RESULTS
from . import grid as _grid


def traced_fits(grid: _grid.Grid, ks: np.ndarray) -> _grid.Fits:
    """The fits of a grid of one row of weights as JAX arrays (grid, ...), differentiable in all that is traced."""
    levels, n_k = grid.axes[1], ks.size
    fits = _grid.batch(lax.stop_gradient(grid), grid.lanes)
    if grid.solver.by_path:
        fits = jax.tree.map(lambda a: a.reshape(levels * n_k, *a.shape[2:]), fits)
    features = fits.support if fits.features is None else fits.features
    units = _grid.n_units(grid.objective, grid.threshold)
    l2s = None if grid.l2s is None else jnp.repeat(grid.l2s, n_k, axis=0)
    scorer = grid.objective.scorer(None)

    def row(
        l2: Array | None, k: Int[Array, ""], support: Support, features: Support, coefficients: Array, intercept: Array
    ) -> tuple[Array, Array, Array, Array, Array]:
        objective = grid.objective if l2 is None else grid.objective.reweighted(l2=l2)
        threshold = replace(grid.threshold, k=k).bind(objective)
        whole = threshold.with_free(support, units)
        w = scatter(coefficients, features, objective.n_coefficients)
        x, value = _implicit.stationary(objective, threshold, objective.to_internal(w, intercept), whole)
        w, intercept = objective.to_external(x)
        sound = is_sound(objective, grid.threshold)
        numbers = answer_where(sound, 0, (gather(w, features), intercept))
        return *numbers, *answer_where(sound, jnp.inf, (value, scorer.value(x))), jnp.asarray(sound)

    coefficients, intercept, value, loss, sound = jax.vmap(row, in_axes=(None if l2s is None else 0, 0, 0, 0, 0, 0))(
        l2s, jnp.tile(ks, levels), fits.support, features, fits.coefficients, fits.intercept
    )
    result = jnp.where(sound, fits.result, RESULTS.nonfinite)
    return fits._replace(coefficients=coefficients, intercept=intercept, value=value, loss=loss, result=result)


def traced_dense(features: Support, coefficients: Float[Array, "grid m"], p: int) -> Float[Array, "grid p"]:
    """Dense coefficients from those on the supports."""
    return jax.vmap(lambda z, support: scatter(z, support, p))(coefficients, features)
