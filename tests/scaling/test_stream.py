"""Streamed fits: the answer of all rows in memory, from any kind of file, whatever was killed on the way."""

import contextlib
import itertools
import os
import shutil
import threading
import time

import cases
import jax
import numpy as np
import pytest
from commands import invoke, made
from processes import start
from sklearn.datasets import dump_svmlight_file

import sparsehtp as sht
from sparsehtp import _stream
from sparsehtp.cli.options import PathOptions
from sparsehtp.datasets import Shards
from sparsehtp.datasets.passes import Passes, _total, joined
from sparsehtp.io.npz import member_shape
from sparsehtp.io.read_ahead import read_ahead

RNG = np.random.default_rng(0)
N, P = 500, 12
X = RNG.standard_normal((N, P)) * RNG.uniform(0.5, 2, P)
ETA = X[:, [3, 8, 10]] @ [2.0, -1.0, 1.5] + 0.5
DATA = {
    "squared": (sht.losses.Squared(), ETA + 0.5 * RNG.standard_normal(N)),
    "logistic": (sht.losses.Logistic(), np.where(RNG.random(N) < 1 / (1 + np.exp(-ETA)), 1.0, -1.0)),
}
CUTS = [0, 130, 260, 300, 500]  # shards of different sizes


def write(folder, y):
    for i, (low, high) in enumerate(itertools.pairwise(CUTS)):
        np.savez(folder / f"part-{i}.npz", X=X[low:high], y=y[low:high])
    return Shards(folder / "*.npz")


def test_a_part_is_read_as_it_was_looked_at(tmp_path):
    """Its rows, its columns and its labels, of which a single one may have changed."""
    y = DATA["logistic"][1] + 2
    shards = write(tmp_path, y)
    shards.labels = (1.0, 3.0)
    rows, labels = X[130:260], y[130:260]
    np.testing.assert_array_equal(shards.read(1).y, labels - 2)
    for other_rows, other_labels, sentence in (
        (rows, cases.spoiled(labels, 2.0), r"^target: part-1.npz has other labels than 1.0 and 3.0\.$"),
        (rows[1:], labels[1:], "^paths: .*part-1.npz has changed"),
        (rows[:, 1:], labels, "^paths: .*part-1.npz has changed"),
    ):
        np.savez(shards.paths[1], X=other_rows, y=other_labels)
        cases.refused(ValueError, sentence, lambda: shards.read(1))


def write_npy(folder, y, weights=None, kind=np.float32):
    folder.mkdir(exist_ok=True)
    for i, (low, high) in enumerate(itertools.pairwise(CUTS)):
        np.save(folder / f"shard-{i:04d}.X.npy", X[low:high].astype(kind))
        np.save(folder / f"shard-{i:04d}.y.npy", y[low:high])
        if weights is not None:
            np.save(folder / f"shard-{i:04d}.weights.npy", weights[low:high])
    return Shards(folder)


@pytest.mark.parametrize(
    ("name", "drawn"), [("squared", 70), pytest.param("logistic", _stream.SAMPLE_ROWS, marks=pytest.mark.slow)]
)
def test_a_stream_is_the_whole(tmp_path, x64, monkeypatch, name, drawn):
    """With rows of several weights or none, whatever parts of a shard are summed or drawn."""
    monkeypatch.setattr(_stream, "BLOCK_BYTES", 48 * P * 8)
    monkeypatch.setattr(_stream, "SAMPLE_ROWS", drawn)
    (loss, y), weights = DATA[name], np.random.default_rng(1).integers(0, 4, N)
    shards = write_npy(tmp_path, y, weights, float)
    assert (len(shards), shards.n_samples, shards.n_features, shards.rows) == (4, N, P, [130, 130, 40, 200])
    threshold = sht.Sparsity(3, keep=[0])
    streamed = sht.solve_stream(shards, threshold, loss, l2=0.02, dtype=np.float64)
    model = sht.LinearModel(X, y, loss, l2=0.02, sample_weight=weights, fit_intercept=True)
    whole = sht.solve(model, threshold, sht.solvers.HTP())
    assert streamed.converged and streamed.passes <= 25 and set(streamed.support) == {0, 3, 8, 10}
    np.testing.assert_allclose(streamed.x, whole.x, atol=1e-9)
    np.testing.assert_allclose(streamed.intercept, whole.intercept, atol=1e-9)
    np.testing.assert_allclose(streamed.value, whole.value, rtol=1e-12)
    assert np.all(np.diff(streamed.values) <= 1e-12)


def test_a_killed_run_ends_with_the_same_bits(tmp_path):
    loss, y = DATA["squared"]
    shards = write(tmp_path, y)
    options = {"l2": 0.02, "key": jax.random.key(3)}
    straight = sht.solve_stream(shards, sht.Sparsity(3), loss, **options)

    for last in (2, 7):  # in the first pass, and in the second one

        def kill(done, total, last=last):
            if done == last:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sht.solve_stream(shards, sht.Sparsity(3), loss, **options, checkpoint=tmp_path / "state", progress=kill)
    assert (tmp_path / "state" / "manifest.json").exists()  # of one process, which has no folder of its own
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
    rng, shards = np.random.default_rng(seed), write(tmp_path, DATA["squared"][1])
    last = 1000 if seed % 2 else int(rng.integers(1, 12))

    def kill(done, total):
        if done == last:
            raise KeyboardInterrupt

    def fit(progress=None):
        return sht.solve_stream(shards, sht.Sparsity(3), checkpoint=tmp_path / "state", progress=progress)

    with contextlib.suppress(KeyboardInterrupt):
        fit(kill)
    path = shards.paths[rng.integers(min(last, 4))]  # one that was read before
    kept, facts, arrays = path.read_bytes(), path.stat(), dict(np.load(path))
    changed = arrays["X" if seed % 3 else "y"]
    changed.flat[rng.integers(changed.size)] += 1
    np.savez(path, **arrays)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert path.stat().st_size == facts.st_size
    cases.refused(ValueError, rf"^checkpoint: .*{path.name} holds other rows [^\n]*\.$", fit)
    path.write_bytes(kept)
    assert fit().converged


@pytest.mark.parametrize("kept", ["size", "time"])
def test_a_shard_that_changes_between_two_passes_is_named(tmp_path, kept):
    shards = write(tmp_path, DATA["squared"][1])
    path, other = shards.paths[3], cases.spoiled(X[300:], 9.0)

    def change(done, total):
        if done == 5:  # the first of the second pass; one more may have been read
            time = path.stat().st_mtime_ns
            np.savez(path, X=other if kept == "size" else other.astype(np.float32), y=DATA["squared"][1][300:])
            os.utime(path, ns=(time, time + (10**9 if kept == "size" else 0)))

    options = dict(checkpoint=tmp_path / "state", progress=change)
    sentence = rf"^checkpoint: .*{path.name} holds other rows"
    cases.refused(ValueError, sentence, lambda: sht.solve_stream(shards, sht.Sparsity(3), **options))


def test_sparse_files_and_bad_ones(tmp_path):
    _, y = DATA["squared"]
    thinned = np.where(np.abs(X) > 0.5, X, 0)
    for i in range(2):
        part = slice(250 * i, 250 * (i + 1))
        dump_svmlight_file(thinned[part], y[part], str(tmp_path / f"{i}.svm"))
    shards = Shards(tmp_path / "*.svm", n_features=P)
    np.testing.assert_allclose(shards.read(1)[0], thinned[250:], rtol=1e-6)
    assert [[i for i, _, _ in shards.each(*first)] for first in ((), (1,))] == [[0, 1], [1]]
    assert Shards(tmp_path / "1.svm", n_features=P).feature_names() == [f"x{j}" for j in range(P)]
    cases.refused(FileNotFoundError, r"paths: no file matches .*none\*", lambda: Shards(tmp_path / "none*"))
    np.savez(tmp_path / "a.npz", X=X, y=y)
    np.savez(tmp_path / "b.npz", X=X[:, 1:], y=y)
    assert [member_shape(tmp_path / "a.npz", name) for name in ("X", "y", "z")] == [X.shape, y.shape, None]
    sentence = r"paths: the files have different numbers of features, \[11, 12\]"
    cases.refused(ValueError, sentence, lambda: Shards(tmp_path / "?.npz"))
    np.savez(tmp_path / "b.npz", y=y)
    cases.refused(ValueError, "X", lambda: Shards(tmp_path / "?.npz"))
    cases.refused(ValueError, "^drop: names columns of Parquet", lambda: Shards(tmp_path / "a.npz", drop=["a"]))


@pytest.mark.parametrize("kind", [np.float32, np.float64, ">f4"])
def test_mapped_files_give_the_bits_of_an_archive(tmp_path, kind):
    _, y = DATA["squared"]
    mapped = write_npy(tmp_path / "npy", y, kind=kind)
    assert (len(mapped), mapped.rows, mapped.n_features) == (4, [130, 130, 40, 200], P)
    assert Shards(tmp_path / "npy" / "*.npy", n_features=P).paths == mapped.paths
    assert isinstance(mapped.read(0).X.base, np.memmap) == (kind == np.float32)  # in place, not copied
    one, other = (sht.solve_stream(each, sht.Sparsity(3), l2=0.02) for each in (mapped, write(tmp_path, y)))
    assert one.converged
    for field in ("x", "intercept", "value", "values"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
    weighted = write_npy(tmp_path / "weighted", y, np.arange(N) % 2, kind)
    assert weighted.n_bytes == sum(path.stat().st_size for path in (tmp_path / "weighted").iterdir())
    assert len(weighted.files(0)) == 3 and weighted.read(0).weights[:2].tolist() == [0, 1]
    Xf = tmp_path / "npy" / "shard-0000.X.npy"
    np.save(Xf, np.asfortranarray(np.load(Xf)))
    again = sht.solve_stream(Shards(tmp_path / "npy"), sht.Sparsity(3), l2=0.02)
    np.testing.assert_array_equal(again.x, one.x)


def test_a_fit_that_starts_at_its_minimum_has_converged(tmp_path):
    """In single precision too, where two sums of the same losses differ by their rounding."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        y = rng.standard_normal(130) * 10.0 ** rng.integers(-3, 4) + 3 * (seed % 2)
        np.savez(tmp_path / "part.npz", X=X[:130], y=y)
        found = sht.solve_stream(Shards(tmp_path / "part.npz"), sht.Sparsity(0))
        assert found.converged and found.passes <= 4, seed
        np.testing.assert_allclose([found.intercept, 2 * found.value], [y.mean(), y.var()], rtol=1e-5)


def test_a_row_that_no_sample_holds_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(_stream, "SAMPLE_ROWS", 70)
    shards = write_npy(tmp_path, DATA["squared"][1])
    for row in (5, 90, 150, 190):
        spoilt = X[300:].astype(np.float32)
        spoilt[row, 2] = np.inf
        np.save(shards.paths[3], spoilt)
        sentence = "column 'x2' of shard-0003.X.npy"
        cases.refused(ValueError, sentence, lambda: sht.solve_stream(shards, sht.Sparsity(3)))


def test_bad_npy_files_are_named(tmp_path):
    _, y = DATA["squared"]
    folder = tmp_path / "data"
    first, target, weights = (folder / f"shard-0000.{name}.npy" for name in ("X", "y", "weights"))

    def refused(spoil, pattern, error=ValueError):
        shutil.rmtree(folder, ignore_errors=True)
        write_npy(folder, y)
        spoil()
        cases.refused(error, rf"^[^\n]*{pattern}[^\n]*\.$", lambda: sht.solve_stream(Shards(folder), sht.Sparsity(3)))

    part = X[:130].astype(np.float32)
    for path, array, pattern in (
        (first, part[0], "shard-0000.X.npy needs two dimensions"),
        (first, part[:, 1:], "different numbers of features"),
        (first, part[:0], "shard-0000.X.npy needs real numbers"),
        (first, np.array([[{}]]), "shard-0000.X.npy is damaged"),
        (target, np.full(130, np.nan), "shard-0000.y.npy has missing"),
        (target, y[:129], r"shard-0000.y.npy needs shape \(130,\)"),
        (target, y[:130].astype("U9"), "shard-0000.y.npy needs real numbers"),
        (weights, -np.ones(130), "shard-0000.weights.npy needs finite weights >= 0"),
        (weights, np.zeros(130), "not all zero"),
        (weights, cases.spoiled(np.ones(130), np.inf), "needs finite weights"),
    ):
        refused(lambda path=path, array=array: np.save(path, array, allow_pickle=True), pattern)
    refused(target.unlink, "there is no file .*shard-0000.y.npy", FileNotFoundError)
    refused(lambda: first.write_bytes(first.read_bytes()[:-1]), "shard-0000.X.npy is damaged")
    refused(lambda: first.write_bytes(first.read_bytes() + b"0"), "shard-0000.X.npy holds more than its header says")
    shards = write_npy(folder, y)
    for options, pattern in (
        ({"target": "y"}, "target: is y, but the targets of shard-0000.X.npy are in"),
        ({"n_features": 3}, "n_features: is 3, but shard-0000.X.npy has 12 features"),
        ({"paths": [target]}, "paths: shard-0000.y.npy is no NAME.X.npy"),
    ):
        with pytest.raises(ValueError, match=pattern):
            Shards(**{"paths": folder} | options)
    np.save(first, part[1:])
    np.save(target, y[1:130])
    with pytest.raises(ValueError, match=r"shard-0000.X.npy has changed since it was looked at"):
        sht.solve_stream(shards, sht.Sparsity(3))


@pytest.mark.parametrize("seed", range(5))
def test_a_spoilt_header_is_refused_or_harmless(tmp_path, seed):
    rng = np.random.default_rng(seed)
    shards = write_npy(tmp_path, DATA["squared"][1])
    path, good = shards.paths[0], shards.paths[0].read_bytes()
    for _ in range(40):
        bad = bytearray(good)
        for place in rng.integers(128, size=rng.integers(1, 4)):
            bad[place] ^= rng.integers(1, 256)
        path.write_bytes(bytes(bad))
        try:
            rows = Shards([path]).read(0)
        except (ValueError, FileNotFoundError) as error:
            assert str(error).startswith("path") and str(error).endswith(".") and "\n" not in str(error)
        else:
            assert rows.X.nbytes <= 8 * len(good)


def test_reading_runs_one_ahead_in_threads():
    """One file ahead and no more; what fails in a thread is raised where it is asked for."""
    started, looked, threads = [], [], set()

    def read(i):
        started.append(i)
        threads.add(threading.get_ident())
        if i == 5:
            raise OSError("gone")
        return -i

    def look(i, what):
        looked.append((i, what))
        threads.add(threading.get_ident())

    seen = []
    with pytest.raises(OSError, match="gone"):
        for i, what, looked_at in read_ahead(range(8), read, look):
            assert what == -i and max(started) <= i + 1
            looked_at()
            assert (i, -i) in looked
            seen.append(i)
    assert seen == [0, 1, 2, 3, 4] and max(started) <= 6
    assert threads and threading.get_ident() not in threads


def job(folder, name, *options):
    """The output and the exit codes of two processes that fit the shards of a folder."""
    running = start("stream_worker.py", 2, folder, folder / name, *options)
    texts = [process.communicate(timeout=300)[0] for process in running]
    return "\n".join(texts), [process.returncode for process in running]


@pytest.mark.slow
def test_two_processes_join_their_sums_and_go_on_after_a_kill(tmp_path, x64):
    loss, y = DATA["logistic"]
    shards = write_npy(tmp_path, y, RNG.uniform(0.5, 2, N), float)

    def answers(name):
        text, codes = job(tmp_path, name)
        assert codes == [0, 0], text
        first, second = (dict(np.load(tmp_path / f"{name}-{i}.npz")) for i in range(2))
        for field, value in first.items():
            np.testing.assert_array_equal(value, second[field], err_msg=field)
        return first

    straight = answers("straight")
    one = sht.solve_stream(shards, sht.Sparsity(3), loss, l2=0.02, dtype=np.float64)
    assert one.converged and straight["converged"]
    for field in ("x", "intercept", "value"):
        np.testing.assert_allclose(straight[field], getattr(one, field), rtol=1e-7, atol=1e-9, err_msg=field)
    began = time.monotonic()
    _, codes = job(tmp_path, "state", 7)  # the second of its two shards, in its fourth pass
    assert codes[1] == -9 and codes[0] != 0 and time.monotonic() - began < 120
    assert not list(tmp_path.glob("state-*.npz"))
    resumed = answers("state")
    for field, value in straight.items():
        np.testing.assert_array_equal(value, resumed[field], err_msg=field)


@pytest.mark.slow
def test_an_error_in_one_process_ends_all(tmp_path):
    y = DATA["logistic"][1]
    write_npy(tmp_path, y, kind=float)
    spoilt = X[300:].copy()
    spoilt[150, 2] = np.nan
    np.save(tmp_path / "shard-0003.X.npy", spoilt)
    began = time.monotonic()
    text, codes = job(tmp_path, "straight")
    assert 0 not in codes and time.monotonic() - began < 120
    assert "column 'x2' of shard-0003.X.npy" in text and "another process of this job failed" in text


def test_sums_of_processes_keep_their_digits(monkeypatch):
    """Here of one that thinks it has company."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    part = {"a": np.pi * np.arange(1.0, 7).reshape(2, 3), "b": np.array(1 / 3)}
    for name, found in joined(lambda: part, part).items():
        np.testing.assert_array_equal(found, part[name])
    cases.refused(ZeroDivisionError, "division", lambda: joined(lambda: 1 / 0, part))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("process",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    np.testing.assert_array_equal(_total(np.ones((2, 3), np.float32), everywhere=everywhere), [2, 2, 2])


def test_bad_input(tmp_path):
    shards = write(tmp_path, DATA["squared"][1])
    counts = write_npy(tmp_path / "counts", RNG.poisson(1, N))
    for rows, loss, error, sentence in (
        ([X], sht.losses.Squared(), TypeError, "shards: needs an instance such as sht.datasets.Shards"),
        (shards, sht.losses.Hinge(), TypeError, "loss: Hinge is not smooth"),
        (shards, sht.losses.Logistic(), ValueError, "labels|target"),
        (counts, sht.losses.Poisson(), TypeError, "Poisson has no finite smoothness to take a step size from"),
    ):
        cases.refused(error, sentence, lambda rows=rows, loss=loss: sht.solve_stream(rows, sht.Sparsity(3), loss))


def test_the_command(tmp_path):
    write_npy(tmp_path / "data", np.where(DATA["logistic"][1] > 0, 7, 2))
    arguments = ("fit", tmp_path / "data" / "*.npy", "--loss", "logistic")
    result, model = made(tmp_path / "out", *arguments, "--k", 3, "--checkpoint", tmp_path / "state")
    assert "4 files, 500 rows, 12 features" in result.stderr and "passes over" in result.stdout
    assert {row["index"] for row in model["coefficients"]} == {3, 8, 10} and model["converged"]
    assert model["classes"] == {"-1": "2.0", "+1": "7.0"} and model["l2"] == PathOptions(file=tmp_path).l2[0]
    for command, sentence in (
        (arguments, "k: where the files are read in every pass it must be a number"),
        ((*arguments, "--k", 3, "--save", "model.zip"), "--save: it has no effect on data in parts"),
        (("fit", "some.csv", "--checkpoint", "state"), "--checkpoint: it is for data in parts"),
    ):
        refused = invoke(*command)
        assert refused.exit_code == 2 and sentence in refused.stderr


def test_processes_keep_their_own_sums(tmp_path, monkeypatch):
    shards = write(tmp_path, ETA)
    for process, processes in ((0, 1), (0, 2), (1, 2)):
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        monkeypatch.setattr(jax, "process_count", lambda processes=processes: processes)
        state = tmp_path / f"of-{processes}"
        folder = Passes(shards, np.float32, 0, state, print).store.folder
        assert folder == (state if processes == 1 else state / f"process-{process}")
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    cases.refused(ValueError, "^checkpoint: ", lambda: Passes(shards, np.float32, 0, state, print))
