"""Sparse principal components with the scikit-learn interface."""

from __future__ import annotations

import itertools
import math
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import jax
import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted

from .._programs import program
from .._types import ArrayLike, TableLike
from ..linalg import sparse_eigenvector
from ..thresholds.base import default_k_max
from . import parameters
from .arrays import validated
from .failures import all_or_nothing

MOST_SUBSETS = 20_000  # that are all tried
LARGEST_GRAM = 4_000  # features whose whole covariance is looked through for a bound, row by row
AT_ONCE = 2**21  # numbers held at a time
ROUNDING = 64  # machine numbers per feature, that no bound is trusted below

_best = program(sparse_eigenvector, static_argnames=("k_max",))


@dataclass(eq=False, repr=False)
class SparsePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Principal components of at most k features each.

        v_t = argmax v'S_t v   subject to ||v|| = 1, ||v||_0 <= k,    S_t = P_t S P_t

    with the covariance S of the centred data (divisor n - 1) and the projection P_t onto what is orthogonal to
    v_1, ..., v_{t-1}: orthogonalised projection deflation, which never counts a variance twice though the components
    are not orthogonal.

    Args:
        n_components: number of components, at most min(n - 1, p).
        k: features of a component at most, an integer or one for each component. None: all, which is ordinary PCA.
        n_init: starts of each component: leading eigenvector, features of the largest variance, random vectors.
        covariance: X is the (p, p) covariance S itself, and `mean_` zero.
        random_state: seed or RandomState of the random starts. None: a fixed seed.

    Attributes:
        components_: (n_components, p) unit vectors, their largest entry positive.
        support_: (n_components, p) mask of the features in each.
        explained_variance_: (n_components,) variance that each adds to the span of those before it: q_t'S q_t with the
            part q_t of v_t orthogonal to them, at unit length (Shen and Huang 2008). Their sum is the variance of the
            data projected onto the span of all.
        explained_variance_ratio_: (n_components,) the same as shares of the total variance.
        variance_: (n_components,) v_t'S_t v_t, what was maximised.
        upper_bound_: (n_components,) no vector of k features has a larger v'S_t v.
        optimal_: (n_components,) True where all choices of k features were tried, so that v_t is a global maximum for
            the S_t that it was given, up to rounding.
        mean_: (p,).
        n_features_in_, feature_names_in_: as in scikit-learn.

    Raises:
        ValueError: in `fit`, for data or parameters out of range; the message names the argument.

    Guarantee: no exchange of one feature of v_t for another raises v'S_t v. Where there are 20,000 choices or fewer all
    are tried. Otherwise the bound is the least of lambda_max(S_t), the sum of the k largest variances, and (up to 4,000
    features) the largest sum of the k largest |S_t| in a row that include its diagonal (Gershgorin).

    It fails to find the best where components of nearly equal variance overlap; the bound may then be far above.
    Components are found one after the other, so that all together need not be the best. Past the rank of the data
    a component, its variance and its support are zero. The covariance is never formed; swaps cost k eigenvalue problems
    of size k and products with k columns at a time. Computes in float64.

    Example:
        >>> model = SparsePCA(2, k=5).fit(X)
        >>> model.support_, model.transform(X)

    Source: Yuan and Zhang (2013), truncated power method; Mackey (2008), deflation.
    """

    n_components: int = 1
    k: ArrayLike | None = None
    _: KW_ONLY
    n_init: int = 16
    covariance: bool = False
    random_state: Any = None
    # What `fit` sets, and `sht.load` takes: nothing else, in these types and shapes.
    components_: Float[np.ndarray, "c p"] = field(init=False)
    support_: Bool[np.ndarray, "c p"] = field(init=False)
    explained_variance_: Float[np.ndarray, "c"] = field(init=False)
    explained_variance_ratio_: Float[np.ndarray, "c"] = field(init=False)
    variance_: Float[np.ndarray, "c"] = field(init=False)
    upper_bound_: Float[np.ndarray, "c"] = field(init=False)
    optimal_: Bool[np.ndarray, "c"] = field(init=False)
    mean_: Float[np.ndarray, "p"] = field(init=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.sparse, tags.input_tags.pairwise = True, bool(self.covariance)
        return tags

    @all_or_nothing
    def fit(self, X: TableLike, y: Any = None) -> Self:
        """Find the components.

        Args:
            X: (n, p) array, data frame or sparse matrix, float32 or float64, n >= 2; a sparse one is centred, and so
                made dense. With `covariance` (p, p), symmetric and without negative eigenvalues.
            y: not used.
        """
        least = 1 if self.covariance else 2
        X = validated(self, X, ensure_min_samples=least, accept_sparse="csr")
        X = X.toarray() if issparse(X) else X
        n, p = X.shape
        count, most = parameters.checked_count("n_components", self.n_components, 1), min(n - least + 1, p)
        if count > most:
            rows = "rows" if self.covariance else "samples"
            raise ValueError(f"n_components: is {count}, but {n} {rows} of {p} features have {most} at most; lower it.")
        ks = self._check_k(count, p)
        n_init = parameters.checked_count("n_init", self.n_init, 1)
        rng = check_random_state(parameters.make_seed(self.random_state))
        A = X.astype(float)
        if self.covariance:
            A, mean = _root(A), np.zeros(p)
        else:
            mean = A.mean(0)
            A = (A - mean) / math.sqrt(n - 1)
            # A constant column leaves rounding of its mean only.
            A[:, np.ptp(X, axis=0) == 0] = 0
        size = np.abs(A).max()
        scale = np.ldexp(1.0, int(np.frexp(size)[1]))
        A = A / scale
        if n > p:
            A = np.asarray(np.linalg.qr(A, mode="r"))
        total = float(np.sum(A**2))
        vectors, basis = np.zeros((count, p)), np.zeros((count, p))
        self.variance_, self.explained_variance_, self.upper_bound_ = np.zeros((3, count))
        self.optimal_ = np.zeros(count, bool)
        with jax.enable_x64(True):
            for t, k in enumerate(ks):
                deflated = A - (A @ basis.T) @ basis
                v, value = self._component(deflated, int(k), default_k_max(int(ks.max()), p), n_init, rng)
                best, upper, exact = _bound(deflated, int(k))
                if best is not None and best @ best > 0 and _variance(deflated, best) > value * (1 + 1e-9):
                    v, value = best, _variance(deflated, best)
                if value <= p * np.finfo(X.dtype).eps * total / min(n, p):
                    break  # of rounding: the rank is used up
                vectors[t] = v * np.sign(v[np.argmax(np.abs(v))])
                new = v - basis.T @ (basis @ v)
                new -= basis.T @ (basis @ new)
                basis[t] = new / np.linalg.norm(new)
                self.variance_[t], self.upper_bound_[t] = value, max(upper, value)
                self.optimal_[t] = exact
                self.explained_variance_[t] = _variance(A, basis[t])
        self.explained_variance_ratio_ = self.explained_variance_ / (total if total > 0 else 1)
        for array in (self.variance_, self.explained_variance_, self.upper_bound_):
            array *= scale**2
        self.components_, self.support_, self.mean_ = vectors.astype(X.dtype), vectors != 0, mean.astype(X.dtype)
        return self

    def _check_k(self, count: int, p: int) -> np.ndarray:
        given = p if self.k is None else self.k
        ks = np.array([parameters.checked_count("k", k, 1) for k in np.ravel(np.asarray(given))])
        if np.ndim(given) > 1 or ks.size not in (1, count):
            raise ValueError(f"k: needs one number, or one for each of {count} components, got {self.k!r}.")
        if ks.max() > p:
            raise ValueError(f"k: is {ks.max()}, but X has {p} features; lower k.")
        return np.broadcast_to(ks, count)

    @staticmethod
    def _component(A: np.ndarray, k: int, k_max: int, n_init: int, rng: Any) -> tuple[np.ndarray, float]:
        p = A.shape[1]
        leading = np.linalg.eigh(A @ A.T)[1][:, -1] @ A if A.shape[0] < p else np.linalg.eigh(A.T @ A)[1][:, -1]
        starts = rng.standard_normal((n_init, p))
        starts[0] = leading
        few = min((n_init - 1) // 2, p)
        order = np.argsort(-np.sum(A**2, axis=0), kind="stable")[:few]
        starts[1 : 1 + few] = np.arange(p) == order[:, None]
        found = _best(A, np.int32(k), k_max, starts)
        return np.asarray(found.vector), float(found.value)

    def transform(self, X: TableLike) -> Float[np.ndarray, "n c"]:
        """(n, n_components) scores (X - mean) v_t; each takes the features of its component only."""
        check_is_fitted(self)
        X = validated(self, X, accept_sparse="csr", reset=False)
        X = X.toarray() if issparse(X) else X
        return (X - self.mean_) @ self.components_.T

    def inverse_transform(self, X: TableLike) -> Float[np.ndarray, "n p"]:
        """(n, p) data of (n, n_components) scores: that in the span of the components, which has these scores."""
        check_is_fitted(self)
        X = check_array(X, dtype=[np.float64, np.float32])
        if X.shape[1] != len(self.components_):
            raise ValueError(f"X: needs one column for each of {len(self.components_)} components, got {X.shape[1]}.")
        return X @ np.linalg.pinv(self.components_).T + self.mean_

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


def _root(S: np.ndarray) -> np.ndarray:
    """A with A'A = S, or ValueError."""
    room = 100 * np.finfo(np.float32).eps * np.abs(S).max()
    values, vectors = np.linalg.eigh(S) if S.shape[0] == S.shape[1] else (np.full(1, -np.inf), S)
    if values[0] < -room or np.abs(S - S.T).max() > room:
        raise ValueError(f"X: a covariance is symmetric and has no negative eigenvalue; got an array of {S.shape}.")
    return np.sqrt(np.maximum(values, 0))[:, None] * vectors.T


def _variance(A: np.ndarray, v: np.ndarray) -> float:
    return float(np.sum((A @ v) ** 2))


def _bound(A: np.ndarray, k: int) -> tuple[np.ndarray | None, float, bool]:
    """The best vector of k entries where all supports are tried (else None), an upper bound, and whether they were."""
    p = A.shape[1]
    room = 1 + ROUNDING * p * np.finfo(float).eps
    if math.comb(p, k) <= MOST_SUBSETS:
        S = A.T @ A
        most, best = -np.inf, np.arange(k)
        subsets = itertools.combinations(range(p), k)
        while (some := np.array(list(itertools.islice(subsets, max(AT_ONCE // k**2, 1))))).size:
            values = np.linalg.eigvalsh(S[some[:, :, None], some[:, None, :]])[:, -1]
            if values.max() > most:
                most, best = values.max(), some[values.argmax()]
        v = np.zeros(p)
        v[best] = np.linalg.eigh(S[np.ix_(best, best)])[1][:, -1]
        return v, most * room, True
    variances = np.sum(A**2, axis=0)
    small = A @ A.T if A.shape[0] < p else A.T @ A
    upper = min(np.linalg.eigvalsh(small)[-1], np.sort(variances)[-k:].sum())
    if p <= LARGEST_GRAM:
        rows = max(AT_ONCE // p, 1)
        largest = 0.0
        for start in range(0, p, rows):
            sizes = np.abs(A[:, start : start + rows].T @ A)
            here = np.arange(len(sizes))
            sizes[here, start + here] = 0
            others = np.partition(sizes, p - k, axis=1)[:, p - k + 1 :].sum(1)
            largest = max(largest, (variances[start : start + rows] + others).max())
        upper = min(upper, largest)
    return None, float(upper * room), False
