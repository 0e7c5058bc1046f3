"""Every row of docs/coming_from.md beside the package that it names, on problems whose best features are plain, but
for those that have a test `ELSEWHERE`.

Without the extra `peers` its rows are skipped. L0Learn has no wheels for Python 3.11, and Python's glmnet has two of
its families only: there the reference is the formula of the package, minimised here by SciPy or by enumeration.
"""

import functools
import itertools
import re
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exhaustive import Problem, fits, masks
from scipy.optimize import minimize
from sklearn import linear_model, metrics, multioutput, svm
from sklearn.base import clone

import sparsehtp as sht

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "coming_from.md"
N, P = 160, 6
CHOSEN = [1, 2, 4]
ROWS = {}
SKLEARN = "scikit-learn and skglm"
ELSEWHERE = {  # the rows of a test of what they say
    "estimators/test_selection.py::test_select_from_model_keeps_every_chosen_feature": [
        (SKLEARN, "`get_support()`, `transform(X)` of its selectors")
    ],
    "estimators/test_classifier.py::test_equals_scikit_learn_on_the_chosen_features": [
        (SKLEARN, "`LogisticRegression(C)`"),
        (SKLEARN, '`class_weight="balanced"`'),
    ],
    "estimators/test_cox.py::test_scikit_survival": [("scikit-survival", "`predict_survival_function(X)`")],
    "estimators/test_regressor.py::test_the_features_and_coefficients_of_exhaustive_search": [
        (SKLEARN, "`MultiTaskLasso`")
    ],
    "path/test_choose.py::test_the_rules_are_their_definitions": [
        ("glmnet", "`cv.glmnet(foldid=ids)`, `lambda.min`, `lambda.1se`")
    ],
    "path/test_cross_validation.py::test_share_of_wrong_labels": [("glmnet", '`type.measure="class"`')],
    "references/test_restricted_fits.py::test_against_scikit_learn": [
        (SKLEARN, "`Ridge(alpha)`"),
        (SKLEARN, "`PoissonRegressor(alpha)`, `GammaRegressor(alpha)`, `TweedieRegressor(power, alpha)`"),
    ],
    "references/test_restricted_fits.py::test_a_quantile_goes_to_that_of_scikit_learn_with_gamma": [
        (SKLEARN, "`QuantileRegressor(quantile=q, alpha=0)`")
    ],
}


def row(section, cell):
    """Register a case of the row that begins with this cell."""
    assert (section, cell) not in ROWS
    return functools.partial(ROWS.setdefault, (section, cell))


def test_every_row_has_a_case():
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    rows = [(each.partition("\n")[0], cell) for each in sections for cell in re.findall(r"(?m)^\| (.*?) \| ", each)[1:]]
    assert sorted(rows) == sorted([*ROWS, *itertools.chain(*ELSEWHERE.values())])
    for place in ELSEWHERE:
        file, _, name = place.partition("::")
        assert f"\ndef {name}(" in (TESTS / file).read_text(encoding="utf-8"), place


# X with correlated columns of different means and scales, and targets of every kind.
RNG = np.random.default_rng(4)
SCALED = RNG.standard_normal((N, P)) @ (np.eye(P) + 0.15)
SCALED = (SCALED - SCALED.mean(0)) / SCALED.std(0)
ETA = SCALED[:, CHOSEN] @ [1.0, -0.8, 0.7]
TARGETS = {
    "numbers": 3 + ETA + 0.5 * RNG.standard_normal(N),
    "labels": np.where(ETA + RNG.logistic(size=N) > 0, 1, 0),
    "classes": np.digitize(ETA + 0.5 * RNG.logistic(size=N), [-0.6, 0.6]),
    "counts": RNG.poisson(np.exp(0.3 + ETA)).astype(float),
    "several": np.column_stack([ETA, ETA + SCALED[:, 2]]) + 0.5 * RNG.standard_normal((N, 2)),
}
TIME, LAST = RNG.exponential(np.exp(-ETA)), RNG.exponential(2, N)
TARGETS["times"] = np.column_stack([np.minimum(TIME, LAST), TIME <= LAST])
EVENTS = TARGETS["times"][:, 1].sum()
WEIGHTS = RNG.integers(1, 4, N).astype(float)
X = SCALED * RNG.uniform(0.5, 3, P) + RNG.normal(size=P)
IDS = np.arange(N) % 5
FEW = X[:, CHOSEN]  # where a ridge is compared there is nothing to choose


def support(coefficients):
    return np.flatnonzero(np.reshape(coefficients, (-1, P)).any(0)).tolist()


def same(ours, theirs, rtol=1e-4):
    np.testing.assert_allclose(np.ravel(ours), np.ravel(theirs), rtol=rtol, atol=rtol * np.abs(theirs).max())


def minimised(loss, X, l2=0.0, scale=None):
    """Coefficients at the least of loss(eta) + sum_j l2_j (sd_j w_j)^2 / 2, by SciPy."""
    scale = X.std(0) if scale is None else scale
    Z, start = (X - X.mean(0)) / scale, np.zeros(X.shape[1] + 1)
    found = minimize(lambda v: loss(Z @ v[:-1] + v[-1]) + np.sum(l2 * v[:-1] ** 2) / 2, start, options={"gtol": 1e-8})
    return found.x[:-1] / scale


def peer(name):
    return pytest.importorskip(name, reason=f"{name} is of the extra peers: pip install '.[peers]'")


# --- abess ---


def abess(name, support_size=3, **options):
    kind, options = getattr(peer("abess"), name), {"support_size": support_size, **options}
    if "primary_model_fit_max_iter" in kind().get_params():
        options |= {"primary_model_fit_max_iter": 500, "primary_model_fit_epsilon": 1e-13}
    return kind(**options)


@row("abess", "`GammaRegression`")
def _():
    y = np.random.default_rng(0).gamma(5, 1 / (4 + X[:, 1] / X[:, 1].std()) / 5)
    theirs = abess("GammaRegression", support_size=1).fit(X, y)
    eta = X @ theirs.coef_ + theirs.intercept_
    np.testing.assert_allclose(theirs.predict(X), -1 / eta)
    ours = sht.SparseRegressor(k=1, l2=0, loss="gamma").fit(X, y)
    np.testing.assert_allclose(ours.predict(X), np.exp(X @ ours.coef_ + ours.intercept_))


@row("abess", "`OrdinalRegression`")
def _():
    theirs, ours = abess("OrdinalRegression"), sht.SparseOrdinal(k=3, l2=0)
    alike(ours, theirs, "classes", 1e-2, sign=-1)  # theirs ends early
    losses = [metrics.log_loss(TARGETS["classes"], model.predict_proba(X)) for model in (ours, theirs)]
    assert losses[0] <= losses[1] < losses[0] + 1e-4


@row("abess", "`CoxPHSurvivalAnalysis`")
def _():
    alike(sht.SparseCox(k=3, l2=0), abess("CoxPHSurvivalAnalysis"), "times")
    tied = np.column_stack([np.ceil(4 * TARGETS["times"][:, 0]), TARGETS["times"][:, 1]])
    both = [abess("CoxPHSurvivalAnalysis").fit(FEW[o], tied[o]) for o in (slice(None), slice(None, None, -1))]
    assert np.abs(both[0].coef_ - both[1].coef_).max() > 1e-3


@row("abess", '`ic_type="aic"`, `"bic"`, `"gic"`')
def _():
    for name, kind, estimator in [
        ("LinearRegression", "numbers", sht.SparseRegressor(l2=0)),
        ("LogisticRegression", "labels", sht.SparseClassifier(l2=0)),
    ]:
        for rule in ("aic", "bic", "gic"):
            theirs = abess(name, support_size=range(P), ic_type=rule).fit(X, TARGETS[kind])
            ours = clone(estimator).set_params(k=range(P), rule=rule).fit(X, TARGETS[kind])
            assert support(ours.coef_) == support(theirs.coef_), (name, rule)
            criterion = sht.information_criterion(ours.path_, rule)
            values = criterion.values - (N * np.log(2) if kind == "numbers" else 0)
            same(values[criterion.best], theirs.eval_loss_, 1e-3)


@row("abess", '`ic_type="ebic"`')
def _():
    theirs = abess("LinearRegression", support_size=2, ic_type="ebic").fit(X, TARGETS["numbers"])
    same(theirs.eval_loss_, N * np.log(theirs.train_loss_) + 2 * (np.log(N) + 2 * np.log(P)))


@row("abess", "`cv=5`, `cv_fold_id=ids`")
def _():
    y = TARGETS["numbers"]
    theirs = abess("LinearRegression", support_size=range(P), cv=5).fit(X, y, cv_fold_id=IDS)
    ours = sht.SparseRegressor(k=range(P), l2=0, cv=IDS, rule="best").fit(X, y)
    assert support(ours.coef_) == support(theirs.coef_)
    same(ours.cv_results_["mean_loss"].min(), theirs.eval_loss_, 1e-3)
    same(ours.coef_, theirs.coef_)


@row("abess", "`SparsePCA(support_size=5)`")
def _():
    Z = np.random.default_rng(0).standard_normal((N, P)) * [3, 3, 1, 1, 1, 1]
    Z[:, 1] += Z[:, 0]
    theirs = abess("SparsePCA", support_size=2).fit(Z).coef_.ravel()
    same(np.abs(sht.SparsePCA(1, k=2).fit(Z).components_[0]), np.abs(theirs), 1e-3)


@row("abess", "`MultinomialRegression.fit(X, onehot)`")
def _():
    labels = TARGETS["classes"]
    onehot = (labels[:, None] == np.unique(labels)).astype(float)
    theirs = abess("MultinomialRegression").fit(X, onehot)
    ours = sht.SparseClassifier(3, l2=0, loss="softmax").fit(X, onehot.argmax(axis=1))
    same(ours.predict_proba(X), theirs.predict_proba(X), 1e-2)


@row("abess", '`make_glm_data(family="poisson", coef_=w)`')
def _():
    w = np.array([0.5, -0.5, 0, 0, 0, 0])
    theirs = peer("abess").datasets.make_glm_data(3000, P, 2, family="poisson", coef_=w)
    Z, y, own = sht.datasets.make_regression(3000, P, 2, loss="poisson", coef=w)
    same(own, theirs.coef_)
    for drawn in (y, theirs.y):
        assert drawn.min() == 0 and not np.any(drawn % 1)
    same(sht.SparseRegressor(2, l2=0, loss="poisson").fit(Z, y).coef_, w, 0.1)


@row("abess", "`RobustPCA(support_size=k).fit(X, r=r)`")
def _():
    rng = np.random.default_rng(0)
    L = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 30))
    S = np.zeros_like(L)
    S.flat[rng.choice(S.size, 40, replace=False)] = 15
    theirs = abess("RobustPCA", support_size=40).fit(L + S, r=2)
    ours = sht.RobustPCA(2, k=40).fit(L + S)
    np.testing.assert_array_equal(ours.support_, np.asarray(theirs.coef_) != 0)


# --- skscope ---


def mean_square(w, X, y):
    return jnp.mean((X @ w - y) ** 2)


def centred():
    return SCALED.astype(np.float32), (TARGETS["numbers"] - TARGETS["numbers"].mean()).astype(np.float32)


def skscope(name, *args, data=None, **options):
    Z, y = data or centred()
    solver = getattr(peer("skscope"), name)(P, *args, **options)
    solver.solve(lambda w: jnp.mean((Z @ w - y) ** 2))
    return solver


@row("skscope", "`sample_size=n, ic_method=AIC`")
def _():
    module = peer("skscope")
    Z, y = centred()
    solver = module.ScopeSolver(P, range(P), sample_size=N, ic_method=module.utilities.AIC)
    solver.solve(lambda w: N * jnp.mean((Z @ w - y) ** 2))
    path = sht.solve_path(sht.Custom(mean_square, Z, y, n_samples=N), ks=range(P))
    criterion = sht.information_criterion(path, "aic")
    assert support(path.x[criterion.best]) == support(solver.params)
    same(criterion.values[criterion.best], solver.information_criterion, 1e-3)


@row("skscope", "`HTPSolver`, `IHTSolver`, `GraspSolver`, `FobaSolver`, `OMPSolver`")
def _():
    Z = np.linalg.qr(centred()[0])[0] * np.float32(np.sqrt(N))  # their steps are of a fixed length
    data = (Z, Z[:, CHOSEN] @ np.array([1, -0.8, 0.7], np.float32) + 0.1 * Z[:, 3])
    for name, solver in [
        ("HTPSolver", sht.solvers.HTP()),
        ("IHTSolver", sht.solvers.IHT()),
        ("GraspSolver", sht.solvers.GraSP()),
        ("FobaSolver", sht.solvers.FoBa()),
        ("OMPSolver", sht.solvers.ForwardSelection("omp")),
    ]:
        theirs = skscope(name, 3, data=data)
        ours = sht.solve(sht.Custom(mean_square, *data), sht.Sparsity(3), solver)
        assert support(ours.x) == support(theirs.params) == CHOSEN, name
        same(ours.x, theirs.params, 1e-2)


# --- L0Learn ---


def l0learn(penalty, lam, gamma=0.0, pays=slice(None), upper=np.inf):
    """L0Learn's regression, as its code has it: columns and y are centred and divided by their norms, then

        min ||y - X b||^2 / 2 + lam ||b||_0 + gamma ||b||_2^2    (L0L1: + gamma ||b||_1)

    over all supports; coefficients in original units. `pays`: who pays lam; `upper`: of L0 and L0L2 alone.
    """
    y = TARGETS["numbers"]
    norms, size = np.linalg.norm(X - X.mean(0), axis=0), np.linalg.norm(y - y.mean())
    prices = np.isin(np.arange(P), np.arange(P)[pays])
    l1, l2 = (gamma / N, 0.0) if penalty == "L0L1" else (0.0, 2 * gamma / N)  # of the mean of the rows
    scaled = (X - X.mean(0)) / norms, (y - y.mean()) / size, np.ones(N)
    problem = Problem(*scaled, lam / N, l1, l2, False, "squared", upper=upper * norms / size)
    b, _, values = fits(problem, masks(P))
    return b[np.argmin(values + lam / N * (b != 0) @ prices)] * size / norms


def priced(lam, gamma=0.0, penalty="L0", **options):
    """The translation that the page gives."""
    y = TARGETS["numbers"]
    l2 = 2 * gamma if penalty == "L0L2" else 0.0
    l1 = gamma * y.std() if penalty == "L0L1" else 0.0
    with jax.enable_x64(True):
        model = sht.LinearModel(X, y, l2=l2, fit_intercept=True, standardize=True)
        return sht.solve(model, sht.L0L1L2(lam * y.var(), l1, **options), sht.solvers.CDSS())


@row("L0Learn", "`lows`, `highs`")
def _():
    theirs = l0learn("L0", 0.002, upper=0.2)
    assert np.isclose(theirs.max(), 0.2)
    same(priced(0.002, upper=0.2).x, theirs)
    ours = sht.SparseRegressor(k=np.count_nonzero(theirs), l2=0, bounds=(None, 0.2)).fit(X, TARGETS["numbers"])
    same(ours.coef_, theirs)


@row("L0Learn", "`maxSuppSize=10`")
def _():
    with jax.enable_x64(True):
        model = sht.LinearModel(X, TARGETS["numbers"], fit_intercept=True, standardize=True)
        path = sht.solve_path(model, ks=range(4), threshold=sht.L0L1L2(0.0))
    for x, l0 in zip(path.x, path.l0s, strict=True):
        same(x, l0learn("L0", float(l0) / TARGETS["numbers"].var()), 1e-3)


@row("L0Learn", '`loss="Logistic"`, `"SquaredHinge"`')
def _():
    gamma, signs = 0.05, 2.0 * TARGETS["labels"] - 1
    losses = {
        "logistic": lambda eta: np.sum(np.logaddexp(0, -signs * eta)),
        "squared_hinge": lambda eta: np.sum(np.maximum(0, 1 - signs * eta) ** 2),
    }
    norms = np.linalg.norm(FEW - FEW.mean(0), axis=0)
    for name, l2 in [("logistic", 2 * gamma), ("squared_hinge", gamma)]:
        theirs = minimised(losses[name], FEW, 2 * gamma, norms)  # + gamma ||b||^2, columns of norm one
        same(sht.SparseClassifier(k=3, l2=l2, loss=name).fit(FEW, signs).coef_, theirs, 1e-3)


# --- scikit-learn and skglm ---


def lasso(l1, l2=0.0):
    with jax.enable_x64(True):
        model = sht.LinearModel(X, TARGETS["numbers"], l2=l2, fit_intercept=True)
        return sht.solve(model, sht.L0L1L2(0.0, l1), sht.solvers.IHT()).x


@row(SKLEARN, "`Lasso(alpha)`, `ElasticNet(alpha, l1_ratio=r)`")
def _():
    y = TARGETS["numbers"]
    same(lasso(0.3), linear_model.Lasso(alpha=0.3, tol=1e-10).fit(X, y).coef_)
    same(lasso(0.09, 0.21), linear_model.ElasticNet(alpha=0.3, l1_ratio=0.3, tol=1e-10).fit(X, y).coef_)
    same(lasso(0.3), peer("skglm").Lasso(alpha=0.3, tol=1e-10).fit(X, y).coef_)


@row(SKLEARN, "`OrthogonalMatchingPursuit(n_nonzero_coefs=k)`")
@row(SKLEARN, "`OrthogonalMatchingPursuit(tol=t)`")
def _():
    y = TARGETS["numbers"] - TARGETS["numbers"].mean()
    own = {"l2": 0, "solver": sht.solvers.ForwardSelection("omp"), "standardize": False}
    for share in (0.8, 0.35, 0.25):
        t = share * y @ y
        theirs = linear_model.OrthogonalMatchingPursuit(tol=t).fit(SCALED, y)
        ours = sht.SparseRegressor(lambda loss, k, p, W, t=t: np.where(2 * W * loss <= t, k, np.inf), **own)
        same(ours.fit(SCALED, y).coef_, theirs.coef_)
        theirs = linear_model.OrthogonalMatchingPursuit(n_nonzero_coefs=ours.k_).fit(SCALED, y)
        same(sht.SparseRegressor(ours.k_, **own).fit(SCALED, y).coef_, theirs.coef_)


@row(SKLEARN, "`MultiOutputRegressor(model)`")
def _():
    Y = np.column_stack([TARGETS["numbers"], X[:, 0] + TARGETS["numbers"][::-1]])
    theirs = multioutput.MultiOutputRegressor(sht.SparseRegressor(3)).fit(X, Y)
    ours = sht.SparseRegressor(3, shared=False).fit(X, Y)
    same(ours.coef_, np.stack([each.coef_ for each in theirs.estimators_]))
    same(ours.predict(X), theirs.predict(X))


@row("scikit-survival", "`CoxPHSurvivalAnalysis(alpha=a)`")
def _():
    linear, surv = (peer(f"sksurv.{name}") for name in ("linear_model", "util"))
    y = TARGETS["times"]
    theirs = linear.CoxPHSurvivalAnalysis(alpha=3, tol=1e-12, n_iter=1000).fit(
        X, surv.Surv.from_arrays(y[:, 1], y[:, 0])
    )
    ours = sht.SparseCox(P, l2=3 / EVENTS, standardize=False, ties="breslow").fit(X, y)
    same(ours.coef_, theirs.coef_)


@row("L0Learn", '`cvfit(penalty="L0L1")`')
def _():
    y = TARGETS["numbers"]
    model = sht.SparseRegressor(l0=[0.3, 0.03], l1=[0.0, 0.2], l2=0.01, cv=IDS, rule="best").fit(X, y)
    losses = {}
    for l0, l1 in itertools.product([0.3, 0.03], [0.0, 0.2]):
        single = sht.SparseRegressor(l0=l0, l1=l1, l2=0.01)
        parts = [IDS == fold for fold in np.unique(IDS)]
        errors = [np.mean((y[part] - single.fit(X[~part], y[~part]).predict(X[part])) ** 2) / 2 for part in parts]
        losses[l0, l1] = np.average(errors, weights=[part.sum() for part in parts])
    assert (model.l0_, model.l1_) == min(losses, key=losses.get)
    same(model.cv_results_["mean_loss"].min(), min(losses.values()))


@row(SKLEARN, "`GroupLasso(groups)`")
def _():
    y = FEW[:, 0] - FEW[:, 1]  # of the columns 1 and 2
    Z = (X - X.mean(0)) / X.std(0)
    labels = np.array([0, 1, 1, 0, 2, 2])
    groups = [[0, 3], [1, 2], [4, 5]]
    theirs = peer("skglm").GroupLasso(groups=groups, alpha=0.3).fit(Z, y)
    assert support(sht.SparseRegressor(k=1, groups=labels).fit(Z, y).coef_) == support(theirs.coef_) == [1, 2]


# --- glmnet ---


def glmnet(name, lam, X, y, alpha=0.0, weights=None, factors=None, **options):
    model = getattr(peer("glmnet"), name)(alpha=alpha, lambda_path=[2 * lam, lam], n_splits=0, tol=1e-13, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, weights, factors)
    return model.coef_path_[..., -1]


@row("glmnet", '`family="gaussian"`, `lambda`, `alpha`')
def _():
    y = TARGETS["numbers"]
    ours = sht.SparseRegressor(k=3, l2=0.4 / y.std()).fit(FEW, y)
    same(ours.coef_, glmnet("ElasticNet", 0.4, FEW, y), 1e-3)
    with jax.enable_x64(True):
        model = sht.LinearModel(FEW, y, l2=0.4 * 0.7 / y.std(), fit_intercept=True, standardize=True)
        x = sht.solve(model, sht.L0L1L2(0.0, l1=0.4 * 0.3), sht.solvers.IHT()).x
    same(x, glmnet("ElasticNet", 0.4, FEW, y, alpha=0.3), 1e-3)


@row("glmnet", '`family="poisson"`, `"cox"`')
def _():
    y = TARGETS["counts"]
    theirs = minimised(lambda eta: np.mean(np.exp(eta) - y * eta), FEW, 0.1)
    same(sht.SparseRegressor(k=3, loss="poisson", l2=0.1).fit(FEW, y).coef_, theirs, 1e-3)
    time, event = TARGETS["times"].T
    order = np.argsort(time)

    def partial(eta):  # R's glmnet divides by n, not by the events
        at_risk = np.logaddexp.accumulate(eta[order][::-1])[::-1]
        return np.sum(event[order] * (at_risk - eta[order])) / N

    theirs = minimised(partial, FEW, 0.1)
    same(sht.SparseCox(k=3, l2=0.1 * N / event.sum()).fit(FEW, TARGETS["times"]).coef_, theirs, 1e-3)


@row("glmnet", "`weights`, `offset`")
def _():
    y = TARGETS["numbers"]
    std = np.sqrt(np.cov(y, aweights=WEIGHTS, ddof=0))
    ours = sht.SparseRegressor(k=3, l2=0.4 / std).fit(FEW, y, WEIGHTS)
    same(ours.coef_, glmnet("ElasticNet", 0.4, FEW, y, weights=WEIGHTS), 1e-3)
    counts, offset = TARGETS["counts"], np.log(WEIGHTS)
    theirs = minimised(lambda eta: np.mean(np.exp(eta + offset) - counts * eta), FEW, 0.1)
    same(sht.SparseRegressor(k=3, loss="poisson", l2=0.1).fit(FEW, counts, offset=offset).coef_, theirs, 1e-3)


def glm(ours, name, lam, kind="numbers", **options):
    """Our coefficients are those of Python's glmnet."""
    ours.fit(FEW, TARGETS[kind], options.get("weights"))
    same(ours.coef_, glmnet(name, lam, FEW, TARGETS[kind], **options), 1e-3)


# --- rows that are one fit beside another ---


def alike(ours, theirs, kind="numbers", rtol=1e-4, features=X, chosen=CHOSEN, intercept=None, sign=1, **fit):
    """The two choose the same features, those planted unless said otherwise, with the same coefficients."""
    ours.fit(features, TARGETS[kind], **fit)
    theirs.fit(features, TARGETS[kind], **fit)
    a = ours.coef_
    b = sign * (theirs.coef_ if np.shape(theirs.coef_) == a.shape else np.transpose(theirs.coef_))
    if isinstance(ours, sht.SparseClassifier) and ours.loss == "softmax":  # which leaves the sum over the classes open
        a, b = (W - W.mean(0) for W in (a, b))
    if features is X:
        assert support(a) == support(b) == (chosen or support(b))
    same(a, b, rtol)
    if intercept:
        same(ours.intercept_, theirs.intercept_, intercept)


def ridged(ours, name, kind, l2, **options):
    """abess with a ridge of 20, on centred columns where there is no intercept."""
    Z = FEW - FEW.mean(0) if kind == "times" else FEW
    alike(ours.set_params(k=3, l2=l2 / N), abess(name, alpha=20.0, **options), kind, 1e-3, Z)


def skscoped(threshold, k=3, **options):
    theirs, ours = skscope("ScopeSolver", k, **options), sht.solve(sht.Custom(mean_square, *centred()), threshold)
    assert support(ours.x) == support(theirs.params)
    same(ours.x, theirs.params, 1e-3)
    same(ours.value, theirs.objective_value, 1e-4)
    return ours


R, C, PAIRS = sht.SparseRegressor, sht.SparseClassifier, np.repeat([0, 1, 2], 2)
FACTORS = np.array([0.0, 1.0, 3.0])
SD = TARGETS["numbers"].std()
ROWS |= {
    ("abess", "`LinearRegression(support_size=5)`"): lambda: alike(
        R(3, l2=0), abess("LinearRegression"), intercept=1e-4
    ),
    ("abess", "`LogisticRegression`, `MultinomialRegression`"): lambda: [
        alike(C(3, l2=0), abess("LogisticRegression"), "labels"),
        alike(C(3, l2=0, loss="softmax"), abess("MultinomialRegression"), "classes", 1e-3),
    ],
    ("abess", "`PoissonRegression`"): lambda: alike(
        R(3, l2=0, loss="poisson"), abess("PoissonRegression", approximate_Newton=True), "counts"
    ),
    ("abess", "`MultiTaskRegression`"): lambda: alike(R(3, l2=0), abess("MultiTaskRegression"), "several"),
    ("abess", "`alpha=a`"): lambda: [
        ridged(R(), "LinearRegression", "numbers", 20),
        ridged(R(), "MultiTaskRegression", "several", 20),
        ridged(C(), "LogisticRegression", "labels", 40),
        ridged(R(loss="poisson"), "PoissonRegression", "counts", 40, approximate_Newton=True),
        ridged(sht.SparseCox(), "CoxPHSurvivalAnalysis", "times", 40 * N / EVENTS),
    ],
    ("abess", "`support_size=4, always_select=[0]`"): lambda: alike(
        R(3, l2=0, keep=[0]), abess("LinearRegression", support_size=4, always_select=[0]), chosen=None
    ),
    ("abess", "`group`"): lambda: alike(
        R(2, l2=0, groups=PAIRS), abess("LinearRegression", support_size=2, group=PAIRS), chosen=None
    ),
    ("abess", "`sample_weight`"): lambda: alike(R(3, l2=0), abess("LinearRegression"), sample_weight=WEIGHTS),
    ("skscope", "`ScopeSolver(p, k).solve(loss)`"): lambda: (
        None if support(skscoped(sht.Sparsity(3)).x) == CHOSEN else pytest.fail("other features")
    ),
    ("skscope", "`sparsity=4, preselect=[0]`"): lambda: skscoped(sht.Sparsity(3, keep=[0]), 4, preselect=[0]),
    ("skscope", "`group`"): lambda: skscoped(sht.GroupSparsity(PAIRS, 2), 2, group=PAIRS),
    ("L0Learn", '`penalty="L0"`, `algorithm="CDPSI"`'): lambda: [
        same(priced(lam).x, l0learn("L0", lam)) for lam in (0.1, 0.02, 0.002)
    ],
    ("L0Learn", '`penalty="L0L2"`'): lambda: same(priced(0.02, 0.1, "L0L2").x, l0learn("L0L2", 0.02, 0.1)),
    ("L0Learn", '`penalty="L0L1"`'): lambda: same(priced(0.02, 0.1, "L0L1").x, l0learn("L0L1", 0.02, 0.1)),
    ("L0Learn", "`excludeFirstK=2`"): lambda: same(
        priced(0.02, keep=[0, 1]).x, l0learn("L0", 0.02, pays=slice(2, None))
    ),
    (SKLEARN, "`LinearSVC(C)`"): lambda: alike(
        C(k=3, standardize=False, loss="squared_hinge", l2=50 / N, fit_intercept=False),
        svm.LinearSVC(C=0.01, fit_intercept=False, tol=1e-10, max_iter=100_000),
        *("labels", 1e-3, FEW),
    ),
    ("glmnet", '`family="binomial"`, `"multinomial"`'): lambda: [
        glm(C(3, l2=0.1), "LogitNet", 0.1, "labels"),
        glm(C(3, l2=0.1, loss="softmax"), "LogitNet", 0.1, "classes"),
    ],
    ("glmnet", "`penalty.factor`"): lambda: glm(
        R(3, l2=0.4 / SD * FACTORS * 3 / FACTORS.sum()), "ElasticNet", 0.4, factors=FACTORS
    ),
    ("glmnet", "`lower.limits`, `upper.limits`"): lambda: glm(
        R(3, l2=0.4 / SD, bounds=(-0.1, 0.2)), "ElasticNet", 0.4, lower_limits=-0.1, upper_limits=0.2
    ),
    ("glmnet", "`standardize`, `intercept`"): lambda: glm(
        R(3, l2=0.4 / SD, standardize=False), "ElasticNet", 0.4, standardize=False
    ),
}


@pytest.mark.parametrize("name", ROWS, ids=lambda name: f"{name[0]}: {re.sub('`', '', name[1])}")
def test_a_row_holds(name):
    ROWS[name]()
