"""WHERE the data are."""

from .base import AbstractDesign as AbstractDesign
from .dense import DenseDesign as DenseDesign
