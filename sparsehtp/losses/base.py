"""The interface of the loss of a sample."""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._types import AnyArray, ArrayLike, DType, HostArray, Scalar, is_concrete


class AbstractRowLoss(eqx.Module):
    """The loss l(eta, y) of a row, convex in its prediction, or predictions, eta."""

    classification: ClassVar[bool] = False  # y is a label, -1 or +1, or the number of a class
    twice_differentiable: ClassVar[bool] = True  # almost everywhere
    kinked: ClassVar[bool] = False  # the second derivative can vanish or jump
    location: ClassVar[bool] = False  # l depends on eta - y only
    quadratic: ClassVar[bool] = False  # l(eta, y) = |eta - y|^2 / 2
    free_dispersion: ClassVar[bool] = False  # a log-likelihood times an unknown dispersion
    shift_invariant: ClassVar[bool] = False  # l(eta + t 1, y) = l(eta, y) for several predictions

    @abc.abstractmethod
    def value(self, eta: Array, y: Array) -> Array:
        """l(eta, y)."""

    @abc.abstractmethod
    def derivative(self, eta: Array, y: Array) -> Array:
        """Derivative (or a subgradient) of l in eta."""

    @abc.abstractmethod
    def curvature(self, eta: Array, y: Array) -> tuple[Array, Array | None]:
        """(d, q) with the Hessian of l in eta diag(d_i) - q_i q_i' for row i; q None: zero."""

    @property
    @abc.abstractmethod
    def smoothness(self) -> Float[Array, ""] | float:
        """The least Lipschitz constant of the derivative; infinity if there is none."""

    @property
    def smooth(self) -> bool:
        """False if there is known to be no Lipschitz constant; traced parameters are not looked at."""
        return not is_concrete(self.smoothness) or bool(np.all(np.isfinite(self.smoothness)))

    @property
    def pieces(self) -> tuple[Scalar, Scalar, Scalar] | None:
        """(a, b, w) of a loss of eta - y alone that has the curvature 1/w between its slopes -a and b, and is linear
        elsewhere; None: another loss. The scale of such a loss is not known, see `information_criterion`."""
        return (np.inf, np.inf, 1.0) if self.quadratic else None

    def majorant(self, eta: Array, y: Array) -> Array:
        """A curvature that does not vanish where the slope does not; refits add a part of it where l is flat."""
        return jnp.abs(self.derivative(eta, y))

    def mean(self, eta: Array) -> Array:
        """The inverse link: what is predicted for y at the linear predictor eta; eta itself unless overridden."""
        return eta

    @abc.abstractmethod
    def n_responses(self, y: AnyArray) -> int:
        """The number of predictions of a row, from the targets for several of them."""

    @abc.abstractmethod
    def targets(self, y: ArrayLike, n: int, dtype: DType) -> Array:
        """Targets for several predictions of n rows as an array, or ValueError."""

    @abc.abstractmethod
    def draw_targets(self, eta: HostArray, rng: np.random.Generator) -> HostArray:
        """Random targets near the predictions eta, for `sparsehtp.testing`."""

    @abc.abstractmethod
    def check_targets(self, y: HostArray) -> None:
        """Raise ValueError if concrete targets y are not in the loss's domain."""


class AbstractLoss(AbstractRowLoss):
    """A per-sample loss l(eta, y), convex in the prediction eta; all methods act elementwise.

    Several responses of a row are summed, each with a prediction and a target.
    """

    @abc.abstractmethod
    def second_derivative(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Second derivative of l in eta; zero at kinks of the derivative."""

    def curvature(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> tuple[Float[Array, "*n"], None]:
        return self.second_derivative(eta, y), None

    def n_responses(self, y: AnyArray) -> int:
        return y.shape[1]

    def targets(self, y: ArrayLike, n: int, dtype: DType) -> Array:
        y = jnp.asarray(y, dtype)
        if y.ndim != 2 or y.shape[0] != n or y.shape[1] == 0:
            raise ValueError(f"Y: needs shape ({n}, responses), one row per row of X, got {y.shape}.")
        return y

    def majorant(self, eta: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """A curvature that does not vanish where the slope does not; refits add a part of it where l is flat.

        Best the least curvature of a quadratic that touches l at eta and lies above it. By default that of the
        steepest place for a loss with kinks, and else the slope: a sample by itself then moves by one at most.
        """
        if self.kinked:
            return jnp.full_like(eta, damping_scale(self, self.second_derivative(eta, y)))
        return super().majorant(eta, y)

    def draw_targets(self, eta: Float[HostArray, "*n"], rng: np.random.Generator) -> Float[HostArray, "*n"]:
        """Random targets near the predictions eta, for `sparsehtp.testing`; override it where not any y will do."""
        if self.classification:
            return np.where(eta + 0.3 * rng.logistic(size=eta.shape) > 0, 1.0, -1.0)
        return eta + 0.3 * rng.standard_normal(eta.shape)

    def check_targets(self, y: HostArray) -> None:
        """Raise ValueError if concrete targets y are not in the loss's domain."""
        if self.classification:
            bad = np.setdiff1d(np.unique(y), (-1, 1))
            if bad.size:
                raise ValueError(
                    f"y: {type(self).__name__} needs labels -1 and +1, got {bad[:3].tolist()}; "
                    "recode the labels, or use SparseClassifier, which takes any two labels."
                )


class AbstractVectorLoss(AbstractRowLoss):
    """A per-sample loss l(eta, y), convex in the predictions eta of c responses; methods act on all samples at once.

    `value` is (n,), `derivative` and `majorant` are (n, c); `smoothness` is that of the gradient.
    """


class AbstractConjugateLoss(AbstractLoss):
    """A loss with a known conjugate l*(a, y) = sup_eta a eta - l(eta, y)."""

    @abc.abstractmethod
    def conjugate(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """l*(a, y) for feasible a; infinity elsewhere."""

    @abc.abstractmethod
    def conjugate_derivative(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Derivative of l* in a for feasible a; finite also where the limit at the end of the range is infinite."""

    @abc.abstractmethod
    def project_dual(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Nearest feasible a."""

    def smoothed(self, width: Float[Array, ""]) -> "AbstractConjugateLoss":
        """A loss nowhere above this one, with a smooth piece of a width for its kink; itself unless overridden."""
        return self

    @property
    def strong_convexity(self) -> Float[Array, ""] | float:
        """mu, the strong convexity of l*: one over the smoothness of l (0 if l is not smooth)."""
        return 1.0 / self.smoothness


class AbstractQuadraticConjugateLoss(AbstractConjugateLoss):
    """A loss of linear pieces and quadratic ones, with l*(a, y) = y a + width a^2 / 2 on the range of its slopes."""

    @property
    @abc.abstractmethod
    def width(self) -> Scalar:
        """One over the second derivative of the quadratic pieces."""

    @property
    def smoothness(self) -> Scalar:
        return 1 / self.width

    def conjugate(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return outside_to_infinity(self.project_dual(a, y) == a, y * a + self.width * a**2 / 2)

    def conjugate_derivative(self, a: Float[Array, "*n"], y: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return y + self.width * a


def damping_scale(loss: AbstractLoss, curvature: Float[Array, "..."]) -> Float[Array, ""] | float:
    """The unit of the damping of a kinked loss: its smoothness, or the largest of the curvatures where it has none."""
    if is_concrete(loss.smoothness) and np.isfinite(loss.smoothness):
        return loss.smoothness
    largest = jnp.max(curvature)
    return jnp.where(jnp.isfinite(loss.smoothness), loss.smoothness, jnp.where(largest > 0, largest, 1))


def outside_to_infinity(feasible: Bool[Array, "*n"], value: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """`value` where `feasible`, infinity elsewhere."""
    return jnp.where(feasible, value, jnp.inf)


def positive(name: str, value: Scalar) -> None:
    """Raise ValueError unless a concrete scalar parameter is positive and finite."""
    if is_concrete(value) and not (np.ndim(value) == 0 and np.isfinite(value) and value > 0):
        raise ValueError(f"{name}: must be a positive finite number, got {value}.")
