"""Streamed fits: the answer of all rows in memory, from any kind of file, whatever was killed on the way."""

import itertools
import json
import os

import jax
import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file
from typer.testing import CliRunner

import sparsehtp as sht
from sparsehtp.cli.main import app
from sparsehtp.datasets import Shards

RNG = np.random.default_rng(0)
N, P = 500, 12
X = RNG.standard_normal((N, P)) * RNG.uniform(0.5, 2, P)
ETA = X[:, [3, 8, 10]] @ [2.0, -1.0, 1.5] + 0.5
DATA = {
    "squared": (sht.Squared(), ETA + 0.5 * RNG.standard_normal(N)),
    "logistic": (sht.Logistic(), np.where(RNG.random(N) < 1 / (1 + np.exp(-ETA)), 1.0, -1.0)),
}
CUTS = [0, 130, 260, 300, 500]  # shards of different sizes


def write(folder, y):
    for i, (low, high) in enumerate(itertools.pairwise(CUTS)):
        np.savez(folder / f"part-{i}.npz", X=X[low:high], y=y[low:high])
    return Shards(folder / "*.npz")


@pytest.mark.parametrize("name", ["squared", pytest.param("logistic", marks=pytest.mark.slow)])
def test_a_stream_is_the_whole(tmp_path, x64, name):
    loss, y = DATA[name]
    shards = write(tmp_path, y)
    assert (len(shards), shards.n_samples, shards.n_features, shards.rows) == (4, N, P, [130, 130, 40, 200])
    threshold = sht.Sparsity(3, keep=[0])
    streamed = sht.solve_stream(shards, threshold, loss, l2=0.02, dtype=np.float64)
    model = sht.LinearModel(X, y, loss, l2=0.02, fit_intercept=True)
    whole = sht.solve(model, threshold, sht.HTP())
    assert streamed.converged and streamed.passes <= 25 and set(streamed.support) == {0, 3, 8, 10}
    np.testing.assert_allclose(streamed.x, whole.x, atol=1e-7)
    np.testing.assert_allclose(streamed.intercept, whole.intercept, atol=1e-7)
    np.testing.assert_allclose(streamed.value, whole.value, rtol=1e-10)
    assert np.all(np.diff(streamed.values) <= 1e-12)


def test_a_killed_run_ends_with_the_same_bits(tmp_path):
    loss, y = DATA["squared"]
    shards = write(tmp_path, y)
    options = {"l2": 0.02, "key": jax.random.key(3)}
    straight = sht.solve_stream(shards, sht.Sparsity(3), loss, **options)

    class Killed(Exception):
        pass

    for last in (2, 7):  # in the first pass, and in the second one
        count = 0

        def kill(done, total, last=last):
            nonlocal count
            count += 1
            if done == last:
                raise Killed

        with pytest.raises(Killed):
            sht.solve_stream(shards, sht.Sparsity(3), loss, **options, checkpoint=tmp_path / "state", progress=kill)
        assert count <= last
    seen = []
    again = sht.solve_stream(
        shards, sht.Sparsity(3), loss, **options, checkpoint=tmp_path / "state", progress=lambda *at: seen.append(at)
    )
    assert again.passes == straight.passes and len(seen) == straight.passes * 4 - 7
    np.testing.assert_array_equal(again.x, straight.x)
    assert (again.value, again.intercept) == (straight.value, straight.intercept)
    with pytest.raises(ValueError, match=r"checkpoint: .* another problem"):
        sht.solve_stream(shards, sht.Sparsity(2), loss, **options, checkpoint=tmp_path / "state")


@pytest.mark.parametrize("seed", range(10))
def test_a_changed_shard_is_named(tmp_path, seed):
    """Equal names, sizes and shapes: only the content tells; also where the run had ended, or the time is kept."""
    rng = np.random.default_rng(seed)
    y = DATA["squared"][1]
    shards = write(tmp_path, y)
    state, last = tmp_path / "state", int(rng.integers(1, 12))

    def kill(done, total):
        if done == last:
            raise KeyboardInterrupt

    def fit(progress=None):
        return sht.solve_stream(shards, sht.Sparsity(3), checkpoint=state, progress=progress)

    if seed % 2:
        whole = fit()
    else:
        with pytest.raises(KeyboardInterrupt):
            fit(kill)
    read = min(last, 4) if seed % 2 == 0 else 4
    i = int(rng.integers(read))  # one that was read before
    path = shards.paths[i]
    kept, facts = path.read_bytes(), path.stat()
    part = slice(*CUTS[i : i + 2])
    other, other_y = X[part].astype(float), y[part].copy()
    if seed % 3:
        other[rng.integers(len(other)), rng.integers(P)] += 1
    else:
        other_y[rng.integers(len(other_y))] += 1
    np.savez(path, X=other, y=other_y)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert path.stat().st_size == facts.st_size
    with pytest.raises(ValueError, match=rf"^checkpoint: .*{path.name} holds other rows [^\n]*\.$"):
        fit()
    path.write_bytes(kept)
    again = fit()
    if seed % 2:
        np.testing.assert_array_equal(again.x, whole.x)


def test_sparse_files_and_bad_ones(tmp_path):
    _, y = DATA["squared"]
    thinned = np.where(np.abs(X) > 0.5, X, 0)
    for i in range(2):
        part = slice(250 * i, 250 * (i + 1))
        dump_svmlight_file(thinned[part], y[part], str(tmp_path / f"{i}.svm"))
    shards = Shards(tmp_path / "*.svm", n_features=P)
    np.testing.assert_allclose(shards.read(1)[0], thinned[250:], rtol=1e-6)
    assert [i for i, _, _ in shards.each(1)] == [1]
    with pytest.raises(FileNotFoundError, match=r"paths: no file matches .*none\*"):
        Shards(tmp_path / "none*")
    np.savez(tmp_path / "a.npz", X=X, y=y)
    np.savez(tmp_path / "b.npz", X=X[:, 1:], y=y)
    with pytest.raises(ValueError, match=r"paths: the files have different numbers of features, \[11, 12\]"):
        Shards(tmp_path / "?.npz")
    np.savez(tmp_path / "b.npz", y=y)
    with pytest.raises(ValueError, match="X"):
        Shards(tmp_path / "?.npz")


def test_bad_input(tmp_path):
    shards = write(tmp_path, DATA["squared"][1])
    with pytest.raises(TypeError, match=r"shards: needs an instance such as sht.datasets.Shards"):
        sht.solve_stream([X], sht.Sparsity(3))
    with pytest.raises(TypeError, match="loss: Hinge is not smooth"):
        sht.solve_stream(shards, sht.Sparsity(3), sht.Hinge())
    with pytest.raises(ValueError, match=r"labels|target"):
        sht.solve_stream(shards, sht.Sparsity(3), sht.Logistic())


def test_the_command(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    write(data, np.where(DATA["logistic"][1] > 0, 7, 2))
    pattern, out = str(data / "*.npz"), tmp_path / "out"
    arguments = ["fit", "--shards", pattern, "--out", str(out), "--loss", "logistic"]
    result = CliRunner().invoke(app, [*arguments, "--k", "3", "--checkpoint", str(tmp_path / "state")])
    assert result.exit_code == 0, result.output
    assert "4 files, 500 rows, 12 features" in result.stderr and "passes over" in result.stdout
    model = json.loads((out / "model.json").read_text())
    assert {row["index"] for row in model["coefficients"]} == {3, 8, 10} and model["converged"]
    assert model["classes"] == {"-1": "2.0", "+1": "7.0"}
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2 and "with --shards the number of features must be given" in refused.stderr
    both = CliRunner().invoke(app, [*arguments, "some.csv"])
    assert both.exit_code == 2 and "name one FILE" in both.stderr
    ignored = CliRunner().invoke(app, [*arguments, "--k", "3", "--save", "model.zip"])
    assert ignored.exit_code == 2 and "--save: it has no effect with --shards" in ignored.stderr
    alone = CliRunner().invoke(app, ["fit", "some.csv", "--checkpoint", "state"])
    assert alone.exit_code == 2 and "--checkpoint: it needs --shards" in alone.stderr
