"""Downloads from a server that cuts connections, corrupts bytes, ignores ranges and changes its files."""

import bz2
import gzip
import hashlib
import http.server
import json
import re
import threading

import cases
import numpy as np
import pytest

from sparsehtp.datasets import download, fetch
from sparsehtp.datasets.idx import load_idx
from sparsehtp.datasets.published import DATA_SETS, DataSet, File, _libsvm

ROWS, WIDTH = 400, 300
RNG = np.random.default_rng(0)
TEXT = "".join(
    f"{1 if i % 2 else -1} {1 + i % (WIDTH - 1)}:{RNG.random()} {WIDTH}:{RNG.random()}\n" for i in range(ROWS)
)
WHOLE = bz2.compress(TEXT.encode())
PINNED = hashlib.sha256(WHOLE).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves `body`; `faults` are taken one per request until they are used up."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.faults, self.requests, self.pauses = WHOLE, [], [], []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        server = self.server
        wanted = self.headers.get("Range")
        server.requests.append((self.path, wanted))
        fault = server.faults.pop(0) if server.faults else None
        body, first = server.body, 0
        if isinstance(fault, int):
            return self.send_error(fault)
        if fault == "corrupt":
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 255]) + body[middle + 1 :]
        if wanted and fault != "no ranges":
            first = int(wanted.removeprefix("bytes=").rstrip("-"))
            if first >= len(body):
                return self.send_error(416)
            first = first if fault != "another part" else 0
            last = len(body) if fault != "less" else first + 100
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last - 1}/{len(body)}")
            body = body[:last]
        else:
            self.send_response(200)
        rest = body[first:]
        if fault != "no length":
            self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        return self.wfile.write(rest[: len(rest) // 2] if fault == "cut" else rest)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", min(5, download.TIMEOUT))
    with Server() as server:
        monkeypatch.setattr(download.time, "sleep", server.pauses.append)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        entry = DataSet((ROWS, WIDTH), 2, (File(f"{server.url}/tiny.bz2"),), _libsvm, "made up")
        monkeypatch.setitem(DATA_SETS, "tiny", entry)
        monkeypatch.setitem(DATA_SETS, "pinned", entry._replace(files=(entry.files[0]._replace(sha256=PINNED),)))
        yield server
        server.shutdown()
        thread.join()


def get(name, cache, **rest):
    data = fetch(name, cache, progress=None, **rest)
    assert data.X.shape == (ROWS, WIDTH) and set(data.y) == {-1, 1}
    np.testing.assert_allclose(data.X[[0]].toarray()[0, -1], float(TEXT.split("\n")[0].split(":")[-1]))
    return data


@pytest.mark.parametrize("name", ["tiny", "pinned"])
def test_download_once_then_read_the_cache(server, tmp_path, name):
    get(name, tmp_path)
    assert len(server.requests) == 1
    server.shutdown()
    get(name, tmp_path)
    get(name, tmp_path, offline=True)
    assert len(server.requests) == 1
    assert sorted(file.name for file in (tmp_path / name).iterdir()) == [".lock", "checksums.json", "tiny.bz2"]


def test_broken_connections_are_resumed(server, tmp_path):
    server.faults = ["cut"] * 7  # each brings something, so none counts twice
    get("tiny", tmp_path)
    starts = [int(span.removeprefix("bytes=").rstrip("-")) for _, span in server.requests if span]
    assert len(starts) == 7 and starts == sorted(set(starts))
    assert starts[0] == len(WHOLE) // 2, "nothing is fetched twice"


@pytest.mark.parametrize("fault", ["less", "another part"])
def test_a_server_may_send_less_than_was_asked_for_and_no_other_part(server, tmp_path, fault):
    server.faults = ["cut", fault]
    download.download(f"{server.url}/tiny.bz2", tmp_path / "tiny.bz2", lambda done, size: None)
    assert (tmp_path / "tiny.bz2").read_bytes() == WHOLE and len(server.requests) == 3
    assert (server.requests[-1][1] is None) == (fault == "another part")


def test_attempts_are_counted_from_the_last_that_brought_something(server, tmp_path):
    """And so are the pauses before the next, each twice as long as the one before it."""
    server.faults = [500, 503, 429, 429, "cut", 429, 500, 503]
    get("tiny", tmp_path)
    assert len(server.requests) == 2 * download.ATTEMPTS - 1 and server.pauses == 2 * [0.5, 1, 2, 4]


@pytest.mark.parametrize("changed", [False, True])
def test_a_later_call_goes_on_unless_the_file_has_changed_meanwhile(server, tmp_path, changed):
    server.faults = ["cut"] + [503] * download.ATTEMPTS
    with pytest.raises(ConnectionError, match=r"tiny\.bz2 could not be downloaded from http.*put the file at"):
        get("tiny", tmp_path)
    part = tmp_path / "tiny" / "tiny.bz2.part"
    assert part.read_bytes() == WHOLE[: len(WHOLE) // 2] and not (tmp_path / "tiny" / "tiny.bz2").exists()
    if changed:
        server.body = bz2.compress(f"# another version\n{TEXT}".encode())
    get("tiny", tmp_path)
    wanted = [each for _, each in server.requests[1 + download.ATTEMPTS :]]
    assert wanted == [f"bytes={len(WHOLE) // 2}-", *[None] * changed]
    assert not part.exists() and (tmp_path / "tiny" / "tiny.bz2").read_bytes() == server.body


def test_a_partial_file_longer_than_the_whole_starts_again(server, tmp_path):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "tiny.bz2.part").write_bytes(WHOLE + b"tail")
    get("tiny", tmp_path)


@pytest.mark.parametrize("faults", [["corrupt"], ["cut", "no ranges"]])
@pytest.mark.parametrize("name", ["tiny", "pinned"])
def test_corrupt_bytes_and_a_server_without_ranges_take_a_second_request(server, tmp_path, name, faults):
    server.faults = faults.copy()
    get(name, tmp_path)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("name", "message"), [("tiny", "damaged or cut off"), ("pinned", "does not have the expected SHA-256")]
)
def test_bytes_that_stay_corrupt_are_an_error(server, tmp_path, name, message):
    server.faults = ["corrupt"] * 4
    cases.refused(ValueError, message, lambda: get(name, tmp_path))
    assert not (tmp_path / name / "checksums.json").exists() and len(server.requests) == 2


@pytest.mark.parametrize("name", ["tiny", "pinned"])
def test_a_damaged_cache_is_repaired(server, tmp_path, name):
    get(name, tmp_path)
    path = tmp_path / name / "tiny.bz2"
    path.write_bytes(WHOLE[:-1] + b"x")
    cases.refused(ValueError, "SHA-256", lambda: get(name, tmp_path, offline=True))
    assert path.exists(), "nothing is thrown away that cannot be fetched again"
    get(name, tmp_path)
    assert path.read_bytes() == WHOLE


def test_trust_on_first_use(server, tmp_path):
    get("tiny", tmp_path)
    assert json.loads((tmp_path / "tiny" / "checksums.json").read_text()) == {"tiny.bz2": PINNED}
    (tmp_path / "tiny" / "tiny.bz2").unlink()
    server.body = bz2.compress(TEXT.replace("1 ", "-1 ", 1).encode())
    cases.refused(ValueError, "expected SHA-256", lambda: get("tiny", tmp_path))


def test_another_shape_is_refused(server, tmp_path):
    for text in (f"{TEXT}1 1:1\n", f"7{TEXT[TEXT.index(' ') :]}"):  # a row more, and a class more
        server.body = bz2.compress(text.encode())
        cases.refused(ValueError, r"should have shape \(400, 300\) and 2 classes", lambda: get("tiny", tmp_path))
    assert not (tmp_path / "tiny" / "checksums.json").exists()


def test_without_a_network(server, tmp_path):
    cases.refused(FileNotFoundError, "call fetch without offline", lambda: get("tiny", tmp_path, offline=True))
    for fault in (400, 404, 416, 499):
        server.faults = [fault]
        cases.refused(ConnectionError, r"\(.+\); check the network, or put", lambda: get("tiny", tmp_path))
    assert len(server.requests) == 4, "a missing file is not asked for again"
    cases.refused(ConnectionError, r"127\.0\.0\.1:1/tiny", lambda: get("tiny", tmp_path, mirror="http://127.0.0.1:1"))


def test_mirror_cache_variable_and_progress(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPARSEHTP_CACHE", str(tmp_path / "there"))
    nowhere = File("https://nowhere.invalid/tiny.bz2")
    monkeypatch.setitem(DATA_SETS, "tiny", DATA_SETS["tiny"]._replace(files=(nowhere,)))
    seen = []
    fetch("tiny", mirror=server.url + "/", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(WHOLE), len(WHOLE)) and server.requests[0][0] == "/tiny.bz2"
    assert (tmp_path / "there" / "tiny" / "tiny.bz2").exists()
    fetch("tiny", tmp_path / "here", mirror=server.url + "/")
    assert capsys.readouterr().err, "it is shown if nothing is said"


def test_what_a_disk_and_a_server_may_hold(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "MAX_FILE", len(WHOLE))
    get("tiny", tmp_path)
    monkeypatch.setattr(download, "MAX_FILE", len(WHOLE) - 1)
    cases.refused(ConnectionError, r"\(the file is larger than \d+ bytes\)", lambda: get("pinned", tmp_path))
    assert not (tmp_path / "pinned" / "tiny.bz2.part").read_bytes()
    server.faults.extend(["no length"] * 9)
    cases.refused(ConnectionError, r"\(the file is larger than \d+ bytes\)", lambda: get("pinned", tmp_path))
    no_space = OSError(28, "No space left on device")
    monkeypatch.setattr(download, "_continue", lambda *_: (_ for _ in ()).throw(no_space))
    cases.refused(OSError, "^cache: no space is left for .*tiny", lambda: get("pinned", tmp_path))
    monkeypatch.setattr(download, "_continue", lambda *_: (_ for _ in ()).throw(TimeoutError))
    cases.refused(ConnectionError, r"\(TimeoutError\); check the network", lambda: get("pinned", tmp_path))


def test_one_of_several_processes_downloads(server, tmp_path):
    threads = [threading.Thread(target=get, args=("tiny", tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.requests) == 1 and (tmp_path / "tiny" / "tiny.bz2").read_bytes() == WHOLE


def test_names(tmp_path, monkeypatch):
    cases.refused(ValueError, r"name: must be one of rcv1, .*got 'rcv2'", lambda: fetch("rcv2", tmp_path))
    monkeypatch.setenv("SPARSEHTP_CACHE", "off")
    cases.refused(ValueError, "^cache: SPARSEHTP_CACHE is off; name one", lambda: fetch("rcv1"))
    sentence = r"cannot be downloaded; put arrays X \(133, 22283\)"
    cases.refused(FileNotFoundError, sentence, lambda: fetch("breast-cancer-pcr", tmp_path))
    folder = tmp_path / "breast-cancer-pcr"
    folder.mkdir()
    np.savez(folder / "breast-cancer-pcr.npz", X=np.zeros((133, 22283), np.float32), y=np.arange(133) % 2)
    assert fetch("breast-cancer-pcr", tmp_path).X.shape == (133, 22283)


def test_what_is_told_of_the_data_sets_is_what_is_checked():
    urls = [file.url for data_set in DATA_SETS.values() for file in data_set.files]
    assert len(set(urls)) == len(urls) and all(url.startswith("https://") for url in urls)
    told = re.findall(r'"([\w-]+)" \(([\d,]+) x ([\d,]+)', fetch.__doc__)
    shapes = {name: tuple(int(size.replace(",", "")) for size in shape) for name, *shape in told}
    assert {name: data_set.shape for name, data_set in DATA_SETS.items()} == shapes
    several = {name: data_set.classes for name, data_set in DATA_SETS.items() if data_set.classes != 2}
    assert several == {"news20-multiclass": 20, "mnist": 10}


def idx(path, dimensions, sizes, data):
    with gzip.open(path, "wb") as file:
        file.write(bytes((0, 0, 8, dimensions)) + np.array(sizes, ">i4").tobytes() + data)
    return path


def test_idx(tmp_path):
    images = np.arange(24, dtype=np.uint8)
    files = [idx(tmp_path / "i.gz", 3, (6, 2, 2), images.tobytes()), idx(tmp_path / "l.gz", 1, (6,), bytes(range(6)))]
    data = load_idx(files, (6, 4))
    np.testing.assert_array_equal(data.X, images.reshape(6, 4))
    np.testing.assert_array_equal(data.y, range(6))
    idx(files[0], 3, (2**30, 2**10, 2**10), b"")
    cases.refused(ValueError, "not the IDX file", lambda: load_idx(files, (6, 4)))
    idx(files[0], 3, (6, 2, 2), images.tobytes()[:-1])
    cases.refused(ValueError, "23 bytes of data where 24", lambda: load_idx(files, (6, 4)))
