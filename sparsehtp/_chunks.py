"""Batches in memory-bounded chunks of one compiled width."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

DEFAULT_MEMORY = 2**30  # bytes of working arrays that one chunk may take


def chunk_width(objective: Any, units: int, lanes: int, memory: int = DEFAULT_MEMORY) -> int:
    """Lanes per chunk so that working arrays stay below `memory` bytes, at least 1.

    A lane holds a few copies of the columns of its support (n x units) and a few vectors over samples and
    coefficients.
    """
    n = objective.ifo_per_gradient
    size = jnp.dtype(objective.dtype).itemsize
    lane = size * (4 * n * units + 8 * n + 10 * objective.n_coefficients) + 8 * 4 * units**2
    return int(np.clip(memory // max(lane, 1), 1, lanes))


def in_chunks(
    function: Callable[[Any], Any], lanes: Any, width: int, progress: Callable[[int, int], None] | None = None
) -> Any:
    """`jax.vmap(function)(lanes)`, computed `width` lanes at a time by one compiled program.

    Args:
        function: maps one lane (a pytree without the leading axis) to a pytree of arrays; jit-compatible.
        lanes: pytree of arrays with a common leading axis.
        width: lanes per chunk; the last chunk is padded by repeating its last lane.
        progress: called with (lanes done, lanes in all) after every chunk.

    Returns:
        The outputs with a leading axis; equal to those of one batch up to rounding, whatever the width.
    """
    total = jax.tree.leaves(lanes)[0].shape[0]
    width = min(width, total)
    batch = jax.jit(jax.vmap(function))
    pieces = []
    for start in range(0, total, width):
        index = np.minimum(np.arange(start, start + width), total - 1)
        used = min(width, total - start)
        out = jax.block_until_ready(batch(jax.tree.map(lambda a, index=index: a[index], lanes)))
        pieces.append(jax.tree.map(lambda a, used=used: a[:used], out))
        if progress is not None:
            progress(start + used, total)
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *pieces)
