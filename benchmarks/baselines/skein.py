"""skein-glm: MCP and SCAD along its own path of strengths, down to a size or tuned by its own cross-validation."""

import numpy as np

SETTINGS = {
    "skein-glm, MCP": {"kind": "MCP", "gamma": 3.0},
    "skein-glm, MCP, shape 1.5": {"kind": "MCP", "gamma": 1.5},
    "skein-glm, SCAD": {"kind": "SCAD", "a": 3.7},
}


def _path(X, y, kind, options, **shape):
    import skein_glm

    make = getattr(skein_glm, f"{kind}PathRegressor")
    found = make(**shape, **options, fit_intercept=False).fit(X, y)
    return found.coefs_ != 0, found.lambdas_


def best_subset(X, y, k, **setting):
    """Support of at most k features: the last of the path with so few, and of a finer path from there while fewer."""
    scale = np.sqrt(len(y))  # the solver's tolerance is absolute
    X, y = X * (scale / np.linalg.norm(X, axis=0)), y * (scale / np.linalg.norm(y))
    for least in (0.1, 1e-3):  # what is far below is most of a path's time
        chosen, strengths = _path(X, y, options={"lambda_min_ratio": least}, **setting)
        if chosen[-1].sum() > k:
            break
    for finer in (True, False):
        more = np.flatnonzero(chosen.sum(axis=1) > k)
        last = (more[0] if more.size else len(chosen)) - 1
        if chosen[last].sum() == k or not finer or not more.size:
            return np.flatnonzero(chosen[last])
        between = np.geomspace(strengths[last], strengths[last + 1], 50)
        chosen, strengths = _path(X, y, options={"lambdas": np.append(strengths[:last], between)}, **setting)


def cross_validated(X, y, fold, classification=False, *, kind, **shape):
    """(coefficients, intercept) of the strength with the least mean loss; `fold` numbers each sample's fold."""
    import skein_glm
    from sklearn.model_selection import PredefinedSplit

    make = getattr(skein_glm, f"{'Logistic' * classification}{kind}PathCV")
    found = make(**shape, cv=PredefinedSplit(fold)).fit(X, (y == y.max()).astype(float) if classification else y)
    return np.ravel(found.coef_), float(np.ravel(found.intercept_)[0])
