"""Real data: repeated outer cross-validation with selection inside, our default estimators against abess, MCP and SCAD
(skglm, skein-glm), and L1."""

import itertools
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.model_selection import KFold, RepeatedKFold, RepeatedStratifiedKFold, StratifiedKFold

import sparsehtp as sht
from sparsehtp._programs import clear

from .baselines import abess, skein, skglm, sklearn, version
from .scores import aim, finish, print_table

CLASSES = ("gene_alon", "gene_chowdary", "gene_golub", "gene_singh", "gene_west")
NUMBERS = ("riboflavin", "diabetes", "hitters")
# Numbers in X: the penalties are the same, and skglm takes 30 times as long.
LARGEST = {"skglm": 200_000, "skein-glm": np.inf}


def inner(classification, seed=0):
    return (StratifiedKFold if classification else KFold)(5, shuffle=True, random_state=seed)


def numbered(X, y, classification):
    fold = np.empty(len(y), int)
    for number, (_, test) in enumerate(inner(classification).split(X, y)):
        fold[test] = number
    return fold


def ours(X, y, classification, **options):
    model = (sht.SparseClassifier if classification else sht.SparseRegressor)(k="cv", **options).fit(X, y)
    return np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])


def splicing(X, y, classification, cv_score="test_loss"):
    n, p = X.shape
    most = min(p, int(n / (np.log(np.log(n)) * np.log(p))))  # abess's own default
    ks = np.arange(max(most, 1) + 1)
    return abess.cross_validated(X, y, ks, numbered(X, y, classification), classification, cv_score)


def nonconvex(peer, setting, X, y, classification):
    return peer.cross_validated(X, y, numbered(X, y, classification), classification, **setting)


def l1(X, y, classification, scoring="neg_log_loss"):
    if not classification:
        return sklearn.lasso(X, y, inner(False))
    return sklearn.l1_logistic(X, y, inner(True), scoring)


def nonconvex_methods(classification, size):
    """name -> fit(X, y, classification), of the paths of MCP and SCAD."""
    fits = {}
    for distribution, peer in {"skglm": skglm, "skein-glm": skein}.items():
        if version(distribution) and size <= LARGEST[distribution]:
            fits |= {name: partial(nonconvex, peer, setting) for name, setting in peer.SETTINGS.items()}
    return fits


def methods(classification, size):
    """name -> fit(X, y, classification), of all others."""
    fits = {"sparsehtp": ours, "sparsehtp, one standard error": lambda X, y, c: ours(X, y, c, rule="one-se")}
    if version("abess"):
        fits["abess"] = splicing
        if classification:
            fits["abess, by AUC"] = lambda X, y, c: splicing(X, y, c, "roc_auc")
    fits["L1"] = l1
    if classification:
        fits["L1, by accuracy"] = lambda X, y, c: l1(X, y, c, "accuracy")
    return fits


def evaluate(fits, X, y, classification, repeats, splits):
    """name -> test error, features and seconds, means over the outer folds; standardised inside each of them."""
    kind = RepeatedStratifiedKFold if classification else RepeatedKFold
    outer = list(kind(n_splits=splits, n_repeats=repeats, random_state=0).split(X, y))
    results = {}
    for name, fit in fits.items():
        wrong, scale, features, seconds, compiling, seen = 0.0, 0.0, [], [], 0.0, set()
        for train, test in outer:
            mean, deviation = X[train].mean(0), X[train].std(0)
            deviation[deviation == 0] = 1
            A, B = (X[train] - mean) / deviation, (X[test] - mean) / deviation
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compiles = A.shape not in seen if name.startswith("sparsehtp") else name in skglm.SETTINGS and not seen
                if compiles:
                    start = time.perf_counter()
                    try:
                        fit(A, y[train], classification)
                    except (TypeError, ValueError) as error:
                        results[name] = {"missing": f"{type(error).__name__}: {error}"}
                        break
                    compiling += time.perf_counter() - start
                    seen.add(A.shape)
                start = time.perf_counter()
                coef, intercept = fit(A, y[train], classification)
                seconds.append(time.perf_counter() - start)
            eta = B @ coef + intercept
            if classification:
                wrong += np.count_nonzero((eta > 0) != (y[test] == 1))
                scale += len(test)
            else:
                wrong += np.sum((y[test] - eta) ** 2)
                scale += np.sum((y[test] - y[train].mean()) ** 2)
            features.append(np.count_nonzero(coef))
        else:
            results[name] = {
                "error": float(wrong / scale),
                "features": float(np.mean(features)),
                "seconds": float(np.sum(seconds)),
                "first_calls": compiling,
            }
        clear()  # thousands of compiled programs exhaust a process's memory maps
    return results


def load(folder, name):
    with np.load(folder / f"{name}.npz") as file:
        return file["X"].astype(np.float64), file["y"].astype(np.float64)


def means(table):
    """Per method that ran on every set: mean error, features, seconds; a variant for classes is its base on numbers."""
    names = dict.fromkeys(name for results in table.values() for name in results)
    summary = {}
    for name in names:
        rows = [results.get(name) or results.get(name.split(",")[0]) for results in table.values()]
        if all(row and "error" in row for row in rows):
            summary[name] = {key: float(np.mean([r[key] for r in rows])) for key in ("error", "features", "seconds")}
    return summary


def main(quick=False, data=None):
    """Five gene-expression sets, riboflavin, diabetes, hitters; 2 x 5 outer folds."""
    if data is None:
        sys.exit("real: set SPARSEHTP_DATA or pass --data with the folder of the data sets")
    folder = Path(data)
    sets = ("gene_alon", "diabetes") if quick else CLASSES + NUMBERS
    missing = [name for name in sets if not (folder / f"{name}.npz").is_file()]
    table, rows = {name: {} for name in sets if name not in missing}, []
    for some, name in itertools.product((methods, nonconvex_methods), table):
        X, y = load(folder, name)
        classes = name in CLASSES
        found = evaluate(some(classes, X.size), X, y, classes, repeats=1 if quick else 2, splits=2 if quick else 5)
        lines = [
            [m, r["error"], r["features"], r["seconds"], r["first_calls"]] for m, r in found.items() if "error" in r
        ]
        print_table(name, ["method", "test error", "features", "seconds", "first calls"], lines)
        table[name] |= found
    for name, results in table.items():
        for method, r in results.items():
            row = {"name": f"{name}: {method}", "value": r.get("error", np.nan), "unit": "error"}
            rows.append(row | {k: v for k, v in r.items() if k != "error"})
    rows = [row | ({"value": -1.0, "unit": "did not run"} if "missing" in row else {}) for row in rows]
    summary = means(table)
    for method, r in summary.items():
        rows.append({"name": f"mean: {method}", "value": r["error"], "unit": "error"} | r)
    print_table(
        "means over the sets",
        ["method", "error", "features", "seconds"],
        [[m, *r.values()] for m, r in summary.items()],
    )
    if "sparsehtp" in summary:
        mine = summary["sparsehtp"]
        if "L1" in summary:
            l1 = min(summary[name]["error"] for name in ("L1", "L1, by accuracy") if name in summary)
            row = {"name": "mean error less that of the better of L1's rules", "value": mine["error"] - l1, "unit": ""}
            rows.append(aim(row, "<= 0.002", mine["error"] - l1 <= 0.002))
            share = float(np.median([r["sparsehtp"]["features"] / r["L1"]["features"] for r in table.values()]))
            row = {"name": "features over L1's, median set", "value": share, "unit": "times"}
            rows.append(aim(row, "<= 0.25", share <= 0.25))
        for peer in (name for name in summary if not name.startswith("sparsehtp")):
            other = summary[peer]
            lost = [
                s
                for s, r in table.items()
                if r["sparsehtp"]["error"] > (r.get(peer) or r[peer.split(",")[0]])["error"] + 1e-12
            ]
            row = {"name": f"mean error over {peer}'s", "value": mine["error"] / other["error"], "unit": "times"}
            rows.append(aim(row | {"worse_on": lost}, "<= 1", mine["error"] <= other["error"]))
            if peer.startswith("L1"):
                ratio = mine["seconds"] / other["seconds"]
                row = {"name": f"seconds over {peer}'s", "value": ratio, "unit": "times"}
                rows.append(aim(row, "<= 1", ratio <= 1))
    for peer in ("abess", "skglm", "skein-glm"):
        if not version(peer):
            rows.append({"name": f"{peer}: not installed", "value": 0, "unit": "fits"})
    rows += [{"name": f"{name}: no such file in the data folder", "value": 0, "unit": "sets"} for name in missing]
    finish("real", rows, quick)
