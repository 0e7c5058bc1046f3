"""Where the coefficients of a support may lie: within bounds, on a plane.

A plane normal'z = total holds all coefficients together. It is described by all coordinates but a spare one, which
follows from the others. Around a point with z >= 0 and normal >= 0 that is the one with the largest part of the total:
it is positive, so that its own bound is out of the way of a small move, and the others have their bounds alone
(Bertsekas, 1982, section 4). For coefficients of any sign it is the one with the largest normal.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._types import AnyArray
from .products import dot


class Everywhere:
    """The coordinates of a space without a plane."""

    def own(self, mask: Bool[Array, "m"]) -> Bool[Array, "m"]:
        """The coordinates that are free to move."""
        return mask

    def slope(self, grad: Float[Array, "m"]) -> Float[Array, "m"]:
        """The gradient in these coordinates."""
        return grad

    def terms(self, terms: Float[Array, "m"]) -> Float[Array, "m"]:
        """Sums of the magnitudes of what the slope's entries are sums of, from those of the gradient's."""
        return terms

    def curvature(self, hessian: Float[Array, "m m"], slope: Float[Array, "m"]) -> Float[Array, "m m"]:
        """The Hessian in these coordinates, and on a plane the least curvature along which a step there is finite."""
        return hessian

    def move(self, direction: Float[Array, "m"]) -> Float[Array, "m"]:
        """The move of all coefficients that a move of these coordinates is."""
        return direction

    def filled(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        """All coefficients at the point with these coordinates."""
        return z

    def completed(self, z: Float[Array, "m"], whole: Float[Array, "m"]) -> Float[Array, "m"]:
        """`filled(z)`; the nearest point of the set to `whole` where what follows from z is out of its bounds."""
        return z


class Chart(Everywhere):
    """The coordinates of a plane around a point."""

    def __init__(self, plane: "Plane", z: Float[Array, "m"]) -> None:
        self.plane = plane
        self.index = plane.spare(z)
        own = plane.normal[self.index]
        size = jnp.where(own != 0, own, 1)  # no coefficient of the support is on the plane
        self.spare = (jnp.arange(z.shape[0]) == self.index) & (own != 0)
        self.share = plane.normal / size  # how the spare one falls with each of the others
        self.total = plane.total / size

    def own(self, mask: Bool[Array, "m"]) -> Bool[Array, "m"]:
        return mask & ~self.spare

    def slope(self, grad: Float[Array, "m"]) -> Float[Array, "m"]:
        return grad - self.share * grad[self.index]

    def terms(self, terms: Float[Array, "m"]) -> Float[Array, "m"]:
        share = jnp.abs(self.share)
        return jnp.where(share > 0, terms + share * terms[self.index], terms)  # terms may be infinite

    def curvature(self, hessian: Float[Array, "m m"], slope: Float[Array, "m"]) -> Float[Array, "m m"]:
        half = hessian - hessian[:, self.index, None] * self.share
        half = half - self.share[:, None] * half[self.index]
        if self.plane.signed:
            return half
        least = jnp.finfo(slope.dtype).eps * jnp.max(jnp.abs(slope)) / self.total  # a linear F has a minimum too
        return half + jnp.diag(jnp.where(self.share > 0, least, 0))

    def move(self, direction: Float[Array, "m"]) -> Float[Array, "m"]:
        return jnp.where(self.spare, -dot(jnp.where(self.spare, 0, self.share), direction), direction)

    def filled(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        return jnp.where(self.spare, self.total - dot(jnp.where(self.spare, 0, self.share), z), z)

    def completed(self, z: Float[Array, "m"], whole: Float[Array, "m"]) -> Float[Array, "m"]:
        new = self.filled(z)
        if self.plane.signed:
            return new
        return jnp.where(new[self.index] >= 0, new, self.plane.nearest(whole))


class Plane(NamedTuple):
    """normal'z = total for normal, z >= 0; a normal of zero is that of a coefficient that the plane does not hold."""

    normal: Float[Array, "m"]
    total: Float[AnyArray, ""]

    @property
    def signed(self) -> bool:
        """True if the coefficients may have any sign."""
        return False

    def spare(self, z: Float[Array, "m"]) -> Int[Array, ""]:
        """The coordinate that follows from the others around a point."""
        return jnp.argmax(self.normal * z)

    def multiplier(self, z: Float[Array, "m"], grad: Float[Array, "m"]) -> Float[Array, ""]:
        """The part of the normal that a gradient holds, averaged over the coefficients at work: all of the gradient on
        them at a minimum on the plane."""
        held = self.normal > 0
        working = held & (z > 0)
        weights = jnp.where(jnp.any(working), jnp.where(working, z, 0), held.astype(z.dtype))
        size = dot(weights, self.normal)
        return dot(weights, grad) / jnp.where(size > 0, size, 1)

    def nearest(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        """The nearest point to z whose coefficients on the plane are >= 0: they are max(z - theta normal, 0)."""
        held = self.normal > 0
        normal = jnp.where(held, self.normal, 1)
        # In differences to the largest: what is far below it is zero, and the others lose no digits to a common part.
        largest = jnp.max(jnp.where(held, z / normal, -jnp.inf), initial=-jnp.inf)
        below = jnp.where(held, z - normal * jnp.where(jnp.any(held), largest, 0), 0)
        level = jnp.where(held, below / normal, -jnp.inf)
        order = jnp.argsort(-level)
        n, b = self.normal[order], below[order]
        tiny = jnp.finfo(z.dtype).tiny
        theta = (jnp.cumsum(n * b) - self.total) / jnp.maximum(jnp.cumsum(n**2), tiny)
        count = jnp.sum(level[order] > theta)
        return jnp.where(held, jnp.maximum(below - theta[jnp.maximum(count - 1, 0)] * normal, 0), z)


class SignedPlane(Plane):
    """normal'z = total for coefficients and a normal of any sign."""

    @property
    def signed(self) -> bool:
        return True

    def spare(self, z: Float[Array, "m"]) -> Int[Array, ""]:
        return jnp.argmax(jnp.abs(self.normal))

    def multiplier(self, z: Float[Array, "m"], grad: Float[Array, "m"]) -> Float[Array, ""]:
        working = z != 0
        normal = jnp.where(working | ~jnp.any(working & (self.normal != 0)), self.normal, 0)
        size = dot(normal, normal)
        return dot(normal, grad) / jnp.where(size > 0, size, 1)

    def nearest(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        size = dot(self.normal, self.normal)
        return z + self.normal * ((self.total - dot(self.normal, z)) / jnp.where(size > 0, size, 1))


class Box(NamedTuple):
    """Bounds on the coefficients of a support, and the plane that they lie on; None where there are none."""

    lower: Float[Array, "m"] | None = None
    upper: Float[Array, "m"] | None = None
    plane: Plane | None = None

    @property
    def whole(self) -> bool:
        """True if there are none at all."""
        return self.lower is None and self.upper is None and self.plane is None

    def around(self, z: Float[Array, "m"]) -> Everywhere:
        """Coordinates around a point of the box."""
        return Everywhere() if self.plane is None else Chart(self.plane, z)

    def nearest(self, z: Float[Array, "m"]) -> Float[Array, "m"]:
        """The nearest point; on a plane there are no bounds but z >= 0, and none on a signed one."""
        z = z if self.whole else jnp.clip(z, self.lower, self.upper)
        return z if self.plane is None else self.plane.nearest(z)


WHOLE = Box()
