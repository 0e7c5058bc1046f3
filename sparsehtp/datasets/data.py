"""The data set that loaders return."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Data(NamedTuple):
    """A data set.

    Attributes:
        X: (n, p) float array, or `scipy.sparse.csr_array`.
        y: (n,) numbers, or strings for a target of text labels.
        feature_names: (p,) names.
        target_name: name of the target.
    """

    X: Any
    y: np.ndarray
    feature_names: Sequence[str]
    target_name: str


class NumberedNames(Sequence[str]):
    """The names x0, x1, ... (or from another number) of features that have none, made when they are read."""

    def __init__(self, size: int, first: int = 0) -> None:
        self._range = range(first, first + size)

    def __len__(self) -> int:
        return len(self._range)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [f"x{number}" for number in self._range[index]]
        return f"x{self._range[index]}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(str.__eq__, self, other))


def nonfinite(path: Path, kind: str, name: Any) -> ValueError:
    """The error for missing or infinite values."""
    return ValueError(
        f"path: the {kind} {name!r} of {path.name} has missing or infinite values; remove or impute them first."
    )
