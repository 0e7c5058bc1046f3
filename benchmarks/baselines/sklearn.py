"""scikit-learn: orthogonal matching pursuit, and the L1 paths tuned by cross-validation."""

import os

import joblib
import numpy as np
import sklearn
from sklearn.linear_model import LassoCV, LogisticRegressionCV, OrthogonalMatchingPursuit


def omp(X, y, k):
    """Support of size k by orthogonal matching pursuit on columns of unit norm."""
    norms = np.linalg.norm(X, axis=0)
    model = OrthogonalMatchingPursuit(n_nonzero_coefs=k, fit_intercept=False)
    return np.flatnonzero(model.fit(X / norms, y).coef_)


def l1_logistic(X, y, folds, scoring="neg_log_loss"):
    """(coefficients, intercept) of the L1 fit with the best score; `folds` is a splitter."""
    version = tuple(int(part) for part in sklearn.__version__.split(".")[:2])
    l1 = {"l1_ratios": (1.0,), "use_legacy_attributes": False} if version >= (1, 8) else {"penalty": "l1"}
    cores = len(os.sched_getaffinity(0))
    model = LogisticRegressionCV(Cs=20, cv=folds, solver="liblinear", scoring=scoring, n_jobs=cores, **l1)
    with joblib.parallel_config(backend="threading"):
        model.fit(X, y)
    return model.coef_.ravel(), float(np.ravel(model.intercept_)[0])


def lasso(X, y, folds):
    """(coefficients, intercept) of the lasso with the best squared error; `folds` is a splitter."""
    model = LassoCV(cv=folds, n_jobs=len(os.sched_getaffinity(0)), max_iter=10_000)
    with joblib.parallel_config(backend="threading"):
        model.fit(X, y)
    return model.coef_, float(model.intercept_)
