"""The laws of an objective."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._programs import program
from .._types import Support
from ..columns import gather
from ..objectives import AbstractFiniteSum, AbstractObjective, AbstractRefittable, AbstractRestrictable
from ..objectives.base import value_of
from ..objectives.model import in_double
from .laws import equal, law, traced

H = 1e-5  # of finite differences, of values and gradients of size one
RTOL, ATOL = 1e-6, 1e-7  # against finite differences


def check_objective(objective: AbstractObjective, seed: int = 0) -> None:
    """Assert the laws that every objective keeps, at random sparse points near `origin()`.

    - The gradient is that of the value by finite differences, the curvature that of the gradient; a forward product
      over a support is that over all entries; one point and a batch under `jax.jit` and `jax.vmap` give the same.
    - Coefficients in original units lead back to x.
    - `restrict`: value, gradient, Hessian and its products are those of F on the support, and padding counts for
      nothing; `quadratic` objectives have one Hessian; `scale` is positive where there is curvature, and `grad_terms`
      are not below the gradient.
    - `lipschitz` is at least the curvature at the origin, but for a thousandth (a power iteration comes from below).
    - Samples: the mean of their gradients is the gradient, and the largest `sample_smoothness` is above `lipschitz`.
    - `normal_equations` are F to second order at the point that they are made at (None: `origin()`), with the free
      entries minimised out, up to a constant where a `LinearModel` is not quadratic; `subset` is F on some of them.
    - `reweighted`: its own weights, or multiples of them, change nothing; other weights and l2 keep the laws above; F
      is affine in l2, and the `scorer` is F without it.

    What an objective refuses with a TypeError is left out.

    Args:
        objective: small: the Hessian is formed by finite differences.
        seed: of the random points.

    Raises:
        AssertionError: for the first law that does not hold, naming it with the numbers.
    """
    with jax.enable_x64(True):
        objective = in_double(objective)
        check = _Check(objective, np.random.default_rng(seed))
        check.derivatives()
        check.units_and_bounds()
        if isinstance(objective, AbstractRestrictable):
            check.models(objective)
        check.weights()


@program
def _facts(objective: AbstractObjective, x: Array, v: Array, support: Support, all_points: Array) -> dict[str, Any]:
    """Everything at x and v, which vanish outside of the support; F and its gradient at all points."""
    forward, sparse = objective.forward(x), objective.forward(x, support)
    out = {
        "value": [objective.value(x), objective.value(x, support), objective.value_at(sparse, x)],
        "grad": [objective.grad_at(forward, x), objective.value_and_grad(x, support)[1]],
        "curvature": objective.curvature_at(sparse, v, support),
        "points": jax.vmap(objective.value_and_grad)(all_points),
    }
    if isinstance(objective, AbstractRefittable):
        restricted = objective.restrict(support)
        z, on = jnp.where(support.mask, gather(x, support), 0.7), gather(v, support)
        (grad, terms, hess), one = restricted.derivatives(z), jnp.ones((), z.dtype)
        out["derivatives"] = {"grad": grad, "grad_terms": terms, "hess": hess(0.0), "damped": hess(one)}
        out["restricted"] = {
            "damped": restricted.hess(z, one),
            "value": restricted.value(z),
            "grad": restricted.grad(z),
            "grad_terms": restricted.grad_terms(z),
            "hvp": restricted.hvp(z, on),
            "product": restricted.hessian_product(z)(on),
            "hess": restricted.hess(z),
            "hess_elsewhere": restricted.hess(0.5 * z),
            "scale": restricted.scale(z),
        }
    if isinstance(objective, AbstractFiniteSum):
        samples = objective.samples()
        each = jnp.arange(objective.n_samples)
        out["samples"] = {
            "sample_grad": jnp.mean(jax.vmap(lambda i: objective.sample_grad(x, i[None]))(each), axis=0),
            "sample_grad of all": objective.sample_grad(x, each),
            "samples().mean_gradient": samples.mean_gradient(samples.scores_at(forward)) + samples.penalty_grad(x),
        }
    return out


@program
def _start(objective: AbstractObjective, move: Array) -> tuple[Array, Array]:
    return objective.origin(), objective.feasible(objective.origin() + move)


@program
def _once(objective: AbstractObjective, x: Array) -> tuple[Any, Any, Array]:
    sample = objective.sample_smoothness() if isinstance(objective, AbstractFiniteSum) else jnp.inf
    return objective.lipschitz(), sample, objective.to_internal(*objective.to_external(x))


@program
def _model(objective: AbstractRestrictable, x: Array) -> tuple[Array, ...]:
    equations = objective.normal_equations(x)
    p = objective.n_coefficients
    idx = jnp.arange(1, p)[::-1]
    few, rest = objective.subset(idx), jnp.concatenate([x[idx], x[p:]])
    others = [objective.normal_equations(at) for at in (None, objective.origin())]
    return (
        equations.rows(jnp.arange(p)),
        equations.rhs,
        equations.diagonal,
        equations.constant,
        jnp.stack([jnp.append(each.rhs, each.diagonal) for each in others]),
        few.value(rest),
        objective.value(x.at[0].set(0)),
    )


class _Check:
    """An objective with a sparse point x, a direction v on its support, and F with its derivatives there."""

    def __init__(self, objective: AbstractObjective, rng: np.random.Generator) -> None:
        self.objective, self.rng = objective, rng
        self.law, self.equal = functools.partial(law, objective), functools.partial(equal, objective)
        self.p, self.d = objective.n_coefficients, objective.n_coefficients + objective.n_free
        free = np.arange(self.p, self.d)
        chosen = rng.choice(self.p, min(3, self.p), replace=False)
        # Padding may repeat an index, chosen, free or neither.
        idx = np.concatenate([free, chosen, free[:1], chosen[:1], [rng.integers(self.p)]]).astype(np.int32)
        self.support = Support(jnp.asarray(idx), jnp.arange(idx.size) < free.size + chosen.size)
        self.on = np.isin(np.arange(self.d), idx[: free.size + chosen.size])
        x, v = np.where(self.on, 0.5 * rng.standard_normal((2, self.d)), 0)
        self.move, self.v = x, v
        self.points = self._points(objective)
        self.x = self.points[0]

    def _points(self, objective: AbstractObjective) -> np.ndarray:
        """x, its neighbours, the origin of an objective, and that one's neighbours."""
        origin, x = (np.asarray(each) for each in _start(objective, self.move))
        steps = np.concatenate([np.zeros((1, self.d)), *(side * H * np.eye(self.d) for side in (1, -1))])
        return np.concatenate([x + steps, origin + steps])

    def derivatives(self, objective: AbstractObjective | None = None) -> tuple[Any, np.ndarray, np.ndarray]:
        """The laws of one objective, of this one's structure; (value, gradient, Hessian) at x."""
        points = self.points if objective is None else self._points(objective)  # F is finite where its weights say
        objective = self.objective if objective is None else objective
        x, v, d = points[0], self.v, self.d
        with traced(objective):
            out = jax.tree.map(np.asarray, _facts(objective, x, v, self.support, points))
        values, grads = out["points"]
        value, grad = values[0], grads[0]
        self.law("the value is finite", np.isfinite(values), value=values, x=points)
        scale = 1 + np.abs(value)
        for found in out["value"]:
            self.equal("value, value_at and value over a support agree", found, value, 1e-12, 1e-13 * scale)
        slope = (values[1 : d + 1] - values[d + 1 : 2 * d + 1]) / (2 * H)
        entry = np.arange(d)
        self.equal("gradient is that of value by finite differences", grad, slope, RTOL, ATOL * scale, entry=entry)
        room = 1e-13 * (1 + np.abs(grad).max())
        for found in out["grad"]:
            self.equal("grad_at and value_and_grad over a support agree", found, grad, 1e-11, room, entry=entry)
        H_at = [(grads[i + 1 : i + d + 1] - grads[i + d + 1 : i + 2 * d + 1]) / (2 * H) for i in (0, 2 * d + 1)]
        hessian, self.hessian_at_origin = H_at
        room = ATOL * (1 + np.abs(hessian).max())
        self.equal("the Hessian is symmetric", hessian, hessian.T, RTOL, room)
        text = "curvature_at is that of the gradient by finite differences"
        self.equal(text, out["curvature"], v @ hessian @ v, RTOL, room)
        if "restricted" in out:
            self.restricted(objective, out["restricted"], value, grad, hessian)
            for name, found in out["derivatives"].items():
                self.equal(f"derivatives holds {name}", found, out["restricted"][name], 1e-11, 1e-12)
        for name, found in out.get("samples", {}).items():
            self.equal(f"{name} has the gradient as its mean", found, grad, 1e-10, 1e-12, entry=entry)
        return value, grad, hessian

    def restricted(
        self, objective: AbstractObjective, out: dict[str, Any], value: Any, grad: np.ndarray, hessian: np.ndarray
    ) -> None:
        live = np.asarray(self.support.mask)
        idx = np.asarray(self.support.idx)[live]
        block = hessian[np.ix_(idx, idx)]
        room = ATOL * (1 + np.abs(hessian).max())
        self.equal("restricted value is F", out["value"], value, 1e-12, 1e-13)
        self.equal("restricted gradient is that of F", out["grad"][live], grad[idx], 1e-11, 1e-12, entry=idx)
        text = "restricted Hessian is that of the gradient by finite differences"
        both = np.ones(block.shape, bool)
        if getattr(getattr(objective, "loss", None), "shift_invariant", False):
            free = idx >= self.p  # where F is flat, and the Hessian may be regularised
            both &= ~(free[:, None] & free)
        self.equal(text, out["hess"][np.ix_(live, live)][both], block[both], RTOL, room)
        for name in ("hvp", "product"):
            text = "a restricted Hessian product is that of the gradient by finite differences"
            self.equal(text, out[name][live], block @ self.v[idx], RTOL, room, entry=idx)
        padding = np.concatenate([out["grad"][~live], out["hvp"][~live]])
        self.law("restricted gradients and Hessian products are zero on padding", padding == 0, found=padding)
        enough = out["grad_terms"][live] >= np.abs(out["grad"][live]) * (1 - 1e-9)
        self.law("grad_terms are not below the gradient", enough, terms=out["grad_terms"][live], gradient=grad[idx])
        damping = (out["damped"] - out["hess"])[np.ix_(live, live)]
        self.law("damping has no negative direction", np.linalg.eigvalsh(damping) >= -1e-9 * np.abs(damping).max())
        self.law("damping adds to every curvature or to none", (np.diag(damping) > 0) | ~damping.any(), damping=damping)
        scale, bend = out["scale"][live], np.diag(block)
        positive = (scale > 0) | ((scale == 0) & (bend <= room))
        self.law("scale is positive where there is curvature", positive, scale=scale, curvature=bend)
        if objective.quadratic:
            text = "a quadratic objective has one Hessian"
            self.equal(text, out["hess_elsewhere"], out["hess"], 1e-12, 1e-13)

    def units_and_bounds(self) -> None:
        scale = self.objective.internal_scale()
        x = self.x.copy()
        if scale is not None:
            x[: self.p] = np.where(np.asarray(scale) == 0, 0, x[: self.p])  # a constant column has no units
        lipschitz, sample, again = _once(self.objective, x)
        self.equal("to_internal undoes to_external", again, x, 1e-10, 1e-10)
        lipschitz, sample = float(lipschitz), float(sample)
        largest = np.linalg.eigvalsh(self.hessian_at_origin)[-1]
        text = "lipschitz is at least the curvature at the origin"
        self.law(text, lipschitz >= largest * (1 - 1e-3) - ATOL, lipschitz=lipschitz, curvature=largest)
        text = "sample_smoothness is at least lipschitz"
        self.law(text, sample >= lipschitz * (1 - 1e-3), sample_smoothness=sample, lipschitz=lipschitz)

    def models(self, objective: AbstractRestrictable) -> None:
        try:
            A, rhs, diagonal, constant, others, few, expected = map(np.asarray, _model(objective, self.x))
        except TypeError:
            return  # an objective may have none
        value, grad, hessian = self.derivatives()
        self.equal("the diagonal of normal_equations is in their columns", diagonal, np.diag(A), 1e-9, 1e-10)
        self.equal("normal_equations without a point are those at origin()", others[0], others[1], 1e-10, 1e-10)
        loss, p = getattr(objective, "loss", None), self.p
        kinked = getattr(loss, "kinked", False)  # where curvatures are those that the solvers use
        room, w = ATOL * (1 + np.abs(hessian).max()), self.x[:p]
        follow = np.linalg.solve(hessian[p:, p:], np.column_stack([hessian[p:], grad[p:]]))
        if not kinked or self.d == p:
            slope = grad[:p] - grad[p:] @ follow[:, :p]
            self.equal("normal_equations have the gradient of F", A @ w - rhs, slope, RTOL, room)
        if not kinked:
            schur = hessian[:p, :p] - hessian[:p, p:] @ follow[:, :p]
            self.equal("normal_equations have the Hessian of F", A, schur, RTOL, room)
        if loss is None or objective.quadratic:
            found, least = constant - 2 * rhs @ w + w @ A @ w, 2 * value - grad[p:] @ follow[:, -1]
            self.equal("normal_equations have the value of F", found, least, RTOL, room)
        self.equal("subset(idx) is F on the coefficients idx", few, expected, 1e-11, 1e-12)

    def weights(self) -> None:
        objective, weights = self.objective, self.objective.sample_weight
        try:
            some = [] if weights is None else [objective.reweighted(sample_weight=f * weights) for f in (1.0, 3.0)]
        except TypeError:  # it refuses
            some = []
        for same in some:
            text = "multiples of the sample weights change nothing"
            self.equal(text, self.derivatives(same)[0], self.derivatives()[0], 1e-11, 1e-12)
        if weights is not None and some:
            other = np.where(np.arange(len(weights)) % 4 == 1, 0, self.rng.uniform(0.5, 2, len(weights)))
            self.derivatives(objective.reweighted(sample_weight=other))
        try:
            shape = np.shape(0.0 if objective.l2 is None else objective.l2)  # the same shape needs no other program
            ridges = [objective.reweighted(l2=np.full(shape, l2, objective.dtype)) for l2 in (0.0, 1.0, 3.0)]
        except TypeError:
            return
        values = [self.derivatives(each)[0] for each in ridges]
        text = "F is affine in l2, and does not fall with it"
        self.equal(text, values[2] - values[0], 3 * (values[1] - values[0]), 1e-9, 1e-10)
        self.law(text, values[1] >= values[0], value=values[1], without=values[0])
        alone = value_of(objective.scorer(), self.x)
        self.equal("the scorer is F without l2", alone, values[0], 1e-11, 1e-12)
