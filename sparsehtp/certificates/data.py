"""The columns of a linear model on the host, in float64, and which of them are usable."""

from fractions import Fraction
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from .._types import host
from ..designs import SparseDesign
from ..objectives import LinearModel
from ..objectives.model import in_double

EPS = float(np.finfo(float).eps)
ROWS = 4096  # that are summed at a time: sums of sums lose fewer digits
NO_DEVIATION = 1e-24  # of a column's mean square, below which its variance is rounding


class ProofData:
    """The data of a model, and its usable features: those that are not constant (zero without an intercept).

    Attributes:
        model: the model in float64.
        n_features: of the data.
        features: numbers of the usable features.
        kept: which of them are in every support.
        size: features in a support, kept ones included.
    """

    model: LinearModel
    features: Int[np.ndarray, "p"]
    kept: Bool[np.ndarray, "p"]
    size: int

    def __init__(self, model: LinearModel, keep: Int[np.ndarray, "_"], k: int) -> None:
        with jax.enable_x64(True):
            self.model = jax.tree.map(host, in_double(model))
        columns = self.model.columns
        weights = np.asarray(columns.sample_weight) / columns.sample_weight.sum()
        self._rows = np.flatnonzero(weights > 0)
        self._weights = weights[self._rows]
        self.n_features = p = columns.p
        X = _matrix(columns.design)
        self._X = X if len(self._rows) == len(weights) else X[self._rows]
        self._scaling = np.asarray(columns.inverse_scale)
        self._mean = np.asarray(self._weights @ self._X) if columns.centred else np.zeros(p)
        self._shift = columns.shift
        self._base = float(self.model.units.base)
        l2 = np.broadcast_to(columns.l2, (p,))
        self._ridge = l2 if columns.standardize else l2 * self._scaling**2
        self._keep, self._k = keep, k

    def _use(self, energy: Float[np.ndarray, "_"], raw: Float[np.ndarray, "_"]) -> None:
        """Take the features with a (centred) mean square, of columns with raw mean squares."""
        usable = energy > NO_DEVIATION * raw
        self.features = np.flatnonzero(usable)
        self.kept = np.isin(self.features, self._keep)
        self.size = int(self.kept.sum()) + min(self._k, int((~self.kept).sum()))

    def _columns(self, features: np.ndarray | slice, rows: slice = slice(None), centred: bool = True) -> np.ndarray:
        """The (centred and) scaled columns, dense, of the rows with a weight."""
        part = self._X[rows][:, features]
        part = part.toarray() if sparse.issparse(part) else part
        return (part - self._mean[features] if centred else part) * self._scaling[features]

    def _external(self, x: Float[np.ndarray, "m"], features: np.ndarray, level: float) -> tuple[np.ndarray, float]:
        """Coefficients in original units and the intercept, from those of some of `_columns` and their intercept."""
        w = np.zeros(self.n_features)
        w[features] = x * self._scaling[features]
        # Products of the means may cancel to their last digit, so that they are added exactly.
        exact = Fraction(float(level)) + Fraction(self._base)
        for j in np.flatnonzero(w):
            exact -= Fraction(float(w[j])) * (Fraction(float(self._mean[j])) + Fraction(float(self._shift[j])))
        return w, float(exact)


def _matrix(design: Any) -> Any:
    """The design's entries as a NumPy array, or as SciPy's compressed rows."""
    if isinstance(design, SparseDesign):
        rows = design.by_row
        width = rows.data.shape[1]
        place = np.asarray(rows.start, np.int64) * width
        return sparse.csr_array((rows.data.ravel(), rows.indices.ravel(), place), shape=design.shape)
    return design.array.T if design.by_feature else design.array


def members_of(masks: Bool[np.ndarray, "s p"]) -> Int[np.ndarray, "s m"]:
    """The features of masks that all have as many."""
    return np.nonzero(masks)[1].reshape(len(masks), -1)
