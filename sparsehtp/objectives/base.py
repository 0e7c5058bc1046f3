"""The interface of an objective and of its restriction to a support."""

import abc
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._programs import program
from .._types import AnyArray, ArrayLike, DType, HostArray, Scalar, Support
from ..linalg import WHOLE, Box, Refit, dot, masked_factor, minimise, truncated_newton
from ..thresholds import AbstractThreshold, Sparsity
from .normal_equations import AbstractNormalEquations

Counted = Literal["rows", "classes", "events"]  # what folds get equal shares of

DENSE_HESSIAN_LIMIT = 2048  # beyond this many coefficients a support is refitted by conjugate gradients


class AbstractObjective(eqx.Module):
    """A function F of one array x: `n_coefficients` entries, followed by `n_free` entries (an intercept)."""

    # Where lanes share no hardware, run those of a batch one after the other: each fills the cores by itself, and would
    # wait for the inner iterations of the others.
    lanes_in_turn: ClassVar[bool] = False
    convex: ClassVar[bool] = True  # known to be: a refit that converges then finds the least F on its support
    thresholds: ClassVar[tuple[type[AbstractThreshold], ...]] = (Sparsity, AbstractThreshold)  # taken, its own first
    starts_at_zero: ClassVar[bool] = True  # whatever its data are
    castable: ClassVar[bool] = False  # computes in the dtype of its arrays, whatever that is
    scorable: ClassVar[bool] = False  # has targets `labels` and linear predictors for a score of the user's

    if TYPE_CHECKING:  # what some hold as a field, which a property could not be

        @property
        def sample_weight(self) -> Array | None:
            """(n,) weights of samples, whose folds and subsamples are others; None: it has none."""

        @property
        def l2(self) -> Array | None:
            """Ridge strength; None: there is none to replace."""

        @property
        def n(self) -> Array | None:
            """How many samples it is a mean over, where these have no weights; None: not known."""

        @property
        def n_variables(self) -> int | None:
            """Order of the symmetric matrices that it is a function of."""

        @property
        def n_responses(self) -> int | None:
            """Columns of the matrices that it is a function of."""

        @property
        def shift_invariant(self) -> bool:
            """Whether one constant for all `n_responses` coefficients of a feature changes no loss."""

        @property
        def target_mean(self) -> Array | None:
            """The mean that was taken off targets, and so off predictions."""

        @property
        def leaf_sizes(self) -> PyTree[int] | None:
            """Entries of every leaf of the pytrees that it is a function of, as such a pytree."""

    else:
        sample_weight = l2 = n = n_variables = n_responses = target_mean = leaf_sizes = None
        shift_invariant = False

    @property
    @abc.abstractmethod
    def n_coefficients(self) -> int:
        """Number of entries that the threshold acts on."""

    @property
    def n_free(self) -> int:
        """Number of trailing entries that are never thresholded nor penalised."""
        return 0

    @property
    @abc.abstractmethod
    def dtype(self) -> DType:
        """Floating dtype of x."""

    @property
    @abc.abstractmethod
    def ifo_per_gradient(self) -> int:
        """Per-sample gradients in one full gradient: n for a finite sum, 1 otherwise."""

    @property
    def n_samples(self) -> int:
        """How many numbers F is computed from beside x, at least about: memory grows with it."""
        return self.ifo_per_gradient

    @property
    def quadratic(self) -> bool:
        """True if the Hessian does not depend on x."""
        return False

    @property
    def twice_differentiable(self) -> bool:
        """True if there is a second derivative almost everywhere."""
        return True

    @property
    def smooth(self) -> bool:
        """False if the gradient is known to have no Lipschitz constant."""
        return True

    @property
    def sparse(self) -> bool:
        """True if products with the data cost less than a dense copy of a few of their columns."""
        return False

    @property
    def copies_columns(self) -> bool:
        """True if normal equations under weights of their own take a copy of the data."""
        return bool(self.n_free) and not self.sparse

    @property
    def rescaled(self) -> bool:
        """True if columns of an extreme size were scaled, so that x is not in the units of a user's l1."""
        return False

    @property
    def loss_name(self) -> str:
        """The name, in messages, of that which is not smooth enough."""
        return type(self).__name__

    @property
    def pieces(self) -> tuple[Scalar, Scalar, Scalar] | None:
        """Those of its loss, see `AbstractRowLoss`."""
        return None

    @property
    def free_dispersion(self) -> bool:
        """True if its likelihood has an unknown dispersion."""
        return False

    def excess(self, x: Float[Array, "d"], other: Float[Array, "d"]) -> tuple[Scalar, Scalar]:
        """F0 at x less that at another point, to the digits of their difference, and the dispersion about x."""
        raise NotImplementedError(f"objective: the dispersion of {type(self).__name__} is known.")

    @property
    def counted(self) -> Counted:
        """The things that every fold must hold some of: rows with a weight, such rows of two classes, or events."""
        return "rows"

    @property
    def labels(self) -> Array | None:
        """(n,) targets of rows, by which folds are made; None: there are none."""
        return None

    def spread(self, r: Float[Array, "n"], weights: Float[Array, "n"]) -> Float[Array, "n"] | None:
        """Z Z'r of features of unit deviation, by which rows are told apart; None where there are no features."""
        return None

    @abc.abstractmethod
    def forward(self, x: Float[Array, "d"], support: Support | None = None) -> PyTree:
        """The product of x with the data that value, gradient and curvature share.

        A support that holds the nonzeros of x makes it cost the support's columns only.
        """

    @abc.abstractmethod
    def value_at(self, forward: PyTree, x: Float[Array, "d"]) -> Float[Array, ""]:
        """F(x), given the forward product at x."""

    @abc.abstractmethod
    def grad_at(self, forward: PyTree, x: Float[Array, "d"]) -> Float[Array, "d"]:
        """The gradient at x, given the forward product at x: one full product with the data."""

    @abc.abstractmethod
    def curvature_at(self, forward: PyTree, v: Float[Array, "d"], support: Support | None) -> Float[Array, ""]:
        """v' F''(x) v, given the forward product at x, for v that vanishes outside the support."""

    def value(self, x: Float[Array, "d"], support: Support | None = None) -> Float[Array, ""]:
        """F(x)."""
        return self.value_at(self.forward(x, support), x)

    def value_and_grad(
        self, x: Float[Array, "d"], support: Support | None = None
    ) -> tuple[Float[Array, ""], Float[Array, "d"]]:
        """F(x) and its gradient; the support is that of `forward`."""
        forward = self.forward(x, support)
        return self.value_at(forward, x), self.grad_at(forward, x)

    @abc.abstractmethod
    def lipschitz(self) -> Float[Array, ""]:
        """Lipschitz constant of the gradient, estimated by power iteration (from below); infinity if there is none."""

    def reweighted(self, sample_weight: ArrayLike | None = None, l2: ArrayLike | None = None) -> Self:
        """This objective with other sample weights, other l2, or both.

        Standardisation follows the new weights, so that rows without weight have no influence. Pure and traceable;
        signs are not checked, but for that of an l2 that is not traced.

        Raises:
            TypeError: if the objective has no such weights or l2.
            ValueError: for a wrong shape, concrete values that are not finite, or a negative l2.
        """
        if sample_weight is not None or l2 is not None:
            name = "l2" if sample_weight is None else "sample_weight"
            raise TypeError(f"{name}: {type(self).__name__} has none to replace; use LinearModel.")
        return self

    def weakened(self, part: Scalar) -> "AbstractRefittable":
        """This objective at a part of its l2, to fit supports again."""
        raise TypeError("refit: needs an objective with l2 and a loss with a second derivative; leave it at 1.")

    def scorer(self, sample_weight: Float[Array, "n"] | None = None) -> Self:
        """The mean loss alone: no l2, weights of their own, and this objective's standardisation.

        It takes the same x as this objective, so its value at a fold's fit is the loss on the held-out rows.
        """
        return self

    def total_weight(self, sample_weight: AnyArray) -> AnyArray:
        """The number of samples that F is a mean over, by sample weights (n,), or each row of several."""
        return sample_weight.sum(-1)

    def started(self, x0: PyTree) -> Self:
        """This objective for solves from x0, which may tell the shape of x."""
        return self

    def coefficients(self, x0: PyTree) -> PyTree:
        """Coefficients as given by a user, in the objective's shape and dtype, or ValueError."""
        x0 = jnp.asarray(x0, self.dtype)
        if x0.shape != self.external_shape:
            raise ValueError(f"x0: needs shape {self.external_shape}, one value per coefficient, got {x0.shape}.")
        return x0

    @property
    def external_shape(self) -> tuple[int, ...]:
        """Shape of the coefficients as a caller sees them."""
        return (self.n_coefficients,)

    def origin(self) -> Float[Array, "d"]:
        """x where a solver starts if the caller names no other."""
        return jnp.zeros(self.n_coefficients + self.n_free, self.dtype)

    def feasible(self, x: Float[Array, "d"]) -> Float[Array, "d"]:
        """x moved to where F is finite, its support unchanged."""
        return x

    def judged(
        self, threshold: AbstractThreshold, x: Float[Array, "d"], support: PyTree, result: Int[Array, ""]
    ) -> Int[Array, ""]:
        """The `RESULTS` code of a run that ended at x with another one: F may not be what the solvers rely on."""
        return result

    def parts(self, x: Float[Array, "d"]) -> tuple[Float[Array, "units"], Float[Array, "..."]]:
        """The thresholded coefficients, one per unit, and the free entries, both in original units."""
        w, intercept = self.to_external(x)
        return w.ravel(), intercept

    def internal_scale(self) -> Float[AnyArray, "p"] | None:
        """Factor from coefficients in original units to the entries of x; None if they are the same."""
        return None

    def to_internal(self, x: PyTree, intercept: AnyArray | float = 0.0) -> Float[Array, "d"]:
        """x of the solver from coefficients and intercept in original units."""
        return x

    def to_external(self, x: Float[Array, "d"]) -> tuple[PyTree, Float[Array, "..."]]:
        """Coefficients and intercept in original units from the solver's x."""
        return x, jnp.zeros((), x.dtype)

    def intercept_of(self, w: HostArray, free: Float[HostArray, "_"]) -> Float[HostArray, "..."]:
        """The intercept for coefficients in original units, as they were rounded, and the free entries of x: on the
        host, in float64, which single precision cannot hold where columns are far from zero."""
        return np.zeros(())

    def intercept_rounding(self, x: Float[Array, "d"], support: Support | None) -> Float[Array, ""]:
        """About what rounding of the intercept in original units adds to F at most, zero where rounding of F without
        features is more; a support is that of `forward`."""
        return jnp.zeros((), self.dtype)


class AbstractRestricted(eqx.Module):
    """F as a function of the m coefficients of a support; padded coefficients are ignored."""

    if TYPE_CHECKING:  # to mypy an AbstractVar is an argument of every subclass

        @property
        def mask(self) -> Bool[Array, "m"]: ...
    else:
        mask: eqx.AbstractVar[Bool[Array, "m"]]

    @property
    def intercept(self) -> Bool[Array, "m"] | None:
        """The intercept among the coefficients; None if there is none."""
        return None

    @property
    def quadratic(self) -> bool:
        """True if the Hessian does not depend on z."""
        return False

    @property
    def kinked(self) -> bool:
        """True if the second derivative can vanish or jump."""
        return False

    @abc.abstractmethod
    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]:
        """F at z."""

    @abc.abstractmethod
    def grad(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        """Gradient at z, zero on padded entries."""

    @abc.abstractmethod
    def hvp(self, z: Float[Array, "m"], v: Float[Array, "m"]) -> Float[Array, "m"]:
        """Hessian at z times v, zero on padded entries."""

    def hessian_product(self, z: Float[Array, "m"]) -> Callable[[Array], Array]:
        """The function v -> (Hessian at z) v; what does not depend on v is computed once."""
        return lambda v: self.hvp(z, v)

    def grad_terms(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        """Sums of the magnitudes of what the gradient's entries are sums of; infinite where that is unknown."""
        return jnp.full_like(z, jnp.inf)

    @abc.abstractmethod
    def hess(self, z: Float[Array, "m"], damping: Float[Array, ""] | float = 0.0) -> Float[Array, "m m"]:
        """Hessian at z plus `damping` times a matrix that has curvature wherever the gradient has a part.

        Padded rows are arbitrary.
        """

    def derivatives(
        self, z: Float[Array, "m"]
    ) -> tuple[Float[Array, "m"], Float[Array, "m"], Callable[[Float[Array, ""] | float], Float[Array, "m m"]]]:
        """`grad`, `grad_terms`, and `hess` as a function of the damping; what they share may be computed once."""
        return self.grad(z), self.grad_terms(z), functools.partial(self.hess, z)

    def scale(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        """Nonnegative numbers near the diagonal of the Hessian at z: a preconditioner."""
        return jnp.ones_like(z)

    def unless_above(self, target: Float[Array, ""] | float) -> "AbstractRestricted":
        """This function, whose `minimise` may give up where the minimum is sure to lie above the target."""
        return self

    def without_each(self, z: Float[Array, "m"], n_free: int) -> Float[Array, "m"]:
        """F without each coefficient, the others unchanged but for the leading free ones.

        Those take over what they can, to second order.
        """
        without = jnp.where(jnp.eye(z.shape[0], dtype=bool), 0, z)
        if n_free:
            hessian = jax.vmap(self.hessian_product(z))(jnp.eye(n_free, z.shape[0], dtype=z.dtype))
            inverse = masked_factor(hessian[:, :n_free], jnp.ones(n_free, bool)).inverse(z.dtype)
            without = without.at[:, :n_free].add((dot(inverse, hessian) * z).T)
        return jax.vmap(self.value)(without)

    def minimise(self, z0: Float[Array, "m"], box: Box = WHOLE, max_steps: int | None = None) -> Refit:
        """Minimiser over the support and, where given, a box and the plane in it.

        Quadratics without a box are solved directly, others by damped Newton steps. Supports of more than
        `DENSE_HESSIAN_LIMIT` coefficients use preconditioned conjugate gradients for the Newton systems and take no
        box.
        """
        if self.mask.shape[0] <= DENSE_HESSIAN_LIMIT:
            return minimise(self, z0, box, max_steps)
        if not box.whole:
            raise ValueError(
                f"k_max: bounds and sums are limited to supports of {DENSE_HESSIAN_LIMIT} coefficients; lower k_max."
            )
        return truncated_newton(self, z0, max_steps)


class AbstractRefittable(AbstractObjective):
    """An objective whose restriction to a support can be minimised."""

    @property
    def alike(self) -> int:
        """How many responses x has a column for, none of which changes another's derivatives or second derivatives, and
        all of which have the same ones; 1 otherwise."""
        return 1

    @abc.abstractmethod
    def restrict(self, support: Support) -> AbstractRestricted:
        """F over the entries of a support."""

    def weakened(self, part: Scalar) -> Self:
        return self if self.l2 is None else self.reweighted(l2=part * self.l2)

    def restrict_left(self, left: Float[Array, "p r"], mask: Bool[Array, "r"]) -> AbstractRestricted:
        """F over the matrices `left @ A`, as a function of A, row by row, and the free entries."""
        raise TypeError(f"solver: nothing refits a {type(self).__name__} among matrices of low rank; use IHT.")


class AbstractScored(AbstractRefittable):
    """An objective that tells what every coefficient alone is worth, so that features can be added one by one."""

    @abc.abstractmethod
    def curvatures(self, x: Float[Array, "d"]) -> Float[Array, "p"]:
        """F_jj at x, with the free entries minimised out to second order."""


class AbstractRestrictable(AbstractScored):
    """An objective that is, or is locally modelled by, a least-squares problem on its columns."""

    @abc.abstractmethod
    def normal_equations(self, x: Float[Array, "d"] | None = None) -> AbstractNormalEquations:
        """The quadratic model of F around x; F itself, for any x, if it is quadratic."""

    def curvatures(self, x: Float[Array, "d"]) -> Float[Array, "p"]:
        """F_jj at x, with the free entries minimised out to second order."""
        return self.normal_equations(x).diagonal

    @abc.abstractmethod
    def subset(self, idx: Int[Array, "m"]) -> "AbstractRestrictable":
        """The objective of the coefficients idx alone (and the free entries), the others being zero."""


class AbstractByProducts(AbstractRestrictable):
    """An objective that is modelled by its Hessian, of which nothing is kept: what is asked for is made of products."""

    @abc.abstractmethod
    def hessian_product(self, x: Float[Array, "d"]) -> Callable[[Float[Array, "d"]], Float[Array, "d"]]:
        """The function v -> F''(x) v."""

    @abc.abstractmethod
    def hessian_rows(self, x: Float[Array, "d"], idx: Int[Array, "b"]) -> Float[Array, "b d"]:
        """Rows of F''(x)."""

    @abc.abstractmethod
    def curvatures(self, x: Float[Array, "d"]) -> Float[Array, "p"]:
        """The diagonal of F''(x)."""

    def normal_equations(self, x: Float[Array, "d"] | None = None) -> "HessianEquations":
        x = self.origin() if x is None else x
        value, grad = self.value_and_grad(x)
        product = self.hessian_product(x)(x)
        return HessianEquations(
            model=self,
            x=x,
            rhs=product - grad,
            diagonal=self.curvatures(x),
            constant=2 * value - 2 * dot(grad, x) + dot(x, product),
        )


class HessianEquations(AbstractNormalEquations):
    """The quadratic model of an objective at x."""

    model: AbstractByProducts
    x: Float[Array, "d"]
    rhs: Float[Array, "d"]
    diagonal: Float[Array, "d"]
    constant: Float[Array, ""]

    def rows(self, idx: Int[Array, "b"]) -> Float[Array, "b p"]:
        return self.model.hessian_rows(self.x, idx)


def in_columns(objective: AbstractObjective, threshold: AbstractThreshold) -> TypeGuard[AbstractRestrictable]:
    """True where any k entries are chosen as they are of what least squares on columns can model."""
    return threshold.plain and isinstance(objective, AbstractRestrictable)


@program
def value_of(objective: AbstractObjective, x: Float[Array, "d"]) -> Float[Array, ""]:
    """F(x), as a program of its own."""
    return objective.value(x)
