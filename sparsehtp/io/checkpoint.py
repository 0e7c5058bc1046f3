"""Finished chunks on disk, so that a killed run goes on where it stopped."""

import hashlib
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from . import describe_device, versions, write_whole
from .functions import described, functions_in
from .npz import read_npz

MANIFEST = "manifest.json"


class Checkpoint:
    """A folder with one NPZ file per finished chunk and a manifest that says what they belong to.

    A killed run leaves whole files only. A chunk that was damaged since is computed again, with a warning; a damaged
    manifest is an error, since the chunks could be those of another problem.

    Args:
        folder: created if missing.
        problem: a pytree of everything that decides the results.
        lanes: number of problems in all.
        width: problems per chunk of a fresh run; a resumed run keeps the stored width, so that its results have the
            same bits.

    Raises:
        ValueError: if the folder holds chunks of another problem, of other versions or of another device, or a damaged
            manifest.

    Warns:
        UserWarning: where a chunk is damaged.
    """

    width: int

    def __init__(self, folder: str | Path, problem: Any, lanes: int, width: int) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"checkpoint: {folder} is a file; name a folder.")
        self.folder.mkdir(parents=True, exist_ok=True)
        facts = {"problem": fingerprint(problem), "lanes": lanes, "versions": versions(), "device": describe_device()}
        manifest = self.folder / MANIFEST
        if manifest.exists():
            damaged = f"{manifest} is damaged or of another version, so that nothing beside it can be used"
            try:
                stored = dict(json.loads(manifest.read_text(encoding="utf-8")))
            except (ValueError, TypeError, RecursionError):
                stored = {}
            if stored.keys() != {*facts, "width", "checksum"}:
                raise ValueError(f"checkpoint: {damaged}; empty the folder to start anew.")
            for name, fact in facts.items():
                if stored[name] != fact:
                    what = "another problem" if name in ("problem", "lanes") else f"other {name} ({stored[name]})"
                    raise ValueError(f"checkpoint: {folder} holds results of {what}; name another folder or empty it.")
            if stored["checksum"] != _checksum(facts, stored["width"]):
                raise ValueError(f"checkpoint: {damaged}; empty the folder to start anew.")
            self.width = stored["width"]
        else:
            if any(self.folder.glob("chunk-*.npz")):
                raise ValueError(f"checkpoint: {folder} holds chunks without a manifest; name another folder.")
            self.width = width
            text = json.dumps({**facts, "width": width, "checksum": _checksum(facts, width)}, indent=2)
            write_whole(manifest, lambda file: file.write(text.encode()))

    def load(self, number: int, structure: Any) -> Any:
        """The stored chunk as a pytree of `structure`, or None if it is not finished or is damaged."""
        path = self._path(number)
        if not path.exists():
            return None
        try:
            arrays = read_npz(path, sys.maxsize, "or no chunk.")
            return jax.tree.unflatten(structure, [arrays[f"a{i}"] for i in range(len(arrays))])
        except (ValueError, KeyError):
            warnings.warn(f"checkpoint: {path} is damaged, and is computed again.", stacklevel=2)
            return None

    def store(self, number: int, chunk: Any) -> None:
        """Write a finished chunk."""
        arrays = {f"a{i}": leaf for i, leaf in enumerate(jax.tree.leaves(chunk))}
        write_whole(self._path(number), lambda file: np.savez(file, **arrays))

    def _path(self, number: int) -> Path:
        return self.folder / f"chunk-{number:06d}.npz"


def _checksum(facts: dict[str, Any], width: int) -> str:
    """Over what is read back without a comparison: another width would put the lanes into other chunks."""
    return hashlib.sha256(f"{facts['problem']} {width}".encode()).hexdigest()


def fingerprint(problem: Any) -> str:
    """SHA-256 of the arrays, the static settings and the functions of a pytree, the same in every process."""
    leaves, structure = jax.tree.flatten(problem)
    # A function that is a setting prints its address, which differs between processes.
    digest = hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", str(structure)).encode())
    for function in functions_in(problem):
        digest.update(described(function).encode())
    for leaf in leaves:
        if isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        array = np.asarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
