"""How many lanes of a batch fit in memory."""

import jax.numpy as jnp
import numpy as np

from .objectives import AbstractObjective

DEFAULT_MEMORY = 2**30  # bytes of working arrays that one chunk may take


def chunk_width(objective: AbstractObjective, units: int, lanes: int, memory: int = DEFAULT_MEMORY) -> int:
    """Lanes per chunk so that working arrays stay below `memory` bytes, at least 1.

    A lane holds a few copies of the columns of its support (n x units) and a few vectors over samples and
    coefficients.
    """
    n = objective.n_samples
    size = jnp.dtype(objective.dtype).itemsize
    lane = size * (4 * n * units + 8 * n + 10 * objective.n_coefficients) + 8 * 4 * units**2
    return int(np.clip(memory // max(lane, 1), 1, lanes))
