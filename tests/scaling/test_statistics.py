"""Sufficient statistics: what is solved from them is what is solved from all rows."""

import os
import signal
import subprocess
import sys
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import cases
import jax
import numpy as np
import pandas as pd
import pytest

import sparsehtp as sht
from sparsehtp.datasets import Shards
from sparsehtp.estimators.fit import take_names
from sparsehtp.statistics import passes

N, P = 503, 6


def data(seed=0, responses=0, mean=0.0, scale=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) + 0.5 * rng.standard_normal((N, 1))
    Y = X @ rng.standard_normal((P, max(responses, 1))) + rng.standard_normal((N, max(responses, 1)))
    weights = rng.uniform(0.5, 2, N) * (rng.random(N) < 0.9)
    return (X + mean) * np.geomspace(1 / scale, scale, P), (Y if responses else Y[:, 0]) + mean, weights


def cut(X, y, weights, *sizes):
    places = np.split(np.arange(N), np.cumsum(sizes))
    return [(X[i], y[i], weights[i]) for i in places]


def same(a, b):
    return np.array_equal(a.triangles, b.triangles) and np.array_equal(a.rows, b.rows)


OPTIONS = [{}, {"mean": 1e6}, {"scale": 1e8}, {"responses": 2}, {"mean": 1e6, "scale": 1e3}]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_model_is_that_of_all_rows(options, intercept, x64):
    """Its value at any point, its minimum, and what its folds train on; what they are judged by the estimators show."""
    X, y, weights = data(**options)
    stats = sht.SufficientStatistics.from_batches(cut(X, y, weights, 0, 1, 2, 97, 7, 0, 300), folds=3)
    assert stats.n_samples == np.count_nonzero(weights)
    np.testing.assert_allclose(stats.total_weight, weights.sum(), rtol=1e-13)
    kind = sht.MultiResponse if y.ndim == 2 else sht.LinearModel
    fold = passes.fold_of(0, N, 3)
    model = stats.model(1e-3, fit_intercept=intercept)
    rng = np.random.default_rng(1)
    far = options.get("mean", 1.0)
    for train, rows in [(None, np.ones(N, bool)), *((pair[0], fold != i) for i, pair in enumerate(stats.folds))]:
        whole = kind(X, y, l2=1e-3, sample_weight=weights * rows, fit_intercept=intercept)
        few = model
        if train is not None:
            few = model.reweighted(np.asarray(model.sample_weight) * np.isin(np.arange(model.columns.n), train))
        for _ in range(2):
            w = rng.standard_normal((P, *y.shape[1:])) / np.abs(X).max(0).reshape(-1, *[1] * (y.ndim - 1))
            b = (y.mean(0) - X.mean(0) @ w) * intercept
            values = [float(each.value(each.to_internal(w, b))) for each in (few, whole)]
            np.testing.assert_allclose(*values, rtol=1e-12 * far**0.5)
        if train is not None or far > 1 > intercept:  # without an intercept, far columns are all the same
            continue
        threshold = (sht.RowSparsity if y.ndim == 2 else sht.Sparsity)(P)
        fits = [sht.solve(each, threshold, sht.solvers.HTP(), record=None) for each in (few, whole)]
        size = np.abs(fits[1].x).max()
        np.testing.assert_allclose(fits[0].x, fits[1].x, rtol=1e-7, atol=1e-9 * size)
        np.testing.assert_allclose(fits[0].value, fits[1].value, rtol=1e-10)


def test_in_single_precision_columns_far_from_zero_keep_their_digits():
    X, y, weights = data(mean=1e5)
    stats = sht.SufficientStatistics.from_batches(cut(X, y, weights, 250), folds=1)
    found = sht.solve(stats.model(), sht.Sparsity(P), sht.solvers.HTP(), record=None)
    root = np.sqrt(weights)[:, None]
    Z = np.column_stack([np.ones(N), X - 1e5])
    exact = np.linalg.lstsq(Z * root, (y - 1e5) * root[:, 0], rcond=None)[0][1:]
    assert found.x.dtype == np.float32
    np.testing.assert_allclose(found.x, exact, atol=1e-5)


def test_a_proof_is_that_of_all_rows(x64):
    X, y, weights = data()
    stats = sht.SufficientStatistics.from_arrays(X, y, weights, folds=4)
    model, whole = stats.model(1e-4), sht.LinearModel(X, y, l2=1e-4, sample_weight=weights, fit_intercept=True)
    proofs = [sht.prove(each, sht.Sparsity(2)) for each in (model, whole)]
    assert proofs[0].proved and proofs[1].proved
    np.testing.assert_allclose(proofs[0].upper, proofs[1].upper, rtol=1e-11)


def test_merging_is_a_pass_over_the_rows_of_all():
    X, y, weights = data(mean=1e6)
    parts = [
        sht.SufficientStatistics.from_arrays(X[i], y[i], weights[i], folds=1)
        for i in np.split(np.arange(N), [100, 350])
    ]
    merged, whole = parts[0].merge(*parts[1:]), sht.SufficientStatistics.from_arrays(X, y, weights, folds=1)
    assert merged.n_samples == whole.n_samples and whole.merge().n_samples == whole.n_samples
    for field in ("rows", "weights", "largest_weight"):
        np.testing.assert_allclose(getattr(merged, field), getattr(whole, field), err_msg=field)
    with jax.enable_x64(True):
        fits = [sht.solve(each.model(), sht.Sparsity(P), sht.solvers.HTP()) for each in (merged, whole)]
    np.testing.assert_allclose(fits[0].x, fits[1].x, atol=1e-9)
    np.testing.assert_allclose(fits[0].intercept, fits[1].intercept, rtol=1e-8)


def test_rows_without_weight_say_nothing():
    """Wherever they are, whatever they hold: the first batch has none but them, and outliers come later."""
    X, y, weights = data()
    weights[:20] = 0
    some = weights > 0
    wild = np.where(some[:, None], X, 1e20), np.where(some, y, -1e30)
    sizes = 10, 5, 100
    found = sht.SufficientStatistics.from_batches(cut(*wild, weights, *sizes), folds=1)
    fits = [
        sht.SparseRegressor(2).fit(each)
        for each in (found, sht.SufficientStatistics.from_arrays(X[some], y[some], weights[some], folds=1))
    ]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, atol=1e-12)
    np.testing.assert_allclose(fits[0].intercept_, fits[1].intercept_, atol=1e-12)
    assert found.n_samples == some.sum() and found.total_weight == pytest.approx(weights.sum(), rel=1e-15)
    assert found.largest_weight == weights.max()
    thrice = sht.SufficientStatistics.from_arrays(X[:24], y[:24], np.full(24, 3), folds=2)
    assert thrice.rows.tolist() == [12, 12] and thrice.weights.tolist() == [36, 36]


def test_data_frames_name_their_columns():
    X, y, _ = data()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    halves = (frame[:200], y[:200]), (frame[200:], y[200:])
    assert sht.SufficientStatistics.from_batches(halves).feature_names == list("abcdef")
    assert sht.SufficientStatistics.from_arrays(frame, y).feature_names == list("abcdef")
    with pytest.raises(ValueError, match="part 1 has the columns"):
        sht.SufficientStatistics.from_batches([halves[0], (halves[1][0][list("bacdef")], halves[1][1])])
    with pytest.raises(ValueError, match="two columns of part 0 have the same name"):
        sht.SufficientStatistics.from_batches([(frame.rename(columns={"a": "b"}), y)])


def test_folds_depend_on_the_number_of_a_row_alone():
    for folds in (1, 2, 5):
        whole = passes.fold_of(0, 203, folds)
        np.testing.assert_array_equal(whole, np.concatenate([passes.fold_of(a, 29, folds) for a in range(0, 203, 29)]))
        assert all(sorted(block) == list(range(folds)) for block in whole[: 203 // folds * folds].reshape(-1, folds))
        orders = {tuple(block) for block in whole[: 203 // folds * folds].reshape(-1, folds)}
        assert folds == 1 or len(orders) > 1


@pytest.fixture
def shards(tmp_path):
    X, y, weights = data()
    for i, (A, b, c) in enumerate(cut(X, y, np.maximum(weights, 0.1), 100, 200)):
        for name, part in (("X", A), ("y", b), ("weights", c)):
            np.save(tmp_path / f"{i}.{name}.npy", part)
    return Shards(tmp_path)


def test_any_executor_gives_the_same_bits(shards):
    first = sht.SufficientStatistics.from_files(shards, folds=2)
    with ThreadPoolExecutor(3) as pool:
        assert same(first, sht.SufficientStatistics.from_files(shards, folds=2, executor=pool))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert same(first, sht.SufficientStatistics.from_files(shards, folds=2, executor=pool))


class _Dying:
    """An executor whose second task loses its worker."""

    tasks = 0

    def submit(self, function, *args):
        self.tasks += 1
        future = Future()
        if self.tasks > 1:
            future.set_exception(BrokenProcessPool("gone"))
        else:
            future.set_result(function(*args))
        return future


def test_a_pass_goes_on_after_a_worker_died(shards, tmp_path, monkeypatch):
    folder = tmp_path / "checkpoint"
    with pytest.raises(RuntimeError, match="executor: a worker died at part 1"):
        sht.SufficientStatistics.from_files(shards, executor=_Dying(), checkpoint=folder)
    read, seen = Shards.read, []
    monkeypatch.setattr(Shards, "read", lambda self, i, dtype: (seen.append(i), read(self, i, dtype))[1])
    again = sht.SufficientStatistics.from_files(shards, checkpoint=folder)
    assert 0 not in seen and same(again, sht.SufficientStatistics.from_files(shards))
    seen.clear()
    assert same(again, sht.SufficientStatistics.from_files(shards, checkpoint=folder)) and not seen
    os.utime(shards.paths[1], ns=(1, 1))
    cases.refused(ValueError, "another problem", lambda: sht.SufficientStatistics.from_files(shards, checkpoint=folder))


def test_two_passes_may_share_a_checkpoint(shards, tmp_path):
    folder, others = tmp_path / "checkpoint", []

    def meanwhile(done, total):
        if not others:  # before the first pass has read its second part
            others.append(sht.SufficientStatistics.from_files(shards, checkpoint=folder))

    first = sht.SufficientStatistics.from_files(shards, checkpoint=folder, progress=meanwhile)
    assert same(first, others[0]) and same(first, sht.SufficientStatistics.from_files(shards, checkpoint=folder))
    assert {path.suffix for path in folder.iterdir()} == {".npz", ".json"}  # nothing half-written


def test_a_checkpoint_belongs_to_its_target(tmp_path):
    pd.DataFrame(data()[0], columns=list("abcdey")).to_csv(tmp_path / "0.csv")
    files, folder = str(tmp_path / "*.csv"), tmp_path / "checkpoint"
    assert "y" not in sht.SufficientStatistics.from_files(files, "y", checkpoint=folder).feature_names
    with pytest.raises(ValueError, match="another problem"):
        sht.SufficientStatistics.from_files(files, "a", checkpoint=folder)


def test_they_are_saved_and_loaded(tmp_path):
    X, y, weights = data(responses=2)
    stats = sht.SufficientStatistics.from_batches([(X, y, weights)], feature_names=list("abcdef"))
    again = sht.load(sht.save(stats, tmp_path / "statistics.npz"))
    assert same(stats, again) and again.feature_names == list("abcdef") and again.n_targets == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y, w: (X[:, :3], y, w), r"part 1 has X of shape \(403, 3\)"),
        (lambda X, y, w: (X, y[:5], w), "part 1 needs X"),
        (lambda X, y, w: (X, y[:0], w), "part 1 needs X"),
        (lambda X, y, w: (X[0], y, w), "part 1 needs X"),
        (lambda X, y, w: (X, 1.0, w), "part 1 needs X"),
        (lambda X, y, w: (X, y, w[:, None]), "part 1 needs X"),
        (lambda X, y, w: (X + 1j, y, w), "part 1 holds something else than numbers"),
        (lambda X, y, w: (X, np.column_stack([y, y]), w), "y of"),
        (lambda X, y, w: (np.where(np.arange(P) == 2, np.nan, X), y, w), "column c is missing or infinite in row 0 of"),
        (lambda X, y, w: (X, np.where(np.arange(len(y)) == 7, np.inf, y), w), "the target is missing or infinite in"),
        (lambda X, y, w: (X, y, -1 - w), "a weight of part 1 is negative"),
        (lambda X, y, w: (X.astype(str) + "x", y, w), "part 1 holds something else than numbers"),
    ],
)  # fmt: skip
def test_a_bad_batch_is_named(change, message):
    first, second = cut(*data(), 100)
    with pytest.raises(ValueError, match=message):
        sht.SufficientStatistics.from_batches([first, change(*second)], feature_names=list("abcdef"))


def test_bad_requests_are_named(tmp_path, monkeypatch):
    X, y, weights = data()
    made = sht.SufficientStatistics.from_arrays
    cases.refused(ValueError, "no rows with a weight", lambda: sht.SufficientStatistics.from_batches([]))
    cases.refused(ValueError, "no rows with a weight", lambda: made(X, y, 0 * weights))
    cases.refused(ValueError, "too few for 5 folds", lambda: made(X[:4], y[:4]))
    cases.refused(ValueError, "folds: needs an integer", lambda: made(X, y, folds=0))
    with pytest.raises(ValueError, match=r"take .* GiB, more than a quarter"):
        made(np.zeros((2, 10**6), np.float32), y[:2])
    for names in (["a"], list("aabcde")):
        with pytest.raises(ValueError, match=r"names, for 6 columns; pass one of its own"):
            sht.SufficientStatistics.from_batches([(X, y)], feature_names=names)
    cases.refused(ValueError, "part 0 needs X", lambda: made(X[:300], y[:256]))
    cases.refused(ValueError, "make them alike", lambda: made(X, y).merge(made(X[:, :3], y)))
    with pytest.raises(ValueError, match="these statistics have none"):
        _ = made(X, y, folds=1).folds
    with pytest.raises(FileNotFoundError, match="no file matches"):
        sht.SufficientStatistics.from_files(str(tmp_path / "*.parquet"), "y")
    needed = 2 * 3 * (1 + 6 + 2) ** 2 * 8 * os.cpu_count()
    for free, found in ((4 * needed, 0), (4 * needed - 1, needed)):  # a quarter of what is free
        monkeypatch.setattr(passes.memory, "available", lambda free=free: free)
        assert passes.too_wide(6, 2, 3) == found


def test_parquet_files_are_read_once(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet files need the extra [parquet]")
    import pyarrow as pa

    X, y, weights = data()
    for i, (A, b, c) in enumerate(cut(X, y, weights, 100, 200)):
        columns = {"y": b, **{f"x{j}": A[:, j] for j in range(P)}, "w": c}
        names = list(columns) if i else list(columns)[::-1]  # another order changes nothing
        parquet.write_table(
            pa.table({name: columns[name] for name in names}), tmp_path / f"{i}.parquet", row_group_size=60
        )
    found = sht.SufficientStatistics.from_files(tmp_path, "y", weights="w", folds=2, checkpoint=tmp_path / "kept")
    names = found.feature_names
    assert sorted(names) == [f"x{j}" for j in range(P)]
    order = [int(name[1:]) for name in names]
    given = sht.SufficientStatistics.from_arrays(X[:, order], y, weights, folds=2)
    with jax.enable_x64(True):
        fits = [sht.solve(each.model(), sht.Sparsity(3)) for each in (found, given)]
    np.testing.assert_allclose(fits[0].x, fits[1].x, atol=1e-12)
    np.testing.assert_array_equal(found.rows, given.rows)
    weighted = sht.SufficientStatistics.from_files(Shards(tmp_path, "y", weights="w"), checkpoint=tmp_path / "state")
    assert weighted.total_weight == found.total_weight
    with pytest.raises(ValueError, match="checkpoint"):
        sht.SufficientStatistics.from_files(Shards(tmp_path, "y", drop=["w"]), checkpoint=tmp_path / "state")
    cases.refused(ValueError, "has no column 'z'", lambda: sht.SufficientStatistics.from_files(tmp_path, "z"))


def both(responses):
    """Rows far from zero, some without weight, the folds that statistics make of them, and these statistics."""
    X, y, weights = data(responses=responses, mean=100.0)
    weights = np.where(weights > 0, 1.0, 0.0)
    stats = sht.SufficientStatistics.from_batches([(X, y, weights)], folds=3, feature_names=list("abcdef"))
    return X, y, weights, np.where(weights > 0, passes.fold_of(0, N, 3), -1), stats


@pytest.mark.parametrize("responses", [0, 2])
def test_the_estimator_fits_them_as_it_fits_the_rows(responses):
    X, y, weights, fold, stats = both(responses)
    few = sht.SparseRegressor([1, 2, 3], cv=3).fit(stats)
    whole = sht.SparseRegressor([1, 2, 3]).fit(X, y, weights, folds=fold)
    assert few.k_ == whole.k_ and few.coef_.shape == whole.coef_.shape
    for name in ("scores", "se", "fold_weight", "times"):
        np.testing.assert_allclose(few.cv_results_[name], whole.cv_results_[name], rtol=1e-9)
    np.testing.assert_allclose(few.coef_, whole.coef_, atol=1e-9)
    np.testing.assert_allclose(few.predict(X), whole.predict(X), atol=1e-6)
    assert list(few.feature_names_in_) == list("abcdef") and few.certificate_ is not None


@pytest.mark.parametrize("r", ["cv", "bic", 1])
def test_ranks_are_those_of_the_rows(r):
    X, y, weights, fold, stats = both(3)
    few = sht.LowRankRegressor(r, cv=np.int64(3)).fit(stats)
    whole = sht.LowRankRegressor(r, cv=fold).fit(X, y, weights)
    assert few.rank_ == whole.rank_ and list(few.feature_names_in_) == list("abcdef")
    np.testing.assert_allclose(few.coef_, whole.coef_, atol=1e-9)
    np.testing.assert_allclose(few.intercept_, whole.intercept_, atol=1e-6)
    if r == "cv":
        np.testing.assert_allclose(few.cv_results_["scores"], whole.cv_results_["scores"], rtol=1e-9)
    one = sht.SufficientStatistics.from_arrays(X, y[:, 0], folds=3)
    cases.refused(ValueError, r"^X: these statistics have one target", lambda: sht.LowRankRegressor(r, cv=3).fit(one))


def test_blocks_are_resampled_as_groups_of_rows_are():
    X, y, _ = data()
    stats = sht.SufficientStatistics.from_arrays(X, y, folds=8)
    with jax.enable_x64(True):
        options = {"ks": range(1, 4), "n_resamples": 10, "solver": sht.solvers.HTP()}
        few = sht.stability_selection(stats.model(), sht.Sparsity(0), groups=stats.blocks, **options)
        rows = sht.LinearModel(X, y, fit_intercept=True)
        whole = sht.stability_selection(rows, sht.Sparsity(0), groups=passes.fold_of(0, N, 8), **options)
    np.testing.assert_array_equal(few.probabilities, whole.probabilities)
    assert np.ptp(few.probabilities) > 0
    for groups, said in (
        ([np.nan] * 3 + [1.0] * (N - 3), "a label is missing"),
        (np.array([1] * 3 + ["a"] * (N - 3), object), "labels of different kinds"),
    ):
        with jax.enable_x64(True), pytest.raises(ValueError, match=f"^groups: {said}"):
            sht.stability_selection(rows, sht.Sparsity(0), groups=groups, **options)


def test_dask_goes_on_where_a_worker_died(shards, tmp_path):
    """The scheduler gives the part of a worker that was killed to another one: the same bits."""
    distributed = pytest.importorskip("distributed", reason="needs the package distributed")
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        killed = client.submit(_die, tmp_path / "died", retries=2, pure=False)
        found = sht.SufficientStatistics.from_files(shards, executor=client.get_executor())
        assert killed.result() and (tmp_path / "died").exists()
    assert same(found, sht.SufficientStatistics.from_files(shards))


def _die(mark):
    """Kill the worker the first time."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return True


def test_what_statistics_do_not_hold_is_refused():
    X, y, weights = data()
    stats = sht.SufficientStatistics.from_arrays(X, y, weights, folds=3)
    for parameters, given, name in (
        ({"cv": 3}, {"y": y}, "y"),
        ({"cv": 3}, {"sample_weight": weights}, "sample_weight"),
        ({"cv": 3, "loss": "huber"}, {}, "loss"),
        ({"cv": 3, "scoring": "r2"}, {}, "scoring"),
        ({"cv": 5}, {}, "cv"),
    ):
        with pytest.raises(ValueError, match=f"^{name}: "):
            sht.SparseRegressor(**parameters).fit(stats, **given)
    model = sht.SparseRegressor()
    model.feature_names_in_ = ["of", "another", "fit"]
    take_names(model, stats)
    assert model.n_features_in_ == P and not hasattr(model, "feature_names_in_")


@pytest.mark.slow
def test_a_million_rows_of_parquet_take_less_than_a_gigabyte(tmp_path):
    """Of the process that reads and fits them, which has an interpreter and JAX in it."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet files need the extra [parquet]")
    import pyarrow as pa

    rng = np.random.default_rng(0)
    for i in range(10):
        X = rng.standard_normal((100_000, 100), np.float32)
        y = X[:, 3] - 2 * X[:, 8] + rng.standard_normal(len(X), np.float32)
        parquet.write_table(pa.table({**{f"x{j}": X[:, j] for j in range(100)}, "y": y}), tmp_path / f"{i}.parquet")
    code = (
        "import sys, numpy as np, sparsehtp as sht\n"
        "model = sht.SparseRegressor().fit(sht.SufficientStatistics.from_files(sys.argv[1], 'y'))\n"
        "line = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(*np.flatnonzero(model.support_), line.split()[1])"
    )
    found = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    *support, kilobytes = map(int, found.stdout.split())
    assert support == [3, 8] and kilobytes < 10**6
