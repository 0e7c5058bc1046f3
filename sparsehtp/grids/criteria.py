"""Information criteria over a path."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, ndtr

from .path import Path

NAMES = ("aic", "bic", "ebic", "sic", "gic")
Rule = str | Callable[[np.ndarray, np.ndarray, int, float], np.ndarray]


class Criterion(NamedTuple):
    """Values of an information criterion.

    Attributes:
        values: (grid,) one per row of the path; smaller is better.
        best: row with the smallest value.
    """

    values: Float[np.ndarray, "grid"]
    best: int


def information_criterion(path: Path, name: Rule = "ebic") -> Criterion:
    """Score the rows of a path by fit and number of features.

        aic   dev + 2 d                     bic   dev + d ln W
        ebic  dev + d ln W + 2 ln C(p, k)   sic   dev + d ln p ln ln W

    dev = 2 W F0 with W the sum of the sample weights and F0 the mean loss without l2; for `Precision` dev = W L. Where
    the scale of a loss is not known it is estimated, so that no unit of y (with it of delta and gamma) decides:

    - squared, Huber and quantile: dev = 2 W min_phi (F0 / phi + c ln Z(phi)) of c responses, twice the negative log of
      the density exp(-l / phi) / Z(phi), up to a constant; of the squared loss W c ln(2 F0 / c).
    - gamma and Tweedie: dev = 2 W times the integral of dF / phi(F) from the least F0 of the path on, with the
      dispersion phi = sum_i s_i l_i'^2 / sum_i s_i l_i'' about each fit, and linear in F between them; of the squared
      loss that were W ln(2 F0) too.

    d is the number of coefficients (pairs) in the support, of softmax one less for every feature that has one for each
    class, and k the number of chosen units among p; d = k unless units are groups or rows or some are always kept,
    which count in d only.

    Args:
        path: from `solve_path`.
        name: "aic", "bic", "ebic", "sic", or "gic", another name of sic; or a function (loss, k, p, W) -> (grid,) of
            F0 and k of all rows, smaller is better and infinite where a row is out of the question. The first row whose
            loss is at most t: lambda loss, k, p, W: np.where(loss <= t, k, np.inf).

    Returns:
        A `Criterion`.

    Raises:
        ValueError: for another name, or a path without samples; if W <= e and there are several k; if a function gives
            NaN, or no finite value.

    A saturated fit of unknown scale has dev = -infinity and always wins: keep k well below the number of samples.
    Standard errors and p-values of a model that was selected on the same data are too optimistic.

    Source: McCullagh and Nelder (1989, chapter 9) for phi; Akaike (1974); Schwarz (1978); Chen and Chen (2008) with
    gamma = 1; Zhu et al. (2020) for sic.
    """
    if not callable(name) and name not in NAMES:
        raise ValueError(f"name: must be one of {', '.join(NAMES)}, got {name!r}.")
    if path.total_weight is None:
        raise ValueError("path: its objective has no samples, so no likelihood; pass n_samples, or use LinearModel.")
    W = path.total_weight
    k = path.support.mask.sum(1) - path.n_kept
    p = path.n_units - path.n_kept
    if callable(name):
        values = np.asarray(name(np.asarray(path.loss, float), np.asarray(k), p, W)).astype(np.float64)
        if values.shape != k.shape or np.isnan(values).any() or not np.isfinite(values).any():
            raise ValueError(
                f"name: the function must give {k.size} numbers, one for each row, not all of them infinite."
            )
        return Criterion(values, int(np.argmin(values)))
    if W <= np.e and np.ptp(path.ks):  # features would be rewarded
        raise ValueError(
            f"path: {W:g} samples (events; with sample weights their sum) are too few for a criterion; pass more, or "
            "scale the weights so that they sum to the number of samples."
        )
    loss = path.loss.astype(float)
    c = path.n_responses or 1
    if path.pieces is not None:
        deviance = W * c * np.array([_profiled(each / c, *path.pieces) for each in loss])
    elif path.more_loss is not None and path.dispersion is not None:
        deviance = 2 * W * _integrated(path.more_loss, path.dispersion)
    else:
        deviance = (2 if path.n_variables is None else 1) * W * loss
    d = _determined(path)
    log_total = np.log(max(W, np.e))

    def sic() -> Any:
        return d * np.log(p) * np.log(log_total)

    penalties: dict[str, Callable[[], Any]] = {
        "aic": lambda: 2 * d,
        "bic": lambda: d * log_total,
        "ebic": lambda: d * log_total + 2 * (gammaln(p + 1) - gammaln(k + 1) - gammaln(p - k + 1)),
        "sic": sic,
        "gic": sic,
    }
    values = np.where(np.isnan(deviance), np.inf, deviance + penalties[name]())
    return Criterion(values, int(np.argmin(values)))


def _integrated(loss: Float[np.ndarray, "grid"], phi: Float[np.ndarray, "grid"]) -> Float[np.ndarray, "grid"]:
    """The integral of dF / phi(F) from the least loss to each, with phi linear between them; NaN sorts last."""
    order = np.argsort(loss)
    rise, low, high = np.diff(loss[order]), phi[order][:-1], phi[order][1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(low == high, low, (high - low) / np.log(high / low))  # the logarithmic one
        parts = np.where(rise == 0, 0, rise / mean)
    found = np.empty_like(loss)
    found[order] = np.append(0, np.cumsum(parts))
    return found


def _profiled(loss: float, a: float, b: float, w: float) -> float:
    """2 min_phi (loss / phi + ln Z(phi)) - 1 - ln(2 pi), with Z the integral of exp(-l / phi); for the squared loss
    ln(2 loss).

    As l is convex, and r^2 between slopes -a and b of curvature 1/w and linear elsewhere, phi is from loss to twice it.
    """
    if not 0 < loss < np.inf:
        return -np.inf if loss <= 0 else loss

    @np.errstate(all="ignore")
    def density(log_phi: float) -> float:
        width = np.sqrt(w) / np.exp(log_phi / 2)
        middle = (np.log(2 * np.pi * w) + log_phi) / 2 + np.log(ndtr(b * width) - ndtr(-a * width))
        tails = [log_phi - np.log(slope) - (slope * width) ** 2 / 2 for slope in (a, b) if slope < np.inf]
        return float(loss / np.exp(log_phi) + np.logaddexp.reduce([middle, *tails]))

    least = minimize_scalar(density, bounds=(np.log(loss), np.log(loss) + np.log(2)), options={"xatol": 1e-9}).fun
    return 2 * least - 1 - np.log(2 * np.pi)


def _determined(path: Path) -> Int[np.ndarray, "grid"]:
    """The number of coefficients of every row that the loss determines."""
    features: Any = path.features
    if not path.shift_invariant or path.n_responses is None:
        return features.mask.sum(1)
    each = np.zeros((len(path), path.n_features // path.n_responses), int)
    row, place = np.nonzero(features.mask)
    np.add.at(each, (row, features.idx[row, place] // path.n_responses), 1)
    return np.minimum(each, path.n_responses - 1).sum(1)
