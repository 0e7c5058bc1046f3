"""Best subsets: a forward path, exact best swaps until none improves, and perturbed restarts."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .._termination import SwapOptimal
from .._tolerances import tolerance
from .._types import Support
from ..linalg import any_lane
from ..linalg.tableau import Tableau, add, addition_gains, empty_tableau, swap, swap_gains
from ..losses import Squared
from ..objectives import AbstractRestrictable
from ..thresholds import Sparsity
from .base import AbstractSolver, report
from .htp import refit

EFFORTS = {"fast": 0, "default": 20, "thorough": 200}  # perturbed restarts
MAX_SWAPS = 10  # per descent and feature


class BestSubsetState(NamedTuple):
    """The best support so far with its refit, its tableau, and the best remaining swap gain in units of F."""

    x: Array
    support: Support
    value: Array
    grad: Array
    step_size: Array
    fault: Array
    tableau: Tableau
    gain: Array
    optimal: Array
    key: Array


class BestSubset(AbstractSolver):
    """The best k features found by forward selection, exact best swaps, and perturbed restarts.

        min F(w) subject to ||w||_0 <= k, F a quadratic (squared loss, weights, l2, intercept, kept features)

    The first step adds features one by one, each with the largest exact decrease of F, then makes the best of all
    k (p - k) swaps, all coefficients optimised again, until none improves. Every further step perturbs the best
    support by random swaps and descends again. The refit and the gradient come from the data after every descent, so
    rounding in the updates never decides which support is returned.

    Args:
        effort: "fast" (no restarts), "default" (20) or "thorough" (200).

    Guarantee: if it says converged, no single swap lowers F by more than the table's `swap` tolerance times |F|. That
    is not a proof of a global optimum.

    Raises:
        ValueError: if effort is not one of the three.
        TypeError: for bounds, or a loss that is not squared.

    Source: exact swaps as in full-swap inescapability, Hazimeh and Mazumder (2020), on updated normal equations.
    """

    effort: str = eqx.field(static=True)

    requires = AbstractRestrictable
    supports = (Sparsity,)
    needs_curvature = True

    def __init__(self, effort: str = "default"):
        self.effort = effort

    def __check_init__(self):
        if self.effort not in EFFORTS:
            raise ValueError(f"effort: must be one of {', '.join(EFFORTS)}, got {self.effort!r}.")

    def check(self, objective, threshold):
        super().check(objective, threshold)
        if threshold.lower is not None or threshold.upper is not None:
            raise TypeError("threshold: BestSubset takes no bounds; use HTP for bounded coefficients.")
        if not isinstance(getattr(objective, "loss", Squared()), Squared):
            raise TypeError("loss: BestSubset needs the squared loss; use HTP or GraSP for other losses.")

    @property
    def default_termination(self):
        return SwapOptimal()

    @property
    def default_max_steps(self):
        return 1 + EFFORTS[self.effort]

    def init(self, objective, threshold, x0, key):
        p = objective.n_coefficients
        equations = objective.normal_equations()
        tableau = empty_tableau(
            equations.diagonal, equations.rhs, equations.constant, threshold.keep.shape[0] + threshold.k_max
        )
        kept = jnp.zeros(p, bool).at[threshold.keep].set(True)
        tableau = _grow(equations, threshold, tableau, 2 * kept + (x0[:p] != 0))
        return self._refreshed(objective, threshold, equations, tableau, key)

    def step(self, objective, threshold, state, t):
        equations = objective.normal_equations()
        key, draw = jax.random.split(state.key)
        start = lax.cond(t > 0, lambda: _perturb(equations, threshold, state.tableau, draw), lambda: state.tableau)
        found = self._refreshed(objective, threshold, equations, _descend(equations, threshold, start), key)
        better = (found.value < state.value) | (t == 0)
        new = jax.tree.map(lambda n, o: jnp.where(better, n, o), found._replace(key=state.key), state)
        limit = self.default_max_steps
        tol = tolerance("swap", state.x.dtype)
        new = new._replace(key=key, optimal=(new.gain <= tol * jnp.abs(new.value)) & (t + 1 >= limit))
        return new, report(
            objective,
            threshold,
            state,
            new,
            value=new.value,
            grad=new.grad,
            entries=new.support,
            fault=new.fault,
        )

    def _refreshed(self, objective, threshold, equations, t, key):
        """State at a tableau, with coefficients, value and gradient from the data."""
        p = objective.n_coefficients
        rows = t.idx.shape[0]
        support = Support(
            jnp.concatenate([p + jnp.arange(objective.n_free, dtype=jnp.int32), t.idx]),
            jnp.concatenate([jnp.ones(objective.n_free, bool), jnp.arange(rows) < t.size]),
        )
        x, fault = refit(objective, threshold, support, equations.complete(jnp.zeros(p, t.c.dtype).at[t.idx].add(t.c)))
        value, grad = objective.value_and_grad(x, support)
        c = jnp.where(jnp.arange(rows) < t.size, x[t.idx], 0)
        t = t._replace(c=c, g=-grad[:p], value=2 * value)
        gain, _, _, _ = _best_swap(threshold, t)
        return BestSubsetState(
            x, support, value, grad, jnp.ones((), value.dtype), fault, t, gain / 2, jnp.zeros((), bool), key
        )


def _grow(equations, threshold, t: Tableau, level) -> Tableau:
    """Add the best feature of the highest level again and again until the tableau is full."""
    target = threshold.keep.shape[0] + threshold.k

    def candidates(t):
        gains = addition_gains(t)
        usable = (gains > -jnp.inf) & (t.size < target)
        top = jnp.max(jnp.where(usable, level, -1))
        return jnp.where(usable & (level == top), gains, -jnp.inf)

    def unfinished(carry):
        _, gains = carry
        return any_lane(jnp.max(gains) > -jnp.inf)

    def body(carry):
        t, gains = carry
        t = add(equations.columns, t, jnp.argmax(gains).astype(jnp.int32), gains, jnp.max(gains) > -jnp.inf)
        return t, candidates(t)

    return lax.while_loop(unfinished, body, (t, candidates(t)))[0]


def _best_swap(threshold, t: Tableau):
    """Gain, row and feature of the best swap, and the best gain of every feature."""
    gains = swap_gains(t, threshold.keep.shape[0])
    best = jnp.max(gains, axis=0)
    j = jnp.argmax(best).astype(jnp.int32)
    return best[j], jnp.argmax(gains[:, j]).astype(jnp.int32), j, best


def _descend(equations, threshold, t: Tableau) -> Tableau:
    """Make the best swap until none improves."""
    dtype = t.c.dtype
    # Below the rounding of the sums of squares a gain is noise.
    noise = 10 * jnp.finfo(dtype).eps * equations.constant
    cap = MAX_SWAPS * t.idx.shape[0]

    def improves(t, gain):
        return gain > tolerance("swap", dtype) * t.value + noise

    def going(carry):
        t, (gain, *_), count = carry
        return any_lane(improves(t, gain)) & (count < cap)

    def body(carry):
        t, (gain, i, j, best), count = carry
        t = swap(equations.columns, t, i, j, best, improves(t, gain))
        return t, _best_swap(threshold, t), count + 1

    return lax.while_loop(going, body, (t, _best_swap(threshold, t), jnp.int32(0)))[0]


def _perturb(equations, threshold, t: Tableau, key) -> Tableau:
    """Random rows out, random good candidates in: a quarter of the features, at least one and at most eight."""
    locked = threshold.keep.shape[0]
    count = jnp.clip((t.size - locked) // 4, 1, 8)
    best = _best_swap(threshold, t)[3]

    def body(number, t):
        row_key, column_key = jax.random.split(jax.random.fold_in(key, number))
        i = jax.random.randint(row_key, (), locked, jnp.maximum(t.size, locked + 1), dtype=jnp.int32)
        j = t.block[jax.random.randint(column_key, (), 0, t.block.shape[0], dtype=jnp.int32)]
        usable = (j >= 0) & ~t.chosen[j] & (number < count) & (t.size > locked)
        gains = swap_gains(t, locked)[i, j]
        return swap(equations.columns, t, i, j, best, usable & (gains > -jnp.inf))

    return lax.fori_loop(0, 8, body, t)
