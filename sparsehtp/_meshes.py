"""Meshes with explicit axes, which `jax.make_mesh` makes: outside of transformations they count as automatic."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding


def on_automatic_axes(leaf: Any) -> Any:
    """An array that is cut along explicit axes as one along automatic axes of the same devices, and all else as it is:
    what follows need not say how its results are cut. Nothing is moved."""
    if not on_explicit_axes(leaf):
        return leaf
    return jax.device_put(leaf, NamedSharding(_automatic(leaf.sharding.mesh), leaf.sharding.spec))


def on_explicit_axes(leaf: Any) -> bool:
    """Whether a leaf is a concrete array on a mesh with explicit axes."""
    sharding = leaf.sharding if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer) else None
    return isinstance(sharding, NamedSharding) and AxisType.Explicit in sharding.mesh.axis_types


@contextlib.contextmanager
def automatic_axes() -> Iterator[None]:
    """The mesh of `jax.set_mesh`, if its axes are explicit, with automatic ones; not inside transformations."""
    if AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types:
        with jax.set_mesh(_automatic(jax.sharding.get_mesh())):
            yield
    else:
        yield


def check_axes(name: str, value: Any) -> None:
    """TypeError for traced arrays of which JAX asks how every result is cut, or on which devices it differs."""
    for leaf in jax.tree.leaves(value):
        aval: Any = leaf.aval if isinstance(leaf, jax.core.Tracer) else None
        sharding: Any = getattr(aval, "sharding", None)
        explicit = sharding is not None and AxisType.Explicit in sharding.mesh.axis_types
        if explicit and any(part is not None for part in sharding.spec):
            raise TypeError(
                f"{name}: inside jit it is cut along explicit axes; make the mesh by jax.make_mesh(shape, names, "
                "axis_types=(jax.sharding.AxisType.Auto,) * len(names))."
            )
        kind = getattr(aval, "manual_axis_type", aval)  # from JAX 0.10 on
        if getattr(kind, "varying", getattr(kind, "vma", None)):
            raise TypeError(f"{name}: differs between devices, which shard_map looks at; pass check_vma=False to it.")


def _automatic(mesh: Any) -> Mesh:
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
