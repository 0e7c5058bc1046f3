"""Bad input of the functional API: one sentence that opens with the argument's name; NaN: regressions/test_nan.py."""

import cases
import numpy as np
import pytest

import sparsehtp as sht

X = np.random.default_rng(0).standard_normal((6, 4))
Y = np.arange(6.0)
SIGNS = np.array([1.0, -1, 1, -1, 1, -1])


def model(X=X, y=Y, **options):
    return sht.LinearModel(X, y, **options)


def solve(threshold, objective=None, solver=None, **options):
    return sht.solve(model() if objective is None else objective, threshold, solver or sht.solvers.HTP(), **options)


BAD = {
    "X one-dimensional": ("X", lambda: model(X[:, 0])),
    "X no rows": ("X", lambda: model(X[:0], Y[:0])),
    "X strings": ("X", lambda: model(np.array([["a", "b"]] * 6))),
    "y short": ("y", lambda: model(y=Y[:-1])),
    "y labels 0/1": ("y", lambda: model(y=SIGNS > 0, loss=sht.losses.Logistic())),
    "y negative counts": ("y", lambda: model(y=cases.spoiled(Y, -1), loss=sht.losses.Poisson())),
    "y negative counts of NB2": ("y", lambda: model(y=cases.spoiled(Y, -1), loss=sht.losses.NegativeBinomial())),
    "y negative claims": ("y", lambda: model(y=cases.spoiled(Y, -1), loss=sht.losses.Tweedie())),
    "y zero": ("y", lambda: model(y=cases.spoiled(Y + 1, 0), loss=sht.losses.Gamma())),
    "y zero and power 2": ("y", lambda: model(y=cases.spoiled(Y + 1, 0), loss=sht.losses.Tweedie(2.0))),
    "weights negative": ("sample_weight", lambda: model(sample_weight=cases.spoiled(np.ones(6), -1))),
    "weights zero": ("sample_weight", lambda: model(sample_weight=np.zeros(6))),
    "weights long": ("sample_weight", lambda: model(sample_weight=np.ones(7))),
    "l2 negative": ("l2", lambda: model(l2=-0.1)),
    "l2 shape": ("l2", lambda: model(l2=np.ones(3))),
    "A not square": ("A", lambda: sht.QuadraticForm(X, np.ones(4))),
    "A asymmetric": ("A", lambda: sht.QuadraticForm([[1.0, 2.0], [0.0, 1.0]], np.ones(2))),
    "l2 of a form": ("l2", lambda: sht.QuadraticForm.from_data(X, Y, -1.0)),
    "weights of a form": ("sample_weight", lambda: sht.QuadraticForm.from_data(X, Y, 0.1, -np.ones(6))),
    "b shape": ("b", lambda: sht.QuadraticForm(np.eye(2), np.ones(3))),
    "k negative among several": ("k", lambda: sht.Sparsity(np.array([1, -1]))),
    "k float": ("k", lambda: sht.Sparsity(2.5)),
    "k bool": ("k", lambda: sht.Sparsity(True)),
    "k string": ("k", lambda: sht.Sparsity("2")),
    "k None": ("k", lambda: sht.Sparsity(None)),
    "k too large": ("k", lambda: solve(sht.Sparsity(5))),
    "k too large beside keep": ("k", lambda: solve(sht.Sparsity(3, keep=[0, 1]))),
    "k_max below k": ("k_max", lambda: solve(sht.Sparsity(3, k_max=2))),
    "k_max float": ("k_max", lambda: sht.Sparsity(3, k_max=4.5)),
    "k_max of prices": ("k_max", lambda: sht.L0L1L2(0.1, k_max=4.5)),
    "keep out of range": ("keep", lambda: solve(sht.Sparsity(1, keep=[4]))),
    "keep negative": ("keep", lambda: solve(sht.Sparsity(1, keep=[-1]))),
    "keep repeated": ("keep", lambda: sht.Sparsity(1, keep=[2, 2])),
    "keep floats": ("keep", lambda: sht.Sparsity(1, keep=[0.0])),
    "upper below 0": ("upper", lambda: sht.RowSparsity(2, upper=[1.0, 1.0, -0.1, 1.0])),
    "lower infinite": ("lower", lambda: sht.Sparsity(2, lower=[0.0, np.inf])),
    "upper nan": ("upper", lambda: sht.Sparsity(2, upper=np.nan)),
    "bounds of zero": ("bounds", lambda: sht.Sparsity(2, lower=0.0, upper=0.0)),
    "l2 of a dual": ("l2", lambda: sht.lower_bound(model(l2=[1.0, 0, 1, 1]), sht.Sparsity(1), 1.0)),
    "lower shape": ("lower", lambda: solve(sht.Sparsity(2, lower=-np.ones(3)))),
    "groups shape": ("groups", lambda: solve(sht.GroupSparsity([0, 1, 1], 1))),
    "groups two-dimensional": ("groups", lambda: sht.GroupSparsity(np.zeros((2, 2)), 1)),
    "within zero": ("within", lambda: sht.GroupSparsity([0, 1], 1, within=0)),
    "x0 shape": ("x0", lambda: solve(sht.Sparsity(2), x0=np.zeros(3))),
    "max_steps zero": ("max_steps", lambda: solve(sht.Sparsity(2), max_steps=0)),
    "every zero": ("every", lambda: sht.results.Record(every=0)),
    "margin_scale": ("margin_scale", lambda: sht.losses.Logistic(0.0)),
    "gamma": ("gamma", lambda: sht.losses.SmoothedHinge(-1.0)),
    "gamma of a quantile": ("gamma", lambda: sht.losses.Quantile(gamma=0.0)),
    "level": ("level", lambda: sht.losses.Quantile(1.0)),
    "level zero": ("level", lambda: sht.losses.Quantile(0.0)),
    "dispersion": ("dispersion", lambda: sht.losses.NegativeBinomial(0.0)),
    "power": ("power", lambda: sht.losses.Tweedie(2.1)),
    "power below one": ("power", lambda: sht.losses.Tweedie(0.9)),
    "delta": ("delta", lambda: sht.losses.Huber(np.inf)),
    "step size": ("size", lambda: sht.steps.ConstantStep(-1.0)),
    "step scale": ("scale", lambda: sht.steps.ConstantStep(scale=0.0)),
}
WRONG_KIND = {
    "loss string": ("loss", lambda: model(loss="squared")),
    "objective array": ("objective", lambda: sht.solve(X, sht.Sparsity(2))),
    "threshold int": ("threshold", lambda: sht.solve(model(), 2)),
    "solver string": ("solver", lambda: sht.solve(model(), sht.Sparsity(2), "htp")),
}


@pytest.mark.parametrize("case", BAD | WRONG_KIND)
def test_the_argument_is_named(case):
    cases.names(TypeError if case in WRONG_KIND else ValueError, *(BAD | WRONG_KIND)[case])
