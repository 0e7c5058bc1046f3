"""Data from files and from the papers' sources, and synthetic data with a known sparse truth."""

from .data import Data as Data
from .files import load_file as load_file
from .generate import make_classification as make_classification
from .generate import make_regression as make_regression
from .graphs import make_precision as make_precision
from .published import fetch as fetch
from .shards import Shards as Shards
from .text import make_news20_like as make_news20_like
from .text import make_rcv1_like as make_rcv1_like
from .text import make_text as make_text
