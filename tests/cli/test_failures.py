"""A fit is never thrown away: whatever follows it may fail, in a sentence, and all else is shown and written."""

import io
import itertools
import json
from pathlib import Path

import cases
import numpy as np
import pandas as pd
import pytest
import typer
from commands import invoke, saved

import sparsehtp as sht
from sparsehtp.cli.caveats import comparable
from sparsehtp.cli.common import AfterFit, check_outputs
from sparsehtp.cli.files import APOSTROPHES, as_bytes, for_csv, write_files
from sparsehtp.cli.fit import _metric
from sparsehtp.cli.report import Console
from sparsehtp.datasets import make_regression

K = 2
X, Y, _ = make_regression(40, 6, K, snr=50, seed=1)
TABLE = pd.DataFrame(X, columns=[f"feature {j}" for j in range(6)]).assign(target=Y, b=X[:, 0] - Y)
COMMON = ("--target", "target", "--drop", "b", "--solver", "htp")
WRONG = [RuntimeError("out of luck"), ValueError("y: out of luck."), MemoryError(), OSError("out of\nluck")]


def raising(error):
    """What raises instead of a function or an attribute."""

    def fail(*_, **__):
        raise error

    return fail


def broken(monkeypatch, place, error):
    with_error = property(raising(error)) if place.endswith("_") else raising(error)
    monkeypatch.setattr(f"sparsehtp.{place}", with_error)


def run(tmp_path, name, *arguments):
    out = tmp_path / name
    result = invoke(*arguments, "--out", out)
    files = {path.name for path in out.iterdir()} if out.exists() else set()
    models = [json.loads((out / each).read_text()) for each in files & {"model.json", "path.json", "precision.json"}]
    return result, files, models[0] if models else None


def check(failing, whole, part, lost):
    """All else is there as without the failure, and the sentence in every place."""
    (result, files, model), (_, all_files, all_of_it) = failing, whole
    assert result.exit_code == 1 and "Traceback" not in result.output, result.output
    told = " ".join(result.stderr.split())
    assert f"Error: {part}: failed (" in told and "The fit is not lost" in told, told
    if lost == {"everything"}:
        assert not files and model is None
        return
    assert files == all_files - lost, files ^ all_files
    assert any(sentence.startswith(f"{part}: failed (") for sentence in model.pop("failed"))
    for name in ("coefficients", "intercept", "rows", "edges"):
        if name in all_of_it:
            kept = ("name", "coefficient", "k", "x")  # substitutes and scores of folds may be what is lost
            assert plain(model[name], kept) == plain(all_of_it[name], kept)


def plain(rows, kept):
    if isinstance(rows, dict):
        return {name: rows[name] for name in kept if name in rows}
    return [plain(row, kept) for row in rows] if isinstance(rows, list) else rows


def pictures(name):
    return {f"{name}.png", f"{name}.svg"}


DRAWN = ("coefficients", "predictions", "proof", "history")
FAILING = {  # command: options, what is shown whatever fails, and where: the part, and the files that it takes away
    "fit": (
        (*COMMON, "--k", K, "--prove", 20, "--diagnostics", "--report", "--save", "model.npz"),
        "2 of 6 features chosen",
        {
            "estimators.base.SparseLinearModel.prove": ("proof", pictures("proof")),
            "estimators.base.SparseLinearModel.swaps_": ("substitutes", pictures("swaps")),
            "estimators.base.SparseLinearModel.exchangeable_": ("exchanges within the noise", set()),
            "estimators.base.SparseLinearModel.certificate_": ("certificate", set()),
            "SparseRegressor.score": ("score", set()),
            "cli.fit.caveat": ("caveat", set()),
            "cli.fit.add_substitutes": ("table of substitutes", set()),
            "cli.fit.plot_swap_gains": ("plot of swaps", pictures("swaps")),
            **{f"cli.fit.plot_{name}": (f"plot of {name}", pictures(name)) for name in DRAWN},
            "cli.common.as_images": ("picture of coefficients", set().union(*map(pictures, (*DRAWN, "swaps")))),
            "cli.fit.fit_report": ("report", {"report.html"}),
            "cli.flow.write_files": ("files", {"everything"}),
            "save": ("save", set()),
        },
    ),
    "path": (
        (*COMMON, "--k-max", 2, "--cv", 3, "--stability", 4, "--prove", 20, "--report"),
        "Best subsets at l2",
        {
            "cross_validate": ("cross-validation", pictures("cv")),
            "stability_selection": ("stability", pictures("probabilities") | {"probabilities.csv"}),
            "prove": ("proof", set()),
            "cli.path.plot_path": ("plot of path", pictures("path")),
            "cli.path.plot_cv": ("plot of cv", pictures("cv")),
            "cli.path.plot_stability": ("plot of probabilities", pictures("probabilities")),
            "cli.path.path_report": ("report", {"report.html"}),
            "cli.flow.write_files": ("files", {"everything"}),
        },
    ),
    "lowrank": (
        ("--targets", "target,b", "--rank", 1),
        "",
        {
            "cli.lowrank.plot_ranks": ("plot of ranks", pictures("ranks")),
            "cli.flow.write_files": ("files", {"everything"}),
        },
    ),
    "precision": (
        ("--k", 2, "--stability", 4),
        "2 edges",
        {
            "stability_selection": ("stability", set()),
            "cli.precision.plot_graph": ("plot of graph", pictures("graph")),
            "cli.precision.plot_precision": ("plot of heatmap", pictures("heatmap")),
            "cli.flow.write_files": ("files", {"everything"}),
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", FAILING)
def test_what_follows_a_fit_may_fail(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    options, shown, places = FAILING[command]
    arguments = (command, saved(tmp_path, TABLE), *options)
    whole = run(tmp_path, "whole", *arguments)
    assert whole[0].exit_code == 0 and "failed" not in whole[2], whole[0].output
    for number, (place, (part, lost)) in enumerate(places.items()):
        with monkeypatch.context() as patch:
            broken(patch, place, WRONG[number % len(WRONG)])
            failing = run(tmp_path, str(number), *arguments)
        check(failing, whole, part, lost)
        assert shown in failing[0].stdout


def test_a_figure_that_cannot_be_drawn_is_taken_out():
    after, figures = AfterFit(), {"lost": None}
    assert not after.images(figures) and not figures and after.failed["picture of lost"]


def test_better_features_of_a_proof_are_what_is_told(tmp_path, monkeypatch):
    """Substitutes and certificate are those of the features that the proof put in place."""

    def prove(self, seconds):
        other = sht.SparseRegressor(K - 1, solver="htp").fit(X, Y)
        vars(self).update(vars(other))

    monkeypatch.setattr("sparsehtp.estimators.base.SparseLinearModel.prove", prove)
    data = saved(tmp_path, TABLE)
    result, _, model = run(tmp_path, "out", "fit", data, *COMMON, "--k", K, "--prove", 1)
    assert result.exit_code == 0, result.output
    (feature,) = model["coefficients"]
    assert feature["substitute"] is not None


def test_all_files_are_written_or_none_and_told_with_their_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("out", "out", "new"):
        with pytest.raises(OSError, match="no space"):
            write_files(Path(folder), {"a": as_bytes(b"2"), "b": raising(OSError("no space"))})
        assert not (tmp_path / folder).exists() or [path.name for path in Path(folder).iterdir()] == ["a"]
        assert write_files(Path("out"), {"a": as_bytes(b"1")}) == [tmp_path / "out" / "a"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"] and Path("out/a").read_bytes() == b"1"
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    for write in (check_outputs, lambda folder: write_files(folder, {})):
        cases.refused(OSError, "gone is not a folder", lambda write=write: write(tmp_path / "gone" / "x"))
    broken(monkeypatch, "cli.common.new_figure", ImportError("plots need it"))
    cases.refused(ImportError, "plots need it", lambda: check_outputs(tmp_path))


def test_quoting_a_cell_is_told():
    with pytest.warns(UserWarning) as told:
        assert for_csv(["=1", "a", 2, "'b"]) == ["'=1", "a", 2, "'b"] and for_csv(["'b", 2]) == ["'b", 2]
    assert [str(each.message) for each in told] == [APOSTROPHES]


def test_constant_targets_alone_have_no_score():
    X, y = np.arange(6.0)[:, None], np.arange(6.0) % 2
    score = _metric("squared", sht.SparseRegressor(1, solver="htp").fit(X, y))[1]
    assert score(X, np.ones(6), None) is None and score(X, y, None) is not None
    for kind, name, poor in (
        (sht.SparseClassifier, "accuracy", None),
        (sht.SparseOrdinal, "accuracy", None),
        (sht.SparseCox, "concordance", np.ones((6, 2)) * [1, 0]),  # nothing has happened
    ):
        told, score = _metric("", type("Scored", (kind,), {"score": lambda self, X, y, offset: 0.7})())
        assert told == name and score(X, np.column_stack([y + 1, np.ones(6)]), None) == 0.7
        assert poor is None or score(X, poor, None) is None


def test_an_event_is_compared_with_later_rows_alone():
    for rows in itertools.product(itertools.product((1, 2), (0, 1)), repeat=2):
        expected = any(event and time < other for time, event in rows for other, _ in rows)
        assert comparable(np.array(rows, float)) == expected, rows


def test_a_part_that_fails_is_a_sentence():
    after, errors, figures = AfterFit(), Console(file=io.StringIO(), width=300), {}
    after.draw(figures, "sum", max, 1, 2, key=abs)
    after.say(errors)
    assert figures == {"sum": 2} and after.told({"k": 1}) == {"k": 1} and not errors.file.getvalue()
    said = ["RuntimeError: out of luck", "y: out of luck", "MemoryError", "out of luck", "ValueError"]
    for number, error in enumerate([*WRONG, ValueError()]):
        assert after(f"[{number}]", raising(error), 7) == 7
    said = [f"[{number}]: failed ({sentence})." for number, sentence in enumerate(said)]
    assert after.told({"k": 1}) == {"k": 1, "failed": said}
    for name, end in (("", " and written."), ("files", "shown above.")):
        if name:
            after(name, raising(OSError("no space")))
        with pytest.raises(typer.Exit) as ended:
            after.say(errors)
        assert ended.value.exit_code == 1 and errors.file.getvalue().endswith(f"{end}\n")
    assert all(f"Error: {sentence}\n" in errors.file.getvalue() for sentence in said)
