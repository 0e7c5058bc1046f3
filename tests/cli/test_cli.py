"""The command line: fits, paths, reports, files, exit codes."""

import csv
import io

import numpy as np
import pandas as pd
import pytest
from commands import invoke, made, named, words

import sparsehtp as sht
from sparsehtp.cli.options import CriterionName, FitOptions, LossName, PathOptions, SolverName
from sparsehtp.datasets import make_regression
from sparsehtp.estimators.parameters import LOSSES, SOLVERS

N, P, K = 40, 6, 2  # one shape, so that few programs are compiled
X, Y, W = make_regression(N, P, K, snr=50, seed=1)
Y = Y + 3
NAMES = [f"feature {j}" for j in range(P)]
CHEAP = ("--solver", "htp")  # compiles much less than the default
PICTURES = [f"{name}.{kind}" for name in ("coefficients", "predictions", "swaps") for kind in ("png", "svg")]
FILES = sorted([*PICTURES, "model.json"])


def save_csv(path, y=Y):
    rows = [[*map(repr, map(float, x)), label] for x, label in zip(X, y, strict=True)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([[*NAMES, "target"], *rows])
    return path


def save_libsvm(path):
    rows = zip(X, Y, strict=True)
    lines = (" ".join([repr(float(y)), *(f"{j}:{float(v)!r}" for j, v in enumerate(x, 1))]) for x, y in rows)
    path.write_text("\n".join(lines) + "\n")
    return path


def save_npz(path):
    np.savez(path, X=X, target=Y, feature_names=NAMES)
    return path


FORMATS = {
    "csv": (save_csv, "data.csv", ["--target", "target"]),
    "libsvm": (save_libsvm, "data.svm", []),
    "npz": (save_npz, "data.npz", ["--target", "target"]),
}


def check_files(out, model):
    assert sorted(path.name for path in out.iterdir()) == sorted([*FILES, "history.csv", "history.png", "history.svg"])
    with (out / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == model["num_steps"]
    assert [int(row["step"]) for row in rows] == list(range(1, len(rows) + 1))
    np.testing.assert_allclose(min(float(row["value"]) for row in rows), model["objective"])


def predict(row):
    """Linear predictors on X from a row of path.json, or from model.json."""
    assert all(feature["name"] == NAMES[feature["index"]] for feature in row["coefficients"])
    return pd.DataFrame(X, columns=NAMES)[[*named(row)]].to_numpy() @ [*named(row).values()] + row["intercept"]


@pytest.mark.parametrize("name", FORMATS)
def test_fit_equals_least_squares_on_the_chosen_columns(tmp_path, name):
    save, file, arguments = FORMATS[name]
    out = tmp_path / "deep" / "out"
    common = ("--k", K, "--l2", 0, "--diagnostics")
    result, model = made(out, "fit", save(tmp_path / file), *arguments, *common)
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
    check_files(out, model)
    assert all(name in result.stdout for name in named(model))


def test_k_by_cross_validation_and_a_saved_model(tmp_path):
    out, arguments = tmp_path / "out", ("--target", "target", *CHEAP, "--save", tmp_path / "model.npz")
    result, model = made(out, "fit", save_csv(tmp_path / "data.csv"), *arguments)
    drawn = {
        name
        for name in [*FILES, "cv.png", "cv.svg", "shares.png", "shares.svg"]
        if model["k"] < P or "swaps" not in name
    }
    assert {path.name for path in out.iterdir()} == drawn
    cv = model["cv"]
    row = cv["table"][cv["chosen"]]
    assert (model["k"], model["l2"], model["chosen_by"]) == (row["k"], row["l2"], "cv")
    assert model["refit_l2"] == 0.1 * model["l2"] and cv["rule"] == "strong-ridge"
    (own,) = [each for each in cv["contenders"] if cv["table"][each["row"]]["l2"] == model["l2"]]
    assert own["difference"] <= 2 * own["standard_error"]
    one_se, best = cv["table"][cv["one_standard_error"]], cv["table"][cv["best"]]
    assert one_se["mean_loss"] <= best["mean_loss"] + best["se"] and one_se["k"] <= best["k"]
    assert len(cv["table"]) == 7 * len({row["l2"] for row in cv["table"]}) and (cv["folds"], cv["repeats"]) == (20, 4)
    stated = f"k = {model['k']}, features found at l2 = {model['l2']:g}, coefficients at l2 = {model['refit_l2']:g}"
    assert f"{stated} (by cross-validation)" in words(result.stdout)
    assert "Cross-validation, 20 folds, each row held out 4 times" in result.stdout and "(chosen)" in result.stdout
    assert "certificate" in result.stdout
    alone = sht.SparseRegressor(solver="htp").fit(X, Y)
    assert (model["k"], model["l2"]) == (alone.k_, alone.l2_)
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
    result = invoke("fit", save_csv(tmp_path / "data.csv", y), *common, *options)
    assert result.exit_code == code and sentence in result.stderr, result.output
    assert (tmp_path / "out").exists() == (code < 2)


@pytest.mark.parametrize("solver", ["forward", pytest.param("auto", marks=pytest.mark.slow)])
def test_path_finds_best_subsets_and_writes_everything(tmp_path, solver):
    """Every row of the files reproduces its loss, and the best single feature is the best by least squares."""
    out = tmp_path / "out"
    arguments = ("--target", "target", "--k-max", 4, "--l2", 0, "--l2", 0.1, "--cv", 3, "--stability", 8)
    result, model = made(out, "path", save_csv(tmp_path / "data.csv"), *arguments, "--solver", solver)
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
    chosen, fit = model["chosen"], {"l2": [0, 0.1], "cv": 3, "solver": solver, "random_state": 0}
    alone = sht.SparseRegressor(range(5), **fit).fit(X, Y)  # which decides by the same folds and rule
    assert (chosen["k"], chosen["l2"], chosen["by"]) == (alone.k_, alone.l2_, "strong-ridge")
    scores = [row["cv_mean"] for row in model["rows"]]
    np.testing.assert_allclose(scores, alone.cv_results_["mean_loss"], rtol=1e-9)
    chances = pd.read_csv(out / "probabilities.csv", index_col="feature")
    np.testing.assert_allclose(chances.sum(), range(5))
    assert "(-leaves)" in result.stdout and "within 1 se" in result.stdout


def test_path_resumes_and_takes_labels(tmp_path):
    path = save_csv(tmp_path / "data.csv", np.where(Y > np.median(Y), "big", "small"))
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


def test_failure_while_writing_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    path = save_csv(tmp_path / "data.csv")
    result = invoke("fit", path, "--target", "target", "--k", K, *CHEAP, "--out", tmp_path / "out")
    assert result.exit_code == 1 and "files: failed (No space left on device)" in result.stderr
    assert "2 of 6 features chosen" in result.stdout
    assert "The fit is not lost: all else is shown above." in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["data.csv"]


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
    assert "compiled programs" in said and "float64 supported" in said and f"numpy {np.__version__} " in said
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
    result, model = made(tmp_path / "fit", "fit", save_csv(tmp_path / "fit.csv", y), *common, *of_fit)
    assert "Proved: this is the best choice of 2 features" in result.output
    assert "not prove" not in result.output
    proof = model["proof"]
    assert proof["proved"] and proof["lower"] <= model["objective"] and proof["gap"] <= 1.01e-4
    assert (tmp_path / "fit" / "proof.png").exists()
    result, model = made(tmp_path / "path", "path", save_csv(tmp_path / "path.csv", other), *common, *of_path)
    assert len(model["rows"]) == 1 + of_path[1] and all(row["proved"] for row in model["rows"])
    assert all(row["lower_bound"] <= row["objective"] * (1 + 1e-12) for row in model["rows"])
    assert result.output.count("best") >= len(model["rows"])


def test_texts_of_several_columns_have_no_proof_and_are_refused_before_fitting(tmp_path, monkeypatch):
    frame = pd.DataFrame(X, columns=NAMES).assign(target=Y, town=np.resize(["Ulm", "Bonn", "Kiel"], N))
    frame.to_csv(tmp_path / "three.csv", index=False)
    frame.replace("Kiel", "Ulm").to_csv(tmp_path / "two.csv", index=False)
    common = ("--target", "target", "--dummies", "--prove", 60, *CHEAP, "--out", tmp_path / "out")
    # Two levels are one column, which has a proof.
    for command, k, sentence in (("fit", "--k", "Proved: this is the best choice of 2"), ("path", "--k-max", "best")):
        result = invoke(command, tmp_path / "two.csv", *common, k, K)
        assert result.exit_code == 0 and result.output.count(sentence) >= (1 if command == "fit" else 3), result.output
    for work in ("SparseRegressor.fit", "solve_path"):
        monkeypatch.setattr(f"sparsehtp.{work}", lambda *_, **__: 1 / 0)  # nothing is fitted
    for command in ("fit", "path"):
        result = invoke(command, tmp_path / "three.csv", *common)
        assert result.exit_code == 2, result.output
        assert "prove: --dummies makes several columns of 'town'" in result.stderr and "--drop" in result.stderr


def test_an_exposure_is_an_offset_of_its_logarithm(tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "data.csv"
    years = rng.uniform(0.5, 3, N)
    counts = rng.poisson(years * np.exp(1 + 0.8 * X[:, 1]))
    table = pd.DataFrame(X, columns=NAMES).assign(years=years, log_years=np.log(years), claims=counts)
    table.to_csv(path, index=False)
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
    pd.DataFrame(X, columns=NAMES).assign(y=y).to_csv(tmp_path / "data.csv", index=False)
    options = ("--target", "y", "--loss", "negative-binomial", "--k-max", 1, *CHEAP)
    _, path = made(tmp_path / "out", "path", tmp_path / "data.csv", *options)
    expected = sht.losses.NegativeBinomial.estimate(y, np.full(N, np.log(y.mean())), np.ones(N))
    np.testing.assert_allclose(path["loss_parameter"], expected, rtol=1e-6)
    model = sht.SparseRegressor(0, loss=sht.losses.NegativeBinomial(expected)).fit(X, y)
    np.testing.assert_allclose(
        path["rows"][0]["loss"], model.path_.loss if model.path_ else model.objective_value_, rtol=1e-5
    )
