"""Functions of a user's that hold arrays: what they hold as data, and the rest as what a program is compiled for."""

import abc
from collections.abc import Callable, Hashable

import equinox as eqx
import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Array, PyTree


class Held(abc.ABC):
    """A function but for the arrays that it holds."""

    @abc.abstractmethod
    def with_arrays(self, arrays: list[Array]) -> Callable[..., PyTree]:
        """The function."""


class _Tree(Held):
    """A callable that is a pytree, such as an `eqx.Module` or a `jax.tree_util.Partial`: equal for equal structures."""

    def __init__(self, structure: jax.tree_util.PyTreeDef, rest: tuple[Hashable, ...]) -> None:
        self.parts = structure, rest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Tree) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def with_arrays(self, arrays: list[Array]) -> Callable[..., PyTree]:
        structure, rest = self.parts
        left = iter(arrays)
        whole: Callable[..., PyTree] = jax.tree.unflatten(structure, [next(left) if a is None else a for a in rest])
        return whole


class Closure(Held):
    """A function that uses traced values from around it (`fun`), traced for arguments of one kind."""

    def __init__(self, fun: Callable[..., PyTree], closed: ClosedJaxpr, structure: jax.tree_util.PyTreeDef) -> None:
        self.fun, self.jaxpr, self.structure = fun, closed.jaxpr, structure

    def with_arrays(self, arrays: list[Array]) -> Callable[..., PyTree]:
        def call(*args: PyTree) -> PyTree:
            returned = jaxpr_as_fun(ClosedJaxpr(self.jaxpr, arrays))(*jax.tree.leaves(args))
            return jax.tree.unflatten(self.structure, returned)

        return call


def of_tree(fun: Callable[..., PyTree]) -> tuple[Held, list[Array]] | None:
    """A callable pytree without its arrays, and these; None for other functions."""
    leaves, structure = jax.tree.flatten(fun)
    if len(leaves) == 1 and leaves[0] is fun:
        return None
    arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
    return _Tree(structure, tuple(None if eqx.is_array(leaf) else leaf for leaf in leaves)), arrays


def of_closure(fun: Callable[..., PyTree], *example: PyTree) -> tuple[Held, list[Array]] | None:
    """A function without the traced values that it takes from around it, for arguments as these, and the values; None
    where it takes none."""
    closed, shape = jax.make_jaxpr(fun, return_shape=True)(*example)
    if not any(isinstance(value, jax.core.Tracer) for value in closed.consts):
        return None
    return Closure(fun, closed, jax.tree.structure(shape)), list(closed.consts)
