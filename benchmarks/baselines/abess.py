"""abess (splicing): best subsets of one size, along a path, and by cross-validation."""

import numpy as np

SETTINGS = {  # one row per setting: its defaults, all swaps tried, and warm starts along k = 1..k
    "abess": {},
    "abess, all swaps": {"splicing_type": 1, "important_search": 0, "max_iter": 100, "exchange_num": 20},
    "abess, path": {"path": True},
    "abess, path, all swaps": {
        "path": True,
        "splicing_type": 1,
        "important_search": 0,
        "max_iter": 100,
        "exchange_num": 20,
    },
}


def best_subset(X, y, k, path=False, **settings):
    """Support of size k for ||y - Xw||^2, without an intercept; `path`: the sizes 1..k with warm starts."""
    from abess.linear import LinearRegression

    sizes = np.arange(1, k + 1) if path else k
    model = LinearRegression(support_size=sizes, fit_intercept=False, ic_type="loss", **settings)
    return np.flatnonzero(model.fit(X, y).coef_)


def cross_validated(X, y, ks, fold, classification=False, cv_score="test_loss", **settings):
    """(coefficients, intercept) of the k with the best score over the folds; `fold` numbers each sample's fold."""
    from abess.linear import LinearRegression, LogisticRegression

    options = {"support_size": np.asarray(ks), "cv": int(fold.max()) + 1, "cv_score": cv_score, **settings}
    model = (LogisticRegression if classification else LinearRegression)(**options)
    model.fit(X, y, cv_fold_id=fold)
    return np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])


def fixed_size(X, y, k, classification=False):
    """(coefficients, intercept) at one size."""
    from abess.linear import LinearRegression, LogisticRegression

    model = (LogisticRegression if classification else LinearRegression)(support_size=k, ic_type="loss").fit(X, y)
    return np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])


STRUCTURES = ("groups", "rows", "softmax")
UNIT_SETTINGS = {"abess": {}, "abess, path": {"path": True}}


def units(instance, path=False, **settings):
    """The chosen units of an instance of benchmarks/structures.py."""
    from abess.linear import LinearRegression, MultinomialRegression, MultiTaskRegression

    sizes = np.arange(1, instance.k + 1) if path else instance.k
    options = {"support_size": sizes, "ic_type": "loss", **settings}
    if instance.structure == "groups":
        group = np.repeat(np.arange(len(instance.units)), len(instance.units[0]))
        coef = LinearRegression(group=group, **options).fit(instance.X, instance.y).coef_
        return np.flatnonzero(np.abs(coef).reshape(len(instance.units), -1).max(axis=1))
    kind = MultiTaskRegression if instance.structure == "rows" else MultinomialRegression
    y = instance.y if instance.structure == "rows" else np.eye(3)[instance.y]
    coef = np.asarray(kind(**options).fit(instance.X, y).coef_)
    return np.flatnonzero(np.abs(coef).reshape(len(instance.units), -1).max(axis=1))
