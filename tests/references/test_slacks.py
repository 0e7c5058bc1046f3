"""Laws in exact fractions that fail where what rounding may have done is left out, and a table of all such places."""

import itertools
import re
from fractions import Fraction
from pathlib import Path

import cases
import jax
import jax.numpy as jnp
import mutants
import numpy as np
import pytest
import statements
from rational import Quadratic, least
from scipy import sparse
from slacks import COMPLETE, SLACKS

import sparsehtp as sht
from sparsehtp.certificates import least_squares, nodes
from sparsehtp.certificates.least_squares import LeastSquares
from sparsehtp.duality import Fixed, dual_of
from sparsehtp.screening import gap_sphere, screen

WIDTH, BATCH, K_MAX = 32, 64, 16  # the smallest programs of proofs
SEEDS = 6, 12, 15, 21, 22, 30, 39, 51


def padded(Q, *rows):
    p = len(Q)
    square = np.eye(WIDTH)
    square[:p, :p] = Q
    return [jnp.asarray(a) for a in (square, *(np.append(row, np.zeros(WIDTH - p)) for row in rows))]


def masks(supports):
    """(BATCH, WIDTH) of as many supports."""
    out = np.zeros((BATCH, WIDTH), bool)
    for row, support in zip(out, supports, strict=False):
        row[list(support)] = True
    return out


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(range(100, 400), marks=pytest.mark.slow)])
def test_least_squares_on_the_host_is_never_above_that_of_the_data(x64, monkeypatch, seeds):
    """Columns far from zero, near copies, weights of many sizes: the form that nodes are bounded by, and its minimum on
    every pair as each way of the proof computes it; and a fit has the F of its coefficients."""
    for seed in seeds:
        drawn = statements.draw(np.random.default_rng(seed), True, seed % 3 > 0, seed % 3 == 2)
        exact = statements.rational(drawn)
        X = sparse.csr_array(drawn.X) if seed % 4 == 3 else drawn.X
        problem = LeastSquares(sht.LinearModel(X, drawn.y, **drawn.options()), np.zeros(0, int), 2)
        p = len(problem.features)
        pairs = np.array(list(itertools.combinations(range(p), 2)))
        assert problem.prepare()
        square, b = padded(problem.Q, problem.b)
        form = nodes.NodeData(square, b, jnp.asarray(problem.c0))
        values, lower = problem.values(pairs)
        out = np.broadcast_to(np.arange(WIDTH) >= p, (BATCH, WIDTH))
        leaves = np.asarray(nodes.leaf_pairs(form, masks(()), out, jnp.asarray(2), k_max=K_MAX)[0][0])
        one_by_one = np.asarray(nodes.support_values(form, masks(pairs), k_max=K_MAX))
        for row, pair in enumerate(pairs):
            best = exact.minimum(problem.features[pair])
            stored = least(problem.Q[np.ix_(pair, pair)], problem.b[pair], problem.c0)
            assert stored is None or stored <= best, (seed, pair)
            copies = exact.without_copies(problem.features[pair], statements.COPIES)
            assert Fraction(lower[row]) <= max(best, copies), (seed, pair)
            for found in (leaves[tuple(pair)], one_by_one[row]):
                assert not np.isfinite(found) or Fraction(float(found)) <= best, (seed, pair)
        for pair in pairs[[0, np.argmin(values)]]:
            value, w, intercept = problem.fit(pair)
            here = exact.value(w, intercept)
            assert abs(Fraction(value) - here) <= Fraction(1.5e-10) * here + Fraction(problem.zero) / 5, (seed, pair)
            with monkeypatch.context() as many:  # samples, for exact arithmetic
                many.setattr(least_squares, "EXACT_WORK", 0)
                value, w, intercept = problem.fit(pair)
                assert Fraction(value) >= exact.value(w, intercept) and problem.exact(pair) is None, (seed, pair)


@pytest.mark.parametrize(("far", "kind", "intercept"), [(3, "dense", False), (15, "csr", True), (5, "csr", True)])
def test_what_least_squares_on_the_host_allows_for(x64, far, kind, intercept):
    """Transcribed: sparse columns that are nearly centred are summed first; others lose their mean's last digit."""
    rng, n, eps = np.random.default_rng(0), 40, np.finfo(float).eps
    X = rng.standard_normal((n, 5)) * np.geomspace(0.1, 10, 5)
    X[:, :3] += far * np.geomspace(0.1, 1, 3)  # the others are near
    y, offset = rng.standard_normal(n) + 2, rng.standard_normal(n)
    weights, l2 = rng.uniform(0.5, 2, n) * (np.arange(n) > 2), 0.1
    data = sparse.csr_array(X) if kind == "csr" else X
    model = sht.LinearModel(data, y, l2=l2, sample_weight=weights, offset=offset, fit_intercept=intercept)
    at, omega = LeastSquares(model, np.array([1]), 2, gap=1e-11), weights / weights.sum()
    target = y - offset - intercept * omega @ (y - offset)
    raw, energy = omega @ X**2, omega @ (X - intercept * omega @ X) ** 2
    c0, of_targets, size = omega @ target**2 / 2, omega @ (y**2 + offset**2), 3
    sums = (4096 + 37 / 4096 + 64 + 16 * size) * eps
    lost = sums * raw / energy if (far, kind) == (5, "csr") else sums + 8 * eps * np.sqrt(raw / energy)
    lost = lost * energy / (energy + l2)
    of_sums = sums + 8 * eps * np.sqrt(of_targets / (2 * c0))
    digits = 8 * (np.sqrt(37 + 5) + size)
    for name, found, expected in (
        ("diagonal", 1 - at._diagonal, 4 * size * (np.maximum(lost, sums * energy / (energy + l2)) ** 2 / sums + sums)),
        ("c0", 1 - at.c0 / c0, 4 * (of_sums**2 / sums + sums)),
        ("zero", [at.zero, at.null, at._sure], [1e-13 * c0, c0, 1e-12]),
        ("noise", at.noise, 64 * eps**2 * (c0 + of_targets)),
        ("grain", at._grain, eps * (digits + 2 * np.sqrt(raw / energy))),
        ("grain of targets", at._target_grain, eps * (digits * np.sqrt(2 * c0) + 2 * np.sqrt(of_targets))),
        ("copy", at._copy, 16 * eps * np.sqrt(raw / energy)),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-3, err_msg=name)
    pairs = np.array(list(itertools.combinations(range(5), 2)))
    A, t = at._data(pairs)
    value, lower, x = at._least(A, t, pairs)
    for row, pair in enumerate(pairs):
        z, rest = np.linalg.lstsq(A[row], t, rcond=None)[0], np.sqrt(2 * value[row])
        np.testing.assert_allclose(x[row], z, rtol=1e-9)
        np.testing.assert_allclose(value[row], np.sum((t - A[row] @ z) ** 2) / 2, rtol=1e-9)
        wrong = at._target_grain + at._grain[pair] @ np.abs(z)
        np.testing.assert_allclose(value[row] - lower[row], wrong * rest - wrong**2 / 2, rtol=0.1)


def quadratics(rng, p=6):
    """A nonnegative M, b and c0 in the units of a node: near copies, large and zero M, and features that are as good as
    each other; c0 little above what all features together take from it."""
    kind, Z = rng.integers(3), rng.standard_normal((8, p))
    Z[:, 1] = Z[:, 0] * (1 + 1e-6 * rng.standard_normal(8)) if kind == 1 else Z[:, 1]
    M = Z.T @ Z * (0.1 if kind == 0 else 10.0 ** rng.uniform(0, 8) if kind == 1 else 0.0)
    b = rng.standard_normal(p) * 10.0 ** rng.uniform(-1.5, 1.5)
    b = np.where(rng.random() < 0.5, np.sign(b) * rng.choice([0.1, 0.3], p), b)
    M = np.tril(M) + np.tril(M, -1).T
    return M, b, -float(least(M, b, 0.0, 1)) * rng.choice([1 + 1e-9, 1.5])


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(100, 400), marks=pytest.mark.slow)])
def test_bounds_of_nodes_and_what_they_decide_are_right(x64, seeds):
    """And values of supports and of last pairs are those of the form."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        M, b, c0 = quadratics(rng)
        p, k = len(b), 3
        terms = np.append(np.sqrt(np.diag(M) + 1), np.full(WIDTH - p, np.sqrt(2)))
        square, b_ = padded(M, b)
        K = jnp.linalg.inv(square + jnp.eye(WIDTH))
        at = nodes.Scaled(square, K, jnp.asarray(terms), b_, *map(jnp.asarray, (c0, 1.0, True)))
        every = [S for m in range(p + 1) for S in itertools.combinations(range(p), m)]
        values = {S: least(M[np.ix_(S, S)], b[list(S)], c0, 1) for S in every}

        def bound(inn, out, level, k, at=at):
            zeros, numbers = np.zeros((BATCH, WIDTH)), (jnp.asarray(level), jnp.asarray(k), jnp.asarray(20))
            found = nodes.bound(at, inn, out, zeros, zeros, *numbers, k_max=K_MAX)
            return [np.asarray(part) for part in (found.lower, found.inn, found.out)]

        lower = bound(masks(every), ~masks(every), np.inf, p)[0]
        assert all(Fraction(bound) <= values[S] for bound, S in zip(lower.tolist(), every, strict=True)), seed
        # The least level that has so many supports below it.
        last = sorted(v for S, v in values.items() if len(S) == k)[rng.choice([0, 3, 10])]
        level = float(last) if Fraction(float(last)) > last else float(np.nextafter(float(last), np.inf))
        supports = masks([S for S, v in values.items() if len(S) == k and v < level])[:, None]
        live = supports.any(2)
        inn = rng.random((BATCH, WIDTH)) < 0.2
        out = ~inn & (rng.random((BATCH, WIDTH)) < 0.2)
        inn[:, p:], out[:, p:] = False, True
        inn[inn.sum(1) > k] = False
        out[(~out).sum(1) < k] = np.arange(WIDTH) >= p
        inside = live & ~(inn & ~supports).any(2) & ~(out & supports).any(2)
        lower, new_inn, new_out = bound(inn, out, level, k)
        assert not (inside & (lower >= level)).any(), seed
        assert not (inside & ((new_inn & ~supports).any(2) | (new_out & supports).any(2))).any(), seed
        form = nodes.NodeData(square + jnp.eye(WIDTH), b_, jnp.asarray(c0))
        found = np.asarray(nodes.support_values(form, masks(every), k_max=K_MAX))
        np.testing.assert_allclose(found, [float(values[S]) for S in every], atol=1e-7 * c0)
        pairs, doubt = (np.asarray(a) for a in nodes.leaf_pairs(form, inn, out, jnp.asarray(k), k_max=K_MAX))
        left, free = k - inn.sum(1), (~(inn | out)).sum(1)
        last = np.flatnonzero((left == 1) | (left == 2))
        shown = (np.isfinite(pairs) | doubt)[last]
        number = np.where(left == 1, free, free * (free - 1) // 2)[last]
        assert last.size > 20 and np.array_equal(shown.sum((1, 2)), number), seed
        assert not doubt.any(), "with a ridge of one"
        for row, i, j in np.argwhere(shown):
            row, S = last[row], tuple(sorted({i, j, *np.flatnonzero(inn[last[row]])}))
            assert i <= j and len(S) == k and not out[row, [i, j]].any(), seed
            assert doubt[row, i, j] or abs(pairs[row, i, j] - float(values[S])) <= 1e-7 * c0, seed
        if M.any():
            continue
        open_ = ~(inn | out) & ((inn.sum(1) < k) & (lower < level))[:, None]
        for row, j in np.argwhere(open_):  # here bounds are exact, and decide all that follows
            has, may = ({*np.flatnonzero(each[row])} for each in (inn, ~out))
            here = [S for S in every if len(S) == k and has <= {*S} <= may]
            for decided, holds in ((new_inn, True), (new_out, False)):
                other = min((values[S] for S in here if (j in S) != holds), default=0)
                assert decided[row, j] or other <= level + 1e-9 * c0, (seed, row, j)


def test_shares_of_a_relaxation_fill_the_places(x64):
    """z minimises sum_j v_j^2 / (2 z_j) + rho |v - a|^2 / 2 for the best v: what is inside has one slope."""
    rng, prox = np.random.default_rng(0), cases.jit(nodes._prox)
    a, (inn, out) = rng.standard_normal((40, 8)), np.zeros((2, 40, 8), bool)
    s, rho, theta = rng.integers(1, 5, 40), rng.choice([3.0, 30.0]), np.ones(40)
    inn[:, 0], out[20:, 1:3] = rng.random(40) < 0.5, True
    a[:5] *= 1e4
    for _ in range(4):  # each goes on from the last one's
        v, z, theta = prox(a, inn, ~(inn | out), s, rho, theta)
    np.testing.assert_allclose(np.where(inn, 0, z).sum(1), s, rtol=1e-3)
    np.testing.assert_allclose(v, a * rho * z / (1 + rho * z), rtol=1e-12)
    assert (z[inn] == 1).all() and (z[out] == 0).all()
    slope = np.where((z > 0) & (z < 1), (z + 1 / rho) / np.abs(a), theta[:, None])
    np.testing.assert_allclose(slope, np.tile(theta[:, None], 8), rtol=1e-9)
    assert (z[(theta[:, None] * np.abs(a) > 1 + 1 / rho) & ~out] == 1).all()


@pytest.mark.parametrize("double", [True, False])
def test_bounds_leave_features_that_are_as_good_open(double):
    """A large l2, where the bound is the optimum but for rounding, and columns that copy others."""
    decided = 0
    for seed in range(24):
        rng, k = np.random.default_rng(seed), 1 + seed % 2
        X = rng.standard_normal((12, 4))
        X[:, 3] = X[:, 0] * (-1) ** seed
        y = X[:, :2] @ rng.choice([0, 1, 3], 2) + rng.standard_normal(12)
        X, y, l2 = (np.asarray(a, np.float64 if double else np.float32) for a in (X, y, 10.0 ** rng.uniform(-1, 2)))
        choices = Quadratic(X, y, l2, intercept=True).choices(k)
        best = min(choices.values())
        optima = [support for support, value in choices.items() if value == best]
        with jax.enable_x64(double):
            model = sht.LinearModel(X, y, l2=l2, fit_intercept=True)
            # In single precision a value that was computed may be two digits too small.
            found = sht.lower_bound(model, sht.Sparsity(k), float(best) * (1 if double else 1 - 2**-22))
        assert Fraction(found.lower) <= best, seed
        assert not any(j in support for support in optima for j in found.zero.tolist()), seed
        assert all(j in support for support in optima for j in found.nonzero.tolist()), seed
        number = found.zero.size + found.nonzero.size
        assert found.decided == (number == 4) and (found.decided or found.nonzero.size < k), seed
        decided += number
    assert decided >= 48


@cases.jit
def _screened(dual, a, upper):
    def one(a):
        point = dual.point(dual.project(a))
        fixed = screen(dual, point, dual.columns.moments()[1], upper)[0]
        sphere = gap_sphere(dual, point, dual.columns.moments()[1], upper).zero if dual.penalised else False
        return fixed.zero | sphere, fixed.nonzero

    return jax.vmap(one)(a)


@pytest.mark.parametrize("penalised", [False, True])
def test_rules_decide_nothing_by_rounding(x64, penalised):
    """At 64 roundings of the best dual point, whose value is the optimum: of two columns that copy each other neither
    is decided; and at an l2 whose gains are all smaller than a digit of F, no feature is decided to the wrong side."""
    decided = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((12, 4))
        X[:, 3] = X[:, 0] * (-1) ** seed
        y, l2 = X[:, 0] * 3 + rng.standard_normal(12), 1e16 if penalised else 10.0 ** rng.uniform(-1, 2)
        exact = Quadratic(X, y, l2, intercept=True)
        choices, threshold = exact.choices(1), sht.Sparsity(1)
        if penalised:
            every = [S for m in range(5) for S in itertools.combinations(range(4), m)]
            gains = sorted(float(exact.minimum(()) - exact.minimum((j,))) for j in range(4))
            l0 = gains[-1] * (0.5, 2, 1 - 1e-10)[seed % 3] if seed % 4 else gains[0] * 0.9
            choices, threshold = {S: exact.minimum(S) + len(S) * Fraction(l0) for S in every}, sht.L0L1L2(l0, 0.0)
        best = min(choices.values())
        upper = float(best) if Fraction(float(best)) >= best else np.nextafter(float(best), np.inf)
        optima = [support for support, value in choices.items() if value == best]
        _, (z,) = exact.solve(sorted(optima[0]))
        residual = X[:, sorted(optima[0])] @ np.array(z[:-1], float) + float(z[-1]) - y
        model = sht.LinearModel(X, y, l2=l2, fit_intercept=True)
        dual = dual_of(model, threshold, Fixed(*np.zeros((2, 4), bool)))
        zero, nonzero = _screened(dual, residual * (1 + 1e-9 * rng.standard_normal((64, 12))), upper)
        for support in optima:
            inside = np.isin(np.arange(4), list(support))
            assert not (zero & inside).any() and not (nonzero & ~inside).any(), seed
        decided += zero.sum() + nonzero.sum()
    assert decided >= 1000


PLACE = re.compile(r"\btolerance\(|\.eps\b|\bEPS\b|^[A-Z_, ]+ = .*\de-\d")


def test_every_slack_is_in_the_table():
    for name, rows in SLACKS.items():
        text = (Path(sht.__path__[0]) / name).read_text(encoding="utf-8")
        assert not [snippet for snippet in rows if snippet not in text], name
    for room in COMPLETE:
        for path in sorted((Path(sht.__path__[0]) / room).glob("*.py")):
            rows, text = SLACKS.get(f"{room}/{path.name}", {}), path.read_text(encoding="utf-8")
            for line in text.splitlines():
                if PLACE.search(line) and "import" not in line:
                    assert any(snippet in line for snippet in rows), f"{path.name}: {line.strip()}"


@pytest.mark.slow
def test_a_law_breaks_without_each_slack(tmp_path):
    mutants.KEPT.mkdir(exist_ok=True)
    mutants.copy_tree(tmp_path)
    for name, rows in SLACKS.items():
        path = tmp_path / "sparsehtp" / name
        text = path.read_text(encoding="utf-8")
        for snippet, row in rows.items():
            if not isinstance(row, str):
                file, words = row[1].split(" ", 1)
                path.write_text(text.replace(snippet, row[0]), encoding="utf-8")
                assert mutants.pytest(tmp_path, "ci", ["-x", f"tests/{file}", "-k", words])[0] == 1, snippet
        path.write_text(text, encoding="utf-8")
