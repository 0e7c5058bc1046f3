"""The command line: fits, paths, reports, files, exit codes."""

import csv
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

import sparsehtp as sht
from sparsehtp.cli.main import app
from sparsehtp.cli.options import CriterionName, LossName, SolverName
from sparsehtp.datasets import make_regression
from sparsehtp.estimators.parameters import LOSSES, SOLVERS

N, P, K = 40, 6, 2  # one shape, so that few programs are compiled
X, Y, W = make_regression(N, P, K, snr=50, seed=1)
Y = Y + 3
NAMES = [f"feature {j}" for j in range(P)]
CHEAP = ("--solver", "htp")  # compiles much less than the default
PICTURES = [f"{name}.{kind}" for name in ("coefficients", "predictions", "swaps") for kind in ("png", "svg")]
FILES = sorted([*PICTURES, "model.json"])


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


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
    found = {feature["index"]: feature for feature in row["coefficients"]}
    assert all(feature["name"] == NAMES[j] for j, feature in found.items())
    return X[:, list(found)] @ [feature["coefficient"] for feature in found.values()] + row["intercept"]


@pytest.mark.parametrize("name", FORMATS)
def test_fit_equals_least_squares_on_the_chosen_columns(tmp_path, name):
    save, file, arguments = FORMATS[name]
    out = tmp_path / "deep" / "out"
    result = invoke("fit", save(tmp_path / file), *arguments, "--k", K, "--l2", 0, "--diagnostics", "--out", out)
    assert result.exit_code == 0, result.output
    model = json.loads((out / "model.json").read_text())
    chosen = [feature["index"] for feature in model["coefficients"]]
    assert set(chosen) == set(np.flatnonzero(W))
    expected = np.linalg.lstsq(np.c_[X[:, chosen], np.ones(N)], Y)[0]
    found = [feature["coefficient"] for feature in model["coefficients"]]
    np.testing.assert_allclose([*found, model["intercept"]], expected, rtol=1e-9)
    np.testing.assert_allclose(
        [feature["standardized"] for feature in model["coefficients"]],
        expected[:-1] * X[:, chosen].std(axis=0),
    )
    residual = Y - np.c_[X[:, chosen], np.ones(N)] @ expected
    np.testing.assert_allclose(model["train_score"], 1 - residual @ residual / (N * Y.var()))
    np.testing.assert_allclose(model["objective"], residual @ residual / (2 * N))
    assert model["result"]["name"] == "converged" and model["chosen_by"] is None
    assert model["result"]["fired"] not in ("", "none")
    assert "No exchange" in model["certificate"]
    check_files(out, model)
    for feature in model["coefficients"]:
        assert feature["name"] in result.stdout


@pytest.mark.slow
def test_any_two_labels_and_an_existing_folder(tmp_path):
    labels = np.where(Y > np.median(Y), "big", "small")
    path = save_csv(tmp_path / "data.csv", labels)
    (tmp_path / "notes.txt").write_text("kept")
    arguments = ("--target", "target", "--loss", "logistic", "--k", K, "--l2", 0.01, "--no-standardize", *CHEAP)
    for _ in range(2):  # the second run replaces the files of the first
        result = invoke("fit", path, *arguments, "--out", tmp_path)
        assert result.exit_code == 0, result.output
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*FILES, "data.csv", "notes.txt"])
    model = json.loads((tmp_path / "model.json").read_text())
    assert model["classes"] == {"-1": "big", "+1": "small"}
    chosen = [feature["index"] for feature in model["coefficients"]]
    reference = LogisticRegression(C=1 / (0.01 * N), tol=1e-10, max_iter=1000).fit(X[:, chosen], labels)
    found = [feature["coefficient"] for feature in model["coefficients"]]
    np.testing.assert_allclose(found, reference.coef_[0], rtol=1e-4)
    np.testing.assert_allclose(model["train_score"], reference.score(X[:, chosen], labels))


def test_k_by_cross_validation_and_a_saved_model(tmp_path):
    arguments = ("--target", "target", *CHEAP, "--save", tmp_path / "model.npz", "--out", tmp_path / "out")
    result = invoke("fit", save_csv(tmp_path / "data.csv"), *arguments)
    assert result.exit_code == 0, result.output
    out = tmp_path / "out"
    model = json.loads((out / "model.json").read_text())
    drawn = {name for name in [*FILES, "cv.png", "cv.svg"] if model["k"] < P or "swaps" not in name}
    assert {path.name for path in out.iterdir()} == drawn
    cv = model["cv"]
    row = cv["table"][cv["chosen"]]
    assert (model["k"], model["l2"], model["chosen_by"]) == (row["k"], row["l2"], "cv")
    assert model["refit_l2"] == 0.1 * model["l2"] and cv["rule"] == "strong-ridge"
    (own,) = [each for each in cv["contenders"] if each["row"] == cv["chosen"]]
    assert own["difference"] <= 2 * own["standard_error"]
    one_se, best = cv["table"][cv["one_standard_error"]], cv["table"][cv["best"]]
    assert one_se["mean_loss"] <= best["mean_loss"] + best["se"] and one_se["k"] <= best["k"]
    assert len(cv["table"]) == 7 * len({row["l2"] for row in cv["table"]}) and cv["folds"] == 5
    stated = f"k = {model['k']}, features found at l2 = {model['l2']:g}, coefficients at l2 = {model['refit_l2']:g}"
    assert f"{stated} (by cross-validation)" in re.sub(r"\s+", " ", result.stdout)
    assert "Cross-validation, 5 folds" in result.stdout and "(chosen)" in result.stdout
    assert "certificate" in result.stdout
    loaded = sht.load(tmp_path / "model.npz")
    np.testing.assert_allclose(loaded.predict(pd.DataFrame(X, columns=NAMES)), predict(model))
    np.testing.assert_allclose(model["train_score"], loaded.score(pd.DataFrame(X, columns=NAMES), Y))


@pytest.mark.slow
def test_k_by_criterion(tmp_path):
    arguments = ("--target", "target", "--k", "bic", *CHEAP, "--out", tmp_path / "out")
    result = invoke("fit", save_csv(tmp_path / "data.csv"), *arguments)
    assert result.exit_code == 0, result.output
    model = json.loads((tmp_path / "out" / "model.json").read_text())
    assert model["chosen_by"] == "bic" and len(model["coefficients"]) == model["k"] and model["cv"] is None
    assert "(by bic)" in result.stdout


@pytest.mark.slow
def test_separable_classes_without_ridge_warn(tmp_path):
    path = save_csv(tmp_path / "data.csv", np.where(X[:, 2] > 0, 7, 3))
    arguments = ("--target", "target", "--loss", "logistic", "--k", K, "--no-standardize", *CHEAP)
    assert "separate" in invoke("fit", path, *arguments, "--l2", 0, "--out", tmp_path / "out").stderr
    assert "separate" not in invoke("fit", path, *arguments, "--l2", 0.01, "--out", tmp_path / "out").stderr


def test_step_limit_warns(tmp_path):
    arguments = ("--target", "target", "--k", K, "--solver", "iht", "--max-steps", 3, "--out", tmp_path / "out")
    result = invoke("fit", save_csv(tmp_path / "data.csv"), *arguments)
    assert result.exit_code == 0 and "Warning: the step limit" in result.stderr.replace("The", "the")


def test_nonfinite_result_exits_with_one(tmp_path):
    path = save_csv(tmp_path / "data.csv", np.abs(Y) * 1e37)
    arguments = ("--target", "target", "--k", K, "--dtype", "float32", "--solver", "iht", "--out", tmp_path / "out")
    result = invoke("fit", path, *arguments, "--loss", "poisson")
    assert result.exit_code == 1 and "infinite or NaN" in result.stderr, result.output


def test_targets_out_of_range_are_refused(tmp_path):
    path = save_csv(tmp_path / "data.csv", Y * 1e30)
    result = invoke("fit", path, "--target", "target", "--k", K, "--dtype", "float32", "--out", tmp_path / "out")
    assert result.exit_code == 2 and "cannot hold the squares" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("solver", ["forward", pytest.param("auto", marks=pytest.mark.slow)])
def test_path_finds_best_subsets_and_writes_everything(tmp_path, solver):
    """Every row of the files reproduces its loss, and the best single feature is the best by least squares."""
    out = tmp_path / "out"
    arguments = ("--target", "target", "--k-max", 4, "--l2", 0, "--l2", 0.1, "--cv", 3, "--stability", 8)
    result = invoke("path", save_csv(tmp_path / "data.csv"), *arguments, "--solver", solver, "--out", out)
    assert result.exit_code == 0, result.output
    images = [f"{name}.{kind}" for name in ("cv", "path", "probabilities") for kind in ("png", "svg")]
    assert sorted(p.name for p in out.iterdir()) == sorted([*images, "path.csv", "path.json", "probabilities.csv"])
    model, table = json.loads((out / "path.json").read_text()), pd.read_csv(out / "path.csv")
    assert [(row["k"], row["l2"]) for row in model["rows"]] == [(k, l2) for l2 in (0, 0.1) for k in range(5)]
    for row, line in zip(model["rows"], table.to_dict("records"), strict=True):
        assert len(row["coefficients"]) == row["k"] and row["result"] == "converged"
        np.testing.assert_allclose(row["loss"], np.mean((Y - predict(row)) ** 2) / 2, rtol=1e-9)
        for feature in row["coefficients"]:
            np.testing.assert_allclose(line[f"coef:{feature['name']}"], feature["coefficient"])
        assert all(np.isclose(line[name], row[name]) for name in ("k", "loss", "ebic", "cv_mean", "cv_se", "intercept"))
    correlations = np.abs(np.corrcoef(X.T, Y)[-1, :-1])
    assert model["rows"][1]["coefficients"][0]["index"] == correlations.argmax()
    assert {feature["index"] for feature in model["rows"][K]["coefficients"]} == set(np.flatnonzero(W))
    assert model["chosen"]["row"] == model["cv"]["one_standard_error"]
    chances = pd.read_csv(out / "probabilities.csv", index_col="feature")
    np.testing.assert_allclose(chances.sum(), range(5))
    assert "enters (-leaves)" in result.stdout and "within 1 se" in result.stdout


def test_path_resumes_and_takes_labels(tmp_path):
    path = save_csv(tmp_path / "data.csv", np.where(Y > np.median(Y), "big", "small"))
    arguments = ("--target", "target", "--loss", "logistic", "--k-max", K, "--criterion", "bic", *CHEAP)
    texts = []
    for name in ("first", "second"):
        result = invoke("path", path, *arguments, "--checkpoint", tmp_path / "chunks", "--out", tmp_path / name)
        assert result.exit_code == 0, result.output
        texts.append((tmp_path / name / "path.json").read_text())
    assert texts[0] == texts[1] and list((tmp_path / "chunks" / "path").glob("chunk-*"))
    model = json.loads(texts[0])
    assert model["chosen"]["by"] == "bic" and model["cv"] is None and model["stability"] is None
    assert sorted(p.name for p in (tmp_path / "first").iterdir()) == ["path.csv", "path.json", "path.png", "path.svg"]
    sign = np.where(Y > np.median(Y), -1, 1)  # labels in sorted order
    for row in model["rows"]:
        np.testing.assert_allclose(row["loss"], np.mean(np.log1p(np.exp(-sign * predict(row)))), rtol=1e-9)
    result = invoke(
        "path", path, *arguments, "--l2", 1, "--checkpoint", tmp_path / "chunks", "--out", tmp_path / "third"
    )
    assert result.exit_code == 2 and "another problem" in result.stderr and not (tmp_path / "third").exists()


TARGET = ("--target", "target")
BAD = {
    "file": (["fit", "absent.csv"], "no file"),
    "target": (["fit", "data.csv", "--target", "price"], "no column 'price'"),
    "k": (["fit", "data.csv", *TARGET, "--k", "7"], "only 6 features"),
    "k as text": (["fit", "data.csv", *TARGET, "--k", "best"], "k: needs an integer"),
    "classes": (["fit", "data.csv", *TARGET, "--loss", "logistic"], "exactly two classes"),
    "text": (["fit", "text.csv", *TARGET], "not numeric"),
    "hinge": (["fit", "text.csv", *TARGET, "--loss", "hinge", "--solver", "htp"], "--solver iht"),
    "counts": (["fit", "data.csv", *TARGET, "--loss", "poisson"], "counts >= 0"),
    "test size": (["fit", "data.csv", *TARGET, "--test-size", "1.5"], "test-size"),
    "save": (["fit", "data.csv", *TARGET, "--save", "absent/model.npz"], "save: there is no folder"),
    "k-max": (["path", "data.csv", *TARGET, "--k-max", "7"], "k-max: 7 is more than the 6 features"),
    "folds": (["path", "data.csv", *TARGET, "--cv", "41"], "cv: needs from 2 to 40"),
    "subsamples": (["path", "data.csv", *TARGET, "--stability", "9"], "even"),
    "path target": (["path", "text.csv", *TARGET], "not numeric"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_exits_with_two_and_leaves_nothing(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    save_csv(tmp_path / "data.csv", Y - 10)
    save_csv(tmp_path / "text.csv", np.where(Y > 3, "a", "b"))
    arguments, message = BAD[name]
    result = invoke(*arguments, "--out", "out")
    assert result.exit_code == 2 and message in result.stderr and "Traceback" not in result.output
    assert result.stderr.count("\n") == 1 and result.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "text.csv"]


def test_unwritable_folder_is_found_before_the_data_are_read(tmp_path):
    (tmp_path / "file").write_text("")
    result = invoke("fit", tmp_path / "absent.csv", "--out", tmp_path / "file" / "out")
    assert result.exit_code == 2 and "is not a folder" in result.stderr


def test_failure_while_writing_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    path = save_csv(tmp_path / "data.csv")
    result = invoke("fit", path, "--target", "target", "--k", K, *CHEAP, "--out", tmp_path / "out")
    assert result.exit_code == 1 and "files: failed (No space left on device)" in result.stderr
    assert (
        "2 of 6 features chosen" in result.stdout and "The fit is not lost: all else is shown above." in result.stderr
    )
    assert [p.name for p in tmp_path.iterdir()] == ["data.csv"]


@pytest.mark.slow
def test_demo(tmp_path):
    result = invoke("demo", "--out", tmp_path / "demo")
    assert result.exit_code == 0, result.output
    model = json.loads((tmp_path / "demo" / "model.json").read_text())
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == FILES
    assert (model["n"], model["n_test"], len(model["coefficients"])) == (398, 171, 5)
    assert model["train_score"] > 0.93 and model["test_score"] > 0.9
    assert "test accuracy" in result.stdout and "predictions.png" in result.stdout


def test_info_version_and_help():
    assert "compiled programs" in invoke("info").stdout
    assert invoke("--version").stdout.startswith("sparsehtp 0.")
    for command in ("fit", "path"):
        assert "Examples" in invoke(command, "--help").stdout


def test_choices_are_those_of_the_library():
    def names(choices):
        return {name.replace("-", "_") for name in choices.__args__}

    assert names(LossName) == set(LOSSES) and names(SolverName) == {"auto", *SOLVERS}
    assert names(CriterionName) == {"aic", "bic", "ebic", "sic", "gic"}


def test_fit_and_path_prove(tmp_path):
    data = save_csv(tmp_path / "data.csv")
    common = (data, "--target", "target", "--prove", 60)
    result = invoke("fit", *common, "--k", K, *CHEAP, "--out", tmp_path / "fit")
    assert result.exit_code == 0 and "Proved: this is the best choice of 2 features" in result.output
    model = json.loads((tmp_path / "fit" / "model.json").read_text())
    assert (
        model["proof"]["proved"] and model["proof"]["lower"] <= model["objective"] and model["proof"]["gap"] <= 1.01e-4
    )
    assert (tmp_path / "fit" / "proof.png").exists()
    result = invoke("path", *common, "--k-max", 3, *CHEAP, "--out", tmp_path / "path")
    assert result.exit_code == 0 and result.output.count("best") >= 4
    rows = json.loads((tmp_path / "path" / "path.json").read_text())["rows"]
    assert len(rows) == 4 and all(row["proved"] for row in rows)
    assert all(row["lower_bound"] <= row["objective"] * (1 + 1e-12) for row in rows)


@pytest.mark.slow
def test_fit_and_path_prove_other_losses(tmp_path):
    classes = save_csv(tmp_path / "classes.csv", np.where(Y > Y.mean(), "yes", "no"))
    common = ("--target", "target", "--prove", 60)
    result = invoke(
        "fit", classes, *common, "--k", K, "--loss", "logistic", "--l2", 0.1, *CHEAP, "--out", tmp_path / "fit"
    )
    assert result.exit_code == 0 and "Proved: this is the best choice of 2 features" in result.output
    counts = save_csv(tmp_path / "counts.csv", np.round(np.exp(0.5 * Y / Y.std())))
    result = invoke("path", counts, *common, "--k-max", 1, "--loss", "poisson", *CHEAP, "--out", tmp_path / "path")
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "path" / "path.json").read_text())["rows"]
    assert len(rows) == 2 and all(row["proved"] and row["lower_bound"] <= row["objective"] for row in rows)


def test_texts_of_several_columns_have_no_proof_and_are_refused_before_fitting(tmp_path, monkeypatch):
    frame = pd.DataFrame(X, columns=NAMES).assign(target=Y, town=np.resize(["Ulm", "Bonn", "Kiel"], N))
    frame.to_csv(tmp_path / "three.csv", index=False)
    frame.replace("Kiel", "Ulm").to_csv(tmp_path / "two.csv", index=False)
    common = ("--target", "target", "--dummies", "--prove", 60, *CHEAP, "--out", tmp_path / "out")
    # Two levels are one column, which has a proof.
    result = invoke("fit", tmp_path / "two.csv", *common, "--k", K)
    assert result.exit_code == 0 and "Proved: this is the best choice of 2 features" in result.output, result.output
    result = invoke("path", tmp_path / "two.csv", *common, "--k-max", 2)
    assert result.exit_code == 0 and result.output.count("best") >= 3, result.output
    for work in ("SparseRegressor.fit", "solve_path"):
        monkeypatch.setattr(f"sparsehtp.{work}", lambda *_, **__: 1 / 0)  # nothing is fitted
    for command in ("fit", "path"):
        result = invoke(command, tmp_path / "three.csv", *common)
        assert result.exit_code == 2, result.output
        assert "prove: --dummies makes several columns of 'town'" in result.stderr and "--drop" in result.stderr


def test_losses_without_proof_are_refused_before_fitting(tmp_path):
    data = save_csv(tmp_path / "data.csv", np.where(Y > Y.mean(), "yes", "no"))
    common = (data, "--target", "target", "--prove", 1, "--out", tmp_path / "out")
    for command in ("fit", "path"):
        assert "no proofs for the hinge loss" in invoke(command, *common, "--loss", "hinge").output
        result = invoke(command, *common, "--loss", "logistic", "--l2", 0)
        assert result.exit_code == 2 and "prove: proofs for the loss logistic need l2 > 0" in result.output
    assert not (tmp_path / "out").exists()


def rates(path, **columns):
    rng = np.random.default_rng(0)
    years = rng.uniform(0.5, 3, N)
    counts = rng.poisson(years * np.exp(1 + 0.8 * X[:, 1]))
    pd.DataFrame(X, columns=NAMES).assign(years=years, log_years=np.log(years), claims=counts, **columns).to_csv(path)
    return path, years, counts


def test_an_exposure_is_an_offset_of_its_logarithm(tmp_path):
    path, years, counts = rates(tmp_path / "data.csv")
    options = ("--target", "claims", "--drop", "Unnamed: 0", "--loss", "poisson", "--k", 1, "--l2", 0.01, *CHEAP)
    kinds = {"a": ("--exposure", "years", "--drop", "log_years"), "b": ("--offset", "log_years", "--drop", "years")}
    models = {}
    for name, kind in kinds.items():
        result = invoke("fit", path, *options, *kind, "--out", tmp_path / name, "--save", tmp_path / f"{name}.npz")
        assert result.exit_code == 0, result.stderr
        models[name] = json.loads((tmp_path / name / "model.json").read_text())
    reference = sht.SparseRegressor(k=1, loss="poisson", l2=0.01, solver="htp").fit(X, counts, offset=np.log(years))
    for model in models.values():
        assert model["p"] == P
        coefficients = {each["name"]: each["coefficient"] for each in model["coefficients"]}
        (j,) = np.flatnonzero(reference.support_)
        np.testing.assert_allclose(coefficients[NAMES[j]], reference.coef_[j], rtol=1e-6)
        np.testing.assert_allclose(model["train_score"], reference.score(X, counts, offset=np.log(years)), rtol=1e-6)
    predictions = pd.read_csv(io.StringIO(invoke("predict", tmp_path / "a.npz", path).stdout))
    np.testing.assert_allclose(predictions["prediction"], reference.predict(X), rtol=1e-6)


def test_a_wrong_exposure_or_parameter_is_one_sentence(tmp_path):
    path, *_ = rates(tmp_path / "data.csv", zero=np.arange(N) % 2)
    common = ("fit", path, "--target", "claims", "--drop", "Unnamed: 0", "--out", tmp_path / "out", *CHEAP)
    for options, sentence in (
        (("--loss", "poisson", "--exposure", "zero"), "an exposure must be a number above 0"),
        (("--loss", "poisson", "--exposure", "time"), "exposure: "),
        (("--exposure", "years", "--offset", "log_years"), "exposure: cannot be combined with offset"),
        (("--offset", "claims"), "the target cannot be an offset"),
        (("--loss", "gamma", "--loss-parameter", 2), "loss-parameter: the loss gamma has none"),
        (("--loss", "tweedie", "--loss-parameter", 3), "power: must be a number from 1 to 2"),
        (("--loss", "tweedie", "--prove", 5), "prove: there are no proofs for the tweedie loss"),
    ):
        result = invoke(*common, *options)
        assert result.exit_code == 2 and sentence in " ".join(result.stderr.split()), (options, result.stderr)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_parameter_of_a_loss(tmp_path):
    options = ("--target", "target", "--loss", "quantile", "--loss-parameter", 0.9, "--k", K, "--l2", 0.01, *CHEAP)
    result = invoke("fit", save_csv(tmp_path / "data.csv"), *options, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    model = json.loads((tmp_path / "out" / "model.json").read_text())
    assert model["loss"] == "quantile" and model["loss_parameter"] == 0.9 and "quantile(0.9) loss" in result.stdout
    reference = sht.SparseRegressor(k=K, loss=sht.Quantile(0.9), l2=0.01, solver="htp").fit(X, Y)
    np.testing.assert_allclose(predict(model), reference.predict(X), rtol=1e-6)
