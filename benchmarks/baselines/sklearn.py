"""scikit-learn: orthogonal matching pursuit, L1 paths tuned by cross-validation, L1 fits of a given size."""

import time

import joblib
import numpy as np
import sklearn
from sklearn.linear_model import Lasso, LassoCV, LogisticRegression, LogisticRegressionCV, OrthogonalMatchingPursuit


def omp(X, y, k):
    """Support of size k by orthogonal matching pursuit on columns of unit norm."""
    norms = np.linalg.norm(X, axis=0)
    model = OrthogonalMatchingPursuit(n_nonzero_coefs=k, fit_intercept=False)
    return np.flatnonzero(model.fit(X / norms, y).coef_)


def l1_logistic(X, y, folds, scoring="neg_log_loss"):
    """(coefficients, intercept) of the L1 fit with the best score; `folds` is a splitter."""
    options = {"Cs": 20, "cv": folds, "solver": "liblinear", "n_jobs": joblib.cpu_count()}
    model = LogisticRegressionCV(scoring=scoring, **options, **_l1(LogisticRegressionCV))
    with joblib.parallel_config(backend="threading"):
        model.fit(X, y)
    return model.coef_.ravel(), float(np.ravel(model.intercept_)[0])


def lasso(X, y, folds):
    """(coefficients, intercept) of the lasso with the best squared error; `folds` is a splitter."""
    model = LassoCV(cv=folds, n_jobs=joblib.cpu_count(), max_iter=10_000)
    with joblib.parallel_config(backend="threading"):
        model.fit(X, y)
    return model.coef_, float(model.intercept_)


def l1_one_se(X, y, folds, classification):
    """(coefficients, intercept) of the strongest L1 whose mean loss is within one standard error of the least."""
    cores = joblib.cpu_count()
    with joblib.parallel_config(backend="threading"):
        if not classification:
            path = LassoCV(cv=folds, n_jobs=cores, max_iter=10_000).fit(X, y)
            scores, strength = path.mse_path_.T, path.alphas_
        else:
            options = {"Cs": 20, "cv": folds, "solver": "liblinear", "scoring": "neg_log_loss", "n_jobs": cores}
            path = LogisticRegressionCV(refit=False, **options, **_l1(LogisticRegressionCV)).fit(X, y)
            found = path.scores_ if isinstance(path.scores_, np.ndarray) else next(iter(path.scores_.values()))
            scores, strength = -np.reshape(found, (-1, len(path.Cs_))), 1 / path.Cs_
    mean, se = scores.mean(axis=0), scores.std(axis=0) / np.sqrt(len(scores) - 1)
    best = mean.argmin()
    chosen = strength[mean <= mean[best] + se[best]].max()
    if classification:
        fit = LogisticRegression(solver="liblinear", C=1 / chosen, **_l1(LogisticRegression))
    else:
        fit = Lasso(chosen, max_iter=10_000)
    fit.fit(X, y)
    return fit.coef_.ravel(), float(np.ravel(fit.intercept_)[0])


def _l1(kind):
    """What asks for L1, in the words of the installed version."""
    version = tuple(int(part) for part in sklearn.__version__.split(".")[:2])
    if version < (1, 8):
        return {"penalty": "l1"}
    if kind is LogisticRegressionCV:
        return {"l1_ratios": (1.0,), "use_legacy_attributes": False}
    return {"l1_ratio": 1.0}


def l1_of_size(X, y, k):
    """The L1 logistic fit whose number of nonzeros is within 2% of k, by bisection on C; seconds of that one fit."""
    l1 = _l1(LogisticRegression)
    low, high, best = 1e-4, 1e4, None
    for _ in range(20):
        C = (low * high) ** 0.5
        start = time.perf_counter()
        model = LogisticRegression(solver="liblinear", C=C, intercept_scaling=10.0, random_state=0, **l1).fit(X, y)
        seconds = time.perf_counter() - start
        size = np.count_nonzero(model.coef_)
        if best is None or abs(size - k) < abs(np.count_nonzero(best["coef"]) - k):
            best = {"coef": model.coef_.ravel(), "intercept": float(model.intercept_[0]), "seconds": seconds}
        if abs(size - k) <= 0.02 * k:
            break
        low, high = (C, high) if size < k else (low, C)
    return best
