"""Least squares on the host, in float64: normal equations that are safe against rounding, refits and quick swaps."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from .._types import host, in_double
from ..designs import SparseDesign

EPS = float(np.finfo(float).eps)
ROWS = 4096  # that are summed at a time: sums of sums lose fewer digits
NO_DEVIATION = 1e-24  # of a column's mean square, below which its variance is rounding
NO_SINGULAR_VALUE = 1e-13  # of the largest
FAR = 10.0  # root mean square in standard deviations, from which a sparse matrix is centred block by block
SWAPS = 200
BLUR = 1e-8  # of Q's diagonal: a search needs no more, and collinear features do no harm


class LeastSquares:
    """F(x) = c0 - b'x + x'Q x / 2 for the usable features, each in the units where Q's diagonal is one.

    The intercept is minimised out. `Q` and `c0` are lowered by what rounding may have done to them, so that for all x
    with at most `size` nonzeros the computed form is at most the F that the data define, also after a Cholesky
    factorisation of any `size` of the features: |x'E x| <= size sum_j (e_j^2 / e + e) x_j^2 where the entries of Q are
    wrong by at most e_i + e_j, e <= e_j, and likewise for b, with |b_j| <= sqrt(2 c0).

    Attributes:
        features: numbers of the usable features, those that are not constant (zero without an intercept).
        Q, b, c0: see above.
        ridge: (p,) the share of l2 in Q's diagonal.
        kept: (p,) which features are in every support.
        size: features in a support, kept ones included.
    """

    def __init__(self, model: Any, keep: Int[np.ndarray, "_"], k: int) -> None:
        with jax.enable_x64(True):
            model = jax.tree.map(host, in_double(model))
        weights = model.sample_weight / model.sample_weight.sum()
        self._rows = np.flatnonzero(weights > 0)
        self._weights = weights[self._rows]
        self.n_features = p = model.n_coefficients
        self._X = _matrix(model.design)
        self._inverse_scale = np.ones(p) if model.inverse_scale is None else model.inverse_scale
        self._mean = self._weighted_sums() if model.fit_intercept else np.zeros(p)
        target, self._level = model.y if model.offset is None else model.y - model.offset, 0.0
        self._target, raw_target = target[self._rows], float(self._weights @ (target[self._rows] ** 2))
        if model.fit_intercept:
            self._level = float(self._weights @ self._target)
            self._target = self._target - self._level
        self._shift = np.zeros(p) if model.shift is None else model.shift
        self._base = 0.0 if model.base is None else float(model.base)
        l2 = np.broadcast_to(model.l2, (p,))
        self._ridge = l2 if model.standardize else l2 * self._inverse_scale**2
        self._keep = keep

        Q, b, raw, lossy = self._sums()
        energy = np.diag(Q)
        usable = energy > NO_DEVIATION * raw
        self.features = np.flatnonzero(usable)
        self.kept = np.isin(self.features, keep)
        self.size = int(self.kept.sum()) + min(k, int((~self.kept).sum()))
        Q, b, energy, raw, ridge = (a[self.features] for a in (Q[:, self.features], b, energy, raw, self._ridge))
        c0 = float(self._weights @ self._target**2) / 2

        rounding = (ROWS + len(self._rows) / ROWS + 64 + 16 * self.size) * EPS
        lost = rounding * raw / energy if lossy else rounding + 8 * EPS * np.sqrt(raw / energy)
        lost = np.maximum(lost, rounding) * (energy / (energy + ridge))
        lost_target = rounding + 8 * EPS * np.sqrt(raw_target / (2 * c0)) if c0 > 0 else rounding
        self.scale = np.sqrt(energy + ridge)
        self.Q = Q / self.scale / self.scale[:, None]
        np.fill_diagonal(self.Q, 1 - 4 * max(self.size, 1) * (lost**2 / rounding + rounding))
        self.b = b / self.scale
        self.ridge = ridge / self.scale**2
        self.c0 = c0 * (1 - 4 * (lost_target**2 / rounding + rounding))
        self.null_value = c0
        self._factor: Any = None

    def _weighted_sums(self) -> Float[np.ndarray, "p"]:
        return np.asarray(self._weights @ self._X[self._rows])

    def _columns(self, features: Any, rows: Any = slice(None), centred: bool = True) -> Float[np.ndarray, "n m"]:
        """The (centred and) scaled columns, dense, of the rows with a weight."""
        part = self._X[self._rows[rows]][:, features]
        part = part.toarray() if sparse.issparse(part) else part
        return (part - self._mean[features] if centred else part) * self._inverse_scale[features]

    def _nearly_centred(self) -> bool:
        """Whether no column of a sparse matrix loses more than two digits where its mean is taken off afterwards."""
        X = self._X[self._rows].multiply(self._inverse_scale).tocsr()
        mean_square, mean = self._weights @ X.power(2), self._mean * self._inverse_scale
        return bool(np.all(mean_square - mean**2 >= mean_square / FAR**2))

    def _sums(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
        """X'X, X'y and the columns' mean squares before centring; True if X'X was centred after it was summed."""
        p, weights, scale = self.n_features, self._weights, self._inverse_scale
        if sparse.issparse(self._X) and self._nearly_centred():
            X, mean = self._X[self._rows].multiply(scale).tocsr(), self._mean * scale
            rooted = X.multiply(np.sqrt(weights)[:, None]).tocsc()
            Q = np.asarray((rooted.T @ rooted).todense()) - np.outer(mean, mean)
            b = X.T @ (weights * self._target) - mean * (weights @ self._target)
            return Q, b, np.asarray(rooted.multiply(rooted).sum(0)).ravel(), True
        Q, b, raw = np.zeros((p, p)), np.zeros(p), np.zeros(p)
        for start in range(0, len(self._rows), ROWS):
            rows = slice(start, start + ROWS)
            root = np.sqrt(weights[rows])
            Z = self._columns(slice(None), rows) * root[:, None]
            Q += Z.T @ Z
            b += Z.T @ (root * self._target[rows])
            raw += weights[rows] @ self._columns(slice(None), rows, centred=False) ** 2
        return Q, b, raw, False

    def fit(self, members: Int[np.ndarray, "m"]) -> tuple[float, Float[np.ndarray, "_"], float]:
        """F, the coefficients in original units and the intercept of the best fit on some usable features."""
        features, root = self.features[members], np.sqrt(self._weights)
        A = np.vstack([root[:, None] * self._columns(features), np.diag(np.sqrt(self._ridge[features]))])
        t = np.append(root * self._target, np.zeros(len(members)))
        size = self.scale[members]
        x = np.linalg.lstsq(A / size, t, rcond=NO_SINGULAR_VALUE)[0] / size if len(members) else np.zeros(0)
        w = np.zeros(self.n_features)
        w[features] = x * self._inverse_scale[features]
        intercept = self._level - self._mean @ w - self._shift @ w + self._base
        return float(np.sum((t - A @ x) ** 2)) / 2, w, float(intercept)

    def values(self, members: Int[np.ndarray, "s m"]) -> Float[np.ndarray, "s"]:
        """F of the best fits on many supports, from an orthogonal factor of the data: collinear columns are no harm."""
        if self._factor is None:
            root = np.sqrt(self._weights)[:, None]
            A = np.vstack([root * self._columns(self.features), np.diag(np.sqrt(self._ridge[self.features]))])
            t = np.append(root[:, 0] * self._target, np.zeros(len(self.features)))
            self._factor = np.linalg.qr(np.column_stack([A / self.scale, t]), mode="r")
        if members.shape[1] == 0:
            return np.full(len(members), self.null_value)
        R, t = self._factor[:, :-1], self._factor[:, -1]
        U, size, _ = np.linalg.svd(np.moveaxis(R[:, members], 1, 0), full_matrices=False)
        inside = np.where(size > NO_SINGULAR_VALUE * size[:, :1], np.einsum("sij,i->sj", U, t), 0)
        rest = t - np.einsum("sij,sj->si", U, inside)
        return (rest**2).sum(1) / 2

    def search(self, members: Int[np.ndarray, "m"]) -> Int[np.ndarray, "size"]:
        """A good support: features are added one by one, then exchanged for others while that lowers F."""
        Q, b, S = self.Q + BLUR * np.eye(len(self.b)), self.b, [int(j) for j in members]
        S += [int(j) for j in np.flatnonzero(self.kept) if j not in S]
        for step in range(SWAPS + self.size):
            B = np.linalg.inv(Q[np.ix_(S, S)])
            T = B @ Q[S]
            w = B @ b[S]
            g, q = b - w @ Q[S], np.maximum(np.diag(Q) - (T * Q[S]).sum(0), BLUR)
            if len(S) < self.size:
                gain = g * g / q
                gain[S] = -1
                S.append(int(np.argmax(gain)))
                continue
            leaves = [i for i, j in enumerate(S) if not self.kept[j]]
            if step == SWAPS + self.size - 1 or not leaves:
                break
            h = np.diag(B)[leaves, None]
            moved = (g + T[leaves] * (w[leaves, None] / h)) ** 2 / (q + T[leaves] ** 2 / h) - w[leaves, None] ** 2 / h
            moved[:, S] = -np.inf
            best = int(np.argmax(moved))
            if moved.flat[best] <= 1e-9 * self.c0:
                break
            S[leaves[best // len(b)]] = best % len(b)
        return np.sort(np.array(S, int))


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
