"""The papers' data sets by name: downloaded once, verified, and kept."""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import _store
from .._progress import Callback, reporting
from .data import Data
from .download import download, locked, sha256
from .files import load_file
from .idx import load_idx

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist"


class File(NamedTuple):
    """A file of a data set; without a checksum, the one of the first sound download is kept."""

    url: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[1]


class DataSet(NamedTuple):
    """A data set that `fetch` knows; one without files must be put into the cache by hand."""

    shape: tuple[int, int]
    classes: int
    files: tuple[File, ...]
    load: Callable[[list[Path], tuple[int, int]], Data]
    source: str


def _libsvm(paths: list[Path], shape: tuple[int, int]) -> Data:
    return load_file(paths[0], n_features=shape[1], format="libsvm", zero_based=False)


def _npz(paths: list[Path], shape: tuple[int, int]) -> Data:
    return load_file(paths[0])


def _of_libsvm(path: str, shape: tuple[int, int], classes: int, source: str) -> DataSet:
    return DataSet(shape, classes, (File(f"{LIBSVM}/{path}"),), _libsvm, source)


_RCV1 = "Lewis, Yang, Rose, Li (2004), RCV1, classes CCAT and ECAT against GCAT and MCAT"
_NEWS = "Keerthi and DeCoste (2005), 20 Newsgroups in two classes"
_MNIST = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
DATA_SETS = {
    "rcv1": _of_libsvm("binary/rcv1_train.binary.bz2", (20242, 47236), 2, _RCV1),
    "rcv1-test": _of_libsvm("binary/rcv1_test.binary.bz2", (677399, 47236), 2, _RCV1),
    "news20": _of_libsvm("binary/news20.binary.bz2", (19996, 1355191), 2, _NEWS),
    "news20-multiclass": _of_libsvm("multiclass/news20.bz2", (15935, 62061), 20, "Lang (1995), 20 Newsgroups"),
    "real-sim": _of_libsvm("binary/real-sim.bz2", (72309, 20958), 2, "McCallum, real against simulated"),
    "gisette": _of_libsvm("binary/gisette_scale.bz2", (6000, 5000), 2, "Guyon et al. (2005), digits 4 and 9"),
    "gisette-test": _of_libsvm("binary/gisette_scale.t.bz2", (1000, 5000), 2, "Guyon et al. (2005)"),
    "mnist": DataSet(
        (70000, 784),
        10,
        tuple(File(f"{MNIST}/{name}", checksum) for name, checksum in _MNIST.items()),
        load_idx,
        "LeCun, Cortes, Burges; pixels 0 to 255, the 60,000 training rows first",
    ),
    "breast-cancer-pcr": DataSet(
        (133, 22283),
        2,
        (),
        _npz,
        "Hess et al. (2006), 133 patients on HG-U133A (MDA133), y: 1 for a pathological complete response",
    ),
}


def fetch(
    name: str,
    cache: str | Path | None = None,
    *,
    offline: bool = False,
    mirror: str | None = None,
    progress: Callback | bool | None = True,
) -> Data:
    """A data set of the papers, downloaded at the first call and read from the cache afterwards.

    A broken download goes on where it stopped, in the same call or a later one. Every call verifies the cached files:
    against the publisher's checksum where one is known (MNIST); else against the one recorded when the file was first
    downloaded and found sound: decompressed without a fault, of the published shape, with the published number of
    classes (trust on first use). A damaged file is downloaded once more.

    Args:
        name: "rcv1" (20,242 x 47,236), "rcv1-test" (677,399 x 47,236), "news20" (19,996 x 1,355,191, two classes),
            "news20-multiclass" (15,935 x 62,061), "real-sim" (72,309 x 20,958), "gisette" (6,000 x 5,000),
            "gisette-test" (1,000 x 5,000), "mnist" (70,000 x 784), or "breast-cancer-pcr" (133 x 22,283), which no host
            offers as one file: the error says where to put it.
        cache: folder of the downloads. None: the environment variable SPARSEHTP_CACHE, else sparsehtp in the user's
            folder of caches (on Linux XDG_CACHE_HOME or ~/.cache).
        offline: never use the network.
        mirror: URL of a folder with the same files, in place of the publishers'.
        progress: a function of (bytes done, bytes in all or 0), True for a bar on stderr, None for silence.

    Returns:
        A `Data`; X is a CSR matrix, for "mnist" and "breast-cancer-pcr" a dense array.

    Raises:
        ValueError: for an unknown name, or a file that is still damaged after a second download.
        FileNotFoundError: if the data are not in the cache, and `offline` or not to be downloaded.
        ConnectionError: if the download fails; what has arrived is kept, so that the next call goes on.
    """
    if name not in DATA_SETS:
        raise ValueError(f"name: must be one of {', '.join(DATA_SETS)}, got {name!r}.")
    data_set, folder = DATA_SETS[name], _cache(cache) / name
    if not data_set.files:
        return _by_hand(name, data_set, folder)
    files = [
        file if mirror is None else file._replace(url=f"{mirror.rstrip('/')}/{file.name}") for file in data_set.files
    ]
    with locked(folder):
        for attempt in range(2):
            for file in files:
                _present(name, file, folder, offline, progress)
            paths = [folder / file.name for file in files]
            try:
                data = _sound(name, data_set, data_set.load(paths, data_set.shape))
            except ValueError:
                known = _recorded(folder)
                if attempt or offline or all((file.sha256 or known.get(file.name)) for file in files):
                    raise
                for file in files:  # damaged on the way, and no checksum to tell which
                    if not file.sha256:
                        (folder / file.name).unlink()
            else:
                _record(folder, files)
                return data
    raise AssertionError("unreachable")


def _cache(cache: str | Path | None) -> Path:
    folder = _store.folder() if cache is None else Path(cache)
    if folder is None:
        why = "SPARSEHTP_CACHE is off" if os.environ.get("SPARSEHTP_CACHE") else "this user has no home folder"
        raise ValueError(f"cache: {why}; name one for the downloads, or set SPARSEHTP_CACHE.")
    return folder


def _present(name: str, file: File, folder: Path, offline: bool, progress: Any) -> None:
    """Make sure that the file is in the folder and agrees with its checksum, if there is one."""
    path = folder / file.name
    expected = file.sha256 or _recorded(folder).get(file.name)
    for _ in range(2):
        if not path.exists():
            if offline:
                raise FileNotFoundError(
                    f"name: {file.name} of {name} is not in {folder}; call fetch without offline, or put it there."
                )
            with reporting(progress, file.name, "bytes") as report:
                download(file.url, path, report)
        if expected is None or sha256(path) == expected:
            return
        if offline:
            break
        path.unlink()
    raise ValueError(
        f"name: {file.name} of {name} does not have the expected SHA-256 checksum {expected}, so that it is damaged or "
        f"another version; look into {folder}, or fetch it from another mirror."
    )


def _recorded(folder: Path) -> dict[str, str]:
    path = folder / "checksums.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _record(folder: Path, files: Iterable[File]) -> None:
    """Keep the checksums of files that have turned out sound."""
    known = _recorded(folder)
    new = {file.name: file.sha256 or sha256(folder / file.name) for file in files if file.name not in known}
    if new:
        temporary = folder / "checksums.json.part"
        temporary.write_text(json.dumps({**known, **new}, indent=1))
        os.replace(temporary, folder / "checksums.json")


def _sound(name: str, data_set: DataSet, data: Data) -> Data:
    classes = np.unique(data.y).size
    if data.X.shape != data_set.shape or classes != data_set.classes:
        raise ValueError(
            f"name: {name} should have shape {data_set.shape} and {data_set.classes} classes, but the files have "
            f"{data.X.shape} and {classes}; fetch them from another mirror."
        )
    return data


def _by_hand(name: str, data_set: DataSet, folder: Path) -> Data:
    path = folder / f"{name}.npz"
    if not path.exists():
        raise FileNotFoundError(
            f"name: {name} ({data_set.source}) cannot be downloaded; put arrays X {data_set.shape} and y into {path} "
            "with numpy.savez."
        )
    return _sound(name, data_set, data_set.load([path], data_set.shape))
