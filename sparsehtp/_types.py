"""Values that flow between the parts of the library."""

import contextlib
import functools
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.experimental import multihost_utils
from jaxtyping import Array, Bool, Float, Int

from ._programs import program

SYMMETRY = 1e-5  # of the largest entry

ArrayLike: TypeAlias = npt.ArrayLike  # what a user passes
TableLike: TypeAlias = Any  # arrays, sparse matrices and data frames; the last two have no types
DType: TypeAlias = np.dtype[Any]
HostArray: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[Any]]  # np.ndarray, which mypy takes for an open Any
AnyArray: TypeAlias = Array | np.ndarray  # on the host where it is known, so that it is known inside jit too
Scalar: TypeAlias = Float[Array, ""] | float
T = TypeVar("T")

PIECE = 2**26  # bytes that are looked at together
ALIGNED = 64  # bytes


def serialised(kind: type[T]) -> type[T]:
    """A named tuple that a function exported by `jax.export` may take or return."""
    with contextlib.suppress(ValueError):  # the name is taken where a module is loaded anew, as notebooks do
        jax.export.register_namedtuple_serialization(kind, serialized_name=f"sparsehtp.{kind.__name__}")
    return kind


@serialised
class Support(NamedTuple):
    """Units that may be nonzero, padded to a static length.

    Attributes:
        idx: (m,) int32 indices of units, in the order free, kept, chosen. Entries where `mask` is False are padding
            (valid indices whose values must not be used).
        mask: (m,) True for the units in the support. A unit in the support may still have the value zero.
    """

    idx: Int[Array, "m"]
    mask: Bool[Array, "m"]


@serialised
class Factors(NamedTuple):
    """A matrix of low rank, `left * values @ right.T`; takes the place of a support under a rank constraint.

    Attributes:
        left: (p, r) orthonormal columns, zero where the value is.
        values: (r,) singular values, largest first.
        right: (c, r) orthonormal columns, zero where the value is.
        mask: (r,) True for the triplets that may be nonzero.
    """

    left: Float[Array, "p r"]
    values: Float[Array, "r"]
    right: Float[Array, "c r"]
    mask: Bool[Array, "r"]


@serialised
class Info(NamedTuple):
    """A step's report; the same fields for every solver, and the columns of a history.

    Attributes:
        value: objective plus `threshold.value` at the iterate after the step.
        grad_norm: Euclidean norm of the gradient over the support (projected where bounds are active).
        step_norm: Euclidean distance between the iterates before and after the step.
        step_size: step size that was used.
        support_size: number of units in the support, free ones left out.
        support_changed: 1 if the support differs from the one before the step.
        ifo: per-sample gradient evaluations (incremental first-order oracle calls) of the step, those of finding its
            size included; a floating number, since sums of whole ones would overflow.
        hard_thresholds: applications of the threshold in the step.
        design_products: products with the whole design in the step (a gradient at a sparse iterate counts one).
        gap: primal minus dual value where the solver has one, infinity elsewhere.
        status: 0, or the `RESULTS` code of a fault of this iterate (singular, nonfinite, support_overflow).
    """

    value: Float[Array, ""]
    grad_norm: Float[Array, ""]
    step_norm: Float[Array, ""]
    step_size: Float[Array, ""]
    support_size: Int[Array, ""]
    support_changed: Int[Array, ""]
    ifo: Float[Array, ""]
    hard_thresholds: Int[Array, ""]
    design_products: Int[Array, ""]
    gap: Float[Array, ""]
    status: Int[Array, ""]


def is_concrete(*values: Any) -> bool:
    """True if no leaf of the values is a JAX tracer, so that they can be looked at."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def check_kind(name: str, value: Any, kind: type[T], example: str) -> T:
    """The value of an argument, or TypeError that names it unless it is an instance of a class."""
    if not isinstance(value, kind):
        what = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
        raise TypeError(f"{name}: needs an instance such as {example}, got {what}.")
    return value


def check_precision(name: str, value: Any) -> None:
    """ValueError for an argument that holds concrete arrays in double precision where JAX has single."""
    leaves = () if jax.dtypes.canonicalize_dtype(float) == np.float64 else jax.tree.leaves(value)
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)]
    if any(array.dtype == np.float64 for array in arrays):
        raise ValueError(
            f"{name}: holds arrays in double precision, which JAX computes in inside jax.enable_x64(True) only; solve "
            "it there, or make it of float32 data."
        )


def check_finite(name: str, *values: Any, remedy: str = "remove or impute them first") -> None:
    """ValueError that names an argument whose pytrees hold NaN or an infinite value where they are concrete.

    Everything from outside is looked at here, entry by entry and once, where it lives. A maximum would not do: it drops
    NaN on a CPU in jaxlib 0.10.0 to 0.10.2 (tests/regressions/test_nan.py).
    """
    for leaf in jax.tree.leaves(values):
        array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        if isinstance(array, jax.core.Tracer) or not jnp.issubdtype(array.dtype, jnp.inexact):
            continue
        if isinstance(array, jax.Array) and not lies_on_host(array):
            with jax.ensure_compile_time_eval():  # data from outside of a transformation would be staged in it
                finite = bool(host(_all_finite(array)))
        else:
            array = np.atleast_1d(np.asarray(array))
            finite = all(np.isfinite(piece).all() for piece in np.array_split(array, 1 + array.nbytes // PIECE))
        if not finite:
            raise ValueError(f"{name}: holds NaN or infinite values; {remedy}.")


def all_finite(*values: Any) -> Bool[Array, ""]:
    """Whether all floating numbers of some pytrees are finite; they may be traced."""
    leaves = [leaf for leaf in jax.tree.leaves(values) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return functools.reduce(jnp.logical_and, (jnp.isfinite(leaf).all() for leaf in leaves), jnp.asarray(True))


_all_finite = program(all_finite)


def is_sound(data: Any, settings: Any) -> Any:
    """Whether traced data are finite, and traced settings, which may be infinite, not NaN; others were looked at."""
    numbers, limits = ([leaf for leaf in jax.tree.leaves(each) if not is_concrete(leaf)] for each in (data, settings))
    return _finite(numbers, limits) if numbers or limits else np.True_


@program
def _finite(numbers: list[Array], limits: list[Array]) -> Bool[Array, ""]:
    limits = [leaf for leaf in limits if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return all_finite(numbers, [jnp.where(jnp.isinf(leaf), 0, leaf) for leaf in limits])


def answer_where(sound: Bool[Array, ""] | np.bool_, otherwise: float, answer: T) -> T:
    """One value where the data are sound, and another where they are not."""
    return jax.tree.map(lambda leaf: jnp.where(sound, leaf, jnp.asarray(otherwise, leaf.dtype)), answer)


def seeded(seed: int) -> Array:
    """`jax.random.key(seed)`, made once, and for JAX's default generator without compiling a program."""
    return _seeded(seed, jax.config.values["jax_default_prng_impl"], jax.dtypes.canonicalize_dtype(float))


@functools.lru_cache
def _seeded(seed: int, generator: str, dtype: DType) -> Array:
    with jax.ensure_compile_time_eval():  # the first call may be traced
        if generator != "threefry2x32" or not 0 <= seed < 2**32:
            return jax.random.key(seed)
        words: Any = np.array([0, seed], np.uint32)
        return jax.random.wrap_key_data(words, impl="threefry2x32")


def lies_on_host(array: Array) -> bool:
    """Whether a concrete array is in this computer's memory, whole, where NumPy reads it as fast."""
    devices = array.devices()
    return len(devices) == 1 and next(iter(devices)).platform == "cpu"


def owned(values: HostArray, dtype: npt.DTypeLike) -> Array:
    """A copy of some values that is JAX's alone, made once: XLA uses memory in place if it begins at a multiple of 64
    bytes, and copies any other again."""
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    room = np.empty(values.size * dtype.itemsize + ALIGNED, np.uint8)
    start = -room.ctypes.data % ALIGNED
    copy = room[start : start + values.size * dtype.itemsize].view(dtype).reshape(values.shape)
    with np.errstate(over="ignore"):  # numbers that the dtype cannot hold become infinite, which is checked
        copy[...] = values
    return jax.device_put(copy)


def host(value: Any) -> np.ndarray:
    """A concrete array as a NumPy array, gathered where its parts are with several processes."""
    if isinstance(value, jax.Array) and not (value.is_fully_addressable or value.is_fully_replicated):
        return np.asarray(multihost_utils.process_allgather(value, tiled=True))
    return np.asarray(value)


def imported(value: Any) -> Any:
    """An array of another library, by its `__dlpack__`, as NumPy's where its memory is the host's and JAX's elsewhere;
    all else as it is."""
    if isinstance(value, np.ndarray | jax.Array) or not hasattr(value, "__dlpack_device__"):
        return value
    on_host = value.__dlpack_device__()[0] == 1  # DLPack's number of the CPU
    return np.from_dlpack(value) if on_host else jnp.from_dlpack(value)


def check_collected(name: str, value: Any) -> None:
    """ValueError for a query of polars that has not run."""
    if type(value).__name__ == "LazyFrame":
        raise ValueError(f"{name}: a LazyFrame holds no rows yet; pass its .collect().")


def floating(value: ArrayLike) -> Array:
    """An array of floating numbers, in the dtype of those that are."""
    array = jnp.asarray(value)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(float)


def check_symmetric(name: str, value: AnyArray) -> None:
    """ValueError for a concrete, finite, square matrix that is not symmetric, but for rounding."""
    if not is_concrete(value) or not value.size:
        return
    a = np.asarray(value)
    if np.abs(a - a.T).max() > SYMMETRY * np.abs(a).max():
        raise ValueError(f"{name}: is not symmetric; pass ({name} + {name}.T) / 2 if that is what is meant.")


def replace(module: T, **fields: Any) -> T:
    """A copy of a module with some fields, static ones too, replaced."""
    new = object.__new__(type(module))
    for name, value in {**vars(module), **fields}.items():
        object.__setattr__(new, name, value)
    return new
