"""One file over HTTP: resumed after a broken connection, verified, put in place only when whole."""

import contextlib
import hashlib
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

ATTEMPTS = 5  # in a row without a new byte
BLOCK = 2**16
MAX_FILE = 2**32  # bytes
TIMEOUT = 30  # seconds without an answer

Progress = Callable[[int, int], None]


class _Stale(Exception):
    """The partial file does not belong to what the server has now."""


def download(url: str, path: Path, progress: Progress, pause: float = 0.5) -> None:
    """Download a URL to a file that does not exist yet; the bytes are not verified beyond their number.

    An interrupted download leaves PATH.part, with the server's tag of the version in PATH.part.json; a later call goes
    on from there, and starts again if the server has another version or cannot resume.

    Raises:
        ConnectionError: after several attempts without progress; the message names URL and path.
    """
    part, tag = path.with_name(path.name + ".part"), path.with_name(path.name + ".part.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    failures, restarts = 0, 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            _continue(url, part, tag, progress)
            break
        except _Stale:
            part.unlink(missing_ok=True)
            tag.unlink(missing_ok=True)
            restarts += 1
            error: Exception = ConnectionError("the server keeps sending another version")
            if restarts < ATTEMPTS:
                continue
        except (OSError, http.client.HTTPException) as caught:  # URLError is an OSError
            error = caught
            if isinstance(caught, OSError) and caught.errno == 28:
                raise OSError(f"cache: no space is left for {path}; free some, or name another folder.") from caught
            after = part.stat().st_size if part.exists() else 0
            failures = 1 if after > before else failures + 1
            lasting = isinstance(caught, urllib.error.HTTPError) and 400 <= caught.code < 500 and caught.code != 429
            if failures < ATTEMPTS and not lasting:
                time.sleep(pause * 2 ** (failures - 1))
                continue
        raise ConnectionError(
            f"name: {path.name} could not be downloaded from {url} ({_reason(error)}); check the network, or put the "
            f"file at {path} yourself."
        ) from error
    os.replace(part, path)
    tag.unlink(missing_ok=True)


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", error) or type(error).__name__).rstrip(".")


def _continue(url: str, part: Path, tag: Path, progress: Progress) -> None:
    """Fetch what is missing of the partial file."""
    have = part.stat().st_size if part.exists() else 0
    known = json.loads(tag.read_text()) if have and tag.exists() else None
    headers = {"User-Agent": "sparsehtp", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if known and known["validator"]:
            headers["If-Range"] = known["validator"]
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing after what is there
            if known and known["size"] == have:
                return
            raise _Stale from error
        raise
    with answer:
        if have and answer.status != 206:
            have = 0  # the server sends the whole, perhaps another version
        size = _size(answer, have)
        if size is not None and size > MAX_FILE:
            raise ConnectionError(f"the file is larger than {MAX_FILE} bytes")
        if known and have and known["size"] not in (None, size):
            raise _Stale
        validator = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        if validator and validator.startswith("W/"):
            validator = None
        tag.write_text(json.dumps({"validator": validator, "size": size}))
        with part.open("ab" if have else "wb") as file:
            done = have
            while block := answer.read(BLOCK):
                done += len(block)
                if done > (MAX_FILE if size is None else size):
                    raise _Stale
                file.write(block)
                progress(done, size or 0)
    if size is not None and done < size:
        raise ConnectionError(f"the connection broke after {done} of {size} bytes")


def _size(answer: Any, have: int) -> int | None:
    """Bytes of the whole file; None if the server does not say."""
    if answer.status == 206:
        unit, _, rest = answer.headers.get("Content-Range", "").partition(" ")
        span, _, total = rest.partition("/")
        if unit != "bytes" or not span.startswith(f"{have}-"):
            raise _Stale
        return int(total) if total.isdecimal() else None
    length = answer.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


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
