"""The command line: fits, paths, reports, files, exit codes."""

import io

import numpy as np
import pandas as pd
import pytest
from commands import invoke, made, named, saved, words

import sparsehtp as sht
from sparsehtp.cli.options import CriterionName, FitOptions, LossName, PathOptions, SolverName
from sparsehtp.datasets import make_regression
from sparsehtp.estimators.parameters import LOSSES, SOLVERS

N, P, K = 40, 6, 2  # one shape, so that few programs are compiled
X, Y, W = make_regression(N, P, K, snr=50, seed=1)
Y = Y + 3
NAMES = [f"feature {j}" for j in range(P)]
TABLE = pd.DataFrame(X, columns=NAMES).assign(target=Y)
CHEAP = ("--solver", "htp")  # compiles much less than the default
PICTURES = [f"{name}.{kind}" for name in ("coefficients", "predictions", "swaps") for kind in ("png", "svg")]
FILES = sorted([*PICTURES, "model.json"])


def predict(row):
    """Linear predictors on X from a row of path.json, or from model.json."""
    assert all(feature["name"] == NAMES[feature["index"]] for feature in row["coefficients"])
    return pd.DataFrame(X, columns=NAMES)[[*named(row)]].to_numpy() @ [*named(row).values()] + row["intercept"]


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_fit_equals_least_squares_on_the_chosen_columns(tmp_path, kind):
    out, file = tmp_path / "deep" / "out", saved(tmp_path, TABLE)
    if kind == "npz":
        file = tmp_path / "data.npz"
        np.savez(file, X=X, target=Y, feature_names=NAMES)
    result, model = made(out, "fit", file, "--target", "target", "--k", K, "--l2", 0, "--diagnostics")
    chosen = [feature["index"] for feature in model["coefficients"]]
    assert set(chosen) == set(np.flatnonzero(W))
    expected = np.linalg.lstsq(np.c_[X[:, chosen], np.ones(N)], Y)[0]
    np.testing.assert_allclose([*named(model).values(), model["intercept"]], expected, rtol=1e-9)
    standardized = [feature["standardized"] for feature in model["coefficients"]]
    np.testing.assert_allclose(standardized, expected[:-1] * X[:, chosen].std(axis=0))
    residual = Y - np.c_[X[:, chosen], np.ones(N)] @ expected
    np.testing.assert_allclose(model["train_score"], 1 - residual @ residual / (N * Y.var()))
    np.testing.assert_allclose(model["objective"], residual @ residual / (2 * N))
    assert model["result"]["name"] == "converged" and model["chosen_by"] is None
    assert model["result"]["fired"] not in ("", "none")
    assert "No exchange" in model["certificate"]
    assert all(name in result.stdout for name in named(model))
    assert sorted(path.name for path in out.iterdir()) == sorted([*FILES, "history.csv", "history.png", "history.svg"])
    history = pd.read_csv(out / "history.csv")
    assert history["step"].tolist() == list(range(1, model["num_steps"] + 1))
    np.testing.assert_allclose(history["value"].min(), model["objective"])


def test_k_by_cross_validation_and_a_saved_model(tmp_path):
    out, arguments = tmp_path / "out", ("--target", "target", *CHEAP, "--save", tmp_path / "model.npz")
    result, model = made(out, "fit", saved(tmp_path, TABLE), *arguments)
    drawn = {*FILES, "cv.png", "cv.svg", "shares.png", "shares.svg"}
    assert {path.name for path in out.iterdir()} == drawn - set(PICTURES[4:] if model["k"] == P else [])
    cv = model["cv"]
    row = cv["table"][cv["chosen"]]
    assert (model["k"], model["l2"], model["chosen_by"]) == (row["k"], row["l2"], "cv")
    stated = f"k = {model['k']}, features found at l2 = {model['l2']:g}, coefficients at l2 = {model['refit_l2']:g}"
    assert f"{stated} (by cross-validation)" in words(result.stdout)
    assert "Cross-validation, 20 folds, each row held out 4 times" in result.stdout and "(chosen)" in result.stdout
    assert "certificate" in result.stdout
    alone = sht.SparseRegressor(solver="htp").fit(X, Y)
    assert (model["k"], model["l2"], model["refit_l2"]) == (alone.k_, alone.l2_, alone.refit_l2_)
    told = alone.cv_results_
    places = {"chosen": "row", "best": "best_index", "one_standard_error": "best_1se_index", "rule": "rule"}
    assert {name: cv[name] for name in places} == {name: told[other] for name, other in places.items()}
    np.testing.assert_allclose([row["mean_loss"] for row in cv["table"]], told["mean_loss"])
    contenders = [[each[name] for each in cv["contenders"]] for name in ("row", "difference", "standard_error")]
    np.testing.assert_allclose(contenders, [told[name] for name in ("contenders", "difference", "difference_se")])
    assert {each["index"] for each in model["coefficients"]} == set(np.flatnonzero(alone.support_))
    loaded = sht.load(tmp_path / "model.npz")
    np.testing.assert_allclose(loaded.predict(pd.DataFrame(X, columns=NAMES)), predict(model))
    np.testing.assert_allclose(model["train_score"], loaded.score(pd.DataFrame(X, columns=NAMES), Y))


LIMITS = {
    "steps": (Y, ("--max-steps", 3), 0, "Warning: The step limit"),
    "range": (np.abs(Y) * 1e37, ("--dtype", "float32", "--loss", "poisson"), 1, "infinite or NaN"),
    "squares": (Y * 1e30, ("--dtype", "float32"), 2, "cannot hold the squares"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # as a user may who runs Python so
@pytest.mark.parametrize("name", LIMITS)
def test_limits_of_the_iteration_and_of_numbers_are_told(tmp_path, name):
    y, options, code, sentence = LIMITS[name]
    common = ("--target", "target", "--k", K, "--solver", "iht", "--out", tmp_path / "out")
    result = invoke("fit", saved(tmp_path, TABLE.assign(target=y)), *common, *options)
    assert result.exit_code == code and sentence in result.stderr, result.output
    assert (tmp_path / "out").exists() == (code < 2)


def test_path_finds_best_subsets_and_writes_everything(tmp_path):
    """Every row of the files reproduces its loss, and the best single feature is the best by least squares."""
    out = tmp_path / "out"
    arguments = ("--target", "target", "--k-max", 4, "--l2", 0, "--l2", 0.1, "--cv", 3, "--stability", 8)
    result, model = made(out, "path", saved(tmp_path, TABLE), *arguments, "--solver", "forward")
    images = [f"{name}.{kind}" for name in ("cv", "path", "probabilities") for kind in ("png", "svg")]
    assert sorted(p.name for p in out.iterdir()) == sorted([*images, "path.csv", "path.json", "probabilities.csv"])
    table = pd.read_csv(out / "path.csv")
    assert [(row["k"], row["l2"]) for row in model["rows"]] == [(k, l2) for l2 in (0, 0.1) for k in range(5)]
    for row, line in zip(model["rows"], table.to_dict("records"), strict=True):
        assert len(row["coefficients"]) == row["k"] and row["result"] == "converged"
        np.testing.assert_allclose(row["loss"], np.mean((Y - predict(row)) ** 2) / 2, rtol=1e-9)
        for name, coefficient in named(row).items():
            np.testing.assert_allclose(line[f"coef:{name}"], coefficient)
        assert all(np.isclose(line[name], row[name]) for name in ("k", "loss", "ebic", "cv_mean", "cv_se", "intercept"))
    correlations = np.abs(np.corrcoef(X.T, Y)[-1, :-1])
    assert model["rows"][1]["coefficients"][0]["index"] == correlations.argmax()
    assert {feature["index"] for feature in model["rows"][K]["coefficients"]} == set(np.flatnonzero(W))
    chosen, fit = model["chosen"], {"l2": [0, 0.1], "cv": 3, "solver": "forward", "random_state": 0}
    alone = sht.SparseRegressor(range(5), **fit).fit(X, Y)  # which decides by the same folds and rule
    assert (chosen["k"], chosen["l2"], chosen["by"]) == (alone.k_, alone.l2_, "strong-ridge")
    scores = [row["cv_mean"] for row in model["rows"]]
    np.testing.assert_allclose(scores, alone.cv_results_["mean_loss"], rtol=1e-9)
    chances = pd.read_csv(out / "probabilities.csv", index_col="feature")
    np.testing.assert_allclose(chances.sum(), range(5))
    assert "(-leaves)" in result.stdout and "within 1 se" in result.stdout


def test_path_resumes_and_takes_labels(tmp_path):
    path = saved(tmp_path, TABLE.assign(target=np.where(Y > np.median(Y), "big", "small")))
    arguments = ("--target", "target", "--loss", "logistic", "--k-max", K, "--criterion", "bic", *CHEAP)
    common = ("path", path, *arguments, "--checkpoint", tmp_path / "chunks")
    model, again = (made(tmp_path / name, *common)[1] for name in ("first", "second"))
    assert model == again and list((tmp_path / "chunks" / "path").glob("chunk-*"))
    assert model["chosen"]["by"] == "bic" and model["cv"] is None and model["stability"] is None
    assert sorted(p.name for p in (tmp_path / "first").iterdir()) == ["path.csv", "path.json", "path.png", "path.svg"]
    sign = np.where(Y > np.median(Y), -1, 1)  # labels in sorted order
    for row in model["rows"]:
        np.testing.assert_allclose(row["loss"], np.mean(np.log1p(np.exp(-sign * predict(row)))), rtol=1e-9)
    result = invoke(*common, "--l2", 1, "--out", tmp_path / "third")
    assert result.exit_code == 2 and "another problem" in result.stderr and not (tmp_path / "third").exists()


@pytest.mark.slow
def test_demo(tmp_path):
    result, model = made(tmp_path / "demo", "demo")
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == FILES
    assert (model["n"], model["n_test"], len(model["coefficients"])) == (398, 171, 5)
    assert model["train_score"] > 0.93 and model["test_score"] > 0.9
    assert "test accuracy" in result.stdout
    assert "predictions.png" in "".join(result.stdout.split())  # a long path is broken anywhere


def test_info_version_and_help():
    said = words(invoke("info").stdout)
    assert all(e in said for e in ("compiled programs", "device 0", "float64 supported", f"numpy {np.__version__} "))
    assert "Usage" in invoke().output and invoke("--version").stdout.startswith("sparsehtp 0.")
    for command, settings in (("fit", FitOptions), ("path", PathOptions)):
        said = invoke(command, "--help").stdout  # 80 columns wide
        assert "Examples" in said
        assert all(f"--{name.replace('_', '-')} " in said for name in {*settings.__dataclass_fields__} - {"file"})


def test_choices_are_those_of_the_library():
    def names(choices):
        return {name.replace("-", "_") for name in choices.__args__}

    assert names(LossName) == set(LOSSES) and names(SolverName) == {"auto", *SOLVERS}
    assert names(CriterionName) == {"aic", "bic", "ebic", "sic", "gic"}


LABELS = np.where(Y > Y.mean(), "yes", "no")
COUNTS = np.round(np.exp(0.5 * Y / Y.std()))
PROVEN = {
    "squared": (Y, ("--k", K), Y, ("--k-max", 3)),
    "others": (LABELS, ("--k", K, "--loss", "logistic", "--l2", 0.1), COUNTS, ("--k-max", 1, "--loss", "poisson")),
}


@pytest.mark.parametrize("name", ["squared", pytest.param("others", marks=pytest.mark.slow)])
def test_fit_and_path_prove(tmp_path, name):
    y, of_fit, other, of_path = PROVEN[name]
    common = ("--target", "target", "--prove", 60, *CHEAP)
    result, model = made(tmp_path / "fit", "fit", saved(tmp_path, TABLE.assign(target=y)), *common, *of_fit)
    assert "Proved: this is the best choice of 2 features" in result.output
    assert "not prove" not in result.output
    proof = model["proof"]
    assert proof["proved"] and proof["lower"] <= model["objective"] and proof["gap"] <= 1.01e-4
    assert (tmp_path / "fit" / "proof.png").exists()
    result, model = made(tmp_path / "path", "path", saved(tmp_path, TABLE.assign(target=other)), *common, *of_path)
    assert len(model["rows"]) == 1 + of_path[1] and all(row["proved"] for row in model["rows"])
    assert all(row["lower_bound"] <= row["objective"] * (1 + 1e-12) for row in model["rows"])
    assert result.output.count("best") >= len(model["rows"])


def test_an_exposure_is_an_offset_of_its_logarithm(tmp_path):
    rng = np.random.default_rng(0)
    years = rng.uniform(0.5, 3, N)
    counts = rng.poisson(years * np.exp(1 + 0.8 * X[:, 1]))
    table = TABLE.drop(columns="target").assign(years=years, log_years=np.log(years), claims=counts)
    path = saved(tmp_path, table)
    options = ("--target", "claims", "--loss", "poisson", "--k", 1, "--l2", 0.01, *CHEAP)
    kinds = {"a": ("--exposure", "years", "--drop", "log_years"), "b": ("--offset", "log_years", "--drop", "years")}
    reference = sht.SparseRegressor(k=1, loss="poisson", l2=0.01, solver="htp").fit(X, counts, offset=np.log(years))
    (j,) = np.flatnonzero(reference.support_)
    for name, kind in kinds.items():
        _, model = made(tmp_path / name, "fit", path, *options, *kind, "--save", tmp_path / f"{name}.npz")
        assert model["p"] == P
        np.testing.assert_allclose(named(model)[NAMES[j]], reference.coef_[j], rtol=1e-6)
        np.testing.assert_allclose(model["train_score"], reference.score(X, counts, offset=np.log(years)), rtol=1e-6)
    predictions = pd.read_csv(io.StringIO(invoke("predict", tmp_path / "a.npz", path).stdout))
    np.testing.assert_allclose(predictions["prediction"], reference.predict(X), rtol=1e-6)
    grid = ("--k-max" if option == "--k" else option for option in options)
    _, all_k = made(tmp_path / "path", "path", path, *grid, *kinds["a"])
    np.testing.assert_allclose(named(all_k["rows"][1])[NAMES[j]], reference.coef_[j], rtol=1e-6)


def test_a_path_estimates_the_dispersion_without_features(tmp_path):
    """With a dispersion of one what is only scattered more than counts are would be explained by features."""
    y = np.random.default_rng(0).poisson(np.random.default_rng(1).gamma(1 / 6, 12, N)).astype(float)
    options = ("--target", "target", "--loss", "negative-binomial", "--k-max", 1, *CHEAP)
    _, path = made(tmp_path / "out", "path", saved(tmp_path, TABLE.assign(target=y)), *options)
    expected = sht.losses.NegativeBinomial.estimate(y, np.full(N, np.log(y.mean())), np.ones(N))
    np.testing.assert_allclose(path["loss_parameter"], expected, rtol=1e-6)
    model = sht.SparseRegressor(0, loss=sht.losses.NegativeBinomial(expected)).fit(X, y)
    np.testing.assert_allclose(
        path["rows"][0]["loss"], model.path_.loss if model.path_ else model.objective_value_, rtol=1e-5
    )
