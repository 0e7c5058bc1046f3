"""Derivatives of a solution by the implicit function theorem, whatever the solver and the number of its steps.

Let S be the support of a solution, z its coefficients on S and theta whatever F and the bounds depend on. Where S is
locally constant, z solves G(z, theta) = grad_S F(z; theta) = 0 (plus the gradient of a penalty on S), so that

    dz = -H^-1 (d_theta G) dtheta,    H = d_z G,

with coefficients at an active bound moving with the bound. H is symmetric: the same factor serves forward and reverse
mode, and `custom_linear_solve` makes dz differentiable in turn. `drive_implicit` is the driver with this rule. Plain
evaluation pays nothing for it.

A threshold whose solutions are not described by a set of entries registers equations of its own with `equations`.
"""

import abc
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from .._programs import program
from .._tolerances import tolerance
from .._types import Factors, Support
from ..columns import gather, scatter
from ..iteration import driver
from ..iteration.record import Record
from ..linalg import Box, Everywhere, masked_factor
from ..objectives import AbstractObjective, AbstractRefittable, AbstractRestricted
from ..objectives.base import DENSE_HESSIAN_LIMIT
from ..thresholds import AbstractThreshold
from ..thresholds.base import AbstractSupportThreshold

Parts: TypeAlias = tuple[AbstractObjective, AbstractThreshold]
Place: TypeAlias = tuple[Array, Support | Factors]  # a solution's x and support


class AbstractEquations(eqx.Module):
    """Equations that hold at a solution in local coordinates z, with a symmetric Jacobian where z is free."""

    if TYPE_CHECKING:  # to mypy an AbstractVar is an argument of every subclass

        @property
        def mask(self) -> Bool[Array, "m"]: ...
    else:
        mask: eqx.AbstractVar[Bool[Array, "m"]]  # coordinates that are not padding

    @abc.abstractmethod
    def point(self, x: Float[Array, "d"]) -> Float[Array, "m"]:
        """Coordinates of the solver's x."""

    @abc.abstractmethod
    def lift(self, z: Float[Array, "m"]) -> Float[Array, "d"]:
        """The solver's x from its coordinates."""

    @abc.abstractmethod
    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]:
        """F plus the threshold's penalty."""

    @abc.abstractmethod
    def residual(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        """Zero at a solution, on coordinates that are neither padded nor held."""

    @abc.abstractmethod
    def product(self, z: Float[Array, "m"], v: Float[Array, "m"]) -> Float[Array, "m"]:
        """The residual's Jacobian at z times v."""

    @abc.abstractmethod
    def polished(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        """A solution of the equations near z."""

    def held(self, z: Float[Array, "m"]) -> tuple[Bool[Array, "m"], Float[Array, "m"]]:
        """Coordinates that a bound holds, and the bounds."""
        return jnp.zeros(z.shape, bool), z

    def inverse(self, z: Float[Array, "m"], free: Bool[Array, "m"]) -> Callable[[Array], Array]:
        """An (approximate) inverse of the Jacobian on the free coordinates, zero elsewhere."""

        def product(v: Float[Array, "m"]) -> Float[Array, "m"]:
            return jnp.where(free, self.product(z, jnp.where(free, v, 0)), v)

        return lambda b: jax.scipy.sparse.linalg.cg(product, b, tol=tolerance("gradient", b.dtype), maxiter=1000)[0]


class SupportEquations(AbstractEquations):
    """grad_S F(z) + tilt = 0 on the entries S of a support, within the threshold's box; along its plane, if it has one,
    in the coordinates of that around `start`."""

    restricted: AbstractRestricted
    threshold: AbstractSupportThreshold
    entries: Support
    box: Box
    start: Float[Array, "m"]
    size: int = eqx.field(static=True)

    @property
    def _chart(self) -> Everywhere:
        return self.box.around(self.start)

    @property
    def mask(self) -> Bool[Array, "m"]:
        return self._chart.own(self.entries.mask)

    def point(self, x: Float[Array, "d"]) -> Float[Array, "m"]:
        return gather(x, self.entries)

    def lift(self, z: Float[Array, "m"]) -> Float[Array, "d"]:
        return scatter(self._chart.filled(z), self.entries, self.size)

    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]:
        base = self.restricted.base if isinstance(self.restricted, Tilted) else self.restricted
        return base.value(self._chart.filled(z)) + self.threshold.value(self.lift(z))

    def residual(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        chart = self._chart
        return chart.slope(self.restricted.grad(chart.filled(z)))

    def product(self, z: Float[Array, "m"], v: Float[Array, "m"]) -> Float[Array, "m"]:
        chart = self._chart
        return chart.slope(self.restricted.hvp(chart.filled(z), chart.move(v)))

    def held(self, z: Float[Array, "m"]) -> tuple[Bool[Array, "m"], Float[Array, "m"]]:
        held, values = super().held(z)
        outwards = self.residual(z)
        for bound, sign in ((self.box.lower, 1), (self.box.upper, -1)):
            if bound is not None:
                active = self.mask & (sign * (z - bound) <= 0) & (sign * outwards > 0)
                held, values = held | active, jnp.where(active, bound, values)
        return held, values

    def inverse(self, z: Float[Array, "m"], free: Bool[Array, "m"]) -> Callable[[Array], Array]:
        if self.mask.shape[0] > DENSE_HESSIAN_LIMIT:
            return super().inverse(z, free)
        chart = self._chart
        return masked_factor(chart.curvature(self.restricted.hess(chart.filled(z)), jnp.zeros_like(z)), free).solve

    def polished(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        held, _ = self.held(z)
        free = self.mask & ~held
        here, start = (jnp.linalg.norm(jnp.where(free, self.residual(a), 0)) for a in (z, jnp.zeros_like(z)))
        wanted = ~(here <= tolerance("gradient", z.dtype) * start)

        def refit(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            return self.restricted.minimise(carry[0], self.box).z, jnp.zeros((), bool)

        # A loop of at most one round, which a batch makes only if one of its lanes needs it.
        return lax.while_loop(lambda carry: carry[1], refit, (jnp.where(self.entries.mask, z, 0), wanted))[0]


class Tilted(AbstractRestricted):
    """A restricted objective plus a linear function: a penalty that is linear as long as no sign changes."""

    base: AbstractRestricted
    tilt: Float[Array, "m"]

    @property
    def mask(self) -> Bool[Array, "m"]:
        return self.base.mask

    @property
    def quadratic(self) -> bool:
        return self.base.quadratic

    @property
    def kinked(self) -> bool:
        return self.base.kinked

    def value(self, z: Float[Array, "m"]) -> Float[Array, ""]:
        return self.base.value(z) + jnp.sum(self.tilt * z)

    def grad(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return self.base.grad(z) + self.tilt

    def hvp(self, z: Float[Array, "m"], v: Float[Array, "m"]) -> Float[Array, "m"]:
        return self.base.hvp(z, v)

    def hess(self, z: Float[Array, "m"], damping: Float[Array, ""] | float = 0.0) -> Float[Array, "m m"]:
        return self.base.hess(z, damping)


@functools.singledispatch
def equations(
    threshold: AbstractThreshold, objective: AbstractObjective, x: Float[Array, "d"], support: Support | Factors
) -> AbstractEquations:
    """The equations that hold at a solution x of (objective, threshold).

    Raises:
        TypeError: where the solution has no derivative that this module knows.
    """
    raise TypeError(
        f"threshold: solutions under {type(threshold).__name__} have no implicit derivative; "
        "use a threshold that chooses entries, groups or a rank."
    )


@equations.register(AbstractSupportThreshold)
def _(
    threshold: AbstractSupportThreshold, objective: AbstractObjective, x: Float[Array, "d"], support: Support
) -> SupportEquations:
    if not isinstance(objective, AbstractRefittable):
        raise TypeError(
            f"objective: {type(objective).__name__} cannot be restricted to a support, so its solutions have no "
            "implicit derivative; make it an AbstractRefittable."
        )
    if not objective.twice_differentiable:
        raise TypeError(
            f"loss: {objective.loss_name} has no second derivative, so its solutions have none in their data; "
            "use a smooth loss, for example SmoothedHinge."
        )
    entries = threshold.entries(x, support)
    restricted = objective.restrict(entries)
    if threshold.penalises:
        restricted = Tilted(restricted, gather(jax.grad(threshold.value)(x), entries))
    return SupportEquations(restricted, threshold, entries, threshold.box(entries), gather(x, entries), x.shape[0])


@eqx.filter_custom_jvp
def drive_implicit(task: driver.Task, max_steps: int, record: Record | None) -> driver.Outcome:
    """`driver.drive` with derivatives of `x` and `value` in the objective and the threshold; all others are zero."""
    return driver.drive(task, max_steps, record)


def _drive_jvp(
    primals: tuple[driver.Task, int, Record | None], tangents: tuple[driver.Task, None, None]
) -> tuple[driver.Outcome, driver.Outcome]:
    task, dots = primals[0], tangents[0]
    outcome = drive_implicit(*primals)
    out = jax.tree.map(lambda _: None, outcome)
    parts_dot = dots.objective, dots.threshold
    if jax.tree.leaves(parts_dot):  # else only the start or the solver moves, which leaves the solution where it is
        moved, fixed = _split((task.objective, task.threshold), parts_dot)
        place = lax.stop_gradient((outcome.x, outcome.support))
        _, (x_dot, value_dot) = jax.jvp(lambda moved: _refitted(moved, fixed, place), (moved,), (parts_dot,))
        out = out._replace(x=x_dot, value=value_dot)
    return outcome, out


drive_implicit.def_jvp(_drive_jvp)  # type: ignore[no-untyped-call]


@program
def _refitted(moved: Parts, fixed: Parts, place: Place) -> tuple[Array, Array]:
    return stationary(*eqx.combine(moved, fixed), *place)


def stationary(
    objective: AbstractObjective, threshold: AbstractThreshold, x: Float[Array, "d"], support: Support | Factors
) -> tuple[Array, Array]:
    """The stationary point on a support next to x, and its value, with all their derivatives.

    The threshold is bound to the objective; x and the support are taken as constants.
    """
    place = lax.stop_gradient((x, support))
    here = equations(threshold, objective, *place)
    z = _coordinates((objective, threshold), place, lax.stop_gradient(here.point(place[0])))
    return here.lift(z), here.value(z)


@eqx.filter_custom_jvp
def _coordinates(parts: Parts, place: Place, z: Float[Array, "m"]) -> Float[Array, "m"]:
    objective, threshold = parts
    return equations(threshold, objective, *place).polished(z)


def _coordinates_jvp(
    primals: tuple[Parts, Place, Array], tangents: tuple[Parts, None, None]
) -> tuple[Array, Array | None]:
    parts, place, z0 = primals
    parts_dot = tangents[0]
    z = _coordinates(parts, place, z0)
    if not jax.tree.leaves(parts_dot):
        return z, None
    moved, fixed = _split(parts, parts_dot)

    def at(moved: Parts) -> AbstractEquations:
        objective, threshold = eqx.combine(moved, fixed)
        return equations(threshold, objective, *place)

    held, _ = at(moved).held(z)
    _, bound_dot = jax.jvp(lambda moved: jnp.where(held, at(moved).held(z)[1], 0), (moved,), (parts_dot,))
    _, rhs = jax.jvp(lambda z, moved: at(moved).residual(z), (z, moved), (bound_dot, parts_dot))
    here = at(moved)
    free = here.mask & ~held
    return z, jnp.where(free, _linear_solve(here, z, free, jnp.where(free, -rhs, 0)), bound_dot)


_coordinates.def_jvp(_coordinates_jvp)  # type: ignore[no-untyped-call]


def _split(parts: Parts, dots: Parts) -> tuple[Parts, Parts]:
    """The leaves that have a tangent, and the others."""
    return eqx.partition(parts, jax.tree.map(lambda dot: dot is not None, dots, is_leaf=lambda dot: dot is None))


def _linear_solve(
    here: AbstractEquations, z: Float[Array, "m"], free: Bool[Array, "m"], rhs: Float[Array, "m"]
) -> Float[Array, "m"]:
    def product(v: Float[Array, "m"]) -> Float[Array, "m"]:
        return jnp.where(free, here.product(z, jnp.where(free, v, 0)), v)

    fixed, point = lax.stop_gradient((here, z))
    approximate = fixed.inverse(point, free)

    def solve(
        product: Callable[[Array], Array], b: Float[Array, "m"]
    ) -> Float[Array, "m"]:  # refined once, so that float32 rounding in the factor does not stay
        v = approximate(b)
        return v + approximate(b - product(v))

    return lax.custom_linear_solve(product, rhs, solve, symmetric=True)
