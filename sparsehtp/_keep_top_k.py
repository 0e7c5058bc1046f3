"""Sparsity inside an optax chain: a transformation that keeps parameters k-sparse."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from ._types import is_concrete
from .linalg import largest
from .thresholds.base import check_count


class KeepTopKState(NamedTuple):
    """Steps taken."""

    steps: Int[Array, ""]


def keep_top_k(
    k: PyTree, per_leaf: bool = False, schedule: Callable[[Array], Array | float] | None = None
) -> optax.GradientTransformation:
    """An optax transformation after which the parameters have at most k nonzero entries: iterative hard thresholding.

        params <- H_k(params + updates)

    Put it last in `optax.chain`, since it needs the whole update. `optax.apply_updates` then gives parameters that are
    exactly k-sparse after every step; entries that are zero may come back in a later step. Costs 32 comparisons of all
    entries, whatever k is (64 in double precision). `optax.masked` keeps biases out of it.

    Args:
        k: number of entries to keep over all leaves, an integer or a traced integer; with `per_leaf` in every leaf, or
            a pytree of such counts like the parameters (or a prefix of it), None for a leaf that stays dense.
        per_leaf: count every leaf on its own.
        schedule: step number (from 0) -> the share of the pruning that is done, from 0 (nothing is dropped) to 1 (k
            entries are left): with d entries, d - round(share (d - k)) are kept. Any optax schedule, for example
            `optax.polynomial_schedule(0.0, 1.0, power=3, transition_steps=1000)`, the cubic schedule of Zhu and Gupta
            (2017). None: k from the first step on.

    Raises:
        ValueError: if k is negative, not an integer, or a tree without `per_leaf`; in `update`, without params.

    Guarantee: with `optax.sgd(eta)` before it and a constant k this is IHT with step eta, and shares its theory.

    With Adam and no schedule it can settle on a wrong support: steps of nearly equal size, whatever the gradient,
    decide which entries survive the first cut, and what is cut hardly comes back. Let a schedule prune.

    Source: Blumensath and Davies (2009); gradual schedules after Zhu and Gupta (2017).
    """
    k = jax.tree.map(lambda count: check_count("k", count), k)
    if not per_leaf and not jax.tree_util.treedef_is_leaf(jax.tree.structure(k)):
        raise ValueError("k: is a pytree of counts; pass per_leaf=True to count every leaf on its own.")

    def init(params: PyTree) -> KeepTopKState:
        del params
        return KeepTopKState(jnp.zeros((), jnp.int32))

    def update(updates: PyTree, state: KeepTopKState, params: PyTree = None) -> tuple[PyTree, KeepTopKState]:
        if params is None:
            raise ValueError("params: keep_top_k needs them; call update(updates, state, params).")
        share = 1.0 if schedule is None else jnp.clip(schedule(state.steps), 0, 1)
        new = jax.tree.map(lambda p, u: p + u.astype(p.dtype), params, updates)
        kept = _kept(jax.tree.map(jnp.abs, new), k, per_leaf, share)
        # p + (-p) is exactly zero.
        updates = jax.tree.map(lambda keep, p, u: jnp.where(keep, u.astype(p.dtype), -p), kept, params, updates)
        return updates, KeepTopKState(optax.safe_increment(state.steps))

    return optax.GradientTransformation(init, update)


def _kept(scores: PyTree, k: PyTree, per_leaf: bool, share: Any) -> PyTree:
    """True where an entry is kept."""
    if per_leaf:
        return jax.tree.map(
            lambda count, part: jax.tree.map(lambda leaf: _largest(leaf, count, share), part),
            k,
            scores,
            is_leaf=lambda count: count is None,
        )
    leaves, structure = jax.tree.flatten(scores)
    if not leaves:
        return scores
    flat = jnp.concatenate([leaf.ravel() for leaf in leaves])
    pieces = jnp.split(_largest(flat, k, share), np.cumsum([leaf.size for leaf in leaves])[:-1])
    return jax.tree.unflatten(
        structure, [piece.reshape(leaf.shape) for piece, leaf in zip(pieces, leaves, strict=True)]
    )


def _largest(scores: Float[Array, "*shape"], k: Any, share: Any) -> Bool[Array, "*shape"]:
    if k is None:
        return jnp.ones(scores.shape, bool)
    if is_concrete(k) and np.max(k) >= scores.size:
        return jnp.ones(scores.shape, bool)
    drop = jnp.round(share * jnp.maximum(scores.size - jnp.asarray(k, float), 0)).astype(jnp.int32)
    return largest(scores.ravel(), scores.size - drop).reshape(scores.shape)
