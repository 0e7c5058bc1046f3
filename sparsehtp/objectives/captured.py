"""Functions of a user's that hold arrays: what they hold as data, and the rest as what a program is compiled for."""

import enum
from collections.abc import Callable, Hashable

import equinox as eqx
import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Array, PyTree

from .._meshes import on_explicit_axes


class _Place(enum.Enum):
    """Where an array was."""

    ARRAY = "array"


class _Tree:
    """A callable that is a pytree, such as an `eqx.Module` or a `jax.tree_util.Partial`: equal for equal structures.

    Its text tells all that decides what it computes, by which a checkpoint knows it again.
    """

    def __init__(self, skeleton: Callable[..., PyTree]) -> None:
        self.skeleton = skeleton

    def _parts(self) -> tuple[Hashable, ...]:
        leaves, structure = jax.tree.flatten(self.skeleton)
        return structure, *leaves

    def __repr__(self) -> str:
        structure, *leaves = self._parts()
        return f"{self.skeleton} {structure} {leaves}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Tree) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def with_arrays(self, arrays: list[Array]) -> Callable[..., PyTree]:
        left = iter(arrays)
        whole: Callable[..., PyTree] = jax.tree.map(
            lambda leaf: next(left) if leaf is _Place.ARRAY else leaf, self.skeleton
        )
        return whole


class Closure:
    """A function that uses traced values from around it (`fun`), traced for arguments of one kind."""

    def __init__(self, fun: Callable[..., PyTree], closed: ClosedJaxpr, structure: jax.tree_util.PyTreeDef) -> None:
        self.fun, self.jaxpr, self.structure = fun, closed.jaxpr, structure

    def __repr__(self) -> str:
        return f"{self.fun} {self.jaxpr}"

    def with_arrays(self, arrays: list[Array]) -> Callable[..., PyTree]:
        def call(*args: PyTree) -> PyTree:
            returned = jaxpr_as_fun(ClosedJaxpr(self.jaxpr, arrays))(*jax.tree.leaves(args))
            return jax.tree.unflatten(self.structure, returned)

        return call


Held = _Tree | Closure  # a function but for the arrays that it holds


def of_tree(fun: Callable[..., PyTree]) -> tuple[Held, list[Array]] | None:
    """A callable pytree without its arrays, and these; None for other functions."""
    leaves, structure = jax.tree.flatten(fun)
    if len(leaves) == 1 and leaves[0] is fun:
        return None
    arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
    skeleton: Callable[..., PyTree] = jax.tree.unflatten(
        structure, [_Place.ARRAY if eqx.is_array(leaf) else leaf for leaf in leaves]
    )
    return _Tree(skeleton), arrays


def of_closure(fun: Callable[..., PyTree], *example: PyTree) -> tuple[Held, list[Array]] | None:
    """A function without the traced values that it takes from around it, for arguments as these, and the values; None
    where it takes none."""
    closed, shape = jax.make_jaxpr(fun, return_shape=True)(*example)
    if any(map(on_explicit_axes, closed.consts)):
        raise TypeError("fun: uses an array from around it that is cut along explicit axes; pass it through args.")
    if not any(isinstance(value, jax.core.Tracer) for value in closed.consts):
        return None
    return Closure(fun, closed, jax.tree.structure(shape)), list(closed.consts)
