"""One file over HTTP: resumed after a broken connection, verified, put in place only when whole."""

import contextlib
import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

ATTEMPTS = 5  # in a row without a new byte
BLOCK = 2**16
MAX_FILE = 2**32  # bytes
TIMEOUT = 30  # seconds without an answer

Progress = Callable[[int, int], None]


def download(url: str, path: Path, progress: Progress, pause: float = 0.5) -> None:
    """Download a URL to a file that does not exist yet; the bytes are not verified beyond their number.

    An interrupted download leaves PATH.part; a later call goes on from there, or starts again if the server cannot
    resume. The end may be that of another version: whoever verifies the file finds it damaged then.

    Raises:
        ConnectionError: after several attempts without progress; the message names URL and path.
    """
    part = path.with_name(path.name + ".part")
    failures = 0
    while True:
        before = _size(part)
        try:
            _continue(url, part, progress)
            break
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
            if isinstance(error, OSError) and error.errno == 28:
                raise OSError(f"cache: no space is left for {path}; free some, or name another folder.") from error
            failures = 1 if _size(part) > before else failures + 1
            lasting = isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500 and error.code != 429
            if failures == ATTEMPTS or lasting:
                reason = (str(getattr(error, "reason", error)) or type(error).__name__).rstrip(".")
                raise ConnectionError(
                    f"name: {path.name} could not be downloaded from {url} ({reason}); check the network, or put the "
                    f"file at {path} yourself."
                ) from error
            time.sleep(pause * 2 ** (failures - 1))
    os.replace(part, path)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _continue(url: str, part: Path, progress: Progress) -> None:
    """Fetch what is missing of the partial file."""
    done = _size(part)
    headers = {"User-Agent": "sparsehtp", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not done:
            raise
        part.unlink()  # as long as the whole, or longer
        _continue(url, part, progress)
        return
    with answer:
        span, _, length = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        if answer.status != 206:  # the server sends the whole
            done, length = 0, answer.headers.get("Content-Length", "")
        elif done and not span.startswith(f"{done}-"):
            part.unlink()  # another part than asked for
            _continue(url, part, progress)
            return
        size = int(length) if length.isdecimal() else 0
        with part.open("ab" if done else "wb") as file:
            while block := answer.read(BLOCK):
                done += len(block)
                if max(done, size) > MAX_FILE:
                    raise ConnectionError(f"the file is larger than {MAX_FILE} bytes")
                file.write(block)
                progress(done, size)
    if done < size:
        raise ConnectionError(f"the connection broke after {done} of {size} bytes")


def sha256(path: Path) -> str:
    """The SHA-256 checksum of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder, where the system has file locks."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
