"""Cox's partial likelihood: its formula by loops, the laws, and invariances."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsehtp as sht
from sparsehtp.testing import check_objective

pytestmark = pytest.mark.usefixtures("x64")

N, P = 30, 5
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, P)) * [1, 3, 0.5, 1, 1] + [0, 1, 2, 0, -1]
TIME = RNG.integers(1, 9, N).astype(float)
EVENT = RNG.random(N) < 0.6
ALL = dict(sample_weight=RNG.choice([0, 0.5, 1, 2], N), offset=RNG.standard_normal(N), strata=RNG.integers(0, 3, N))
OPTIONS = {"plain": {}, "all": ALL}
VALUE_AND_GRAD = cases.jit(lambda model, w: model.value_and_grad(model.to_internal(w)))
CURVATURES = cases.jit(lambda model: model.curvatures(model.origin()))
BOTH = pytest.mark.parametrize("ties", ["breslow", "efron"])


def formula(w, ties, sample_weight=1.0, offset=0.0, strata=0):
    """F by loops over the tied events, at coefficients in original units."""
    s, o, strata = np.broadcast_arrays(sample_weight, offset, np.asarray(strata), np.empty(N))[:3]
    s = s / s[s > 0].mean()
    eta, total, weight = X @ w + o, 0.0, 0.0
    for g in np.unique(strata):
        inside = (strata == g) & (s > 0)
        for t in np.unique(TIME[inside & EVENT]):
            risk, events = inside & (t <= TIME), np.flatnonzero(inside & EVENT & (t == TIME))
            weight += s[events].sum()
            total += s[events] @ eta[events]
            for number in range(events.size):
                gone = number / events.size if ties == "efron" else 0
                sums = (s * np.exp(eta))[risk].sum() - gone * (s * np.exp(eta))[events].sum()
                total -= s[events].mean() * np.log(sums)
    return -total / weight


@BOTH
@pytest.mark.parametrize("options", OPTIONS)
def test_value_is_the_documented_formula(options, ties):
    model = sht.CoxModel(X, TIME, EVENT, l2=0.2, ties=ties, **OPTIONS[options])
    for w in np.random.default_rng(1).standard_normal((3, P)) * 0.5:
        value, _ = VALUE_AND_GRAD(model, w)
        np.testing.assert_allclose(value, formula(w, ties, **OPTIONS[options]) + 0.1 * w @ w, rtol=1e-12)
        value, slope = VALUE_AND_GRAD(model.reweighted(~EVENT * 1.0), w)  # a fold without events
        np.testing.assert_allclose(np.append(slope - 0.2 * w, value - 0.1 * w @ w), 0, atol=1e-12)


@BOTH
def test_laws(ties):
    check_objective(sht.CoxModel(X, TIME, EVENT, l2=0.1, ties=ties, standardize=True, **OPTIONS["all"]))


@cases.jit
def fit(model):
    """Coefficients and value of the fit, and whether that is the minimum."""
    part = model.restrict(sht.results.Support(jnp.arange(P), jnp.ones(P, bool)))
    found = part.minimise(jnp.zeros(P, model.dtype))
    return jnp.append(model.to_external(found.z)[0], part.value(found.z)), found.solved & ~found.singular


def model(X=X, time=TIME, event=EVENT, offset=0.0, **options):
    """With an offset, so that all share the program above."""
    return sht.CoxModel(X, time, event, offset=np.broadcast_to(offset, len(time)), **options)


@BOTH
def test_a_stratum_without_weight_curves_nothing(ties):
    strata = OPTIONS["all"]["strata"]
    weights = np.where(strata == 1, 0.0, 1 + np.arange(N) % 3)
    other = np.where((strata == 1)[:, None], 1e3 * X[::-1], X)
    models = (sht.CoxModel(Z, TIME, EVENT, ties=ties, strata=strata) for Z in (X, other))
    ours, theirs = (CURVATURES(model.reweighted(weights)) for model in models)
    assert (ours > 1e-3).all()
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_no_column_curves_downwards():
    for time in np.random.default_rng(0).permuted(np.tile(TIME, (12, 1)), axis=1):
        rows = model(np.eye(N)[:, :P], time, EVENT, offset=np.where(np.arange(N) < P, -60.0, 0))
        assert (CURVATURES(rows) >= 0).all()


@BOTH
def test_strata_and_offset_are_those_of_statsmodels(ties):
    regression = pytest.importorskip("statsmodels.duration.hazard_regression")
    options = {name: OPTIONS["all"][name] for name in ("strata", "offset")}
    other = regression.PHReg(TIME, X, EVENT, ties=ties, **options).fit(disp=False)
    np.testing.assert_allclose(fit(model(ties=ties, **options))[0][:P], other.params, atol=1e-6)


@BOTH
def test_invariances(ties):
    """A far shift of the columns, a monotone transform of time and rows never at risk change nothing."""
    strata = OPTIONS["all"]["strata"]
    early = (np.vstack([X, X[:4]]), np.append(TIME, np.zeros(4)), np.append(EVENT, np.zeros(4, bool)))
    expected, solved = fit(model(strata=strata, ties=ties))
    others = {
        "shift": model(X + 1e6, strata=strata, ties=ties),
        "time": model(time=np.log(TIME) - 7, strata=strata, ties=ties),
        "offset": model(strata=strata, ties=ties, offset=3.0 * strata),
        "early": model(*early, strata=np.append(strata, [0, 1, 2, 7]), ties=ties),
    }
    for name, other in others.items():
        found, other_solved = fit(other)
        assert solved and other_solved, name
        tol = 1e-8 if name == "shift" else 1e-9
        np.testing.assert_allclose(found, expected, rtol=tol, atol=tol, err_msg=name)
    far = model(X + 2.0**28 * np.asarray(strata)[:, None], strata=strata, ties=ties)  # a constant in each stratum
    np.testing.assert_allclose(CURVATURES(far), CURVATURES(model(strata=strata, ties=ties)), rtol=1e-5)


@BOTH
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_huge_score_leaves_the_rest_as_it_is(ties, dtype):
    """The row with the largest score is at risk at the first event alone: later risk sets must not see it."""
    rng = np.random.default_rng(5)
    Z, time, event = rng.standard_normal((20, 2)), np.arange(1.0, 21), np.ones(20, bool)
    rest, w = sht.CoxModel(Z[1:].astype(dtype), time[1:], event[1:], ties=ties), np.array([0.5, -0.5], dtype)
    for size in (1e3, 1e5):
        offset = np.append(size, np.zeros(19))
        model = sht.CoxModel(Z.astype(dtype), time, event, ties=ties, offset=offset.astype(dtype))
        (value, grad), expected = (VALUE_AND_GRAD(each, w) for each in (model, rest))
        room = 100 * size * np.finfo(dtype).eps  # what the digits of such a score leave
        np.testing.assert_allclose(20 * value, 19 * expected[0], rtol=1e-5, atol=room)
        np.testing.assert_allclose(20 * grad, 19 * expected[1], rtol=1e-5, atol=room)
        assert np.isfinite(CURVATURES(model)).all()


BAD = {
    "time: needs shape": dict(time=TIME[:-1]),
    "event: needs True": dict(event=np.arange(N)),
    "event: no row": dict(event=np.zeros(N, bool)),
    "strata: needs shape": dict(strata=["a"]),
    "strata: hold": dict(strata=np.full(N, np.nan)),
    "ties: must be": dict(ties="exact"),
}


@pytest.mark.parametrize("sentence", BAD)
def test_errors_name_the_argument(sentence):
    with pytest.raises(ValueError, match=f"^{sentence}") as error:
        sht.CoxModel(**{"X": X, "time": TIME, "event": EVENT, **BAD[sentence]})
    assert str(error.value).count(". ") == 0


def test_folds_need_events_and_times_cannot_be_traced():
    model = sht.CoxModel(X, TIME, EVENT)
    some = np.flatnonzero(~EVENT)[:3]
    for fold in ((np.setdiff1d(np.arange(N), some), some), (some, np.setdiff1d(np.arange(N), some))):
        call = lambda fold=fold: sht.cross_validate(model, ks=[0, 1], folds=[fold])  # noqa: E731
        cases.refused(ValueError, "a part of fold 0 has no event", call)
    traced = jax.jit(lambda time: sht.CoxModel(X, time, EVENT).value(jnp.zeros(P)))
    cases.refused(ValueError, "^time, event, strata", lambda: traced(TIME))
