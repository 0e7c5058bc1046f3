"""Least squares in exact arithmetic, for the few supports on which float64 cannot decide."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from jaxtyping import Float


def integers(a: Float[np.ndarray, "n"]) -> tuple[np.ndarray, int]:
    """Python integers m and an exponent e with a = m 2^e."""
    mantissa, exponent = np.frexp(a)
    used = exponent[mantissa != 0]
    least = int(used.min()) if used.size else 0
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    up = np.where(whole == 0, 0, exponent - least)
    return np.array([int(m) << int(s) for m, s in zip(whole, up, strict=True)], object), least - 53


class Moments:
    """Exact weighted second moments of columns, about their means if there is an intercept.

    Args:
        column: function of a feature that gives its (n,) entries.
        target: numbers that make up the (n,) targets when they are added up.
        weights: (n,) positive.
        intercept: whether everything is about its mean.
    """

    def __init__(
        self, column: Callable[[int], np.ndarray], target: list[np.ndarray], weights: np.ndarray, intercept: bool
    ) -> None:
        self._column, self._intercept = column, intercept
        self._weights, _ = integers(weights)  # only their ratios count
        self._total = int(self._weights.sum())
        parts = [integers(part) for part in target]
        least = min(e for _, e in parts)
        whole: Any = sum(m * (1 << (e - least)) for m, e in parts)
        self._vectors: dict[int, tuple[np.ndarray, int]] = {-1: (whole, least)}  # -1 is the target
        self._known: dict[tuple[int, int], Fraction] = {}

    def _vector(self, j: int) -> tuple[np.ndarray, int]:
        if j not in self._vectors:
            self._vectors[j] = integers(self._column(j))
        return self._vectors[j]

    def __call__(self, i: int, j: int) -> Fraction:
        """The second moment of two columns."""
        pair = (min(i, j), max(i, j))
        if pair not in self._known:
            (a, e), (b, f) = self._vector(i), self._vector(j)
            heavy = self._weights * a
            moment = Fraction(int(heavy @ b), self._total)
            if self._intercept:
                moment -= Fraction(int(heavy.sum()) * int(self._weights @ b), self._total**2)
            self._known[pair] = moment * Fraction(2) ** (e + f)
        return self._known[pair]

    def mean(self, j: int) -> Fraction:
        """Of a column."""
        a, e = self._vector(j)
        return Fraction(int(self._weights @ a), self._total) * Fraction(2) ** e

    def fit(self, features: list[int], ridge: list[Fraction]) -> tuple[Fraction, list[Fraction]]:
        """Twice the least value, and coefficients there; columns that depend on those before them have zero."""
        size = len(features)
        names = [*features, -1]
        A = [[self(i, j) for j in names] for i in names]
        for i, extra in enumerate(ridge):
            A[i][i] += extra
        common = math.lcm(*(each.denominator for row in A for each in row))
        M = [[int(each * common) for each in row] for row in A]
        last, steps = 1, []
        for c in range(size):  # elimination without fractions (Bareiss, 1968)
            if M[c][c] == 0:
                continue
            for i in range(c + 1, size + 1):
                for j in range(i, size + 1):
                    M[i][j] = M[j][i] = (M[i][j] * M[c][c] - M[i][c] * M[c][j]) // last
            steps.append(c)
            last = M[c][c]
        x = [Fraction(0)] * size
        for c in reversed(steps):
            x[c] = Fraction(M[c][size] - sum(M[c][j] * x[j] for j in steps if j > c), M[c][c])
        return Fraction(M[size][size], last * common), x

    def value(self, features: list[int], ridge: list[Fraction], x: np.ndarray, level: Fraction) -> Fraction:
        """Twice the value at coefficients and an intercept `level` of the targets less the columns."""
        w = [Fraction(float(each)) for each in x]
        names = list(enumerate(features))
        total = self(-1, -1) - 2 * sum(w[a] * self(i, -1) for a, i in names)
        total += sum(w[a] * w[b] * self(i, j) for a, i in names for b, j in names)
        if self._intercept:
            total += (self.mean(-1) - sum(w[a] * self.mean(i) for a, i in names) - level) ** 2
        return total + sum(r * each**2 for r, each in zip(ridge, w, strict=True))
