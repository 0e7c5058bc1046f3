"""The public laws can fail: parts that are wrong on purpose, each named by the law that it breaks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.testing import check_loss, check_objective, check_step, check_threshold


def fails(check, part, sentence, **options):
    with pytest.raises(AssertionError, match=f"^{type(part).__name__}.*: .*{sentence}") as caught:
        check(part, **options)
    text = str(caught.value)
    assert text.endswith(".") and ", but " in text and "\n" not in text.split(", but ")[0]


# --- losses ----------------------------------------------------------------------------------------------------------
class WrongDerivative(sht.Poisson):
    def derivative(self, eta, y):
        return jnp.exp(eta) - 0.99 * y


class WrongSecondDerivative(sht.Logistic):
    def second_derivative(self, eta, y):
        return self.margin_scale * super().second_derivative(eta, y)


class TooSmooth(sht.Logistic):
    smoothness = 0.2


class NotSmoothEnough(sht.Logistic):
    smoothness = 1.0


class NeverSmooth(sht.Huber):
    smoothness = float("inf")


class WrongConjugate(sht.Squared):
    def conjugate(self, a, y):
        return 0.5 * a**2


class WrongConjugateDerivative(sht.Huber):
    def conjugate_derivative(self, a, y):
        return a - y


class WrongProjection(sht.SmoothedHinge):
    def project_dual(self, a, y):
        return y * jnp.clip(y * a, -0.9, 0)


class UnboundedProjection(sht.Huber):
    def project_dual(self, a, y):
        return a


class Concave(sht.Squared):
    def value(self, eta, y):
        return -super().value(eta, y)

    def derivative(self, eta, y):
        return -super().derivative(eta, y)

    def second_derivative(self, eta, y):
        return -super().second_derivative(eta, y)


class FlatMajorant(sht.SmoothedHinge):
    def majorant(self, eta, y):
        return self.second_derivative(eta, y)


class UnknownKink(sht.Huber):
    kinked = False


class UnknownJump(sht.Hinge):
    twice_differentiable = True
    kinked = True


class NoLocation(sht.Poisson):
    location = True


class NotHalf(sht.Squared):
    def value(self, eta, y):
        return (eta - y) ** 2

    def derivative(self, eta, y):
        return 2 * (eta - y)

    def second_derivative(self, eta, y):
        return jnp.full_like(eta, 2)

    @property
    def smoothness(self):
        return 2.0


class WrongMean(sht.Poisson):
    def mean(self, eta):
        return jnp.exp(eta) + 0.1


class WrongProbability(sht.Logistic):
    def mean(self, eta):
        return jax.nn.sigmoid(eta)


class ForbiddenTargets(sht.Poisson):
    def draw_targets(self, eta, rng):
        return rng.standard_normal(eta.shape)


class OneNumber(sht.Squared):
    def second_derivative(self, eta, y):
        return 1.0


class WholeBatch(sht.Squared):
    def value(self, eta, y):
        return super().value(eta, y) + jnp.maximum(0, eta.size - 1)


class DoubleOnly(sht.Squared):
    def derivative(self, eta, y):
        return (eta - y).astype(float) + jnp.zeros((), jnp.float32) + (0 if eta.dtype == np.float64 else 1e-3)


class Branching(sht.Squared):
    def value(self, eta, y):
        return 0.5 * (eta - y) ** 2 if eta[0] > y[0] else 0.5 * (y - eta) ** 2


class WrongSoftmax(sht.Softmax):
    def curvature(self, eta, y):
        p = jax.nn.softmax(eta, axis=1)
        return p, None


FINITE = "by finite differences, but found = "
WRONG_LOSSES = [
    (WrongDerivative(), f"derivative is that of value {FINITE}"),
    (WrongSecondDerivative(2.0), f"second_derivative is that of derivative {FINITE}"),
    (TooSmooth(), "smoothness bounds the slope of the derivative, but smoothness = 0.2, steepest = 0.2499"),
    (NotSmoothEnough(), "smoothness is the least bound"),
    (NeverSmooth(), "smoothness is infinite only if"),
    (WrongConjugate(), "value . conjugate = a eta at a = derivative"),
    (WrongConjugateDerivative(), "value . conjugate = a eta at eta = conjugate_derivative"),
    (WrongProjection(), "conjugate is infinite at just the points that project_dual moves"),
    (UnboundedProjection(), "conjugate is finite after project_dual"),
    (Concave(), "the loss lies above its tangents"),
    (FlatMajorant(), "majorant is finite and positive"),
    (UnknownKink(), "second_derivative is positive .set kinked"),
    (UnknownJump(), "derivative does not jump .set twice_differentiable"),
    (NoLocation(), "value depends on eta - y only"),
    (NotHalf(), "value is half the squared distance"),
    (WrongMean(), "a prediction is best where the target is its mean"),
    (WrongProbability(2.0), "the expected derivative is zero under mean"),
    (ForbiddenTargets(), "check_targets takes what draw_targets gives, but it says: y: Poisson needs counts >= 0"),
    (OneNumber(), "second_derivative gives one number per sample"),
    (WholeBatch(), "value under jax.vmap is that of the whole array"),
    (DoubleOnly(), "derivative in float32 is that in float64"),
    (Branching(), "is traced by jax.jit and jax.vmap, but TracerBoolConversionError"),
    (WrongSoftmax(3), f"curvature is that of derivative {FINITE}"),
]


@pytest.mark.parametrize(("loss", "sentence"), WRONG_LOSSES, ids=lambda each: type(each).__name__)
def test_a_wrong_loss_fails(loss, sentence):
    fails(check_loss, loss, sentence)


# --- thresholds ------------------------------------------------------------------------------------------------------
class Reversed(sht.Sparsity):
    def scores(self, z):
        return 1 / (1e-3 + super().scores(z))


class Halved(sht.Rank):
    def __call__(self, z, step_size=1.0):
        x, factors = super().__call__(z, step_size)
        return self.join(0.5 * self.matrix(x), x), factors


class First(sht.Sparsity):
    def scores(self, z):
        return jnp.arange(z.size - self.n_free, 0.0, -1.0)


class OneMore(sht.Sparsity):
    def select(self, scores, factor=1):
        support = super().select(scores, factor)
        return sht.Support(support.idx, jnp.arange(support.idx.size) < self.n_free + self.k + 1)


class Unbounded(sht.Sparsity):
    def clip(self, z):
        return z


class Shrunk(sht.Sparsity):
    def __call__(self, z, step_size=1.0):
        x, support = super().__call__(z, step_size)
        return x * jnp.where(jnp.arange(x.size) < x.size - self.n_free, 0.999, 1), support


class ThresholdsIntercepts(sht.Sparsity):
    def __call__(self, z, step_size=1.0):
        x, support = super().__call__(z, step_size)
        return jnp.where(jnp.arange(x.size) < x.size - 1, x, 0), support


class LastTies(sht.Sparsity):
    def select(self, scores, factor=1):
        return super().select(scores + 1e-13 * jnp.arange(scores.size), factor)


class NoKept(sht.Sparsity):
    def select(self, scores, factor=1):
        support = super().select(scores, factor)
        return sht.Support(support.idx, support.mask & ~jnp.isin(support.idx, jnp.asarray(self.keep)))


class WrongRoot(sht.L0L1L2):
    def __call__(self, z, step_size=1.0):
        return super().__call__(z, 0.5 * step_size)


class WrongSize(sht.Sparsity):
    def size(self, support):
        return jnp.sum(support.mask, dtype=jnp.int32)


class WrongFreeGradient(sht.Sparsity):
    def free_gradient(self, x, grad):
        return grad


class NeverDiffers(sht.Sparsity):
    def differs(self, a, b):
        return jnp.zeros((), bool)


class Rounded(sht.Sparsity):
    def scores(self, z):
        return super().scores(z) ** 4  # overflows, and underflows, in float32


WRONG_THRESHOLDS = [
    (Reversed(2), "is nearest to z: no point of the set lies closer, but squared distance = .*, another = .*, k = "),
    (Halved(1), "is idempotent, but once = .*, twice = "),
    (First(2), "is nearest to z"),
    (OneMore(2), "the support has k units beside the kept ones"),
    (Unbounded(2, lower=0), "the result is in its bounds"),
    (Shrunk(2), "is nearest to z"),
    (ThresholdsIntercepts(2), "free entries are left alone"),
    (LastTies(2), "ties take the lower index"),
    (NoKept(1, keep=[3]), "is nearest to z"),
    (WrongRoot(0.1, 0.05), "minimises .* / 2 . step_size value"),
    (WrongSize(2), "size is the number of units without the free ones"),
    (WrongFreeGradient(2, lower=0), "free_gradient is the gradient, zero where it pushes out of an active bound"),
    (NeverDiffers(2), "differs tells whether two supports have different members"),
    (Rounded(2), "multiples of z give multiples of the result in float32"),
]


@pytest.mark.parametrize(("threshold", "sentence"), WRONG_THRESHOLDS, ids=lambda each: type(each).__name__)
def test_a_wrong_threshold_fails(threshold, sentence):
    objective = sht.MultiResponse(np.ones((2, 3)), np.ones((2, 2))) if isinstance(threshold, sht.Rank) else None
    fails(check_threshold, threshold, sentence, objective=objective)


def test_a_reference_decides():
    def all_of_it(z, bound, step_size):
        return z

    fails(check_threshold, sht.Sparsity(2), "is nearest to z, by the reference", reference=all_of_it)


def test_subsets_of_many_coefficients_are_not_enumerated():
    with pytest.raises(ValueError, match="objective: has 11 coefficients"):
        check_threshold(sht.Sparsity(2), sht.QuadraticForm(np.eye(11), np.ones(11)))


# --- objectives and steps --------------------------------------------------------------------------------------------
class WrongGradient(sht.LinearModel):
    def grad_at(self, forward, x):
        return super().grad_at(forward, x) * 1.001


class WrongCurvature(sht.LinearModel):
    def curvature_at(self, forward, v, support):
        return 0.5 * super().curvature_at(forward, v, support)


class WrongRestriction(sht.LinearModel):
    def restrict(self, support):
        return sht.LinearModel.restrict(self.reweighted(l2=0.0), support)


class WrongUnits(sht.LinearModel):
    def to_external(self, x):
        return self.in_design_units(x)


class WrongLipschitz(sht.LinearModel):
    def lipschitz(self):
        return 0.5 * super().lipschitz()


class WrongSubset(sht.LinearModel):
    def subset(self, idx):
        return super().subset(idx[::-1])


class WrongWeights(sht.LinearModel):
    def _weights(self):
        return self.sample_weight / self.sample_weight.shape[0]


WRONG_OBJECTIVES = [
    (WrongGradient, f"gradient is that of value {FINITE}"),
    (WrongCurvature, f"curvature_at is that of the gradient {FINITE}"),
    (WrongRestriction, "restricted value is F"),
    (WrongUnits, "to_internal undoes to_external"),
    (WrongLipschitz, "lipschitz is at least the curvature at the origin"),
    (WrongSubset, "subset.idx. is F on the coefficients idx"),
    (WrongWeights, "multiples of the sample weights change nothing"),
]


@pytest.mark.parametrize(("kind", "sentence"), WRONG_OBJECTIVES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_wrong_objective_fails(kind, sentence, x64):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((9, 4)) + 40 * (np.arange(4) == 1), rng.standard_normal(9)
    fails(check_objective, kind(X, y, l2=0.3, fit_intercept=True), sentence)


class Negative(sht.ConstantStep):
    def propose(self, objective, forward, grad, entries, previous, t):
        return -previous


class TooEager(sht.NormalisedStep):
    def propose(self, objective, forward, grad, entries, previous, t):
        return 10 * previous


WRONG_STEPS = [
    (Negative(), "propose gives positive finite numbers"),
    (TooEager(), "grows tells whether it proposes more than the last size"),
]


@pytest.mark.parametrize(("step", "sentence"), WRONG_STEPS, ids=lambda each: type(each).__name__)
def test_a_wrong_step_fails(step, sentence):
    fails(check_step, step, sentence)
    fails(check_step, sht.ConstantStep(0.5), "what the reference does", reference=lambda t, last, g, H: 2 * last)
