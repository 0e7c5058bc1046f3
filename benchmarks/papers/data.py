"""The papers' real data sets, or the stand-ins of the same kind that are used where the originals cannot be had."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler, normalize

from sparsehtp.datasets.arrays import ADVICE
from sparsehtp.io.memory import default_limit
from sparsehtp.io.npz import read_npz

LIBSVM_PAGE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"


class DataSet(NamedTuple):
    """Training and test rows; labels are -1 and +1 in two-class problems."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray


class Found(NamedTuple):
    """A data set, or None if it is not there, a sentence on what it is, and whether it is not the paper's."""

    data: DataSet | None
    note: str
    stand_in: bool


class Source(NamedTuple):
    """How a data set of a paper is had here.

    Attributes:
        file: file in the folder of real data sets.
        stand_in: what the file holds, if it is not the original.
        original: where the original is.
        prepare: the file's arrays -> a DataSet.
    """

    file: str
    stand_in: str
    original: str
    prepare: Callable[[Any], DataSet]


def load(name: str, folder: Path | None) -> Found:
    """A data set of a paper from a folder, with a note on what it stands for or why it is missing."""
    source = SOURCES[name]
    instead = f"stand-in: {source.stand_in}" if source.stand_in else "the original"
    path = None if folder is None else Path(folder) / source.file
    if path is None or not path.is_file():
        where = "no folder was named" if path is None else f"{path.parent} has no {path.name}"
        return Found(
            None,
            f"{name}: not there ({where}; --data DIR or SPARSEHTP_DATA names the folder); it takes {source.file} "
            f"({instead}); the original is at {source.original}.",
            bool(source.stand_in),
        )
    data = source.prepare(read_npz(path, default_limit(), ADVICE))
    rows = f"{data.X.shape[0]} + {data.X_test.shape[0]} rows of {data.X.shape[1]} features"
    return Found(data, f"{name}: {rows}; {instead}.", bool(source.stand_in))


def _split(X: Any, y: np.ndarray, test_size: float, train_size: float | None = None) -> DataSet:
    parts = train_test_split(X, y, test_size=test_size, train_size=train_size, random_state=0, stratify=y)
    X, X_test, y, y_test = parts
    return DataSet(X, y, X_test, y_test)


def _digits(arrays: Any) -> DataSet:
    chosen = np.isin(arrays["y"], (4, 9))
    X = arrays["X"][chosen].astype(np.float32) / 255
    y = np.where(arrays["y"][chosen] == 4, 1.0, -1.0).astype(np.float32)
    return _split(X, y, 1000, 6000)  # the sizes of gisette


def _genes(arrays: Any) -> DataSet:
    y = np.where(arrays["y"] == 1, 1.0, -1.0).astype(np.float32)
    X = arrays["X"].astype(np.float32)
    data = _split(np.log2(np.maximum(X, 1)) if X.min() >= 0 else X, y, 0.5)
    scaler = StandardScaler().fit(data.X)
    return data._replace(X=scaler.transform(data.X), X_test=scaler.transform(data.X_test))


def _matrix(arrays: Any) -> sparse.csr_array:
    shape = tuple(int(size) for size in arrays["shape"])
    return sparse.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape).astype(np.float32)


def _text(arrays: Any) -> DataSet:
    X = normalize(_matrix(arrays))  # counts become frequencies; tf-idf rows have unit norm already
    return _split(X, arrays["y"].astype(np.float32), 0.3)


def _dense(arrays: Any) -> DataSet:
    """Rows of a stored sparse matrix, with the columns that occur, dense; all rows are for training."""
    X = _matrix(arrays)
    X = X[:, np.flatnonzero(np.bincount(arrays["indices"], minlength=X.shape[1]))].toarray()
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], arrays["y"][order].astype(np.float32)
    return DataSet(X, y, X[:0], y[:0])


def _images(arrays: Any) -> DataSet:
    """Pixels in [0, 1], in a random order; classes 0, 1, ..."""
    order = np.random.default_rng(0).permutation(len(arrays["y"]))
    X = arrays["X"][order].astype(np.float32) / 255
    y = np.unique(arrays["y"][order], return_inverse=True)[1].astype(np.float32)
    return DataSet(X, y, X[:0], y[:0])


def _mnist(arrays: Any) -> DataSet:
    X, y = arrays["X"].astype(np.float32) / 255, arrays["y"].astype(np.float32)
    return DataSet(X[:60000], y[:60000], X[60000:], y[60000:])


def _patients(arrays: Any) -> DataSet:
    X, y = arrays["X"].astype(np.float64), np.where(arrays["y"] == 1, 1.0, -1.0)
    return DataSet(X, y, X[:0], y[:0])  # the experiment splits them many times


def _topics(arrays: Any) -> DataSet:
    X, y = _matrix(arrays), arrays["y"].astype(np.float32)  # counts: an experiment draws words, and normalises then
    return DataSet(X, y, X[:0], y[:0])


SOURCES = {
    "breast-cancer-pcr": Source(
        "hess2006_26genes.npz",
        "the same 133 patients, but 26 predictor genes of 22,283",
        "Hess et al. (2006), gene expression of 133 patients",
        _patients,
    ),
    "gisette": Source("mnist.npz", "MNIST digits 4 and 9, from which gisette was made", LIBSVM_PAGE, _digits),
    "breast-cancer": Source(
        "gene_chowdary.npz",
        "breast against colon tissue on the same chip (Chowdary 2006)",
        "Hess et al. (2006), gene expression of 133 patients",
        _genes,
    ),
    "rcv1": Source(
        "rcv1_vw1500.npz",
        "1,500 documents of RCV1, class CCAT against the rest, numbered otherwise than on the LIBSVM page",
        LIBSVM_PAGE,
        _text,
    ),
    "news20": Source(
        "news20binary_like.npz",
        "6,000 posts of 20 Newsgroups as counts of words and pairs, made by the rule of news20.binary",
        LIBSVM_PAGE,
        _text,
    ),
    "a9a": Source("a9a.npz", "income (Adult), for real-sim, which cannot be had here", LIBSVM_PAGE, _dense),
    "mnist": Source("mnist.npz", "", LIBSVM_PAGE, _mnist),
    "rank-coil20": Source(
        "coil20.npz",
        "images of 20 objects, for coil100",
        "https://www.cs.columbia.edu/CAVE/software/softlib/coil-100.php",
        _images,
    ),
    "rank-orl": Source(
        "orl.npz",
        "images of 40 faces, for caltech256",
        "https://data.caltech.edu/records/nyy15-4j048",
        _images,
    ),
    "news20-topics": Source(
        "news20_counts.npz", "word counts of the News20 posts", "http://qwone.com/~jason/20Newsgroups", _topics
    ),
}
