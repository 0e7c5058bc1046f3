"""At most so many nonzero entries in every leaf of a pytree."""

from __future__ import annotations

from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._types import AnyArray, ArrayLike, Support, replace
from ..linalg import top_k
from .base import AbstractUnitThreshold, Bindable, check_count, default_k_max


class LeafSparsity(AbstractUnitThreshold):
    """At most k_l nonzero entries in leaf l of x, for a `Custom` objective of a pytree.

    Called on z it keeps the k_l largest magnitudes of every leaf: the Euclidean projection onto the set.

    Args:
        ks: a pytree like x (or a prefix of it) of counts; None leaves a leaf dense.
        k_max: static upper limits, the same kind of tree. Default: the next power of two of every count, at
            least 16.

    Raises:
        ValueError: if a count is negative, not an integer, or above the size of its leaf; if the tree is no prefix of
            x's.
        TypeError: for an objective without leaves.
    """

    ks: PyTree[AnyArray]
    limits: PyTree = eqx.field(static=True)
    keep: Int[AnyArray, "0"]
    k_max: int | None = eqx.field(static=True)
    n_free: int = eqx.field(static=True)
    # (start, stop, k_max or None: dense) of every leaf, once bound
    blocks: tuple[tuple[int, int, int | None], ...] = eqx.field(static=True)

    kind = "leaves"
    counts = ("ks",)

    def __init__(self, ks: PyTree[ArrayLike], k_max: PyTree[int] = None):
        self.ks = jax.tree.map(lambda k: check_count("ks", k), ks)
        leaves, structure = jax.tree.flatten(k_max)
        self.limits = None if k_max is None else (tuple(int(check_count("k_max", k)) for k in leaves), structure)
        self.keep = np.zeros(0, np.int32)
        self.k_max, self.n_free, self.blocks = None, 0, ()

    @property  # type: ignore[misc]  # no field: it follows from ks
    def k(self) -> Int[AnyArray, ""]:  # type: ignore[override]
        """Number of entries that are chosen, over all leaves."""
        return sum(jax.tree.leaves(self.ks), start=np.zeros((), np.int32))

    def bind(self, objective: Bindable) -> Self:
        tree = objective.leaf_sizes
        if tree is None:
            raise TypeError(
                f"threshold: LeafSparsity needs a Custom objective, and {type(objective).__name__} is none."
            )
        limits = self.ks if self.limits is None else jax.tree.unflatten(self.limits[1], self.limits[0])
        try:
            ks = _spread(self.ks, tree)
            limits = [None if k is None else limit for k, limit in zip(ks, _spread(limits, tree), strict=True)]
        except ValueError as fault:
            raise ValueError(f"ks: must be a prefix of the pytree x; {fault}") from None
        blocks, start = [], 0
        for size, k, limit in zip(jax.tree.leaves(tree), ks, limits, strict=True):
            most = None if k is None else default_k_max(limit, size) if self.limits is None else min(limit, size)
            if k is not None and not isinstance(k, jax.core.Tracer) and np.max(k) > (size if most is None else most):
                raise ValueError(f"ks: is {int(np.max(k))} for a leaf of {size} entries and k_max {most}; lower it.")
            blocks.append((start, start + size, most))
            start += size
        k_max = sum(most for _, _, most in blocks if most is not None)
        return replace(self, ks=[k for k in ks if k is not None], k_max=k_max, blocks=tuple(blocks))

    def scores(self, z: Float[Array, "d"]) -> Float[Array, "units"]:
        return jnp.abs(z)

    def entries(self, x: Float[Array, "d"], support: Support) -> Support:
        return support

    def select(self, scores: Float[Array, "units"], factor: int = 1) -> Support:
        ks, dense, idx, mask = iter(self.ks), [], [], []
        for start, stop, most in self.blocks:
            if most is None:
                dense.append(jnp.arange(start, stop, dtype=jnp.int32))
                continue
            width = min(factor * most, stop - start)
            idx.append(start + top_k(scores[start:stop], width))
            mask.append(jnp.arange(width) < factor * next(ks))
        first = [jnp.ones(each.shape, bool) for each in dense]
        return Support(jnp.concatenate(dense + idx), jnp.concatenate(first + mask))

    @property
    def room(self) -> int:
        return int(sum(stop - start if most is None else most for start, stop, most in self.blocks))

    def locked(self, units: int) -> Bool[Array, "units"]:
        return jnp.asarray(np.concatenate([np.full(stop - start, most is None) for start, stop, most in self.blocks]))

    def pools(self, units: int) -> tuple[Int[Array, "units"], Int[Array, "pools"]]:
        ks = iter(self.ks)
        counts = [jnp.asarray(0 if most is None else next(ks), jnp.int32) for *_, most in self.blocks]
        sizes = [stop - start for start, stop, _ in self.blocks]
        return jnp.asarray(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)), jnp.stack(counts)

    def margin(self, z: Float[Array, "d"], support: Support) -> Float[Array, ""]:
        scores, margins, first = self.scores(z), [], sum(e - s for s, e, most in self.blocks if most is None)
        for start, stop, most in self.blocks:
            if most is not None:
                own = Support(support.idx[first : first + most] - start, support.mask[first : first + most])
                margins.append(super().margin(scores[start:stop], own))
                first += most
        return jnp.min(jnp.stack(margins)) if margins else jnp.ones((), z.dtype)

    def overflow(self, x: Float[Array, "d"]) -> Bool[Array, ""]:
        pairs = zip(self.ks, (most for *_, most in self.blocks if most is not None), strict=True)
        return jnp.any(jnp.stack([jnp.asarray(k > most) for k, most in pairs] or [jnp.zeros((), bool)]))


def _spread(prefix: PyTree, tree: PyTree) -> list[PyTree]:
    """The values of a prefix of a tree, one per leaf of the tree; None counts as a value."""
    out: list[PyTree] = []
    jax.tree.map(lambda value, part: out.extend([value] * len(jax.tree.leaves(part))), prefix, tree, is_leaf=_is_none)
    return out


def _is_none(value: object) -> bool:
    return value is None
