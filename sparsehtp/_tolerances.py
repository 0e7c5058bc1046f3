"""The one table of tolerances; docstrings give its numbers, and a test compares them."""

import jax.numpy as jnp
from jax.typing import DTypeLike

_TABLE = {  # float32, float64
    "step": (1e-6, 1e-10),  # SmallStep: step norm over the iterate's norm
    "gradient": (1e-5, 1e-8),  # SmallGradient: gradient norm on the support over the full gradient norm at the start
    "newton": (1e-7, 1e-14),  # Newton decrement over the value at which a restricted problem counts as solved
    "level": (3e-5, 1e-10),  # gradient of a restricted problem over the terms that it sums, above which it is not level
    "admm": (1e-5, 1e-9),  # ADMM: primal and dual residual over the norms of the matrix and of S
    "decrement": (1e-5, 1e-8),  # squared Newton decrement of a log determinant, whose next step squares it, to stop at
    # Smallest squared scaled Cholesky pivot, below which a restricted system counts as singular.
    "pivot": (3e-5, 1e-10),
    "constant": (3e-7, 1e-12),  # standard deviation over root mean square, below which a column counts as constant
    # Distance to an earlier iterate over the step norm, below which the iterates count as cycling.
    "cycle": (1e-4, 1e-7),
    "subspace": (1e-4, 1e-7),  # distance between column spaces, below which a pursuit of low rank counts them as equal
    "rank": (1e-5, 1e-10),  # singular value over the largest, below which a derivative counts it as zero
    "swap": (1e-5, 1e-10),  # SwapOptimal: gain of a swap over the absolute value, below which it does not count
    "gap": (1e-5, 1e-8),  # DualGap: gap over the absolute value
    "stationary": (1e-6, 1e-12),  # certificate: what a refit on the support may gain, over |F(x)| + |F(0)|
}


def tolerance(name: str, dtype: DTypeLike) -> float:
    """The tolerance `name` for arrays of a floating dtype."""
    single, double = _TABLE[name]
    return double if jnp.finfo(dtype).bits == 64 else single
