"""The command line on a LIBSVM file that stays sparse."""

import gzip

import numpy as np
import pytest
from commands import made, named
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from sparsehtp.cli.common import features
from sparsehtp.cli.fit import Fit
from sparsehtp.cli.options import FitOptions, PathOptions
from sparsehtp.cli.path import Subsets
from sparsehtp.datasets import load_file
from sparsehtp.designs.sparse import SparseDesign

RNG = np.random.default_rng(0)
X = sparse.random_array((60, 40), density=0.08, rng=RNG, format="lil")
X[:, 3] = (RNG.random(60) < 0.3)[:, None]
X = X.tocsr()
Y = 5 * X[:, [3]].toarray().ravel() + 0.1 * RNG.standard_normal(60)


def save(folder):
    with gzip.open(folder / "data.svm.gz", "wb") as file:
        dump_svmlight_file(X, Y, file, zero_based=False)
    return folder / "data.svm.gz"


@pytest.mark.slow
def test_fit_and_path(tmp_path):
    path = save(tmp_path)
    data = load_file(path, n_features=None)
    assert sparse.issparse(features(data, "float64"))
    common = (path, "--solver", "iht")
    _, model = made(tmp_path / "fit", "fit", *common, "--k", 1, "--test-size", 0.3)
    assert [*named(model)] == ["x4"]
    made(tmp_path / "path", "path", *common, "--k-max", 2)
    assert "x4" in (tmp_path / "path" / "path.csv").read_text()


def test_a_file_with_many_entries_is_fitted_dense_and_with_few_sparse(tmp_path):
    path = save(tmp_path)
    fit, subsets = Fit(FitOptions(file=path, k="1", test_size=0.25)), Subsets(PathOptions(file=path))
    fit.load()
    subsets.load()
    train, test = fit.split.train[0], fit.split.test[0]
    assert sparse.issparse(train) and test.shape == (15, 40)
    np.testing.assert_allclose(fit.deviations(np.array([3, 5])), train.toarray()[:, [3, 5]].std(axis=0))
    assert isinstance(subsets.objective.columns.design, SparseDesign)
    (tmp_path / "a.svm").write_text("1 1:1 2:2\n-1 1:3\n")
    assert isinstance(features(load_file(tmp_path / "a.svm"), "float32"), np.ndarray)
