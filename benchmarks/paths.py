"""Paths over k on blocks of columns that correlate by 0.9 and more: every size against abess and a solve of its own."""

import jax
import numpy as np

import sparsehtp as sht

from .baselines import abess, version
from .scores import aim, finish, least_squares
from .timing import best_of

N, P, PLANTED, DESIGNS = 500, 1000, 20, 50
SIZES = np.array([1, 2, 3, 5, 8, 10, 12, 15, 18, 20, 25, 30, 40])
ALONE = 10  # designs on which every size is solved for itself, too
TIE = 1e-7


def blocks(seed, n, p):
    """Standardised X and centred y: blocks of 5 to 29 columns that share 0.9 to 0.98 of their variance."""
    rng = np.random.default_rng([seed, 11])
    size, share = rng.integers(5, 30), rng.uniform(0.9, 0.98)
    common = rng.standard_normal((n, p // size + 1))
    X = np.sqrt(1 - share) * rng.standard_normal((n, p)) + np.sqrt(share) * common[:, np.arange(p) // size]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    w = np.zeros(p)
    w[rng.choice(p, PLANTED, replace=False)] = rng.choice([-1, 1], PLANTED) * rng.uniform(0.5, 1.5, PLANTED)
    signal = X @ w
    y = signal + rng.standard_normal(n) * np.sqrt(signal.var() / rng.choice([1, 3, 10]))
    return X, y - y.mean()


def chosen(support):
    """The features of a support."""
    return np.asarray(support.idx)[np.asarray(support.mask)]


def main(quick=False):
    """Residuals in float64 from the supports; a time is that of a later call."""
    n, p, sizes = (100, 60, SIZES[:5]) if quick else (N, P, SIZES)
    excess, rows = {"abess": [], "a solve of its own": []}, []
    k_max, seconds = int(sizes.max()), {}
    for seed in range(2 if quick else DESIGNS):
        X, y = blocks(seed, n, p)
        with jax.enable_x64(True):
            model = sht.LinearModel(X, y)
            path = sht.solve_path(model, ks=sizes)
            found = np.array([least_squares(X, y, chosen(path.at(i).support)) for i in range(sizes.size)])
            if seed < ALONE:
                alone = [
                    chosen(sht.solve(model, sht.Sparsity(int(k), k_max=k_max), record=None).support) for k in sizes
                ]
                excess["a solve of its own"].append(found / [least_squares(X, y, each) for each in alone] - 1)
            if seed == 0:
                seconds = best_of({"path": lambda model=model: sht.solve_path(model, ks=sizes).value}, 3)
        if version("abess"):
            theirs = [
                min(least_squares(X, y, abess.best_subset(X, y, int(k), **each)) for each in abess.SETTINGS.values())
                for k in sizes
            ]
            excess["abess"].append(found / theirs - 1)
    for name, each in excess.items():
        if each:
            share, worst = float(np.mean(np.array(each) <= TIE)), float(np.max(each))
            row = {"name": f"sizes at or below {name}", "value": share, "unit": "of all", "worst": worst}
            rows.append(
                aim(row | {"of_sizes": np.mean(np.array(each) <= TIE, axis=0).tolist()}, ">= 0.97", share >= 0.97)
            )
    rows.append({"name": f"path over {sizes.size} sizes", "value": seconds["path"], "unit": "s"})
    finish("paths", rows, quick)
