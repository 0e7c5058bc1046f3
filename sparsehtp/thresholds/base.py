"""The interfaces of thresholds: projections onto structured sets, and their supports."""

import abc
import math
from typing import ClassVar, NamedTuple, Protocol, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._types import AnyArray, ArrayLike, DType, Factors, HostArray, Support, host, is_concrete, replace
from ..linalg import WHOLE, Box, top_k

LEAST_K_MAX = 16  # one compiled program for all smaller k


class Bindable(Protocol):
    """The attributes that a threshold asks of an objective, all of which `AbstractObjective` has."""

    @property
    def n_coefficients(self) -> int: ...
    @property
    def n_free(self) -> int: ...
    @property
    def external_shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def rescaled(self) -> bool: ...
    @property
    def n_variables(self) -> int | None: ...
    @property
    def leaf_sizes(self) -> PyTree[int] | None: ...
    def internal_scale(self) -> Float[AnyArray, "p"] | None: ...


class Unscaled(NamedTuple):
    """Coefficients of a shape in original units, for a threshold that is checked where there is no objective yet."""

    external_shape: tuple[int, ...]
    n_free: int = 0
    dtype: DType = np.dtype(float)
    rescaled: bool = False
    n_variables: None = None
    leaf_sizes: None = None

    @property
    def n_coefficients(self) -> int:
        return math.prod(self.external_shape)

    def internal_scale(self) -> None:
        return None


class AbstractThreshold(eqx.Module):
    """A projection onto a structured set, or the proximal map of a penalty, on the coefficient rows of x."""

    kind: ClassVar[str] = "units"  # what a Support indexes: "entries", "groups", "rows", "pairs", "leaves"; or "rank"
    penalises: ClassVar[bool] = False  # its `value` is not zero
    summed: ClassVar[bool] = False  # the coefficients have a given sum
    noun: ClassVar[str] = "feature"  # a unit in messages
    counts: ClassVar[tuple[str, ...]] = ()  # fields that hold k, or the like
    n_free: eqx.AbstractVar[int]  # trailing entries of x that the threshold leaves alone

    @property
    def bounded(self) -> bool:
        """True if coefficients have bounds, so that a refit on a support is no linear system."""
        return False

    @property
    def exchangeable(self) -> bool:
        """True if any unit may take the place of another in a support."""
        return False

    @property
    def plain(self) -> bool:
        """True if it keeps any k entries as they are."""
        return self.kind == "entries" and self.exchangeable and not (self.bounded or self.summed)

    @property
    def entries_per_unit(self) -> int:
        """Entries that a unit covers at most."""
        return 1

    @abc.abstractmethod
    def bind(self, objective: Bindable) -> Self:
        """This threshold with its static sizes, and its bounds in the solver's units, fixed for an objective."""

    @property
    def fewest(self) -> int:
        """The smallest count there is a solution for."""
        return 0

    def counted(self) -> tuple[Self, Bool[Array, ""] | bool]:
        """This threshold with no count below `fewest`, and whether none was: nothing else stops a traced k of -1."""
        fields = {name: getattr(self, name) for name in self.counts}
        traced = [count for count in jax.tree.leaves(fields) if not is_concrete(count)]
        if not traced:
            return self, True
        fields = jax.tree.map(lambda count: jnp.maximum(count, self.fewest), fields)
        return replace(self, **fields), jnp.min(jnp.stack(traced)) >= self.fewest

    @abc.abstractmethod
    def __call__(
        self, z: Float[Array, "d"], step_size: Float[Array, ""] | float = 1.0
    ) -> tuple[Float[Array, "d"], Support | Factors]:
        """The projection (proximal point for `step_size`) of z, and the support that it keeps."""

    @abc.abstractmethod
    def entries(self, x: Float[Array, "d"], support: PyTree) -> Support | None:
        """The entries of x that a support of units covers; None: all of them."""

    def box(self, entries: Support) -> Box:
        """Where the entries of a support may lie."""
        return WHOLE

    @abc.abstractmethod
    def tangent(self, grad: Float[Array, "d"], support: PyTree) -> Float[Array, "d"]:
        """The part of a gradient along moves that keep the structure; on `entries` only, where those are given."""

    @abc.abstractmethod
    def size(self, support: PyTree) -> Int[Array, ""]:
        """Number of units in a support, free ones left out."""

    @abc.abstractmethod
    def differs(self, a: PyTree, b: PyTree) -> Bool[Array, ""]:
        """True if two supports are not the same."""

    def visible(self, support: PyTree) -> PyTree:
        """A support without the free entries."""
        return support

    def free_gradient(self, x: Float[Array, "d"], grad: Float[Array, "d"]) -> Float[Array, "d"]:
        """The gradient, zero where a bound is active and the gradient pushes outwards."""
        return grad

    def value(self, x: Float[Array, "d"]) -> Float[Array, ""]:
        """The penalty's value; zero for a constraint."""
        return jnp.zeros((), x.dtype)

    def overflow(self, x: Float[Array, "d"]) -> Bool[Array, ""]:
        """True if more units survive than `k_max` allows."""
        return jnp.zeros((), bool)


class AbstractSupportThreshold(AbstractThreshold):
    """A threshold whose result is described by a `Support`, the free entries first."""

    @abc.abstractmethod
    def entries(self, x: Float[Array, "d"], support: Support) -> Support:
        """The entries of x that a support of units covers."""

    def tangent(self, grad: Float[Array, "d"], support: Support) -> Float[Array, "d"]:
        return grad

    def size(self, support: Support) -> Int[Array, ""]:
        return jnp.sum(support.mask, dtype=jnp.int32) - self.n_free

    def differs(self, a: Support, b: Support) -> Bool[Array, ""]:
        unused = jnp.iinfo(jnp.int32).max
        first, second = (jnp.sort(jnp.where(s.mask, s.idx, unused)) for s in (a, b))
        return jnp.any(first != second)

    def visible(self, support: Support) -> Support:
        return Support(support.idx[self.n_free :], support.mask[self.n_free :])

    def with_free(self, support: Support, units: int) -> Support:
        """The support that `visible` was made from; `units` are those to choose from."""
        free = units + jnp.arange(self.n_free, dtype=jnp.int32)
        mask = jnp.concatenate([jnp.ones(self.n_free, bool), support.mask])
        return Support(jnp.concatenate([free, support.idx]), mask)


class AbstractUnitThreshold(AbstractSupportThreshold):
    """Keeps the k units (entries or groups) with the largest scores, besides the units in `keep` and the free entries.

    Ties take the lower index. k may exceed the number of nonzeros: support and nonzeros are different things.
    """

    counts = ("k",)
    least_k_max: ClassVar[int] = LEAST_K_MAX
    k: eqx.AbstractVar[Int[AnyArray, ""]]
    keep: eqx.AbstractVar[Int[AnyArray, "n_keep"]]
    k_max: eqx.AbstractVar[int | None]

    @property
    def exchangeable(self) -> bool:
        return True

    @abc.abstractmethod
    def scores(self, z: Float[Array, "d"]) -> Float[Array, "units"]:
        """Nonnegative score of every unit: the root of twice the decrease in squared distance from keeping it."""

    def occupied(self, x: Float[Array, "d"]) -> Bool[Array, "units"]:
        """The units with a nonzero coefficient."""
        return self.scores(x) > 0

    def clip(self, z: Float[Array, "d"]) -> Float[Array, "d"]:
        """z moved into the bounds."""
        return z

    @property
    def most(self) -> int:
        """Units that are chosen beside the kept ones at most, once bound: `k_max`."""
        return int(self.k_max or 0)

    @property
    def room(self) -> int:
        """Units that a support has room for, once bound."""
        return int(self.keep.shape[0] + self.most)

    def n_units(self, objective: Bindable) -> int:
        """Units to choose from, kept ones included, once bound to an objective."""
        x = jax.ShapeDtypeStruct((objective.n_coefficients + objective.n_free,), objective.dtype)
        return int(jax.eval_shape(self.scores, x).shape[0])

    def locked(self, units: int) -> Bool[Array, "units"]:
        """The units that are always in."""
        return jnp.zeros(units, bool).at[jnp.asarray(self.keep, jnp.int32)].set(True)

    def pools(self, units: int) -> tuple[Int[Array, "units"], Int[Array, "pools"]]:
        """The pool that every unit belongs to, and how many of each are chosen."""
        return jnp.zeros(units, jnp.int32), jnp.asarray(self.k, jnp.int32)[None]

    def select(self, scores: Float[Array, "units"], factor: int = 1) -> Support:
        """The units with the `factor * k` largest scores, after the free and the kept ones."""
        units = scores.shape[0]
        n_keep = self.keep.shape[0]
        k_max = default_k_max(self.k, units - n_keep, self.least_k_max) if self.k_max is None else self.k_max
        k_max, k = min(factor * k_max, units - n_keep), factor * self.k
        if n_keep:
            scores = scores.at[self.keep].set(-jnp.inf)
        free = units + jnp.arange(self.n_free, dtype=jnp.int32)
        idx = jnp.concatenate([free, self.keep, top_k(scores, k_max)])
        return Support(idx, jnp.arange(idx.shape[0]) < self.n_free + n_keep + k)

    def margin(self, z: Float[Array, "d"], support: Support) -> Float[Array, ""]:
        """1 - (largest score outside a support) / (smallest score of its chosen units) at z; 0 where both are zero."""
        scores = self.scores(z)
        first = self.n_free + self.keep.shape[0]
        idx, mask = support.idx[first:], support.mask[first:]
        least = jnp.min(jnp.where(mask, scores[idx], jnp.inf), initial=jnp.inf)
        others = scores.at[self.keep].set(0) if self.keep.shape[0] else scores
        others = others.at[idx].min(jnp.where(mask, 0, jnp.inf))
        return _share(least, jnp.max(others, initial=0))

    def __call__(
        self, z: Float[Array, "d"], step_size: Float[Array, ""] | float = 1.0
    ) -> tuple[Float[Array, "d"], Support]:
        support = self.select(self.scores(z))
        return self.placed(z, support), support

    def placed(self, z: Float[Array, "d"], support: Support) -> Float[Array, "d"]:
        """The nearest point to z on a support."""
        clipped = self.clip(z)
        entries = self.entries(clipped, support)
        return jnp.zeros_like(z).at[entries.idx].add(jnp.where(entries.mask, clipped[entries.idx], 0))

    def overflow(self, x: Float[Array, "d"]) -> Bool[Array, ""]:
        return jnp.zeros((), bool) if self.k_max is None else jnp.asarray(self.k > self.k_max)


def _share(least: Float[Array, ""], greatest: Float[Array, ""]) -> Float[Array, ""]:
    tiny = jnp.finfo(least.dtype).tiny
    return jnp.where(least > tiny, 1 - greatest / jnp.maximum(least, tiny), jnp.where(greatest > 0, -jnp.inf, 0))


def members(support: Support, size: int) -> Bool[Array, "size"]:
    """Boolean form of a support over `size` units."""
    return jnp.zeros(size, jnp.int32).at[support.idx].add(support.mask.astype(jnp.int32)) > 0


def union(a: Support, b: Support, n_units: int) -> Support:
    """The union of two supports, padded to the sum of their lengths (at most `n_units`)."""
    member = members(a, n_units) | members(b, n_units)
    idx = top_k(member.astype(jnp.float32), min(a.idx.shape[0] + b.idx.shape[0], n_units))
    return Support(idx, member[idx])


def next_power_of_two(k: int) -> int:
    """The smallest power of two that is at least k (and at least 1)."""
    return 1 << max(k - 1, 0).bit_length()


def default_k_max(k: AnyArray | int, available: int, least: int = LEAST_K_MAX) -> int:
    """k_max for a concrete k: the next power of two from `least` on, at most the number of units to choose from."""
    if not is_concrete(k):
        raise ValueError(
            "k_max: a traced or batched k needs a static k_max; pass k_max to the threshold, or make the threshold "
            "inside of the function that is traced."
        )
    return min(available, max(least, next_power_of_two(int(np.max(k)))))


def _whole(k: ArrayLike) -> bool:
    """Whether concrete floats are whole numbers."""
    if not is_concrete(k) or not jnp.issubdtype(jnp.result_type(k), jnp.floating):
        return False
    return bool(np.all(np.isfinite(k)) and np.all(np.floor(k) == k))


def check_count(name: str, k: ArrayLike) -> AnyArray:
    """An int32 count from a nonnegative whole number, or ValueError; traced and batched integers pass through."""
    try:
        integer = k is not None and (jnp.issubdtype(jnp.result_type(k), jnp.integer) or _whole(k))
    except TypeError:  # not a number at all
        integer = False
    if not integer:
        raise ValueError(f"{name}: must be a nonnegative integer, got {k!r}.")
    if is_concrete(k) and np.min(k) < 0:
        raise ValueError(f"{name}: must be >= 0, got {np.min(k)}.")
    # NumPy keeps a concrete count concrete inside jit.
    return np.asarray(k, np.int32) if is_concrete(k) else jnp.asarray(k, jnp.int32)


def check_units(
    name: str, k: AnyArray, k_max: int | None, n_keep: int, units: int, what: str, least: int = LEAST_K_MAX
) -> int:
    """The k_max to use for `units` units, or ValueError if k and the kept units do not fit."""
    if np.ndim(k):
        raise ValueError(
            f"{name}: is one number for a solve, got shape {np.shape(k)}; use jax.vmap, or sht.solve_path."
        )
    available, k = units - n_keep, host(k) if is_concrete(k) else k
    if is_concrete(k) and k > available:
        kept = f" beside {n_keep} always kept" if n_keep else ""
        raise ValueError(f"{name}: is {int(k)}{kept}, but there are only {units} {what}; lower {name}.")
    if k_max is None:
        return default_k_max(k, available, least)
    if is_concrete(k) and k > k_max:
        raise ValueError(f"k_max: is {k_max}, below {name} = {int(k)}; raise k_max.")
    return min(k_max, available)


def check_keep(keep: ArrayLike | None) -> HostArray:
    """int32 indices from a sequence of distinct indices (None: no units)."""
    keep = np.asarray([] if keep is None else keep)
    if keep.dtype == bool:
        keep = np.flatnonzero(keep)
    if keep.ndim != 1 or (keep.size and keep.dtype.kind not in "iu") or np.unique(keep).size != keep.size:
        raise ValueError("keep: needs distinct integer indices (or a boolean mask) of units that are always kept.")
    return keep.astype(np.int32)


def check_keep_range(keep: AnyArray, units: int, what: str) -> None:
    """ValueError if a kept index is out of range."""
    if is_concrete(keep) and keep.size and (np.min(keep) < 0 or np.max(keep) >= units):
        raise ValueError(f"keep: holds an index outside 0..{units - 1} ({what}).")
