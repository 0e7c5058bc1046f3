"""The laws of a step-size rule."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._programs import program
from ..linalg import dot
from ..losses import Logistic
from ..objectives import AbstractObjective, LinearModel
from ..objectives.model import in_double
from ..solvers import IHT
from ..steps import AbstractStep, At
from ..thresholds import Sparsity
from .laws import equal, law, traced

STEPS = 12


def check_step(
    step: AbstractStep,
    objective: AbstractObjective | None = None,
    reference: Callable[[int, float, np.ndarray, np.ndarray], float] | None = None,
    seed: int = 0,
) -> None:
    """Assert the laws that every step-size rule keeps, along some steps of `IHT` with two coefficients.

    - `init` and `propose` give positive finite scalars of the objective's dtype.
    - A rule that does not search is taken as it is. One that does has a `shrink` between 0 and 1; the size that is
      accepted is the proposed one times a power of it, F(x+) <= F(x) + <grad F(x), x+ - x> + ||x+ - x||^2 / (2 size),
      and F never rises.
    - `grows` tells whether it proposes more than the last size, however large that is.

    Args:
        step: an instance.
        objective: None: a small logistic `LinearModel`.
        reference: (t, last size, gradient on the support, Hessian) -> what is proposed at step t.
        seed: of the starting point.

    Raises:
        AssertionError: for the first law that does not hold, naming it with the numbers.
    """
    with jax.enable_x64(True):
        objective = _logistic() if objective is None else in_double(objective)
        first = step.init(objective)
        text = "init gives one positive finite number of the objective's dtype"
        sound = np.shape(first) == () and getattr(first, "dtype", None) == objective.dtype and 0 < first < np.inf
        law(step, text, sound, init=first)
        x0 = np.random.default_rng(seed).standard_normal(objective.n_coefficients + objective.n_free)
        threshold = Sparsity(2).bind(objective)
        with traced(step):
            out = jax.tree.map(np.asarray, _run(objective, threshold, step, jnp.asarray(x0)))
        t = np.arange(STEPS)
        proposed, size = out["proposed"], out["size"]
        sound = np.isfinite(proposed) & (proposed > 0)
        law(step, "propose gives positive finite numbers", sound, proposed=proposed, t=t)
        if reference is not None:
            last = np.append(first, size[:-1])
            expected = [
                reference(int(i), *each) for i, *each in zip(t, last, out["along"], out["hessian"], strict=True)
            ]
            equal(step, "propose gives what the reference does", proposed, expected, 1e-9, t=t, last=last)
        if step.searches:
            _check_search(step, t, out)
        else:
            law(step, "the proposed size is taken", size == proposed, taken=size, proposed=proposed, t=t)
        far = out["proposed_after_far"] > out["far"]
        text = "grows tells whether it proposes more than the last size, however large"
        law(step, text, far[1:] == step.grows, proposed=out["proposed_after_far"][1:], last=out["far"][1:])


def _logistic() -> LinearModel:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 6)) * [1, 3, 0.5, 1, 1, 1]
    return LinearModel(X, np.where(X[:, 0] + rng.logistic(size=30) > 0, 1.0, -1.0), Logistic(), l2=0.01)


@program
def _run(objective: AbstractObjective, threshold: Sparsity, step: AbstractStep, x0: Array) -> dict[str, Array]:
    solver = IHT(step)

    def body(state: Any, t: Int[Array, ""]) -> tuple[Any, dict[str, Array]]:
        entries = threshold.entries(state.point, state.support)
        along = jnp.zeros_like(state.grad).at[entries.idx].add(jnp.where(entries.mask, state.grad[entries.idx], 0))

        def propose(last: Float[Array, ""]) -> Float[Array, ""]:
            return step.propose(objective, At(state.forward, state.grad, entries, last, t))

        far = jnp.asarray(1e9, x0.dtype) * (1 + state.step_size)
        new, info = solver.step(objective, threshold, state, t)
        move = new.x - state.x
        return new, {
            "proposed": propose(state.step_size),
            "far": far,
            "proposed_after_far": propose(far),
            "size": info.step_size,
            "tries": info.hard_thresholds,
            "along": along,
            "hessian": jax.jacfwd(lambda x: objective.value_and_grad(x)[1])(state.x),
            "value": new.value,
            "before": state.value,
            "bound": state.value + dot(state.grad, move) + dot(move, move) / (2 * info.step_size),
        }

    state = solver.init(objective, threshold, x0, jax.random.key(0))
    return jax.lax.scan(body, state, jnp.arange(STEPS))[1]


def _check_search(step: AbstractStep, t: np.ndarray, out: dict[str, np.ndarray]) -> None:
    shrink = float(step.shrink)
    law(step, "shrink is between 0 and 1", 0 < shrink < 1, shrink=shrink)
    text = "the accepted size is the proposed one, shrunk once per refusal"
    equal(step, text, out["size"], out["proposed"] * shrink ** (out["tries"] - 1), 1e-9, t=t)
    room = 1e-13 * np.abs(out["before"])
    text = "an accepted step decreases F by what its quadratic bound says"
    law(step, text, out["value"] <= out["bound"] + room, value=out["value"], bound=out["bound"], t=t)
    law(step, "F never rises", out["value"] <= out["before"] + room, value=out["value"], before=out["before"], t=t)
