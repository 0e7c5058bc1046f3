"""Memory-bounded chunks."""

import numpy as np

import sparsehtp as sht
from sparsehtp._chunks import chunk_width


def test_width_follows_the_memory():
    objective = sht.LinearModel(np.ones((1000, 50), np.float32), np.ones(1000, np.float32))
    narrow = chunk_width(objective, 16, 10_000, memory=2**24)
    wide = chunk_width(objective, 16, 10_000, memory=2**28)
    assert 1 <= narrow < wide <= 10_000
    assert chunk_width(objective, 16, 10_000, memory=1) == 1
    # The bound covers the k-column work that a lane cannot do without.
    assert narrow * 1000 * 16 * 4 <= 2**24
