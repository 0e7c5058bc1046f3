"""Five-fold cross-validation over the number of features on the same folds: time, and what the choice is worth."""

import time
import warnings

import jax
import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold

import sparsehtp as sht

from .baselines import abess, version
from .problems import generate
from .scores import aim, finish, print_table, swap_gain

FOLDS = 5


def logistic_loss(eta, y):
    """Mean loss for y in {0, 1}."""
    return float(np.mean(np.logaddexp(0, np.where(y == 1, -eta, eta))))


def squared_loss(eta, y):
    return float(np.mean((y - eta) ** 2))


def problem(n, p, k, classification):
    """X, y, true coefficients, and fresh samples of the same model."""
    X, y, w = generate(n, p, k)
    rng = np.random.default_rng(1)
    fresh = rng.standard_normal((1000, p))
    eta = fresh @ w
    if classification:
        y = (rng.random(n) < 1 / (1 + np.exp(-(X @ w)))).astype(float)
        return X, y, w, fresh, (rng.random(1000) < 1 / (1 + np.exp(-eta))).astype(float)
    return X, y, w, fresh, eta + rng.standard_normal(1000) * np.sqrt((X @ w).var() / 5.0)


def ours(X, y, ks, folds, classification, dtype, one_se=False):
    """(coefficients, intercept) of the chosen row."""
    with jax.enable_x64(dtype == np.float64):
        loss = sht.losses.Logistic() if classification else sht.losses.Squared()
        target = 2 * y - 1 if classification else y
        objective = sht.LinearModel(
            X.astype(dtype, copy=False), target.astype(dtype), loss, fit_intercept=True, standardize=True
        )
        result = sht.cross_validate(objective, ks=ks, folds=folds)
        row = result.best_1se if one_se else result.best
        return np.asarray(result.path.x[row], float), float(np.asarray(result.path.intercept[row]))


def solvers(classification):
    """name -> fit(X, y, ks, folds, fold numbers) giving (coefficients, intercept)."""
    fits = {}
    if hasattr(sht, "cross_validate"):
        for dtype in (np.float32, np.float64):
            fits[f"sparsehtp, {np.dtype(dtype).name}"] = lambda X, y, ks, folds, fold, dtype=dtype: ours(
                X, y, ks, folds, classification, dtype
            )
    if version("abess"):
        settings = {"abess": {}, "abess, one thread a fold": {"thread": FOLDS}}
        if classification:
            settings["abess, approximate Newton"] = {"approximate_Newton": True}
        for name, options in settings.items():
            fits[name] = lambda X, y, ks, folds, fold, options=options: abess.cross_validated(
                X, y, ks, fold, classification, **options
            )
    return fits


def held_out(X, y, k, folds, classification, score):
    """Held-out loss of a size by abess's fits, the same judge for every choice; None where abess is missing."""
    if not version("abess"):
        return None
    scores = []
    for train, test in folds:
        w, b = abess.fixed_size(X[train], y[train], k, classification)
        scores.append(score(X[test] @ w + b, y[test]))
    return float(np.mean(scores))


def compare(title, n, p, k, ks, classification, target, repeats, only=()):
    """Rows of one problem, and a table; `only` names the solvers, all by default."""
    X, y, w, fresh, fresh_y = problem(n, p, k, classification)
    splitter = (StratifiedKFold if classification else KFold)(FOLDS, shuffle=True, random_state=0)
    folds = list(splitter.split(X, y))
    fold = np.empty(n, int)
    for number, (_, test) in enumerate(folds):
        fold[test] = number
    score = logistic_loss if classification else squared_loss
    fits, found, first, seconds = solvers(classification), {}, {}, {}
    fits = {name: fits[name] for name in only or fits}
    for turn in range(repeats + 1):  # in turns; the first, which compiles, is kept apart
        for name, fit in fits.items():
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[name] = fit(X, y, ks, folds, fold)
            spent = time.perf_counter() - start
            if turn == 0:
                first[name] = spent
            else:
                seconds[name] = min(spent, seconds.get(name, np.inf))
    rows = []
    for name, (coef, intercept) in found.items():
        support = np.flatnonzero(coef)
        row = {"name": f"{title}: {name}", "value": seconds[name], "unit": "s", "first_call": first[name]}
        row |= {
            "k": len(support),
            "true_k": k,
            "true_features_found": int(np.count_nonzero(w[support])),
            "held_out_loss_of_k": held_out(X, y, len(support), folds, classification, score),
            "test_loss": score(fresh @ coef + intercept, fresh_y),
        }
        if not classification:
            row["swap_gain_left"] = swap_gain(X - X.mean(0), y - y.mean(), support)
        rows.append(row)
    columns = [c for c in rows[0] if c not in ("name", "unit")] if rows else []
    print_table(
        title, ["solver", *columns], [[r["name"], *("-" if r[c] is None else r[c] for c in columns)] for r in rows]
    )
    peers = [row for row in rows if ": abess" in row["name"]]
    checks = []
    for row in rows:
        if ": sparsehtp" not in row["name"] or not peers:
            continue
        fastest, best = min(r["value"] for r in peers), min(r["test_loss"] for r in peers)
        ratio = fastest / row["value"]
        check = {"name": f"{row['name']}: fastest abess's time over it", "value": ratio, "unit": "times"}
        checks.append(aim(check, f">= {target}", ratio >= target))
        check = {"name": f"{row['name']}: test loss over the best abess's", "unit": "times"}
        check["value"] = row["test_loss"] / best
        checks.append(aim(check, "<= 1", row["test_loss"] <= best * (1 + 1e-6)))
        if "swap_gain_left" in row:
            check = {"name": f"{row['name']}: swap gain left", "value": row["swap_gain_left"], "unit": "of rss"}
            checks.append(aim(check, "<= 1e-5", row["swap_gain_left"] <= 1e-5))
    if not version("abess"):
        checks.append({"name": f"{title}: abess: not installed", "value": 0, "unit": "fits"})
    return rows + checks


def problems(quick):
    """(title, problem, grid of sizes, classification?, aim) of the two comparisons."""
    squared = (300, 1000, 10, range(1, 21)) if quick else (2000, 20000, 100, range(1, 151))
    logistic = (200, 500, 5, range(11)) if quick else (1000, 5000, 15, range(31))
    for title, (n, p, k, ks), classification, target in (
        ("squared", squared, False, 10),
        ("logistic", logistic, True, 3),
    ):
        yield f"{title} n={n} p={p}", n, p, k, np.array(ks), classification, target


def main(quick=False):
    """n=2000, p=20000 with k = 1..150, and logistic n=1000, p=5000 with k = 0..30."""
    rows = []
    for problem in problems(quick):
        rows += compare(*problem, repeats=1 if quick else 2)
    finish("cv", rows, quick)
