"""Sparsity- and rank-constrained learning by hard thresholding, on JAX."""

from ._public import public

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = public(__name__, __file__)
