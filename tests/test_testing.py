"""The public laws can fail: parts that are wrong on purpose, each named by the law that it breaks."""

import dataclasses

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp import Sparsity
from sparsehtp.losses import Huber, Logistic, Poisson, SmoothedHinge, Softmax, Squared
from sparsehtp.testing import check_loss, check_objective, check_solver, check_step, check_threshold


def spoilt(part, changed):
    """The same part of a class in which some methods or facts differ."""
    wrong = object.__new__(type("Wrong", (type(part),), changed))
    for field in dataclasses.fields(part):
        object.__setattr__(wrong, field.name, getattr(part, field.name))
    return wrong


def fails(check, part, sentence, **options):
    with pytest.raises(AssertionError, match=f"^{type(part).__name__}.*: .*{sentence}") as caught:
        check(part, **options)
    text = str(caught.value)
    assert text.endswith(".") and ", but " in text and "\n" not in text.split(", but ")[0]


# --- losses: what is changed, and the law that is broken -------------------------------------------------------------
def negative(method):
    return lambda self, eta, y: -method(self, eta, y)


NEGATIVE = {name: negative(getattr(Squared, name)) for name in ("value", "derivative", "second_derivative")}
DOUBLED = {  # consistent, but the squared distance and not half of it
    "value": lambda self, eta, y: (eta - y) ** 2,
    "derivative": lambda self, eta, y: 2 * (eta - y),
    "second_derivative": lambda self, eta, y: jnp.full_like(eta, 2),
    "smoothness": 2.0,
}


def without_margin_scale(self, eta, y):
    return self.margin_scale * Logistic.second_derivative(self, eta, y)


def in_double_only(self, eta, y):
    return (eta - y).astype(float) + jnp.zeros((), jnp.float32) + (0 if eta.dtype == np.float64 else 1e-3)


FINITE = "by finite differences, but found = "
LOSSES = [
    (Poisson(), {"derivative": lambda self, eta, y: jnp.exp(eta) - 0.99 * y}, f"derivative is that of value {FINITE}"),
    (Logistic(2.0), {"second_derivative": without_margin_scale}, f"second_derivative is that of derivative {FINITE}"),
    (Logistic(), {"smoothness": 0.2}, "smoothness bounds the slope .*, but smoothness = 0.2, steepest = 0.2499"),
    (Logistic(), {"smoothness": 1.0}, "smoothness is the least bound"),
    (Huber(), {"smoothness": float("inf")}, "smoothness is infinite only if"),
    (Squared(), {"conjugate": lambda self, a, y: 0.5 * a**2}, "value . conjugate = a eta at a = derivative"),
    (Huber(), {"conjugate_derivative": lambda self, a, y: a - y}, "value . conjugate = a eta at eta = conjugate_der"),
    (Logistic(), {"project_dual": lambda self, a, y: y * jnp.clip(y * a, -0.9, 0)}, "conjugate is infinite at"),
    (Logistic(), {"project_dual": lambda self, a, y: a}, "conjugate is finite after project_dual"),
    (Squared(), NEGATIVE, "the loss lies above its tangents"),
    (SmoothedHinge(), {"majorant": SmoothedHinge.second_derivative}, "majorant is finite and positive"),
    (Huber(), {"kinked": False}, "second_derivative is positive .set kinked"),
    (sht.losses.Hinge(), {"twice_differentiable": True, "kinked": True}, "derivative does not jump .set twice_diff"),
    (Poisson(), {"location": True}, "value depends on eta - y only"),
    (Squared(), DOUBLED, "value is half the squared distance"),
    (Poisson(), {"mean": lambda self, eta: jnp.exp(eta) + 0.1}, "a prediction is best where the target is its mean"),
    (Logistic(2.0), {"mean": lambda self, eta: jax.nn.sigmoid(eta)}, "the expected derivative is zero under mean"),
    (Poisson(), {"draw_targets": Squared.draw_targets}, "what draw_targets gives, but it says: y: Poisson needs"),
    (Squared(), {"second_derivative": lambda self, eta, y: 1.0}, "second_derivative gives one number per sample"),
    (Squared(), {"value": lambda self, eta, y: (eta - y) ** 2 / 2 + (eta.size > 1)}, "value under jax.vmap is that of"),
    (Squared(), {"derivative": in_double_only}, "derivative in float32 is that in float64"),
    (Squared(), {"value": lambda self, eta, y: eta if eta[0] > y[0] else y}, "is traced by .*, but TracerBoolConv"),
    (Softmax(3), {"curvature": lambda self, eta, y: (Softmax.mean(self, eta), None)}, f"that of derivative {FINITE}"),
]


@pytest.mark.parametrize(("loss", "changed", "sentence"), LOSSES, ids=[row[-1] for row in LOSSES])
def test_a_wrong_loss_fails(loss, changed, sentence):
    fails(check_loss, spoilt(loss, changed), sentence)


# --- thresholds ------------------------------------------------------------------------------------------------------
def others(x):
    """All entries but the last, which may be free."""
    return jnp.arange(x.size) < x.size - 1


def halved(self, z, step_size=1.0):
    x, factors = sht.Rank.__call__(self, z, step_size)
    return self.join(0.5 * self.matrix(x), x), factors


def applied(change):
    """A threshold whose result is changed."""

    def call(self, z, step_size=1.0):
        x, support = Sparsity.__call__(self, z, step_size)
        return change(self, x), support

    return {"__call__": call}


def selected(change):
    """A threshold whose choice is changed."""

    def select(self, scores, factor=1):
        support = Sparsity.select(self, scores, factor)
        return sht.results.Support(support.idx, change(self, support))

    return {"select": select}


NEAREST = "is nearest to z"
SCORES, Penalty = Sparsity.scores, sht.L0L1L2
THRESHOLDS = [
    (Sparsity(2), {"scores": lambda self, z: 1 / (1e-3 + SCORES(self, z))}, f"{NEAREST}: no point .*, k = "),
    (sht.Rank(1), {"__call__": halved}, "is idempotent, but once = .*, twice = "),
    (Sparsity(2), {"scores": lambda self, z: jnp.arange(z.size - self.n_free, 0.0, -1.0)}, NEAREST),
    (Sparsity(2), selected(lambda self, s: jnp.arange(s.idx.size) < self.n_free + self.k + 1), "the support has k"),
    (Sparsity(2, lower=0), {"clip": lambda self, z: z}, "the result is in its bounds"),
    (Sparsity(2), applied(lambda self, x: x * jnp.where(jnp.arange(x.size) < x.size - self.n_free, 0.999, 1)), NEAREST),
    (Sparsity(2), applied(lambda self, x: jnp.where(others(x), x, 0)), "free entries are left alone"),
    (Sparsity(2), {"select": lambda self, s, _=1: Sparsity.select(self, s + 1e-13 * jnp.arange(s.size))}, "ties take"),
    (Sparsity(1, keep=[3]), selected(lambda self, s: s.mask & ~jnp.isin(s.idx, jnp.asarray(self.keep))), NEAREST),
    (Penalty(0.1, 0.05), {"__call__": lambda self, z, t=1.0: Penalty.__call__(self, z, t / 2)}, "minimises .* / 2 "),
    (Sparsity(2), {"size": lambda self, s: jnp.sum(s.mask, dtype=jnp.int32)}, "size is the number of units"),
    (Sparsity(2, lower=0), {"free_gradient": lambda self, x, grad: grad}, "free_gradient is the gradient, zero where"),
    (Sparsity(2), {"differs": lambda self, a, b: jnp.zeros((), bool)}, "differs tells whether two supports"),
    (Sparsity(2), {"entries": lambda self, x, s: s._replace(idx=s.idx + 1)}, "entries are places in x, in which"),
    (Sparsity(2), {"scores": lambda self, z: SCORES(self, z) ** 4}, "give multiples of the result in float32"),
]


@pytest.mark.parametrize(("threshold", "changed", "sentence"), THRESHOLDS, ids=[row[-1] for row in THRESHOLDS])
def test_a_wrong_threshold_fails(threshold, changed, sentence):
    objective = sht.MultiResponse(np.ones((2, 3)), np.ones((2, 2))) if isinstance(threshold, sht.Rank) else None
    fails(check_threshold, spoilt(threshold, changed), sentence, objective=objective)


def test_a_reference_decides():
    fails(check_threshold, Sparsity(2), f"{NEAREST}, by the reference", reference=lambda z, bound, step_size: z)


def test_subsets_of_many_coefficients_are_not_enumerated():
    with pytest.raises(ValueError, match="objective: has 11 coefficients"):
        check_threshold(Sparsity(2), sht.QuadraticForm(np.eye(11), np.ones(11)))


# --- objectives and steps --------------------------------------------------------------------------------------------
Model = sht.LinearModel
OBJECTIVES = [
    ({"pulled": lambda self, rows: Model.pulled(self, rows) * 1.001}, f"gradient is that of value {FINITE}"),
    (
        {"curvature_at": lambda self, forward, v, support: 0.5 * Model.curvature_at(self, forward, v, support)},
        f"curvature_at is that of the gradient {FINITE}",
    ),
    ({"restrict": lambda self, support: Model.restrict(self.reweighted(l2=0.0), support)}, "restricted value is F"),
    ({"to_external": lambda self, x: self.columns.in_design_units(x)}, "to_internal undoes to_external"),
    ({"lipschitz": lambda self: 0.5 * Model.lipschitz(self)}, "lipschitz is at least the curvature at the origin"),
    ({"subset": lambda self, idx: Model.subset(self, idx[::-1])}, "subset.idx. is F on the coefficients idx"),
    (
        {"reweighted": lambda self, sample_weight: Model.reweighted(self, l2=self.l2 * jnp.mean(sample_weight))},
        "multiples of the sample weights change nothing",
    ),
]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [pytest.param(*row, marks=[pytest.mark.later] * ("restricted" not in row[-1]), id=row[-1]) for row in OBJECTIVES],
)
def test_a_wrong_objective_fails(changed, sentence, x64):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((9, 4)) + 40 * (np.arange(4) == 1), rng.standard_normal(9)
    fails(check_objective, type("Wrong", (Model,), changed)(X, y, l2=0.3, fit_intercept=True), sentence)


def reports(**wrong):
    """A step that tells something else of what it did."""

    def step(self, objective, threshold, state, t):
        state, info = sht.solvers.IHT.step(self, objective, threshold, state, t)
        return state, info._replace(**{name: change(getattr(info, name)) for name, change in wrong.items()})

    return step


def moves(change):
    """A step whose state is changed."""

    def step(self, objective, threshold, state, t):
        state, info = sht.solvers.IHT.step(self, objective, threshold, state, t)
        return change(state), info

    return step


def freed(state):
    return state._replace(support=state.support._replace(mask=state.support.mask & (state.support.idx != 4)))


SOLVERS = [
    (reports(value=lambda value: 1.001 * value), "the value that is told is F and the penalty at x"),
    (reports(support_size=lambda size: size + 1), "the size that is told is that of the support"),
    (moves(lambda state: state._replace(x=state.x + 1)), "x vanishes outside the support"),
    (moves(lambda state: state._replace(x=jnp.nan * state.x)), "x is finite"),
    (moves(lambda state: state._replace(step_size=jnp.float32(1))), "a step keeps the structure, shapes and dtypes"),
    (moves(freed), "x vanishes outside the support"),
    (lambda *given: sht.solvers.IHT.step(*given)[0], "a step returns the next state and an Info, but .* = IHTState"),
]


@pytest.mark.parametrize(("step", "sentence"), SOLVERS, ids=range(len(SOLVERS)))
def test_a_wrong_solver_fails(step, sentence):
    fails(check_solver, spoilt(sht.solvers.IHT(), {"step": step}), sentence)


@pytest.mark.parametrize("name", [name for name in cases.SOLVERS if name != "iht_schedule"])
def test_solvers_keep_their_laws(name):
    check_solver(cases.SOLVERS[name])


@pytest.mark.parametrize(
    ("step", "factor", "sentence"),
    [
        (sht.steps.ConstantStep(), -1, "propose gives positive finite numbers"),
        (sht.steps.NormalisedStep(), 10, "grows tells whether it proposes more than the last size"),
    ],
)
def test_a_wrong_step_fails(step, factor, sentence):
    propose = {"propose": lambda self, objective, at: factor * at.size}
    fails(check_step, spoilt(step, propose), sentence)
    fails(check_step, sht.steps.ConstantStep(0.5), "what the reference does", reference=lambda t, last, g, H: 2 * last)
