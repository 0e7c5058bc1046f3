"""Results of the package's functions, and the codes and errors of their runs."""

from ._public import public

__getattr__, __dir__, __all__ = public(__name__, __file__)
