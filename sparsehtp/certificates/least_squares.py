"""Least squares on the host, in float64: normal equations that are safe against rounding, refits and quick swaps."""

import functools
import time
from fractions import Fraction
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import linalg, sparse

from ..objectives import LinearModel
from .data import EPS, ROWS, ProofData
from .exact import Moments

ZERO = 1e-13  # of F(0), below which F is zero but for rounding
COPY = 16 * EPS  # singular value over the largest, and over a column's mean square before centring, of a copy
SURE = 1e-10  # of a value, that its rounding may be at most
EXACT_WORK = 2e6  # (samples) (features)^2 up to which a support is fitted in exact arithmetic
FAR = 10.0  # root mean square in standard deviations, from which a sparse matrix is centred block by block
SWAPS = 200
BLUR = 1e-8  # of Q's diagonal: a search needs no more, and collinear features do no harm
MOST_FACTORED = 1000  # features up to which an orthogonal factor is cheap
MATRICES = 20  # p x p, that are there at one time
AT_ONCE = 1 << 22  # entries of supports that are fitted together
PANEL = 1e9  # operations between two looks at the clock


class LeastSquares(ProofData):
    """F(x) = c0 - b'x + x'Q x / 2 for the usable features, each in the units where Q's diagonal is one.

    The intercept is minimised out. `Q` and `c0` are lowered by what rounding may have done to them, so that for all x
    with at most `size` nonzeros the computed form is at most the F that the data define, also after a Cholesky
    factorisation of any `size` of the features: |x'E x| <= size sum_j (e_j^2 / e + e) x_j^2 where the entries of Q are
    wrong by at most e_i + e_j, e <= e_j, and likewise for b, with |b_j| <= sqrt(2 c0).

    Attributes:
        Q, b, c0: see above; Q is None until `prepare`.
        ridge: (p,) the share of l2 in Q's diagonal.
        zero: below it F is zero but for rounding of sums.
        noise: below it F is zero but for rounding of the targets.
        null: F without features.
        copied: whether a support held columns that copy others but for rounding, and count for nothing.
    """

    floor = 0.0  # F is a sum of squares
    last_places, most_direct = 2, 256  # pairs; features up to which they are tried instead of bounded

    @staticmethod
    def memory(model: LinearModel) -> float:
        """Bytes that a proof takes: matrices, and the data."""
        n, p = model.y.shape[0], model.n_coefficients
        return 8.0 * (MATRICES * p**2 + 4 * n * p)

    def __init__(
        self, model: LinearModel, keep: Int[np.ndarray, "_"], k: int, stop_at: float = np.inf, gap: float = 1.0
    ) -> None:
        super().__init__(model, keep, k)
        model, self._level, self._stop_at, self._sure = self.model, 0.0, stop_at, min(SURE, gap / 10)
        offset = model.columns.offset
        parts = [np.asarray(model.y)] if offset is None else [np.asarray(model.y), -np.asarray(offset)]
        self._target_parts = [part[self._rows] for part in parts]
        self._target = np.sum(self._target_parts, axis=0)
        raw_target = float(sum(self._weights @ part**2 for part in self._target_parts))
        if model.columns.centred:
            self._level = float(self._weights @ self._target)
            self._target = self._target - self._level

        b, energy, raw, self._lossy = self._moments()
        self._use(energy, raw)
        b, energy, raw, ridge = (a[self.features] for a in (b, energy, raw, self._ridge))
        c0 = float(self._weights @ self._target**2) / 2

        rounding = (ROWS + len(self._rows) / ROWS + 64 + 16 * self.size) * EPS
        lost = rounding * raw / energy if self._lossy else rounding + 8 * EPS * np.sqrt(raw / energy)
        lost = np.maximum(lost, rounding) * (energy / (energy + ridge))
        lost_target = rounding + 8 * EPS * np.sqrt(raw_target / (2 * c0)) if c0 > 0 else rounding
        self.scale = np.sqrt(energy + ridge)
        self._diagonal = 1 - 4 * max(self.size, 1) * (lost**2 / rounding + rounding)
        self.Q: Any = None
        self.b = b / self.scale
        self.ridge = ridge / self.scale**2
        self.c0 = c0 * (1 - 4 * (lost_target**2 / rounding + rounding))
        self.zero, self.noise = ZERO * c0, 64 * EPS**2 * (c0 + raw_target)
        self.null = c0
        self._factor: np.ndarray | None = None
        # What an orthogonal factor and rounding of the entries do to a column, and to the targets.
        digits = 8 * (np.sqrt(len(self._rows) + len(ridge)) + self.size)
        self._grain = EPS * (digits + 2 * np.sqrt(raw / energy))
        self._target_grain = EPS * (digits * np.sqrt(2 * c0) + 2 * np.sqrt(raw_target))
        self._copy = COPY * np.sqrt(raw / energy)
        self.copied = False
        self._rows_of_Q: dict[int, np.ndarray] = {}

    def _nearly_centred(self) -> bool:
        """Whether no column of a sparse matrix loses more than two digits where its mean is taken off afterwards."""
        X = self._X.multiply(self._scaling).tocsr()
        mean_square, mean = self._weights @ X.power(2), self._mean * self._scaling
        return bool(np.all(mean_square - mean**2 >= mean_square / FAR**2))

    def _moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
        """X'y, and the columns' mean squares after and before centring; True if X'X is centred after it is summed."""
        p, weights, scale = self.n_features, self._weights, self._scaling
        if sparse.issparse(self._X) and self._nearly_centred():
            X, mean = self._X.multiply(scale).tocsr(), self._mean * scale
            raw = weights @ X.power(2)
            b = X.T @ (weights * self._target) - mean * (weights @ self._target)
            return b, raw - mean**2, raw, True
        b, energy, raw = np.zeros((3, p))
        for start in range(0, len(self._rows), ROWS):
            rows = slice(start, start + ROWS)
            Z = self._columns(slice(None), rows)
            b += (weights[rows] * self._target[rows]) @ Z
            energy += weights[rows] @ Z**2
            raw += weights[rows] @ (Z + self._mean * scale if self.model.columns.centred else Z) ** 2
        return b, energy, raw, False

    def prepare(self) -> bool:
        """Form Q, with looks at the clock; False if there was no time for it."""
        if self.Q is not None:
            return True
        p, scale = len(self.features), self.scale
        Q = np.zeros((p, p))
        if self._lossy:
            X = self._X[:, self.features].multiply(self._scaling[self.features] / scale)
            rooted, mean = X.multiply(np.sqrt(self._weights)[:, None]).tocsc(), self._mean[self.features]
            mean = mean * self._scaling[self.features] / scale
            width = max(1, int(PANEL / max(rooted.nnz, 1)))
            for first in range(0, p, width):
                if time.monotonic() > self._stop_at:
                    return False
                Q[:, first : first + width] = (rooted.T @ rooted[:, first : first + width]).toarray()
            Q -= np.outer(mean, mean)
        else:
            for start in range(0, len(self._rows), ROWS):
                rows = slice(start, start + ROWS)
                Z = self._columns(self.features, rows) * (np.sqrt(self._weights[rows])[:, None] / scale)
                width = max(1, int(PANEL / (2 * len(Z) * p)))
                if width >= p:
                    Q += Z.T @ Z
                    continue
                for first in range(0, p, width):
                    if time.monotonic() > self._stop_at:
                        return False
                    Q[:, first : first + width] += Z.T @ Z[:, first : first + width]
        np.fill_diagonal(Q, self._diagonal)
        self.Q = Q
        return True

    def _row(self, j: int) -> Float[np.ndarray, "p"]:
        """A row of Q, from the data until that is formed."""
        if self.Q is not None:
            return np.asarray(self.Q[j])
        if j not in self._rows_of_Q:
            heavy, own = self._weights * self._columns(self.features[[j]])[:, 0], self.features
            row = (heavy @ self._X)[own] - self._mean[own] * heavy.sum()
            row = row * self._scaling[own] / self.scale / self.scale[j]
            row[j] = self._diagonal[j]
            self._rows_of_Q[j] = row
        return self._rows_of_Q[j]

    def fit(self, members: Int[np.ndarray, "m"]) -> tuple[float, Float[np.ndarray, "_"], float]:
        """F, the coefficients in original units and the intercept of the best fit on some usable features.

        Where rounding could decide, in exact arithmetic: F is that of the coefficients as they are returned, or above
        it where there are too many samples for that.
        """
        features = self.features[members]
        (value,), (lower,), (x,) = self._least(*self._data(members[None]), members[None])
        w, intercept = self._external(x / self.scale[members], features, self._level)
        wrong = EPS * (np.sqrt(np.sum(self._weights @ (self._raw(features) * w[features]) ** 2)) + abs(intercept))
        error = value - lower + wrong * np.sqrt(2 * value) + wrong**2
        if error <= self._sure * value + self.zero / 10:
            return float(value), w, intercept
        return self._fit_exactly(members) if self._small(len(members)) else (float(value + error), w, intercept)

    def values(self, members: Int[np.ndarray, "s m"]) -> tuple[Float[np.ndarray, "s"], Float[np.ndarray, "s"]]:
        """F of the best fits on many supports, and what it is not below, whatever rounding did.

        From the data or, for few features, from an orthogonal factor of them. Columns that are copies of others, but
        for rounding of their entries, add nothing.
        """
        m = members.shape[1]
        if self._factor is None and len(self.features) < min(len(self._rows), MOST_FACTORED):
            self._factorise()
        long = len(self._rows) + m if self._factor is None else len(self._factor)
        parts = []
        batch = max(1, AT_ONCE // (long * max(m, 1)))
        for start in range(0, len(members), batch):
            some = members[start : start + batch]
            if self._factor is None:
                A, t = self._data(some)
            else:
                A, t = np.moveaxis(self._factor[:, some], 1, 0), self._factor[:, -1]
            parts.append(self._least(A, t, some)[:2])
        value, lower = (np.concatenate(part) for part in zip(*parts, strict=True))
        return value, lower

    def _factorise(self) -> None:
        """R of the data's QR factorisation, block by block, if there is time."""
        l2 = np.diag(np.append(np.sqrt(self.ridge), 0.0))
        R: Any = l2[: len(self.ridge)]
        root = np.sqrt(self._weights)[:, None]
        for start in range(0, len(root), ROWS):
            if time.monotonic() > self._stop_at:
                return
            rows = slice(start, start + ROWS)
            Z = np.column_stack([self._columns(self.features, rows) / self.scale, self._target[rows]])
            R = np.linalg.qr(np.vstack([R, root[rows] * Z]), mode="r")
        self._factor = R

    def exact(self, members: Int[np.ndarray, "m"]) -> float | None:
        """F of the best fit on a support in exact arithmetic; None where that takes too long."""
        if not self._small(len(members)) or time.monotonic() > self._stop_at:
            return None
        return float(self._solved_exactly(members)[0])

    def _data(self, members: Int[np.ndarray, "s m"]) -> tuple[Float[np.ndarray, "s n m"], Float[np.ndarray, "n"]]:
        """The rooted and scaled columns of supports, with l2 below them, and the targets."""
        m = members.shape[1]
        root = np.sqrt(self._weights)
        A = self._columns(self.features[members.ravel()]).reshape(len(root), *members.shape)
        A = np.moveaxis(root[:, None, None] * A, 1, 0) / self.scale[members][:, None]
        l2 = np.sqrt(self.ridge[members])[:, None] * np.eye(m)
        return np.concatenate([A, l2], 1), np.append(root * self._target, np.zeros(m))

    def _least(
        self, A: Float[np.ndarray, "s n m"], t: Float[np.ndarray, "n"], members: Int[np.ndarray, "s m"]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """F of the best fits, what it is not below, and scaled coefficients of minimum norm."""
        if members.shape[1] == 0:
            U, size, V = A, np.zeros(members.shape), np.zeros((len(members), 0, 0))
        else:
            U, size, V = np.linalg.svd(A, full_matrices=False)
        copies = size <= np.max(self._copy[members], 1, initial=COPY)[:, None] * size[:, :1]
        self.copied |= bool(copies.any())
        inside = np.where(copies, 0, np.einsum("sij,i->sj", U, t))
        x = np.einsum("sij,si->sj", V, inside / np.where(copies, 1, size))
        rest = np.linalg.norm(t - np.einsum("sij,sj->si", U, inside), axis=1)
        wrong = self._target_grain + np.sum(self._grain[members] * np.abs(x), 1)
        # A singular value that rounding could have made may be any other.
        sure = ~np.any(~copies & (size < 4 * np.sum(self._grain[members], 1, keepdims=True)), axis=1)
        return rest**2 / 2, np.where(sure, np.maximum(rest - wrong, 0) ** 2 / 2, 0), x

    def _raw(self, features: np.ndarray | list[int]) -> Float[np.ndarray, "n m"]:
        """Columns as they are in the design, dense."""
        part = self._X[:, features]
        return part.toarray() if sparse.issparse(part) else part

    def _small(self, m: int) -> bool:
        """Whether exact arithmetic takes a second at most."""
        return len(self._rows) * (m + 1) ** 2 <= EXACT_WORK

    @functools.cached_property
    def _exact(self) -> Moments:
        centred = self.model.columns.centred
        return Moments(lambda j: self._raw([j])[:, 0], self._target_parts, self._weights, centred)

    def _solved_exactly(self, members: np.ndarray) -> tuple[Fraction, list[int], list[Fraction], list[Fraction]]:
        """F, the features of a support that are no copies of others, what l2 they have, and their coefficients."""
        features = self.features[members]
        if len(members):
            found: Any = linalg.qr(self._data(members[None])[0][0], mode="r", pivoting=True)
            size, order = np.abs(np.diag(found[0])), found[1]
            features = np.sort(features[order[size > np.max(self._copy[members]) * size[0]]])
        chosen = features.tolist()
        ridge = [Fraction(float(self._ridge[j])) * Fraction(float(1 / self._scaling[j])) ** 2 for j in chosen]
        value, x = self._exact.fit(chosen, ridge)
        return value / 2, chosen, ridge, x

    def _fit_exactly(self, members: Int[np.ndarray, "m"]) -> tuple[float, Float[np.ndarray, "_"], float]:
        _, chosen, ridge, x = self._solved_exactly(members)
        w = np.zeros(self.n_features)
        w[chosen] = [float(each) for each in x]
        # Where w is large its rounding is worth something, and the intercept is the best one beside it.
        moved = sum(Fraction(float(self._shift[j])) * Fraction(float(w[j])) for j in chosen)
        level, intercept = Fraction(0), 0.0
        if self.model.columns.centred:
            level = self._exact.mean(-1) - sum(self._exact.mean(j) * Fraction(w[j]) for j in chosen)
            intercept = float(level + Fraction(self._base) - moved)
            level = Fraction(intercept) - Fraction(self._base) + moved
        return float(self._exact.value(chosen, ridge, w[chosen], level) / 2), w, intercept

    def search(self, members: Int[np.ndarray, "m"]) -> Int[np.ndarray, "size"]:
        """A good support: features are added one by one, then exchanged for others while that lowers F."""
        b, S = self.b, [int(j) for j in members]
        S += [int(j) for j in np.flatnonzero(self.kept) if j not in S]
        for step in range(SWAPS + self.size):
            R = np.array([self._row(j) for j in S]).reshape(len(S), len(b))
            B = np.linalg.inv(R[:, S] + BLUR * np.eye(len(S)))
            T = B @ R
            w = B @ b[S]
            g, q = b - w @ R, np.maximum(self._diagonal - (T * R).sum(0), BLUR)
            late = time.monotonic() > self._stop_at
            if len(S) < self.size:
                gain = g * g / q
                gain[S] = -1
                S += [int(j) for j in np.argsort(-gain)[: self.size - len(S) if late else 1]]
                continue
            leaves = [i for i, j in enumerate(S) if not self.kept[j]]
            if step == SWAPS + self.size - 1 or late or not leaves:
                break
            h = np.diag(B)[leaves, None]
            moved = (g + T[leaves] * (w[leaves, None] / h)) ** 2 / (q + T[leaves] ** 2 / h) - w[leaves, None] ** 2 / h
            moved[:, S] = -np.inf
            best = int(np.argmax(moved))
            if moved.flat[best] <= 1e-9 * self.c0:
                break
            S[leaves[best // len(b)]] = best % len(b)
        return np.sort(np.array(S, int))
