"""Stability selection against a loop over subsamples, and its bounds by hand."""

import itertools
import math
from fractions import Fraction
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import screening

import sparsehtp as sht
from sparsehtp.grids import stability as _stability

SOLVER = screening.Screening()


@pytest.mark.later
def test_probabilities_equal_a_loop_over_subsamples(monkeypatch):
    drawn = []
    draw = _stability._subsamples
    monkeypatch.setattr(_stability, "_subsamples", lambda *a: (drawn.append(draw(*a)), drawn[0])[1])
    X, y = screening.data(n=45)
    weights = np.arange(45.0) >= 5  # rows without one are not drawn
    objective = sht.LinearModel(X, y, sample_weight=weights, fit_intercept=True, standardize=True)
    stability = sht.stability_selection(objective, ks=[1, 3], n_resamples=10, solver=SOLVER)
    counts = np.zeros((2, 8))
    for rows in drawn[0]:
        assert rows.sum() == 20 and not rows[:5].any()
        part = sht.LinearModel(X[rows], y[rows], fit_intercept=True, standardize=True)
        path = sht.solve_path(part, ks=[1, 3], solver=SOLVER)
        for j in range(2):
            counts[j, path.support.idx[j][path.support.mask[j]]] += 1
    np.testing.assert_allclose(stability.probabilities, counts / 10)
    assert (drawn[0][::2] ^ drawn[0][1::2])[:, 5:].all()  # complementary pairs
    np.testing.assert_array_equal(stability.selected(0.6), counts >= 6)


def test_what_is_drawn_and_what_is_counted(monkeypatch):
    """Rows of a group go together, in halves that share none; a unit counts once for a size that has it."""
    rng, grids = np.random.default_rng(0), []
    idx, mask = rng.permuted(np.tile(np.arange(8), (6, 2, 1)), axis=-1)[..., :3], rng.random((6, 2, 3)) < 0.7
    fits = SimpleNamespace(support=sht.results.Support(idx, mask))
    monkeypatch.setattr(_stability._grid, "run", lambda grid, *rest: (grids.append((grid, rest)), fits)[1])
    groups = np.repeat(np.arange(10)[::-1], 4)
    weights = np.where(groups < 3, 0, np.linspace(1, 2, 40)).astype(np.float32)
    model, options = screening.model(sample_weight=weights), {"ks": [1, 3], "groups": groups, "solver": SOLVER}
    found = sht.stability_selection(model, n_resamples=6, memory=5, progress=False, checkpoint="here", **options)
    counts = [[sum(u in idx[r, j][mask[r, j]] for r in range(6)) for u in range(8)] for j in range(2)]
    np.testing.assert_allclose(found.probabilities, np.array(counts) / 6)
    assert (found.ks.tolist(), found.n_resamples, found.in_pairs, found.n_kept) == ([1, 3], 6, True, 0)
    (grid, rest), taken = grids[0], np.asarray(grids[0][0].weights.fit) > 0
    assert rest == (5, False, "here", None)
    np.testing.assert_array_equal(grid.weights.fit, np.where(taken, weights, 0))
    np.testing.assert_array_equal(grid.weights.score, grid.weights.fit)
    assert all(np.isin(groups, groups[one]).sum() == one.sum() == 12 for one in taken), "3 of 7 groups"
    assert not (taken[::2] & taken[1::2]).any() and len(np.unique(taken, axis=0)) == 6
    assert not sht.stability_selection(model, n_resamples=1, sample_fraction=0.9, **options).in_pairs
    assert sht.stability_selection(model, n_resamples=6, **options | {"groups": np.arange(40) % 2}).in_pairs
    with pytest.raises(ValueError, match="groups: all rows have one label"):
        sht.stability_selection(model, **options | {"groups": np.ones(40)})


def stability(q, p, pairs=50, in_pairs=True):
    return sht.results.Stability(np.array([q]), np.zeros((1, p)), 2 * pairs, in_pairs, 0)


def test_bounds_by_hand():
    for threshold in (0.6, 0.9):
        found = stability(10, 1000).error_bound(threshold).meinshausen_buhlmann
        np.testing.assert_allclose(found, 100 / 1000 / (2 * threshold - 1))
    for bare in (stability(10, 1000, in_pairs=False), stability(0, 0)):
        assert np.isinf(bare.error_bound(0.9)).all()
    np.testing.assert_array_equal(np.ravel(stability(0, 1000).error_bound(0.9)), 0)
    assert stability(10, 1000).error_bound() == stability(10, 1000).error_bound(0.75)


def test_where_the_bound_of_pairs_applies():
    """Above both ends that the theorem names, whichever is less, and for at most 1 / sqrt(3) of the units."""
    seen = set()
    for pairs, q, i in itertools.product((5, 50), range(0, 70, 3), range(21, 40)):
        B, a, t = Fraction(pairs), Fraction(q, 100), Fraction(math.ceil(Fraction(i, 40) * 2 * pairs), 2 * pairs)
        ends = Fraction(1, 2) + a**2, Fraction(1, 2) + 1 / (2 * B) + a**2 * 3 / 4
        applies = 3 * a**2 <= 1 and t > min(ends) and t >= Fraction(1, 2) + 1 / B
        bound = stability(q, 100, pairs).error_bound(i / 40).shah_samworth
        assert np.isfinite(bound) == (applies or q == 0), (pairs, q, i)
        seen.add((min(ends) < t <= max(ends), ends[0] < ends[1], applies))
    assert len(seen) >= 5


def test_shares_are_those_of_their_decimals():
    """Counts and thresholds are divided, multiplied and summed, of which each rounds: 0.7 - 0.1 is no longer 0.6."""
    for pairs in (5, 10, 20, 50, 100):
        B, counts = Fraction(pairs), np.arange(2 * pairs + 1)
        told = sht.results.Stability(np.array([1]), counts[None] / (2 * pairs), 2 * pairs, True, 0)
        for i in range(11, 20):
            t = Fraction(i, 20)
            grid, enough = Fraction(math.ceil(2 * B * t), 2 * pairs), counts >= 2 * B * t
            if grid > 0.75:
                constant = 4 * (1 - grid + 1 / (2 * B)) / (1 + 1 / B)
            else:
                constant = 1 / (2 * (2 * grid - 1 - 1 / (2 * B))) if grid >= Fraction(1, 2) + 1 / B else np.inf
            bound = float(constant) / 1000
            for given in (i / 20, sum([0.05] * i), 1 - sum([0.05] * (20 - i)), np.nextafter(i / 20, 0)):
                assert np.array_equal(told.selected(given)[0], enough), (pairs, i)
                found = stability(1, 1000, pairs).error_bound(given).shah_samworth[0]
                np.testing.assert_allclose(found, bound, rtol=1e-9, err_msg=f"{pairs} {i}")
    for rows in (37, 100, 1000):
        for i in range(1, 100):
            members = _stability._subsamples(np.arange(rows), rows, 2, i / 100, jax.random.key(0))
            assert (members.sum(1) == i * rows // 100).all() and (i > 50 or not members.all(0).any()), i


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_resamples": 0}, "n_resamples: needs a positive integer"),
        ({"n_resamples": 5}, "n_resamples: subsamples come as pairs"),
        ({"sample_fraction": 1.0}, "sample_fraction: needs a number between 0 and 1"),
        ({"sample_fraction": 0.01}, "sample_fraction: number 0 trains on no row"),
        ({"objective": screening.model(labels=True), "sample_fraction": 0.03}, "number 0 trains on one class only"),
        (
            {"objective": sht.CoxModel(*screening.data(), np.arange(40) == 3)},
            "trains on no event with a positive weight",
        ),
    ],
)
def test_bad_values(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        sht.stability_selection(**{"objective": screening.model(), "ks": [1], "solver": SOLVER} | options)


def test_bad_threshold_and_objective():
    for call in (stability(1, 10).selected, stability(1, 10).error_bound):
        with pytest.raises(ValueError, match="threshold: needs a probability"):
            call(1.5)
    with pytest.raises(TypeError, match="objective: subsamples are sample weights"):
        sht.stability_selection(sht.QuadraticForm(np.eye(3), np.ones(3)), ks=[1])
