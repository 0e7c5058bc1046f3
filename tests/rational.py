"""Least squares in exact arithmetic: F at a point and its minimum on every choice of features, no digit rounded.

Floats are fractions with a power of two below, so that sums of squares and products are integers, and a ratio of two
determinants is the minimum. Nothing here is the library's, and no condition of the data is too bad for it.
"""

import functools
import itertools
from fractions import Fraction

import numpy as np


def integers(values):
    """(integers, e): the values times 2^e, exactly."""
    values = np.asarray(values, float)
    if values.size == 0 or not values.any():
        return np.full(values.shape, 0, object), 0
    lowest = int(np.frexp(np.abs(values[values != 0]).min())[1]) - 53  # no digit of any value lies below
    return np.vectorize(lambda v: int(Fraction(float(v)) / Fraction(2) ** lowest), otypes=[object])(values), -lowest


def least(Q, b, c0, diagonal=0):
    """min over w of c0 - b'w + w'(Q + diagonal I) w / 2 for the floats that these are; None if it is not convex."""
    m, value = len(b), Fraction(float(c0))
    A = [[Fraction(float(Q[i, j])) + diagonal * (i == j) for j in range(m)] + [Fraction(float(b[i]))] for i in range(m)]
    for c in range(m):
        if A[c][c] <= 0:
            return None
        for i in range(c + 1, m):
            share = A[i][c] / A[c][c]
            A[i] = [u - share * v for u, v in zip(A[i], A[c], strict=True)]
        value -= A[c][-1] ** 2 / A[c][c] / 2
    return value


class Quadratic:
    """F(w, b) = (1/W) sum_i s_i (x_i'w + b + o_i - y_i)^2 / 2 + sum_j l2_j c_j w_j^2 / 2, c_j the variance of a
    standardised column, else 1; with several responses (y and offset of t columns) the sum over them."""

    def __init__(self, X, y, l2=0.0, weights=None, offset=None, intercept=False, standardize=False):
        X, y = np.asarray(X, float), np.asarray(y, float)
        n, self.p = X.shape
        y = y.reshape(n, -1)
        self.responses, self.intercept = y.shape[1], intercept
        weights = np.ones(n) if weights is None else np.asarray(weights, float)
        s, _ = integers(weights)
        self.total = sum(s)
        xs = [integers(column) for column in X.T]
        self.columns, self.exponents = [each[0] for each in xs], [each[1] for each in xs]
        offset = np.zeros_like(y) if offset is None else np.reshape(offset, (n, -1)) + 0 * y
        joined, top = integers(np.column_stack([y, offset]))
        self.targets, self.top = [joined[:, r] - joined[:, self.responses + r] for r in range(self.responses)], top
        self.s = s
        ones = np.full(n, 1, object)
        parts = [*self.columns, ones, *self.targets]
        size = len(parts)
        sums = np.empty((size, size), object)
        for i in range(size):
            weighted = s * parts[i]
            for j in range(i, size):
                sums[i, j] = sums[j, i] = int((weighted * parts[j]).sum())
        p = self.p
        l2 = np.broadcast_to(np.asarray(l2, float), (p,))
        # In units of W times the columns' integers.
        self.variance = [Fraction(int(self.total * sums[j, j] - sums[j, p] ** 2), int(self.total**2)) for j in range(p)]
        units = self.variance if standardize else [Fraction(4) ** exponent for exponent in self.exponents]
        self.ridge = [Fraction(float(l2[j])) * units[j] for j in range(p)]
        self.sums = sums
        self.G = [[Fraction(int(sums[i, j]), int(self.total)) for j in range(size)] for i in range(size)]
        for j in range(p):
            self.G[j][j] += self.ridge[j]

    @property
    def constant(self):
        """(p,) columns that are constant on the rows with a weight."""
        return np.array([v == 0 for v in self.variance])

    def value(self, w, b=0.0):
        """F(w, b), a Fraction; w (p,) or (p, t), b a number or (t,)."""
        w, b = np.reshape(np.asarray(w, float), (self.p, -1)), np.reshape(np.asarray(b, float), -1)
        total = Fraction(0)
        for r in range(self.responses):
            units = [Fraction(2) ** (self.top - int(exponent)) for exponent in self.exponents]
            at = [Fraction(float(w[j, r])) * units[j] for j in range(self.p)]
            level = Fraction(float(b[r])) * Fraction(2) ** self.top if self.intercept else Fraction(0)
            z = [*at, level]
            t = self.p + 1 + r
            live = [i for i, v in enumerate(z) if v]
            total += self.G[t][t]
            for i in live:
                total += z[i] * (sum(self.G[i][j] * z[j] for j in live) - 2 * self.G[i][t])
        return total / 2 / Fraction(4) ** self.top

    def minimum(self, features):
        """The least F with nonzeros in some features only, a Fraction."""
        return self.solve(features)[0]

    def solve(self, features):
        """(least F, coefficients as Fractions, one list for each response: the features', then the intercept)."""
        return self._solve(tuple(int(j) for j in features))

    def bounded(self, features, lower, upper):
        """The least F with nonzeros in some features only, within (p,) bounds, of one response: of all the choices of
        features that lie on a bound, the least whose others lie within theirs (or are collinear, and are not tried)."""
        free, total = self.solve(features)[0], None
        scale = [Fraction(2) ** self.top / Fraction(2) ** self.exponents[j] for j in features]
        sides = [[None, *(b for b in {lower[j], upper[j]} if np.isfinite(b))] for j in features]
        for choice in itertools.product(*sides):
            inside = [j for j, side in zip(features, choice, strict=True) if side is None]
            at = {j: Fraction(float(v)) * u for j, v, u in zip(features, choice, scale, strict=True) if v is not None}
            value, (z,) = self._solve(tuple(inside), tuple(sorted(at.items())))
            fits = all(
                (not np.isfinite(lower[j]) or v >= Fraction(float(lower[j])))
                and (not np.isfinite(upper[j]) or v <= Fraction(float(upper[j])))
                for j, v in zip(inside, z, strict=False)
            )
            total = value if fits and (total is None or value < total) else total
        return free if total is None else total

    @functools.cache  # noqa: B019 (a problem lives for one case)
    def _solve(self, features, held=(), drop=0):
        level = [self.p] if self.intercept else []
        idx = [*level, *features] if drop else [*features, *level]  # no intercept is a copy of far columns' difference
        m, total, found = len(idx), Fraction(0), []
        for r in range(self.responses):
            t = self.p + 1 + r
            A = [[self.G[i][j] for j in [*idx, t]] for i in [*idx, t]]
            for row, i in enumerate(idx):  # what is held leaves the targets
                A[row][m] = A[m][row] = A[row][m] - sum(self.G[i][j] * v for j, v in held)
            A[m][m] += sum(v * (sum(self.G[i][j] * u for j, u in held) - 2 * self.G[i][t]) for i, v in held)
            pivots = []
            for i in range(m):
                raw = self.sums[idx[i], idx[i]]
                if A[i][i] == 0 or A[i][i] * self.total < raw * drop:  # positive semidefinite: its row is zero as well
                    continue
                pivots.append(i)
                for row in range(i + 1, m + 1):
                    if A[row][i]:
                        share = A[row][i] / A[i][i]
                        for column in range(i, m + 1):
                            A[row][column] -= share * A[i][column]
            z = [Fraction(0)] * m
            for i in reversed(pivots):
                z[i] = (A[i][m] - sum(A[i][j] * z[j] for j in range(i + 1, m))) / A[i][i]
            total += A[m][m]
            scale = [Fraction(2) ** (self.exponents[j] if j < self.p else 0) / Fraction(2) ** self.top for j in idx]
            found.append([v * u for v, u in zip(z, scale, strict=True)])
        return total / 2 / Fraction(4) ** self.top, found

    def without_copies(self, features, size):
        """The same where a column adds nothing that differs from others by less than a share of its size."""
        return self._solve(tuple(int(j) for j in features), (), Fraction(size) ** 2)[0]

    def choices(self, k, keep=(), usable=None, copies=0.0):
        """{support: least F} of all choices of k features beside the kept ones (of as many as are usable)."""
        usable = range(self.p) if usable is None else [int(j) for j in usable]
        keep = [int(j) for j in keep if int(j) in usable]
        others = [j for j in usable if j not in keep]
        supports = (sorted([*keep, *rest]) for rest in itertools.combinations(others, min(k, len(others))))
        return {frozenset(support): self.without_copies(support, copies) for support in supports}
