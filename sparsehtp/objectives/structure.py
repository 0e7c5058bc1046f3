"""Pytrees of arrays as one vector."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._types import DType


class Structure(NamedTuple):
    """How a pytree of arrays is ravelled: its tree, and the shapes and dtypes of its leaves. Hashable."""

    tree: PyTree
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Entries of every leaf."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def described(self) -> str:
        """The shapes, for a message."""
        array = jax.tree_util.treedef_is_leaf(self.tree)
        return f"shape {self.shapes[0]}" if array else f"the tree {self.tree} with shapes {self.shapes}"

    def example(self) -> PyTree:
        """The shapes and dtypes of the leaves, in their tree."""
        leaves = [jax.ShapeDtypeStruct(*each) for each in zip(self.shapes, self.dtypes, strict=True)]
        return jax.tree.unflatten(self.tree, leaves)

    @property
    def dtype(self) -> DType:
        """Dtype of the ravelled vector."""
        return jnp.result_type(*self.dtypes)

    def unravel(self, x: Float[Array, "d"]) -> PyTree:
        """The pytree whose leaves are the pieces of x."""
        pieces = jnp.split(x, np.cumsum(self.sizes)[:-1])
        leaves = [
            piece.reshape(shape).astype(dtype)
            for piece, shape, dtype in zip(pieces, self.shapes, self.dtypes, strict=True)
        ]
        return jax.tree.unflatten(self.tree, leaves)


def structure_of(name: str, tree: PyTree) -> Structure:
    """The structure of a pytree of floating arrays (or of shapes), or TypeError."""
    leaves, treedef = jax.tree.flatten(jax.tree.map(lambda a: a if hasattr(a, "shape") else np.asarray(a), tree))
    dtypes = [jax.dtypes.canonicalize_dtype(leaf.dtype) for leaf in leaves]
    if not leaves or not all(jnp.issubdtype(dtype, jnp.floating) for dtype in dtypes):
        raise TypeError(
            f"{name}: needs an array or a pytree of floating arrays, got dtypes {[str(d) for d in dtypes]}."
        )
    return Structure(treedef, tuple(tuple(leaf.shape) for leaf in leaves), tuple(str(dtype) for dtype in dtypes))
