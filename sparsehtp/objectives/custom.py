"""Any JAX function of an array or a pytree as an objective, by automatic differentiation."""

import abc
import contextlib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._types import AnyArray, ArrayLike, DType, Support, check_finite, is_concrete, replace
from ..columns import check_weights, some_at_a_time, weight_vector
from ..linalg import dot, largest_eigenvalue, random_start
from ..thresholds import AbstractThreshold
from .base import AbstractByProducts
from .captured import Closure, Held, of_closure, of_tree
from .custom_ends import judged_at
from .custom_restricted import CustomLeft, CustomOnSupport
from .finite_sum import AbstractFiniteSum, AbstractSamples
from .structure import Structure, structure_of

# Where a shape of x that fun does not take comes from, and what to do.
_REMEDY = {
    "like": "that of like; correct fun or like",
    "x0": "that of x0; correct fun or x0",
    "Custom": "which args suggest; correct fun, or pass x0 or like=... with the shape of x",
}
ROOT = Path(__file__).parents[1]
BLOCK = 64  # Hessian columns at a time


class AbstractCustom(AbstractByProducts):
    """The base of `Custom` and `CustomSum`: x as an array or a pytree, and derivatives of F by differentiation."""

    convex = False

    args: tuple[PyTree, ...]
    features: Int[Array, "w"] | None  # coordinates of the whole x that this objective is a function of
    captured: list[Array]  # what fun holds
    fun: Callable[..., PyTree] | Held = eqx.field(static=True)
    structure: Structure | None = eqx.field(static=True)
    guessed: bool = eqx.field(static=True)

    def __init__(self, fun: Callable[..., PyTree], *args: PyTree, like: PyTree = None) -> None:
        if not callable(fun):
            raise TypeError(f"fun: needs a function (x, *args) -> scalar, got a {type(fun).__name__}.")
        self.fun, self.captured = of_tree(fun) or (fun, [])
        self.args = jax.tree.map(_numeric, args)
        check_finite("args", self.args, remedy="pass a mask where they stand for what is missing")
        self.features = None
        self.guessed = like is None
        self.structure = None
        if like is not None:
            structure = structure_of("like", like)
            self._check_shape("like", structure)
            self.fun, self.captured, self.structure = *self._closed(structure), structure
        elif (guess := self._guess()) is not None:
            with contextlib.suppress(ValueError):  # fun takes an x of another shape; x0 will tell
                self._check_shape("Custom", guess)
                self.fun, self.captured, self.structure = *self._closed(guess), guess

    def _guess(self) -> Structure | None:
        matrices = [leaf for leaf in jax.tree.leaves(self.args) if leaf.ndim == 2]
        if not matrices:
            return None
        dtype = matrices[0].dtype if jnp.issubdtype(matrices[0].dtype, jnp.floating) else jnp.result_type(float)
        return structure_of("x", jax.ShapeDtypeStruct(matrices[0].shape[1:], dtype))

    def _check_shape(self, name: str, structure: Structure) -> None:
        """ValueError unless fun takes an x of this structure and returns a scalar.

        What an x of a wrong shape may make fun raise becomes a sentence that names the argument, chained to it; all
        other errors of fun pass.
        """
        x = jax.ShapeDtypeStruct((sum(structure.sizes),), structure.dtype)
        try:
            returned = jax.tree.leaves(jax.eval_shape(lambda x: self._call(structure.unravel(x)), x))
        except jax.errors.ConcretizationTypeError as error:
            raise ValueError(
                f"fun: {_place(error)} asks for the value of a traced array; use jnp.where or jax.lax.cond."
            ) from error
        except jax.errors.TracerArrayConversionError as error:
            raise ValueError(f"fun: {_place(error)} calls NumPy with a traced array; use jax.numpy.") from error
        except (TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
            raise ValueError(
                f"{name}: fun raised {type(error).__name__} ({_place(error)}) for an x of {structure.described}, "
                f"{_REMEDY[name]}."
            ) from error
        shapes = [each.shape for each in returned]
        if shapes != [()]:
            raise ValueError(f"fun: must return a scalar, got shapes {shapes} for an x of {structure.described}.")
        if not jnp.issubdtype(returned[0].dtype, jnp.floating):
            raise ValueError(f"fun: must return a floating number, got {returned[0].dtype}, which has no derivative.")

    def started(self, x0: PyTree) -> Self:
        if x0 is None or not self.guessed:
            return self
        structure = structure_of("x0", x0)
        if isinstance(self.fun, Closure):  # traced for a guess
            self = replace(self, fun=self.fun.fun, captured=[])
        self._check_shape("x0", structure)
        fun, captured = self._closed(structure)
        return replace(self, fun=fun, captured=captured, structure=structure)

    @property
    def function(self) -> Callable[..., PyTree]:
        """fun, with what it holds."""
        return self.fun.with_arrays(self.captured) if isinstance(self.fun, Held) else self.fun

    def _closed(self, structure: Structure) -> tuple[Callable[..., PyTree] | Held, list[Array]]:
        """fun for an x of this structure, without traced values from around it, and these values."""
        found = None if isinstance(self.fun, Held) else of_closure(self.fun, structure.example(), *self._each())
        return found or (self.fun, self.captured)

    @abc.abstractmethod
    def _each(self) -> tuple[PyTree, ...]:
        """Arguments of fun beside x."""

    def _known(self) -> Structure:
        if self.structure is not None:
            return self.structure
        if (guess := self._guess()) is not None:
            self._check_shape("Custom", guess)
        name = getattr(self.fun, "__name__", "fun")
        raise ValueError(f"Custom: the shape of x is unknown; pass x0, or like=..., to Custom({name}, ...).")

    # --- shape and units ---------------------------------------------------------------------------------------------
    @property
    def n_coefficients(self) -> int:
        return sum(self._known().sizes) if self.features is None else self.features.shape[0]

    @property
    def external_shape(self) -> tuple[int, ...]:
        structure = self._known()
        array = self.features is None and jax.tree_util.treedef_is_leaf(structure.tree)
        return structure.shapes[0] if array and len(structure.shapes[0]) == 2 else (self.n_coefficients,)

    @property
    def leaf_sizes(self) -> PyTree[int]:
        """Entries of every leaf of x."""
        return jax.tree.unflatten(self._known().tree, self._known().sizes)

    @property
    def dtype(self) -> DType:
        return self._known().dtype

    @property
    def ifo_per_gradient(self) -> int:
        return 1

    @property
    def n_samples(self) -> int:
        return max((leaf.shape[0] for leaf in jax.tree.leaves(self.args) if leaf.ndim), default=1)

    def coefficients(self, x0: PyTree) -> PyTree:
        structure, given = self._known(), structure_of("x0", x0)
        if given[:2] != structure[:2]:
            raise ValueError(f"x0: needs {structure.described}, got {given.described}.")
        return jax.tree.map(jnp.asarray, x0)

    def to_internal(self, x: PyTree, intercept: AnyArray | float = 0.0) -> Float[Array, "d"]:
        return jnp.concatenate([jnp.ravel(leaf).astype(self.dtype) for leaf in jax.tree.leaves(x)])

    def to_external(self, x: Float[Array, "d"]) -> tuple[PyTree, Float[Array, "..."]]:
        return self._known().unravel(x), jnp.zeros((), x.dtype)

    def parts(self, x: Float[Array, "d"]) -> tuple[Float[Array, "units"], Float[Array, "..."]]:
        return x, jnp.zeros((), x.dtype)

    # --- values and derivatives --------------------------------------------------------------------------------------
    @abc.abstractmethod
    def _call(self, tree: PyTree) -> Array:
        """F at x."""

    def _tree(self, x: Float[Array, "d"]) -> PyTree:
        if self.features is not None:
            x = jnp.zeros(sum(self._known().sizes), x.dtype).at[self.features].set(x)
        return self._known().unravel(x)

    def forward(
        self, x: Float[Array, "d"], support: Support | None = None
    ) -> Float[Array, "d"]:  # nothing is shared but x itself
        return x

    def value_at(self, forward: Float[Array, "d"], x: Float[Array, "d"]) -> Float[Array, ""]:
        return jnp.asarray(self._call(self._tree(x)), x.dtype)

    def grad_at(self, forward: Float[Array, "d"], x: Float[Array, "d"]) -> Float[Array, "d"]:
        return jax.grad(self.value)(x)

    def hvp(self, x: Float[Array, "d"], v: Float[Array, "d"]) -> Float[Array, "d"]:
        """F''(x) v."""
        return jax.jvp(jax.grad(self.value), (x,), (v,))[1]

    def curvature_at(
        self, forward: Float[Array, "d"], v: Float[Array, "d"], support: Support | None
    ) -> Float[Array, ""]:
        return dot(v, self.hvp(forward, v))

    def lipschitz(self) -> Float[Array, ""]:
        return largest_eigenvalue(self.hessian_product(self.origin()), random_start(self.n_coefficients, self.dtype))

    def judged(
        self, threshold: AbstractThreshold, x: Float[Array, "d"], support: PyTree, result: Int[Array, ""]
    ) -> Int[Array, ""]:
        return judged_at(self, threshold, x, support, result)

    def hessian_product(self, x: Float[Array, "d"]) -> Callable[[Float[Array, "d"]], Float[Array, "d"]]:
        return lambda v: self.hvp(x, v)

    def curvatures(self, x: Float[Array, "d"]) -> Float[Array, "d"]:
        return some_at_a_time(lambda j: self.hessian_rows(x, j)[jnp.arange(j.shape[0]), j], self.n_coefficients, BLOCK)

    def hessian_rows(self, x: Float[Array, "d"], idx: Int[Array, "b"]) -> Float[Array, "b d"]:
        units = jnp.zeros((idx.shape[0], x.shape[0]), x.dtype).at[jnp.arange(idx.shape[0]), idx].set(1)
        return jax.vmap(self.hessian_product(x))(units)

    def subset(self, idx: Int[Array, "m"]) -> Self:
        return replace(self, features=idx if self.features is None else self.features[idx])

    def restrict(self, support: Support) -> CustomOnSupport:
        return CustomOnSupport(self, support.mask, support)

    def restrict_left(self, left: Float[Array, "p r"], mask: Bool[Array, "r"]) -> CustomLeft:
        columns = self.n_coefficients // left.shape[0]
        return CustomLeft(self, jnp.repeat(mask, columns), jnp.where(mask, left, 0))


class Custom(AbstractCustom):
    """A function of your own.

        F(x) = fun(x, *args)

    x is an array or a pytree of arrays, ravelled inside: a threshold such as `Sparsity` counts the entries of all
    leaves together, `LeafSparsity` those of every leaf. Gradients, Hessian products and Newton steps on a support come
    from automatic differentiation, at full cost in x: a model in columns of a matrix is faster as a `LinearModel`.
    Solutions have derivatives in everything in `args`.

    Args:
        fun: (x, *args) -> scalar, a JAX function without side effects, twice differentiable and convex on the supports
            it is fitted on. Define it at module level: a function made anew is compiled anew. A callable pytree (an
            `eqx.Module`, a `jax.tree_util.Partial`) is not: its arrays are data, as `args` are. Traced values that it
            takes from around it are data as well, and have derivatives.
        *args: arrays or pytrees of arrays.
        like: an array or pytree with the shapes and dtypes of x (its values are not used). None: they are those of the
            `x0` given to `solve`; without an x0, x is a vector with one entry per column of the first two-dimensional
            array in `args`.

        n_samples: what a criterion takes for the number of samples, of which F is the mean negative log-likelihood, on
            a path without folds. None: unknown; `CustomSum` knows its own, and has folds too.

    Raises:
        TypeError: if fun is not callable, args hold anything but arrays and numbers, or `like` is not floating.
        ValueError: if n_samples is not a positive number, the shape of x is needed and unknown, or fun does not take it
            or does not return a scalar. What fun itself raises is chained, or passes where no shape could be the reason
            (a NameError).

    Guarantee: a run is `converged` only where the gradient of all that may move is small (a step gains, or is, at most
    1e-3 of F or of x) and the curvature on a support of at most 64 entries is not downwards, else `stalled`; it may be
    a local minimum where F is not convex on the supports. `lipschitz` is the largest eigenvalue of the Hessian at zero,
    which is not a bound for other points: prefer the searching steps.
    """

    n: Float[Array, ""] | None

    def __init__(
        self, fun: Callable[..., PyTree], *args: PyTree, n_samples: ArrayLike | None = None, like: PyTree = None
    ) -> None:
        self.n = None if n_samples is None else jnp.asarray(n_samples, float)
        if self.n is not None and (self.n.ndim or (is_concrete(self.n) and not 0 < self.n < np.inf)):
            raise ValueError(f"n_samples: needs a positive number, got {n_samples!r}.")
        super().__init__(fun, *args, like=like)

    def _call(self, tree: PyTree) -> Array:
        return self.function(tree, *self.args)

    def _each(self) -> tuple[PyTree, ...]:
        return self.args


class CustomSum(AbstractCustom, AbstractFiniteSum):
    """A mean over samples of a function of your own, for folds, criteria, subsamples and the stochastic solvers.

        F(x) = sum_i s_i fun(x, sample_i, *args) / sum_i s_i

    The gradient of one term is `jax.grad(fun)`, and of a batch its `vmap`; solvers that remember a gradient per sample
    (`SVRGHT`, `SAGAHT`) keep n vectors of the size of x. A ridge penalty goes into fun, and is then part of
    held-out scores and criteria.

    Args:
        fun: (x, sample, *args) -> scalar, as in `Custom`.
        samples: an array or a pytree of arrays whose leading axes are the n samples.
        *args: arrays or pytrees of arrays that all samples share.
        sample_weight: (n,) weights s_i >= 0, not all zero; folds and subsamples are weights. None: all one.
        like: as in `Custom`; without it and without an x0, x is a vector with one entry per column of the first
            two-dimensional array in `samples` or `args`.

    Raises:
        TypeError, ValueError: as `Custom`; ValueError where the samples differ in their leading axes or there are none,
            or for bad weights.

    Guarantee: as `Custom`. `sample_smoothness` is that of the Hessians at zero, which bound others for quadratics only.
    """

    sample_weight: Float[Array, "n"]

    def __init__(
        self,
        fun: Callable[..., PyTree],
        samples: PyTree,
        *args: PyTree,
        sample_weight: ArrayLike | None = None,
        like: PyTree = None,
    ) -> None:
        lengths = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(samples)}
        if len(lengths) != 1 or lengths <= {(), (0,)}:
            raise ValueError(f"samples: need one leading axis of the same length > 0 in all arrays, got {lengths}.")
        ((n,),) = lengths
        sample_weight = np.ones(n) if sample_weight is None else sample_weight
        self.sample_weight = weight_vector(sample_weight, n, jnp.result_type(float))
        check_weights(self.sample_weight)
        check_finite("samples", samples, remedy="remove them, or pass a mask where they stand for what is missing")
        super().__init__(fun, samples, *args, like=like)

    def reweighted(self, sample_weight: ArrayLike | None = None, l2: ArrayLike | None = None) -> Self:
        if l2 is not None:
            return super().reweighted(sample_weight, l2)
        if sample_weight is None:
            return self
        return replace(self, sample_weight=weight_vector(sample_weight, self.n_samples, self.sample_weight.dtype))

    def scorer(self, sample_weight: Float[Array, "n"] | None = None) -> Self:
        return self.reweighted(sample_weight)

    @property
    def ifo_per_gradient(self) -> int:
        return self.sample_weight.shape[0]

    @property
    def n_samples(self) -> int:
        return self.ifo_per_gradient

    def _call(self, tree: PyTree) -> Array:
        samples, *rest = self.args
        function, live = self.function, self.sample_weight > 0

        def counted(leaf: Array) -> Array:
            return jnp.where(live.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, leaf[self._first()])

        values = jax.vmap(lambda sample: function(tree, sample, *rest))(jax.tree.map(counted, samples))
        share = (self.sample_weight / jnp.sum(self.sample_weight)).astype(values.dtype)
        return jnp.sum(share * values.T, axis=-1)

    def _first(self) -> Int[Array, ""]:
        """A row with a weight. Those without are read as it: their terms or derivatives of these may be infinite."""
        return jnp.argmax(self.sample_weight > 0)

    def term(self, x: Float[Array, "d"], i: Int[Array, ""]) -> Float[Array, ""]:
        """The term of sample i, times n s_i / sum s."""
        samples, *rest = self.args
        weight = self.n_samples * self.sample_weight[i] / jnp.sum(self.sample_weight)
        i = jnp.where(weight > 0, i, self._first())
        value = self.function(self._tree(x), jax.tree.map(lambda leaf: leaf[i], samples), *rest)
        return jnp.asarray(weight * value, x.dtype)

    def _each(self) -> tuple[PyTree, ...]:
        samples, *rest = self.args
        return jax.tree.map(lambda leaf: leaf[0], samples), *rest

    def samples(self) -> "CustomSamples":
        return CustomSamples(self)

    def sample_smoothness(self) -> Float[Array, ""]:
        zero, start = jnp.zeros(self.n_coefficients, self.dtype), random_start(self.n_coefficients, self.dtype)

        def curvature(i: Int[Array, ""]) -> Float[Array, ""]:
            grad = jax.grad(lambda x: self.term(x, i))
            return largest_eigenvalue(lambda v: jax.jvp(grad, (zero,), (v,))[1], start)

        return jnp.max(lax.map(curvature, jnp.arange(self.n_samples)))


class CustomSamples(AbstractSamples):
    """The terms of a `CustomSum`; their scores are their gradients."""

    model: CustomSum

    def scores(self, x: Float[Array, "d"], i: Int[Array, "b"]) -> Float[Array, "b d"]:
        return jax.vmap(lambda i: jax.grad(self.model.term)(x, i))(i)

    def scores_at(self, forward: Float[Array, "d"]) -> Float[Array, "n d"]:
        return self.scores(forward, jnp.arange(self.model.n_samples))

    def mean_gradient(self, scores: Float[Array, "b d"], i: Int[Array, "b"] | None = None) -> Float[Array, "d"]:
        return jnp.mean(scores, axis=0)

    def penalty_grad(self, x: Float[Array, "d"]) -> Float[Array, "d"]:
        return jnp.zeros_like(x)


def _numeric(leaf: ArrayLike) -> Array:
    if not isinstance(leaf, jax.Array) and np.asarray(leaf).dtype.kind not in "fiubc":
        raise TypeError(f"args: need arrays and numbers, got a {type(leaf).__name__}; put settings into fun.")
    return jnp.asarray(leaf)


def _place(error: Exception) -> str:
    """The function and line of a user's that raised an error: the last outside of the packages here and of JAX's."""
    ours = tuple(str(Path(module.__file__).parent) for module in (jax, eqx, np) if module.__file__)
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((f for f in reversed(frames) if not f.filename.startswith((*ours, str(ROOT)))), frames[-1])
    return f"line {frame.lineno} of {Path(frame.filename).name}, in {frame.name}"
