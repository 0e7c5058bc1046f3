"""The command line: fits, reports, files, exit codes."""

import csv
import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from sparsehtp.cli.main import app
from sparsehtp.datasets import make_regression

N, P, K = 40, 6, 2  # one shape, so that few programs are compiled
X, Y, W = make_regression(N, P, K, snr=50, seed=1)
Y = Y + 3
NAMES = [f"feature {j}" for j in range(P)]
FILES = ["fit.png", "fit.svg", "history.csv", "model.json"]


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
    assert sorted(path.name for path in out.iterdir()) == FILES
    with (out / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == model["num_steps"]
    assert [int(row["step"]) for row in rows] == list(range(1, len(rows) + 1))
    np.testing.assert_allclose(min(float(row["value"]) for row in rows), model["objective"])


@pytest.mark.parametrize("name", FORMATS)
def test_fit_equals_least_squares_on_the_chosen_columns(tmp_path, name):
    save, file, arguments = FORMATS[name]
    out = tmp_path / "deep" / "out"
    result = invoke("fit", save(tmp_path / file), *arguments, "--k", K, "--l2", 0, "--out", out)
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
    assert model["result"]["name"] == "converged" and model["result"]["fired"] == ["StableSupport"]
    check_files(out, model)
    for feature in model["coefficients"]:
        assert feature["name"] in result.stdout


def test_any_two_labels_and_an_existing_folder(tmp_path):
    labels = np.where(Y > np.median(Y), "big", "small")
    path = save_csv(tmp_path / "data.csv", labels)
    (tmp_path / "notes.txt").write_text("kept")
    arguments = ("--target", "target", "--loss", "logistic", "--k", K, "--l2", 0.01, "--no-standardize")
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


def test_separable_classes_without_ridge_warn(tmp_path):
    path = save_csv(tmp_path / "data.csv", np.where(X[:, 2] > 0, 7, 3))
    arguments = (
        "--target",
        "target",
        "--loss",
        "logistic",
        "--k",
        K,
        "--no-standardize",
        "--out",
        tmp_path / "out",
    )
    assert "separate" in invoke("fit", path, *arguments, "--l2", 0).stderr
    assert "separate" not in invoke("fit", path, *arguments, "--l2", 0.01).stderr


def test_step_limit_warns(tmp_path):
    arguments = (
        "--target",
        "target",
        "--k",
        K,
        "--solver",
        "iht",
        "--max-steps",
        3,
        "--out",
        tmp_path / "out",
    )
    result = invoke("fit", save_csv(tmp_path / "data.csv"), *arguments)
    assert result.exit_code == 0 and "step limit" in result.stderr


def test_nonfinite_result_exits_with_one(tmp_path):
    path = save_csv(tmp_path / "data.csv", Y * 1e30)
    arguments = ("--target", "target", "--k", K, "--dtype", "float32", "--out", tmp_path / "out")
    result = invoke("fit", path, *arguments)
    assert result.exit_code == 1 and "infinite or NaN" in result.stderr


BAD = {
    "file": (["absent.csv"], "no file"),
    "target": (["data.csv", "--target", "price"], "no column 'price'"),
    "k": (["data.csv", "--target", "target", "--k", "7"], "only 6 features"),
    "classes": (["data.csv", "--target", "target", "--loss", "logistic"], "exactly two classes"),
    "text": (["text.csv", "--target", "target"], "not numeric"),
    "hinge": (["text.csv", "--target", "target", "--loss", "hinge"], "--solver iht"),
    "counts": (["data.csv", "--target", "target", "--loss", "poisson"], "counts >= 0"),
    "test size": (["data.csv", "--target", "target", "--test-size", "1.5"], "test-size"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_exits_with_two_and_leaves_nothing(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    save_csv(tmp_path / "data.csv", Y - 10)
    save_csv(tmp_path / "text.csv", np.where(Y > 3, "a", "b"))
    arguments, message = BAD[name]
    result = invoke("fit", "--k", K, *arguments, "--out", "out")
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

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    path = save_csv(tmp_path / "data.csv")
    result = invoke("fit", path, "--target", "target", "--k", K, "--l2", 0, "--out", tmp_path / "out")
    assert result.exit_code == 2 and "No space left" in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["data.csv"]


def test_demo_info_version_and_help(tmp_path):
    result = invoke("demo", "--out", tmp_path / "demo")
    assert result.exit_code == 0, result.output
    model = json.loads((tmp_path / "demo" / "model.json").read_text())
    check_files(tmp_path / "demo", model)
    assert (model["n"], model["n_test"], len(model["coefficients"])) == (398, 171, 5)
    assert model["train_score"] > 0.93 and model["test_score"] > 0.9
    assert "test accuracy" in result.stdout and "fit.png" in result.stdout
    assert "compilation cache" in invoke("info").stdout
    assert invoke("--version").stdout.startswith("sparsehtp 0.")
    assert "Examples" in invoke("fit", "--help").stdout
