"""Sums over the rows of shards: read ahead, taken up again after a kill, and joined over processes."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from .._programs import program
from ..io.checkpoint import Checkpoint
from .shards import ShardRows, Shards

HASH_BYTES = 32


class Passes:
    """Folds over the shards of this process, each of which a checkpoint can take up again, and their sums over all.

    Args:
        shards: those that this process reads.
        dtype: of the rows in memory.
        problem: a pytree of everything that decides the results.
        checkpoint: a folder, or None; every process has a folder of its own in it where there are several.
        report: a function of (shards read, None).
    """

    def __init__(
        self, shards: Shards, dtype: Any, problem: Any, checkpoint: str | Path | None, report: Callable[..., Any]
    ) -> None:
        self.shards, self.dtype, self.report, self.done = shards, dtype, report, 0
        process, processes = jax.process_index(), jax.process_count()
        self.store = None
        if checkpoint is not None:
            alone = processes == 1
            folder = checkpoint if alone else Path(checkpoint) / f"process-{process}"
            problem = problem if alone else (problem, process, processes)
            self.store = Checkpoint(folder, problem, len(shards), 1)
        self.hashes = np.zeros((len(shards), HASH_BYTES), np.uint8)  # zeros: not known yet
        self.stamps: list[Any] = [None] * len(shards)  # of the files whose rows this process has compared

    def fold(self, start: Any, step: Callable[[Any, ShardRows, int], Any]) -> Any:
        """total = step(total, rows, number) over all shards, then the sum of the totals of all processes; one pass."""
        number = self.done
        self.done += 1
        return joined(lambda: self._fold(number, start, step), start)

    def _fold(self, number: int, start: Any, step: Callable[[Any, ShardRows, int], Any]) -> Any:
        stored = None if self.store is None else self.store.load(number, jax.tree.structure((0, start, self.hashes)))
        first, total, hashes = (0, start, self.hashes) if stored is None else stored
        for i in np.flatnonzero(hashes.any(1)).tolist():
            self._agree(i, hashes[i])
        look = None if self.store is None else self._look
        for i, rows, looked_at in self.shards.each(int(first), self.dtype, look):
            total = step(total, rows, i)
            looked_at()
            if self.store is not None:
                self.store.store(number, (i + 1, total, self.hashes.copy()))
            self.report(number * len(self.shards) + i + 1, None)
        return total

    def compare_the_rest(self) -> None:
        """Compare the shards that this process has not read: a result is that of the files as they are."""
        if self.store is not None:
            for i in [i for i, stamp in enumerate(self.stamps) if stamp is None]:
                self._look(i, self.shards.read(i, self.dtype))

    def _look(self, i: int, rows: ShardRows) -> None:
        """Hash the rows of a shard where this process has not, and compare with the hash in the checkpoint."""
        stamp = [(file.st_mtime_ns, file.st_size) for file in (path.stat() for path in self.shards.files(i))]
        if self.stamps[i] != stamp:
            digest = hashlib.sha256(f"{rows.X.dtype}{rows.X.shape}".encode())
            for array in rows:
                digest.update(np.ascontiguousarray(array).view(np.uint8).data)
            self._agree(i, np.frombuffer(digest.digest(), np.uint8))
            self.stamps[i] = stamp

    def _agree(self, i: int, digest: np.ndarray) -> None:
        if self.hashes[i].any() and not np.array_equal(self.hashes[i], digest):
            raise ValueError(
                f"checkpoint: {self.shards.paths[i]} holds other rows than when this run began; put the old file back, "
                "or start anew in an empty folder."
            )
        self.hashes[i] = digest


def joined(part: Callable[[], Any], like: Any) -> Any:
    """The sum over all processes of part(), a pytree of arrays like `like`: the same bits in all of them.

    In double precision, by one all-reduce. Where part() fails in one process all of them raise, so that none waits for
    ever.

    Raises:
        RuntimeError: if part() failed in another process.
    """
    if jax.process_count() == 1:
        return part()
    failed = None
    try:
        total = part()
    except Exception as error:  # raised below, when the others know of it
        total, failed = like, error
    leaves, structure = jax.tree.flatten(total)
    flat = np.concatenate([[failed is not None], *(np.ravel(leaf) for leaf in leaves)]).astype(float)
    flat = _all_reduce(flat)
    if failed is not None:
        raise failed
    if flat[0]:
        raise RuntimeError("shards: another process of this job failed; correct what it says, and start all again.")
    cuts = np.cumsum([1, *(np.size(leaf) for leaf in leaves)])[:-1]
    parts = np.split(flat, cuts)[1:]
    return jax.tree.unflatten(structure, [a.reshape(np.shape(leaf)) for a, leaf in zip(parts, leaves, strict=True)])


def _all_reduce(flat: np.ndarray) -> np.ndarray:
    of_each = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(np.array([of_each[process] for process in sorted(of_each)]), ("process",))
    with jax.enable_x64(True):
        mine = jax.device_put(flat[None], of_each[jax.process_index()])
        cut = NamedSharding(mesh, PartitionSpec("process"))
        rows = jax.make_array_from_single_device_arrays((mesh.size, flat.size), cut, [mine])
        return np.asarray(_total(rows, NamedSharding(mesh, PartitionSpec())))


@program(static_argnames="everywhere")
def _total(rows: Float[Array, "processes m"], everywhere: NamedSharding) -> Float[Array, "m"]:
    return lax.with_sharding_constraint(rows.sum(0), everywhere)
