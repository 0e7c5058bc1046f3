"""Data from files, and synthetic data with a known sparse truth."""

from .files import Data as Data
from .files import load_file as load_file
from .generate import make_classification as make_classification
from .generate import make_regression as make_regression
from .graphs import make_precision as make_precision
