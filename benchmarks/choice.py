"""How far a choice of features can be trusted: the noise that it takes, and whether the same data choose the same."""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split

import sparsehtp as sht
from sparsehtp._programs import clear

from .baselines import version
from .real import CLASSES, NUMBERS, inner, l1, load, ours, splicing
from .scores import aim, finish, print_table

SEEDS = 20
ORDERS = 4  # of each kind: other rows first, other columns first, another seed
PARTS = Path(__file__).parent / "results" / "choice-parts"  # rules that are done; gone when all are


def one_se_l1(X, y, classification):
    """The fewest features of an L1 path within one standard error of its best: glmnet's rule."""
    from .baselines import sklearn

    return sklearn.l1_one_se(X, y, inner(classification), classification)


def stable(X, y, classification):
    """The features in three quarters of 100 subsamples, where at most one is expected to be false; refitted."""
    loss = sht.losses.Logistic() if classification else sht.losses.Squared()
    targets = np.where(y > 0, 1.0, -1.0) if classification else y
    model = sht.LinearModel(X, targets, loss, 0.01, fit_intercept=True, standardize=True)
    found = sht.stability_selection(model, ks=np.arange(1, min(20, X.shape[1], len(y) // 4) + 1))
    bound = np.minimum(*found.error_bound(0.75))
    most = np.flatnonzero(bound <= 1)
    chosen = found.selected(0.75)[most[-1]] if most.size else np.zeros(X.shape[1], bool)
    coef = np.zeros(X.shape[1])
    coef[chosen], intercept = ridge(X[:, chosen], y, 0.01, classification)
    return coef, intercept


def averaged(X, y, classification):
    """The mean of five models of the chosen k and l2, each of four fifths of the rows."""
    kind = sht.SparseClassifier if classification else sht.SparseRegressor
    chosen = kind(k="cv").fit(X, y)
    coef, intercept = np.zeros((5, X.shape[1])), np.zeros(5)
    for number, (rows, _) in enumerate(inner(classification).split(X, y)):
        support = np.flatnonzero(kind(k=chosen.k_, l2=chosen.l2_).fit(X[rows], y[rows]).support_)
        coef[number, support], intercept[number] = ridge(X[rows][:, support], y[rows], chosen.refit_l2_, classification)
    return coef.mean(axis=0), intercept.mean()


def ridge(X, y, l2, classification):
    """(coefficients, intercept) with a ridge on columns of unit deviation, which they nearly have."""
    if not X.shape[1]:
        return np.zeros(0), float(np.log(np.mean(y > 0) / np.mean(y <= 0)) if classification else y.mean())
    strength = l2 * len(y)
    model = LogisticRegression(C=1 / strength, max_iter=1000) if classification else Ridge(strength)
    model.fit(X, y)
    return model.coef_.ravel(), float(np.ravel(model.intercept_)[0])


def methods(classification):
    """name -> fit(X, y, classification)."""
    fits = {
        "sparsehtp": ours,
        "sparsehtp, best": lambda X, y, c: ours(X, y, c, rule="best"),
        "sparsehtp, one standard error": lambda X, y, c: ours(X, y, c, rule="one-se"),
        "sparsehtp, average of five": averaged,
        "stability selection": stable,
    }
    if version("abess"):
        fits["abess"] = splicing
    return fits | {"L1": l1, "L1, one standard error": one_se_l1}


def noise(X, y, classification, seeds, done):
    """Pairs of a name and its error with and without as many permuted columns, noise columns and features.

    Means over splits of the rows; names in `done` are left out.
    """
    for name, fit in methods(classification).items():
        if name in done:
            continue
        wrong, scale, found = np.zeros(2), 0.0, []
        for seed in range(seeds):
            rows = train_test_split(
                np.arange(len(y)), test_size=0.2, random_state=seed, stratify=y if classification else None
            )
            copies = np.random.default_rng(seed).permuted(X, axis=0)
            for noisy, data in enumerate((X, np.hstack([X, copies]))):
                (A, B), (y_train, y_test) = ([each[part] for part in rows] for each in (data, y))
                deviation = np.where(A.std(0) > 0, A.std(0), 1)
                A, B = ((each - A.mean(0)) / deviation for each in (A, B))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    coef, intercept = fit(A, y_train, classification)
                eta = B @ coef + intercept
                if classification:
                    wrong[noisy] += np.count_nonzero((eta > 0) != (y_test == 1))
                else:
                    wrong[noisy] += np.sum((y_test - eta) ** 2)
            scale += len(y_test) if classification else np.sum((y_test - y_train.mean()) ** 2)
            found.append([np.count_nonzero(coef[X.shape[1] :]), np.count_nonzero(coef)])
        error = wrong / scale
        clear()
        yield (
            name,
            {
                "error": float(error[1]),
                "error_without": float(error[0]),
                "noise": float(np.mean(found, axis=0)[0]),
                "features": float(np.mean(found, axis=0)[1]),
            },
        )


def agreement(X, y, classification, orders):
    """Share of the fits on the same data, in another order or with another seed, with the features of the first."""
    kind = sht.SparseClassifier if classification else sht.SparseRegressor
    n, p = X.shape
    first = kind(k="cv").fit(X, y).support_
    shares = {"rows": [], "columns": [], "seed": []}
    for number in range(1, orders + 1):
        random = np.random.default_rng(number)
        rows, columns = random.permutation(n), random.permutation(p)
        shares["rows"].append(kind(k="cv").fit(X[rows], y[rows]).support_)
        shares["columns"].append(kind(k="cv").fit(X[:, columns], y).support_[np.argsort(columns)])
        shares["seed"].append(kind(k="cv", random_state=number).fit(X, y).support_)
    clear()
    return {name: float(np.mean([(each == first).all() for each in found])) for name, found in shares.items()}


def keep(part, found, quick):
    """Store what is known of a set, but for a quick run."""
    if not quick:
        part.parent.mkdir(exist_ok=True)
        part.write_text(json.dumps(found))


def main(quick=False, data=None):
    """The sets of `real` with as many permuted columns: what every rule takes; and what the default keeps to."""
    if data is None:
        sys.exit("choice: set SPARSEHTP_DATA or pass --data with the folder of the data sets")
    sets = ("diabetes",) if quick else NUMBERS[::-1] + CLASSES
    table, small = {}, []
    for name in sets:
        part = PARTS / f"{name}.json"
        X, y = load(Path(data), name)
        small += [name] if X.shape[1] <= len(y) / 4 else []
        found = json.loads(part.read_text()) if part.is_file() and not quick else {"rules": {}}
        table[name] = found
        classification = name in CLASSES
        for rule, row in noise(X, y, classification, 2 if quick else SEEDS, found["rules"]):
            found["rules"][rule] = row
            keep(part, found, quick)
        deviation = np.where(X.std(0) > 0, X.std(0), 1)
        if "agreement" not in found:
            found["agreement"] = agreement((X - X.mean(0)) / deviation, y, classification, 1 if quick else ORDERS)
            keep(part, found, quick)
        lines = [[rule, *found.values()] for rule, found in table[name]["rules"].items()]
        print_table(name, ["rule", "error", "without noise", "noise", "features"], lines)
        print(name, table[name]["agreement"], flush=True)
    rows = []
    for name, found in table.items():
        rows += [
            {"name": f"{name}: {rule}", "value": row["noise"], "unit": "noise columns"} | row
            for rule, row in found["rules"].items()
        ]
        rows += [
            {"name": f"{name}: same features, {what} changed", "value": share, "unit": "of the fits"}
            for what, share in found["agreement"].items()
        ]
    most = max(table[name]["rules"]["sparsehtp"]["noise"] for name in small)
    rows.append(aim({"name": "noise columns, sets of p <= n / 4", "value": most, "unit": ""}, "<= 0.5", most <= 0.5))
    same = float(np.mean([list(found["agreement"].values()) for found in table.values()]))
    rows.append(aim({"name": "same features", "value": same, "unit": "of the fits"}, ">= 0.9", same >= 0.9))
    finish("choice", rows, quick)
    if not quick:
        for name in sets:
            (PARTS / f"{name}.json").unlink()
        PARTS.rmdir()
