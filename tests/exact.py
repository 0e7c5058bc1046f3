"""An independent reference: F and its minimum on every support of a small linear model, in extended precision NumPy.

Nothing here is the library's. Columns are centred (with an intercept) and scaled first, so that the minimum is found in
units in which every column counts alike; F, its gradient and the line search are in `np.longdouble`, and only the
direction of a Newton step, which need not be exact, in float64.
"""

import dataclasses
import functools
import itertools

import numpy as np

LONG = np.longdouble
MORE_CURVATURE = (0.0, 1e-16, 1e-12, 1e-8, 1e-4, 1e-2, 0.3, 1.0)  # shares of the majoriser in steps hard to find
LEVEL = LONG(0.3)  # of quantiles
EXPONENTIAL = ("poisson", "gamma", "tweedie")
LOG_LINK = (*EXPONENTIAL, "negative_binomial")
STEPS = LONG(4) ** -np.arange(16)


@dataclasses.dataclass(frozen=True)
class Loss:
    """l(eta, y) by its name, with its one parameter (margin scale, width, delta or power), and a quantile's level."""

    name: str
    parameter: np.longdouble
    level: np.longdouble = LEVEL

    @property
    def kinked(self):
        return self.name in ("huber", "smoothed_hinge", "squared_hinge", "quantile")

    def value(self, eta, y):
        """l."""
        c = self.parameter
        with np.errstate(over="ignore", invalid="ignore"):
            if self.name == "squared":
                return (eta - y) ** 2 / 2
            if self.name == "huber":
                r = eta - y
                inside = np.clip(r, -c, c)
                return inside * (r - inside / 2)
            if self.name == "poisson":
                return np.exp(eta) - y * eta
            if self.name == "gamma":
                return y * np.exp(-eta) + eta
            if self.name == "tweedie":
                up = eta if c == 2 else np.expm1((2 - c) * eta) / (2 - c)
                return up - y * (eta if c == 1 else np.expm1((1 - c) * eta) / (1 - c))
            if self.name == "negative_binomial":
                t = eta + np.log(c)
                return y * np.logaddexp(0, -t) + np.logaddexp(0, t) / c
            if self.name == "quantile":
                a = np.clip((eta - y) / c, -self.level, 1 - self.level)
                return a * (eta - y - c * a / 2)
            m = y * eta
            if self.name == "logistic":
                return np.maximum(0, -c * m) + np.log1p(np.exp(-np.abs(c * m)))
            slack = np.maximum(0, 1 - m)
            if self.name == "squared_hinge":
                return slack**2 / 2
            return slack if self.name == "hinge" else np.where(slack > c, slack - c / 2, slack**2 / (2 * c))

    def parts(self, eta, y):
        """l, its size before cancellation, l', l'', and a curvature that never vanishes."""
        c, value = self.parameter, self.value(eta, y)
        with np.errstate(over="ignore", invalid="ignore"):
            if self.name == "squared":
                return value, value, eta - y, np.ones_like(eta), np.ones_like(eta)
            if self.name == "huber":
                r = eta - y
                return value, value, np.clip(r, -c, c), (np.abs(r) < c) + 0 * r, c / np.maximum(np.abs(r), c)
            if self.name == "poisson":
                mean = np.exp(eta)
                return value, mean + np.abs(y * eta), mean - y, mean, mean + y
            if self.name == "gamma":
                rest = y * np.exp(-eta)
                return value, rest + np.abs(eta), 1 - rest, rest, 1 + rest
            if self.name == "tweedie":
                up, down = np.exp((2 - c) * eta), y * np.exp((1 - c) * eta)
                size = (up + 1) / (2 - c) + (down + y) / (c - 1)
                return value, size, up - down, (2 - c) * up + (c - 1) * down, up + down
            if self.name == "negative_binomial":
                share = np.exp(-np.logaddexp(0, -eta - np.log(c)))
                rest = np.exp(-np.logaddexp(0, eta + np.log(c)))
                steep = y + 1 / c
                return value, value, share / c - y * rest, steep * share * rest, steep / 4 + 0 * eta
            if self.name == "quantile":
                r = (eta - y) / c
                curved = (r > -self.level) & (r < 1 - self.level)
                middle = np.abs(eta - y - c * (LONG(0.5) - self.level))
                return value, value, np.clip(r, -self.level, 1 - self.level), curved / c, 1 / np.maximum(2 * middle, c)
            m = y * eta
            if self.name == "logistic":
                tail = np.exp(-np.abs(c * m))
                q = np.where(m > 0, tail, 1) / (1 + tail)  # sigmoid(-c m)
                return value, value, -c * y * q, c**2 * tail / (1 + tail) ** 2, np.full_like(m, c**2 / 4)
            if self.name == "hinge":
                return value, value, np.where(m < 1, -y, 0), 0 * m, np.ones_like(m)
            slack = np.maximum(0, 1 - m)
            if self.name == "squared_hinge":
                return value, value, -y * slack, (slack > 0) + 0 * m, np.ones_like(m)
            curved = (slack > 0) & (slack < c)
            return value, value, -y * np.clip((1 - m) / c, 0, 1), curved / c, 1 / np.maximum(slack, c)


class Problem:
    """A weighted linear model with the definitions of `sht.LinearModel`, every number taken as it is stored."""

    def __init__(self, X, y, loss, l2=0.0, weights=None, offset=None, intercept=False, standardize=False):
        self.X, self.y, self.loss, self.intercept = np.asarray(X, LONG), np.asarray(y, LONG), loss, intercept
        n, p = self.X.shape
        weights = np.ones(n) if weights is None else np.asarray(weights)
        least, weights = np.finfo(weights.dtype).tiny, weights.astype(LONG)
        self.omega = weights / weights.max() / np.sum(weights / weights.max())
        self.omega = np.where(self.omega < least, 0, self.omega)  # below the range of its dtype
        self.offset = np.zeros(n, LONG) if offset is None else np.asarray(offset, LONG)
        mean = self.omega @ self.X
        self.deviation = np.sqrt(self.omega @ (self.X - mean) ** 2)
        self.largest = np.abs(self.X[self.omega > 0]).max(0)
        varies = self.deviation > 1e-17 * self.largest
        self.deviation = np.where(varies, self.deviation, 0)
        # The ridge acts on w_j sd_j; a column without a deviation has no scale.
        ridge = np.asarray(l2, LONG) * (np.where(varies, self.deviation, 1) ** 2 if standardize else np.ones(p, LONG))
        self.ridge = ridge
        Z = self.X - mean if intercept else self.X
        self.size = np.sqrt(self.omega @ Z**2)
        self.size = np.where(varies if intercept else self.size > 0, self.size, np.inf)  # no use: a column of zeros
        self.Z, self.mean = Z / self.size, mean if intercept else np.zeros(p, LONG)

    def value(self, w, b=0.0):
        """F(w, b)."""
        w = np.asarray(w, LONG)
        value = self.loss.value(self.X @ w + LONG(b) + self.offset, self.y)
        live = self.omega > 0
        return self.omega[live] @ value[live] + np.sum(self.ridge * w**2) / 2

    def slack(self, w, b, eps):
        """What rounding each of w, b and the terms of the predictor once, relatively by eps, can change in F(w, b).

        The predictor of sample i moves by at most d_i = eps (sum_j |x_ij w_j| + |b| + |o_i| + |y_i|), y_i where it is
        subtracted, and by what a w_j near the end of the dtype's range lacks of its digits, hence l by
        |l'| d_i + sup l'' d_i^2 / 2 and by sup |l'| d_i. A deviation that is computed about a rounded mean is off by
        (eps max|x| / sd)^2.
        """
        w, live = np.asarray(w, LONG), self.omega > 0
        eta = self.X @ w + LONG(b) + self.offset
        regression = self.loss.name in ("squared", "huber", "quantile")
        d = eps * (np.abs(self.X) @ np.abs(w) + abs(LONG(b)) + np.abs(self.offset) + np.abs(self.y) * regression)
        d = d + np.abs(self.X) @ (np.finfo(np.float32 if eps > 1e-10 else np.float64).tiny * (w != 0))
        _, size, slope, _, bound = self.loss.parts(eta, self.y)
        with np.errstate(over="ignore", invalid="ignore"):
            if self.loss.name in EXPONENTIAL:
                change = np.abs(slope) * d + self._exponentials(eta) * (np.expm1(d) - d)
            else:
                steepest = {name: np.inf for name in ("squared", "squared_hinge", "negative_binomial")}
                steepest |= {name: 1 for name in ("smoothed_hinge", "hinge", "quantile")}
                steepest = steepest.get(self.loss.name, self.loss.parameter)
                change = np.minimum(np.abs(slope) * d + np.max(bound) * d**2 / 2, steepest * d)
                if self.loss.name == "hinge":  # its slope jumps where the margin is 1
                    change = np.where(np.abs(1 - self.y * eta) <= 16 * d, d, change)
            shape = eps + (eps * self.largest / np.where(self.deviation > 0, self.deviation, np.inf)) ** 2
            total = self.omega[live] @ (change + 8 * eps * size)[live] + np.sum(self.ridge * w**2 * shape)
            return total if total >= 0 else LONG(np.inf)  # beyond the range there is no saying

    def blur(self, w, b, other, eps):
        """What rounding of the predictor may hide of F(w, b) - F at another point (w, b), by a gradient that vanishes.

        F is convex: it falls by at most -sum_i omega_i l'_i (eta'_i - eta_i) + ..., and rounding eta_i by d_i, as in
        `slack`, changes l'_i by sup l'' d_i.
        """
        w, live = np.asarray(w, LONG), self.omega > 0
        eta, change = self.X @ w + LONG(b) + self.offset, self.X @ (other[0] - w) + other[1] - LONG(b)
        d = eps * (np.abs(self.X) @ np.abs(w) + abs(LONG(b)) + np.abs(self.offset) + np.abs(self.y))
        if self.loss.name in EXPONENTIAL:
            steep = self._exponentials(eta) * np.exp(d)
        else:
            c = self.loss.parameter
            bounds = {"logistic": c**2 / 4, "smoothed_hinge": 1 / c, "quantile": 1 / c}
            bounds["negative_binomial"] = (self.y + 1 / c) / 4
            steep = bounds.get(self.loss.name, LONG(1))
        return np.sum((self.omega * steep * d * np.abs(change))[live])

    def _exponentials(self, eta):
        """Exponentials in a loss: its curvature is at most their sum, as is the error of a second-order model."""
        q = {"poisson": 1, "gamma": 2}.get(self.loss.name, self.loss.parameter)
        return (q < 2) * np.exp((2 - q) * eta) + (q > 1) * self.y * np.exp((1 - q) * eta)

    @functools.cache  # noqa: B019 (a problem lives for one case)
    def null(self):
        """The best intercept without features (0 where there is none), and F there."""
        zero = np.zeros(self.X.shape[1])
        if not self.intercept:
            return LONG(0), self.value(zero)
        live = self.omega > 0
        reach = np.abs(self.offset).max() + np.abs(self.y).max() + 1000
        low, high = -reach, reach
        for _ in range(200):
            b = (low + high) / 2
            slope = self.loss.parts(b + self.offset[live], self.y[live])[2] @ self.omega[live]
            low, high = (b, high) if slope < 0 else (low, b)
        return b, self.value(zero, b)

    def minima(self, max_steps=300):
        """(masks (2^p, p) of all supports, min F on each, where: w and b on each)."""
        p = self.X.shape[1]
        masks = np.array(list(itertools.product((False, True), repeat=p)))
        live = self.omega > 0
        # [features, intercept]: an intercept that is no parameter is a column of zeros.
        A = np.column_stack([self.Z, np.full(len(self.y), float(self.intercept))])[live]
        y, offset, omega = self.y[live], self.offset[live], self.omega[live]
        ridge = np.append(np.where(np.isfinite(self.size), self.ridge / self.size**2, 0), 0)
        free = np.column_stack([masks & np.isfinite(self.size), np.full(len(masks), self.intercept)])
        z = np.zeros((len(masks), p + 1), LONG)
        z[:, p] = self.null()[0]

        def total(z, value=None):
            F = (self.loss.value(z @ A.T + offset, y) if value is None else value) @ omega + z**2 @ ridge / 2
            return np.where(np.isfinite(F), F, np.inf)

        F = total(z)
        if self.loss.name in LOG_LINK:  # from far away its exponential hides every descent; logarithms are linear
            near = self._logarithms(A, y, offset, omega, free)
            lower = total(near) < F
            z[lower] = near[lower]
            F = total(z)

        def descend(running):
            for _ in range(max_steps):
                at, mask = z[running], free[running]
                value, _, slope, curvature, bound = self.loss.parts(at @ A.T + offset, y)
                F[running] = total(at, value)
                g = np.where(mask, (slope * omega) @ A + ridge * at, 0)
                d = direction(A, omega * curvature, ridge, mask, g)
                new = at + d
                new_F = total(new)
                # What a step may gain, by the Hessian and by its majoriser, where the Hessian may be flat.
                # Near a kink the majoriser of one sample hides what the others allow.
                least = bound.min(1, keepdims=True) if self.loss.kinked else bound
                steepness, slope = (omega * least) @ A**2 + ridge, -np.sum(g * d, 1)
                sure = np.sum(g**2 / np.where(steepness > 0, steepness, 1), 1)
                hard = ~(new_F <= F[running] - LONG(1e-4) * slope) | (slope < LONG(1e-3) * sure)
                hard &= np.abs(slope) + sure > LONG(1e-17) * np.abs(F[running])
                if hard.any():
                    own = (each[hard] for each in (mask, g, at, curvature, bound))
                    new[hard], new_F[hard] = self._search(total, A, omega, ridge, *own)
                better = new_F < F[running] - LONG(1e-18) * np.abs(F[running])
                z[running[better]], F[running[better]] = new[better], new_F[better]
                running = running[better]
                if running.size == 0:
                    break

        descend(np.arange(len(masks)))
        # A support that came to rest above one of its parts goes on from there.
        size = masks.sum(1)
        for m in range(1, p + 1):
            here = np.flatnonzero(size == m)
            part = (size == m - 1) & ~np.any(masks & ~masks[here][:, None], axis=2)
            best = np.argmin(np.where(part, F, np.inf), axis=1)
            behind = F[best] < F[here] * (1 - LONG(1e-15) * np.sign(F[here]))
            if behind.any():
                z[here[behind]], F[here[behind]] = z[best[behind]], F[best[behind]]
                descend(here[behind])
        w = z[:, :p] / self.size
        return masks, F, (w, z[:, p] - w @ self.mean)

    def _logarithms(self, A, y, offset, omega, free):
        """Weighted least squares of log y, on each support."""
        raised = np.maximum(y, LONG(0.5)) if self.loss.name != "gamma" else y
        heavy = np.sqrt(omega * (1 if self.loss.name == "gamma" else raised))[:, None]
        target = heavy[:, 0] * (np.log(raised) - offset)
        columns = heavy * A
        size = np.where(np.abs(columns).max(0) > 0, np.abs(columns).max(0), 1)
        target, columns = target.astype(float), columns / size
        fits = [np.linalg.lstsq((columns * mask).astype(float), target, rcond=1e-12)[0] for mask in free]
        return np.where(free, np.array(fits) / size, 0)

    def _search(self, total, A, omega, ridge, mask, g, at, curvature, bound):
        """The best of many steps, with more and more of the majoriser in the Hessian."""
        first = total(at)
        best, best_F = at.copy(), first.copy()
        tries = [(1 - share) * curvature + share * bound for share in MORE_CURVATURE]
        if self.loss.kinked:
            tries += [np.minimum(bound, most * bound.min(1, keepdims=True)) for most in (1e8, 1e4, 10)]
        for each in tries:
            d = direction(A, omega * each, ridge, mask, g)
            for step in STEPS:
                new = at + step * d
                F = total(new)
                better = F < best_F
                best[better], best_F[better] = new[better], F[better]
                if np.all(~better & (best_F < first)):
                    break
            if np.all(best_F < LONG(0.9) * first):
                break
        return best, best_F


def direction(A, weights, ridge, mask, g):
    """-H^+ g for each row of weights, H = A' diag(weights) A + diag(ridge) on the mask, scaled to a unit diagonal."""
    largest = np.maximum(np.max(weights, 1, keepdims=True), LONG(1e-300))
    diagonal = (weights / largest) @ A**2 + ridge / largest
    scale = np.where(mask & (diagonal > 0), 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1)), 0)
    unit = (np.sqrt(weights / largest)[:, :, None] * A * scale[:, None, :]).astype(float)  # at most one
    H = np.einsum("bni,bnj->bij", unit, unit)
    i = np.arange(len(ridge))
    H[:, i, i] = scale > 0
    top = np.max(np.abs(g * scale), axis=1, keepdims=True)
    top = np.where(top > 0, top, 1)
    values, vectors = np.linalg.eigh(H)
    inverse = np.where(values > 1e-15, 1 / np.where(values > 1e-15, values, 1), 0)
    rotated = np.einsum("bij,bi->bj", vectors, (g * scale / top).astype(float)) * inverse
    return -np.einsum("bij,bj->bi", vectors, rotated) * scale * (top / largest)
