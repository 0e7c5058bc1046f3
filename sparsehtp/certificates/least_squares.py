"""Least squares on the host, in float64: normal equations that are safe against rounding, refits and quick swaps."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from .columns import EPS, ROWS, Columns

ZERO = 1e-13  # of F(0), below which F is zero but for rounding
NO_SINGULAR_VALUE = 1e-13  # of the largest
FAR = 10.0  # root mean square in standard deviations, from which a sparse matrix is centred block by block
SWAPS = 200
BLUR = 1e-8  # of Q's diagonal: a search needs no more, and collinear features do no harm


class LeastSquares(Columns):
    """F(x) = c0 - b'x + x'Q x / 2 for the usable features, each in the units where Q's diagonal is one.

    The intercept is minimised out. `Q` and `c0` are lowered by what rounding may have done to them, so that for all x
    with at most `size` nonzeros the computed form is at most the F that the data define, also after a Cholesky
    factorisation of any `size` of the features: |x'E x| <= size sum_j (e_j^2 / e + e) x_j^2 where the entries of Q are
    wrong by at most e_i + e_j, e <= e_j, and likewise for b, with |b_j| <= sqrt(2 c0).

    Attributes:
        Q, b, c0: see above.
        ridge: (p,) the share of l2 in Q's diagonal.
        zero: below it F is zero but for rounding.
    """

    floor = 0.0  # F is a sum of squares
    last_places, most_direct = 2, 256  # pairs; features up to which they are tried instead of bounded

    def __init__(self, model: Any, keep: Int[np.ndarray, "_"], k: int) -> None:
        super().__init__(model, keep, k)
        model, self._level = self.model, 0.0
        target = model.y if model.offset is None else model.y - model.offset
        self._target, raw_target = target[self._rows], float(self._weights @ (target[self._rows] ** 2))
        if model.fit_intercept:
            self._level = float(self._weights @ self._target)
            self._target = self._target - self._level

        Q, b, raw, lossy = self._sums()
        energy = np.diag(Q)
        self._use(energy, raw)
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
        self.zero = ZERO * c0
        self._null_value = c0
        self._factor: Any = None

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
        w, intercept = self._external(x, features, self._level)
        return float(np.sum((t - A @ x) ** 2)) / 2, w, intercept

    def values(self, members: Int[np.ndarray, "s m"]) -> tuple[Float[np.ndarray, "s"], float]:
        """F of the best fits on many supports, and what none is below (inf: wrong by less than `zero`).

        From an orthogonal factor of the data: collinear columns are no harm.
        """
        if self._factor is None:
            root = np.sqrt(self._weights)[:, None]
            A = np.vstack([root * self._columns(self.features), np.diag(np.sqrt(self._ridge[self.features]))])
            t = np.append(root[:, 0] * self._target, np.zeros(len(self.features)))
            self._factor = np.linalg.qr(np.column_stack([A / self.scale, t]), mode="r")
        if members.shape[1] == 0:
            return np.full(len(members), self._null_value), np.inf
        R, t = self._factor[:, :-1], self._factor[:, -1]
        U, size, _ = np.linalg.svd(np.moveaxis(R[:, members], 1, 0), full_matrices=False)
        inside = np.where(size > NO_SINGULAR_VALUE * size[:, :1], np.einsum("sij,i->sj", U, t), 0)
        rest = t - np.einsum("sij,sj->si", U, inside)
        return (rest**2).sum(1) / 2, np.inf

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
