"""The laws of a threshold."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from .._programs import program
from .._types import Support, replace
from ..objectives import AbstractObjective, LinearModel
from ..objectives.model import in_double
from ..thresholds import AbstractThreshold, AbstractUnitThreshold
from ..thresholds.base import AbstractSupportThreshold
from .laws import equal, law, traced

LANES = 256  # one batched program serves all points
MOST_COEFFICIENTS = 10  # whose subsets are enumerated


def check_threshold(
    threshold: AbstractThreshold,
    objective: AbstractObjective | None = None,
    reference: Callable[[np.ndarray, AbstractThreshold, float], np.ndarray] | None = None,
    seed: int = 0,
) -> None:
    """Assert the laws that every threshold keeps, at random points, among them ones with ties and zeros.

    - The result is nearest: no point of the set lies closer to z. The set is enumerated over all subsets of entries;
      those with at most k units (beside the kept ones) belong to it by what k means, others if they are fixed points.
      For a penalty, ||x - z||^2 / 2 + step_size value(x) falls along no coordinate. A `reference` decides for all.
    - Projecting twice is projecting once; the step size matters to penalties only.
    - Bounds and the plane (`box`) hold, kept units are in the support, free entries lead it and are left alone.
    - On its `entries` the result is the nearest point to z in the box, and zero elsewhere; `size`, `visible`,
      `differs`, `margin` and `free_gradient` are what they say.
    - A larger k comes at least as near, and keeps as many units as k says, with ties to the lower index; `pools` say
      how many of each are chosen, and `room` for how many a support has places.
    - A set that contains the multiples of its points is projected onto alike at every scale, also in float32.
    - One point, a batch under `jax.jit` and `jax.vmap`, float32 and a tighter k_max give the same.

    Args:
        threshold: not bound to an objective; k is varied from `fewest` to k_max.
        objective: what it is bound to, of at most 10 coefficients. None: a `LinearModel` of six features with an
            intercept.
        reference: (z, bound threshold, step size) -> the result on the (p,) coefficients z, in NumPy, for a set
            whose points are no subsets of the entries of z, such as matrices of low rank.
        seed: of the random points.

    Raises:
        AssertionError: for the first law that does not hold, naming it with the numbers.
        ValueError: if the objective has too many coefficients.
    """
    with jax.enable_x64(True):
        objective = _features(6) if objective is None else in_double(objective)
        if objective.n_coefficients > MOST_COEFFICIENTS:
            raise ValueError(
                f"objective: has {objective.n_coefficients} coefficients, whose subsets are too many to enumerate; "
                f"bind the threshold to one of {MOST_COEFFICIENTS} at most."
            )
        check = _Check(threshold.bind(objective), objective.n_coefficients, np.random.default_rng(seed))
        check.results()
        check.nearest(reference)
        check.fixed_points()
        if isinstance(check.bound, AbstractSupportThreshold):
            check.supports()
        if isinstance(check.bound, AbstractUnitThreshold):
            check.units()
            check.choices()
        check.tangents()
        check.alone()
    check.single_precision()


def _features(p: int) -> LinearModel:
    return LinearModel(np.vstack([np.eye(p), np.ones(p)]), np.zeros(p + 1), fit_intercept=True)


@program
def _lanes(
    threshold: AbstractThreshold, counts: dict[str, Any], z: Array, step_size: Array, grad: Array
) -> dict[str, Any]:
    def one(counts: dict[str, Any], z: Array, step_size: Array, grad: Array) -> dict[str, Any]:
        bound = replace(threshold, **counts)
        result: Any = bound(z, step_size)
        x, support = result
        out: dict[str, Any] = {
            "x": x,
            "value": bound.value(x),
            "size": bound.size(support),
            "overflow": bound.overflow(x),
            "differs": bound.differs(support, support),
            "tangent": bound.tangent(grad, support),
            "twice": bound.tangent(bound.tangent(grad, support), support),
        }
        if isinstance(bound, AbstractSupportThreshold):
            entries = bound.entries(x, support)
            everything = jnp.concatenate([jnp.arange(z.size - bound.n_free, z.size), jnp.arange(z.size - bound.n_free)])
            box = bound.box(Support(everything, jnp.ones(z.size, bool)))
            lower, upper = (
                jnp.full(z.size, end) if edge is None else jnp.zeros(z.size).at[everything].set(edge)
                for edge, end in zip(box[:2], (-jnp.inf, jnp.inf), strict=True)
            )
            normal, total = (jnp.zeros(z.size), jnp.zeros(())) if box.plane is None else box.plane
            normal = jnp.zeros(z.size).at[everything].set(normal)
            other: Any = bound(-z[::-1], step_size)[1]
            out |= {
                "support": support,
                "entries": entries,
                "visible": bound.visible(support),
                "lower": lower,
                "upper": upper,
                "normal": normal,
                "total": total,
                "free_gradient": bound.free_gradient(x, grad),
                "other": other,
                "differs_from_other": bound.differs(support, other),
            }
        if isinstance(bound, AbstractUnitThreshold):
            scores = bound.scores(z)
            out |= {"scores": scores, "margin": bound.margin(z, support)}
            free = scores.size + jnp.arange(bound.n_free)

            def entries_of(unit: Int[Array, ""]) -> Support:
                return bound.entries(jnp.ones_like(z), Support(jnp.append(free, unit), jnp.ones(free.size + 1, bool)))

            out["entries_of_units"] = jax.vmap(entries_of)(jnp.arange(scores.size))
        return out

    return jax.vmap(one)(counts, z, step_size, grad)


@program
def _results(
    threshold: AbstractThreshold, counts: dict[str, Any], z: Array, step_size: Array, grad: Array
) -> dict[str, Array]:
    """The results alone: a smaller program."""
    return {"x": jax.vmap(lambda counts, z, t: replace(threshold, **counts)(z, t)[0])(counts, z, step_size)}


@program
def _values(threshold: AbstractThreshold, x: Array) -> Array:
    return jax.vmap(threshold.value)(x)


def _members(support: Any, size: int) -> np.ndarray:
    """(..., size) boolean form of supports."""
    flat = np.zeros((*support.idx.shape[:-1], size), bool)
    np.put_along_axis(flat, np.where(support.mask, support.idx, support.idx[..., :1]), True, axis=-1)
    # The first index stood in for padding.
    first = np.any(support.mask & (support.idx == support.idx[..., :1]), axis=-1)
    np.put_along_axis(flat, support.idx[..., :1], first[..., None], axis=-1)
    return flat


class _Check:
    """A bound threshold with its results at all points for all k: arrays of shape (points, ks, ...)."""

    def __init__(self, bound: Any, p: int, rng: np.random.Generator) -> None:
        self.bound, self.p, self.rng = bound, p, rng
        self.law, self.equal = functools.partial(law, bound), functools.partial(equal, bound)
        d = p + bound.n_free
        wide = rng.standard_normal((8, d)) * 10.0 ** rng.uniform(-3, 3, (8, d))
        ties = rng.integers(-4, 5, (16, d)) / 2
        ties[:4, p:] = 0
        self.z = np.concatenate([rng.standard_normal((8, d)), wide, ties])
        self.ks = np.arange(bound.fewest, p + 1) if bound.counts else np.arange(1)
        start = self.run(np.tile(self.z[:1], (self.ks.size, 1)), self.ks)
        self.ks = self.ks[: np.argmax(np.append(start["overflow"], True))] if bound.counts else self.ks
        self.grad = rng.standard_normal(self.z.shape)
        self.out = self.everywhere(self.z)
        self.penalised = bool(np.any(np.asarray(_values(bound, jnp.asarray(self.z))) != 0))
        self.room = 1e-12 if isinstance(bound, AbstractSupportThreshold) else 1e-10

    def run(self, z: np.ndarray, ks: np.ndarray, step_size: float = 1.0, bound: Any = None) -> dict[str, Any]:
        """Results at points z (m, d) for counts ks (m,); with another form of the threshold, x alone."""
        program, bound = (_lanes, self.bound) if bound is None else (_results, bound)
        m, pieces = len(z), []
        grad = np.resize(getattr(self, "grad", self.z), z.shape).astype(z.dtype)
        for start in range(0, m, LANES):
            take = np.minimum(np.arange(start, start + LANES), m - 1)
            counts = {name: getattr(bound, name) for name in bound.counts}
            counts = jax.tree.map(lambda leaf, take=take: np.asarray(ks[take], np.int32), counts)
            steps = np.full(LANES, step_size, z.dtype)
            with traced(bound):
                out = program(bound, counts, jnp.asarray(z[take]), jnp.asarray(steps), jnp.asarray(grad[take]))
            pieces.append(jax.tree.map(lambda a, start=start: np.asarray(a)[: min(LANES, m - start)], out))
        return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)

    def everywhere(self, z: np.ndarray, step_size: float = 1.0, bound: Any = None) -> dict[str, Any]:
        """Results at points z (n, d) or (n, ks, d) for all k."""
        if z.ndim == 2:
            z = np.broadcast_to(z[:, None], (len(z), self.ks.size, z.shape[1]))
        n = len(z)
        flat = self.run(z.reshape(-1, z.shape[-1]), np.tile(self.ks, n), step_size, bound)
        return jax.tree.map(lambda a: a.reshape(n, self.ks.size, *a.shape[1:]), flat)

    def with_k(self, k: Any) -> Any:
        counts = {name: getattr(self.bound, name) for name in self.bound.counts}
        return replace(self.bound, **jax.tree.map(lambda leaf: np.asarray(k, np.int32), counts))

    # --- laws --------------------------------------------------------------------------------------------------------
    def results(self) -> None:
        x, z = self.out["x"], self.z[:, None]
        self.law("the result has the shape of z", x.shape[2:] == z.shape[2:], shape=x.shape[2:], of_z=z.shape[2:])
        self.law("the result is finite", np.isfinite(x), x=x, z=z)
        for name in sorted({"entries", "entries_of_units"} & set(self.out)):
            idx = self.out[name].idx
            places = (idx >= 0) & (idx < z.shape[2])
            self.law("entries are places in x, in which the free ones come last", places, found=idx, size=z.shape[2])
        free = np.arange(z.shape[2]) >= self.p
        self.law("says that it penalises where its value is not zero", self.bound.penalises or not self.penalised)
        self.law("free entries are left alone", (x == z)[..., free], x=x, z=z)

    def nearest(self, reference: Callable[..., Any] | None) -> None:
        if reference is not None:
            for step_size in (1.0, 0.3) if self.penalised else (1.0,):
                out = self.everywhere(self.z, step_size)
                expected = [
                    [np.append(reference(z[: self.p], self.with_k(k), step_size), z[self.p :]) for k in self.ks]
                    for z in self.z
                ]
                text = "is nearest to z, by the reference"
                norm = np.linalg.norm(self.z, axis=1)[:, None]
                found, best = (self.distances(np.asarray(x), step_size) for x in (out["x"], expected))
                self.equal(text, found, best, 1e-9, 1e-12 * (1 + norm**2), k=self.ks[None], z=self.z[:, None])
        if self.penalised:
            self.lowest_along_coordinates()
        elif isinstance(self.bound, AbstractSupportThreshold):
            self.nearest_of_subsets()

    def distances(self, x: np.ndarray, step_size: float = 1.0) -> np.ndarray:
        """(n, ks) squared distances from z, halved, plus the penalty."""
        out = 0.5 * np.sum((x - self.z[:, None]) ** 2, axis=-1)
        if self.penalised:
            out += step_size * np.asarray(_values(self.bound, jnp.asarray(x.reshape(-1, x.shape[-1])))).reshape(
                out.shape
            )
        return out

    def lowest_along_coordinates(self) -> None:
        shares = np.linspace(0, 1, 101)
        for step_size in (1.0, 0.3):
            x, z = self.everywhere(self.z, step_size)["x"], self.z
            moved = np.broadcast_to(x[:, :, None, None], (*x.shape[:2], self.p, shares.size, x.shape[2])).copy()
            for j in range(self.p):
                moved[:, :, j, :, j] = z[:, None, j, None] * shares
            moved = np.asarray(jax.vmap(self.bound.clip)(moved.reshape(-1, x.shape[2]))).reshape(moved.shape)
            here = self.distances(x, step_size)[:, :, None, None]
            flat = moved.reshape(len(z), -1, x.shape[2])
            there = self.distances(flat, step_size).reshape(moved.shape[:-1])
            text = "minimises ||x - z||^2 / 2 + step_size value(x)"
            numbers = dict(value=here, lower=there, at=moved, step_size=step_size, z=z[:, None])
            self.law(text, here <= there + 1e-12 * (1 + here), **numbers)

    def nearest_of_subsets(self) -> None:
        subsets = np.array(np.meshgrid(*[[False, True]] * self.p)).reshape(self.p, -1).T
        z = self.z[::4]
        free = np.ones((len(subsets), z.shape[1] - self.p), bool)
        members = np.hstack([subsets, free])
        if self.on_plane:  # which needs one of its entries
            held = (members & (self.out["normal"][0, 0] != 0)).any(1)
            subsets, members = subsets[held], members[held]
        points = self.moved(z[:, None], members)
        by_k = self.by_what_k_means(subsets)  # (ks, subsets)
        flat = points.reshape(-1, 1, z.shape[1])
        room = self.room * np.linalg.norm(flat, axis=-1, keepdims=True) if self.on_plane else 0
        fixed = np.abs(self.everywhere(flat[:, 0])["x"] - flat) <= room
        fixed = fixed.all(-1).reshape(len(z), len(subsets), self.ks.size).transpose(0, 2, 1)
        distance = np.sum((points - z[:, None]) ** 2, axis=-1)[:, None]  # (z, 1, subsets)
        allowed = np.where(fixed | by_k, distance, np.inf)
        best = allowed.min(axis=-1)
        found = np.sum((self.everywhere(z)["x"] - z[:, None]) ** 2, axis=-1)
        names = np.array([str(np.flatnonzero(s).tolist()) for s in subsets])[allowed.argmin(axis=-1)]
        text = "is nearest to z: no point of the set lies closer"
        numbers = dict(squared_distance=found, another=best, on_entries=names, k=self.ks[None], z=z[:, None, : self.p])
        self.law(text, found <= best * (1 + 1e-12) + 1e-14, **numbers)
        text = "z on one entry of each of k units is a fixed point"
        self.law(text, fixed | ~by_k, k=self.ks[None, :, None], x=points[:, None])

    @property
    def on_plane(self) -> bool:
        """True if the entries have a given sum."""
        return bool(np.any(self.out.get("normal", 0) != 0))

    @property
    def signed(self) -> bool:
        """True if the entries of a given sum may have any sign."""
        return self.on_plane and not np.isfinite(self.out["lower"]).any()

    def moved(self, z: np.ndarray, members: np.ndarray) -> np.ndarray:
        """The nearest points to z on some entries in the box, zero elsewhere; on a plane by bisection."""
        lower, upper, normal = (self.out[name][0, 0] for name in ("lower", "upper", "normal"))
        z, members = np.broadcast_arrays(z, members)
        if not self.on_plane:
            return np.where(members, np.clip(z, lower, upper), 0)
        total, held = self.out["total"][0, 0], members & (normal != 0)
        if self.signed:
            n = np.where(held, normal, 0)
            gap = total - np.sum(n * z, axis=-1, keepdims=True)
            return np.where(members, z + n * gap / np.maximum(np.sum(n**2, axis=-1, keepdims=True), 1e-300), 0)
        n = np.where(held, normal, 1)
        z = z - np.where(held, n * np.max(np.where(held, z / n, -np.inf), axis=-1, keepdims=True, initial=-1e300), 0)

        def at(theta: np.ndarray) -> np.ndarray:
            return np.where(held, np.clip(z - theta * n, lower, upper), np.where(members, z, 0))

        low = np.full((*z.shape[:-1], 1), -total / np.min(normal[normal > 0]) ** 2)
        high = np.zeros_like(low)
        for _ in range(200):
            middle = (low + high) / 2
            above = np.sum(np.where(held, n * at(middle), 0), axis=-1, keepdims=True) > total
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return at(high)

    def by_what_k_means(self, subsets: np.ndarray) -> np.ndarray:
        """(ks, subsets) which subsets have at most one entry in each of at most k units, beside the kept ones."""
        if not self.keeps_best_units:
            return np.zeros((self.ks.size, len(subsets)), bool)
        each = self.out["entries_of_units"]
        owned = _members(Support(each.idx[0, 0], each.mask[0, 0]), self.z.shape[1])[:, : self.p]  # (units, p)
        counts = subsets.astype(int) @ owned.T  # (subsets, units)
        others = np.delete(counts, np.asarray(self.bound.keep), axis=1)
        taken = (others > 0).sum(1)
        if self.gaps:
            kept = (counts[:, np.asarray(self.bound.keep)] == 1).all(1)
            return kept & (counts <= 1).all(1) & (taken == self.ks[:, None])
        return (counts <= 1).all(1) & (taken <= self.ks[:, None])

    @property
    def gaps(self) -> bool:
        """True if all k units have to be other than zero."""
        return bool(np.any(self.out.get("lower", 0) > 0) or np.any(self.out.get("upper", 0) < 0))

    @property
    def keeps_best_units(self) -> bool:
        """True if k counts units of one kind, so that any k of them may be kept."""
        return isinstance(self.bound, AbstractUnitThreshold) and self.bound.counts == ("k",)

    def fixed_points(self) -> None:
        x = self.out["x"]
        room = self.room * np.linalg.norm(self.z, axis=1)[:, None, None]
        if not self.penalised:
            again = self.everywhere(x)["x"]
            k = self.ks[None]
            self.law("is idempotent", np.abs(again - x) <= room, once=x, twice=again, k=k, z=self.z[:, None])
            other = self.everywhere(self.z, 0.3)["x"]
            self.law("is the same for every step size", np.abs(other - x) <= room, at_one=x, at_0_3=other)
        distance = self.distances(x)
        rises = np.diff(distance, axis=1)
        text = "a larger k comes at least as near"
        numbers = dict(k=self.ks[None, 1:], distance=distance[:, 1:], before=distance[:, :-1])
        self.law(text, (rises <= room[..., 0] * (1 + distance[:, 1:])) | self.gaps, **numbers)
        self.law("a larger k keeps at least as much", np.diff(self.out["size"], axis=1) >= 0, size=self.out["size"])
        self.law("a support does not differ from itself", ~self.out["differs"])

    def supports(self) -> None:
        out, x, z, free = self.out, self.out["x"], self.z[:, None], self.bound.n_free
        lower, upper = out["lower"], out["upper"]
        entries = _members(out["entries"], x.shape[2])
        within = (x >= lower) & (x <= upper)
        self.law("the result is in its bounds", within | (~entries & self.gaps), x=x, lower=lower, upper=upper)
        edges = np.isfinite(lower[..., : self.p]) | np.isfinite(upper[..., : self.p])
        self.law("says that coefficients have bounds where its box has", ~edges | self.bound.bounded)
        self.law("the result is zero off its entries", (x == 0) | entries, x=x, z=self.z[:, None])
        self.law("free entries are among its entries", entries[..., self.p :], entries=out["entries"].idx, z=z)
        if not self.penalised:
            moved = self.moved(z, entries)
            room = self.room * np.linalg.norm(z, axis=-1, keepdims=True) if self.on_plane else 0
            text = "the result is the nearest point to z on its entries in the box"
            self.law(text, (np.abs(x - moved) <= room) | ~entries, x=x, expected=moved, z=self.z[:, None])
        if self.on_plane:
            total, sums = out["total"], np.sum(out["normal"] * x, axis=-1)
            room = self.room * (np.abs(total) + np.sum(np.abs(out["normal"] * x), axis=-1))
            self.law("the result is on its plane", np.abs(sums - total) <= room, sum=sums, total=total)
        support, visible = out["support"], out["visible"]
        units = int(support.idx.max()) + 1
        used = _members(support, units).sum(-1)
        self.law("the indices of a support are distinct", used == support.mask.sum(-1), distinct=used)
        self.law("size is the number of units without the free ones", out["size"] == used - free, size=out["size"])
        same = (visible.idx == support.idx[..., free:]) & (visible.mask == support.mask[..., free:])
        text = "free units lead a support, and visible drops them"
        leads = support.mask[..., :free].all() and np.all(np.diff(support.idx[..., :free], axis=-1) == 1)
        self.law(text, same.all() and leads, support=support.idx)
        units = max(units, int(out["other"].idx.max()) + 1)
        expected = np.any(_members(support, units) != _members(out["other"], units), axis=-1)
        text = "differs tells whether two supports have different members"
        self.law(text, out["differs_from_other"] == expected, found=out["differs_from_other"])
        if not self.penalised:
            grad = np.resize(self.grad, (x.shape[0] * x.shape[1], x.shape[2])).reshape(x.shape)
            if self.on_plane:  # the common part of the gradient moves nothing
                normal = np.where(x != 0, out["normal"], 0)
                along, size = (normal, np.sum(normal**2, axis=-1)) if self.signed else (x * (normal != 0), out["total"])
                part = np.sum(along * grad, axis=-1) / np.where(size == 0, 1, size)
                grad = grad - part[..., None] * out["normal"]
            pushed = ((x <= lower) & (grad > 0)) | ((x >= upper) & (grad < 0))
            text = "free_gradient is the gradient, zero where it pushes out of an active bound"
            room = self.room * (1 + np.abs(grad)) if self.on_plane else 0
            found = out["free_gradient"]
            self.law(text, np.abs(found - np.where(pushed, 0, grad)) <= room, x=x, gradient=grad, found=found)

    def units(self) -> None:
        out, bound = self.out, self.bound
        scores, units = out["scores"], out["scores"].shape[-1]
        chosen = _members(out["support"], units + bound.n_free)[..., :units]
        margin = out["margin"]
        self.law("margin is between 0 and 1 at its own support", (margin >= 0) & (margin <= 1), margin=margin)
        self.law("scores are not negative", scores >= 0, scores=scores)
        if not self.keeps_best_units:
            return
        kept = np.zeros(units, bool)
        kept[np.asarray(bound.keep)] = True
        k = self.ks[None]
        self.law("kept units are in the support", chosen | ~kept, k=k, chosen=chosen)
        text = "the support has k units beside the kept ones"
        self.law(text, (chosen & ~kept).sum(-1) == k, k=k, units=(chosen & ~kept).sum(-1), z=self.z[:, None])
        passed = chosen[..., None, :] & ~chosen[..., :, None] & ~kept & ~kept[:, None]  # j is chosen and i is not
        tied = scores[..., None, :] == scores[..., :, None]
        lower = np.arange(units)[:, None] < np.arange(units)
        self.law("ties take the lower index", ~(passed & tied & lower).any((-1, -2)), scores=scores, chosen=chosen)
        if bound.k_max is not None and self.ks.size > 2:
            tight = replace(bound, k_max=1)
            few, expected = (
                self.run(self.z, np.ones(len(self.z), int), bound=tight)["x"],
                out["x"][:, self.ks == 1][:, 0],
            )
            room = self.room * np.linalg.norm(self.z, axis=1)[:, None] if self.on_plane else 0
            self.law(
                "the result does not depend on k_max", np.abs(few - expected) <= room, found=few, expected=expected
            )

    def choices(self) -> None:
        """The laws of the units that are chosen, pool by pool."""
        bound, scores, margin = self.bound, self.out["scores"], self.out["margin"]
        units = scores.shape[-1]
        chosen = _members(self.out["support"], units + bound.n_free)[..., :units]
        pools, locked, shares = np.asarray(bound.pools(units)[0]), np.asarray(bound.locked(units)), []
        for pool in np.unique(pools):
            own = (pools == pool) & ~locked
            least = np.min(scores, axis=-1, where=chosen & own, initial=np.inf)
            greatest = np.max(scores, axis=-1, where=~chosen & own, initial=0)
            some = least > np.finfo(float).tiny
            shares.append(np.where(some, 1 - greatest / np.where(some, least, 1), 0))
        text = "margin is the least over the pools of 1 - (largest score left out) / (smallest score chosen)"
        self.equal(text, margin, np.min(shares, axis=0), 1e-9, 1e-12, k=self.ks[None], scores=scores)
        counts = np.array([np.asarray(self.with_k(k).pools(units)[1]) for k in self.ks])
        taken = np.stack([(chosen & ~locked & (pools == pool)).sum(-1) for pool in range(counts.shape[-1])], axis=-1)
        self.law("pools tell how many of each are chosen", taken == counts, found=counts[None], chosen=taken)
        room = self.out["support"].idx.shape[-1] - bound.n_free
        self.law("a support has room for as many units as room says", room == bound.room, room=bound.room, found=room)

    def tangents(self) -> None:
        once, twice = self.out["tangent"], self.out["twice"]
        room = self.room * (1 + np.abs(once))
        self.law("tangent is a projection", np.abs(twice - once) <= room, once=once, twice=twice)

    def alone(self) -> None:
        """One point in a program of its own, with a k that is known."""
        x, _ = jax.jit(lambda z: self.with_k(self.ks[-1])(z))(jnp.asarray(self.z[0]))
        batch = self.out["x"][0, -1]
        room = self.room * np.linalg.norm(self.z[0])
        self.law("a point alone gives what it gives in a batch", np.abs(x - batch) <= room, alone=x, batch=batch)

    def single_precision(self) -> None:
        z, x = self.z[:8].astype(np.float32), self.out["x"][:8]
        with jax.enable_x64(True):  # the same points
            exact = self.everywhere(z.astype(float))["x"]
            double = self.everywhere(2 * x)["x"] if not self.penalised else None
        with jax.enable_x64(False):
            bound = jax.tree.map(
                lambda a: np.asarray(a, np.float32) if np.asarray(a).dtype.kind == "f" else a, self.bound
            )
            single = self.everywhere(z, bound=bound)["x"]
            self.law("the result of float32 is float32", single.dtype == np.float32, dtype=str(single.dtype))
            room = 1e-5 * np.linalg.norm(z, axis=1)[:, None, None]
            text = "float32 gives what float64 gives"
            self.law(text, np.abs(single - exact) <= room, found=single, expected=exact, z=z)
            if double is None or np.abs(double - 2 * x).max() > self.room * np.abs(x).max():
                return  # no cone
            for power in (80, -80):
                scaled = self.everywhere(np.ldexp(z, power), bound=bound)["x"]
                text = "multiples of z give multiples of the result in float32"
                found = np.ldexp(scaled.astype(float), -power)
                self.law(text, np.abs(found - single) <= room, found=found, expected=single, z=z, power=power)
