"""Plots: what is drawn is what was computed, and every label can be read."""

import dataclasses
import itertools
import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, RidgeClassifier
from sklearn.metrics import confusion_matrix, r2_score, roc_auc_score

import sparsehtp as sht
from sparsehtp.certificates.exchanges import near_exchanges
from sparsehtp.datasets import make_regression
from sparsehtp.plot import (
    Swaps,
    best_swaps,
    plot_coefficients,
    plot_collected,
    plot_components,
    plot_cv,
    plot_history,
    plot_parts,
    plot_path,
    plot_predictions,
    plot_proof,
    plot_shares,
    plot_stability,
    plot_swap_gains,
)
from sparsehtp.plot.style import MAX_LABELS, PALETTE, REST

L2S = (0.01, 1.0)


def make_path(p, k_max, l2s=L2S):
    """A path with random nested supports."""
    rng = np.random.default_rng(p)
    ks = np.tile(np.arange(k_max + 1), len(l2s))
    idx = np.tile(rng.permutation(p)[:k_max], (ks.size, 1)).astype(np.int32)
    support = sht.results.Support(idx, np.arange(k_max) < ks[:, None])
    coefficients = np.where(support.mask, rng.standard_normal(idx.shape), 0)
    zeros, unused = np.zeros(ks.size), dict.fromkeys(("l0s", "more_loss", "dispersion"))
    rows = {"ks": ks, "l2s": np.repeat(np.array(l2s, float), k_max + 1), "support": support, "features": support}
    rows |= {"coefficients": coefficients, "result": zeros.astype(int)}
    rows |= dict.fromkeys(("intercept", "value", "loss"), zeros)
    sizes = {"n_features": p, "n_units": p, "n_kept": 0, "total_weight": 100.0, "pieces": (np.inf, np.inf, 1.0)}
    return sht.results.Path(**rows, **sizes, **unused, key=jax.random.key(0))


def make_cv(path):
    rng = np.random.default_rng(0)
    curve = (path.ks - 3.0) ** 2 + path.l2s
    scores = curve + rng.uniform(0, 1, (4, len(path)))
    rest = {"n_rows": 40, "times": 1.0, "support": None}
    return sht.results.CrossValidation(scores, np.zeros(scores.shape, int), np.ones(4), path, **rest)


def make_stability(p):
    ks = np.arange(6)
    chances = np.linspace(0, 1, p)[None] * np.minimum(ks, 1)[:, None]
    return sht.results.Stability(ks, np.round(chances * 20) / 20, 20, True, 0)


def check_panels(figure):
    """The axes of a figure: nothing that is written is cut off, and titles do not run into each other."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer, frame = canvas.get_renderer(), figure.bbox
    for ax in figure.axes:
        low, high = sorted(ax.get_ylim())
        ticks = [label for label in ax.get_yticklabels() if low <= label.get_position()[1] <= high]
        for text in filter(Text.get_text, (ax.title, ax.xaxis.label, ax.yaxis.label, *ticks)):
            box = text.get_window_extent(renderer)
            assert box.x0 >= frame.x0 - 1 and box.x1 <= frame.x1 + 1, text.get_text()
            assert box.y0 >= frame.y0 - 1 and box.y1 <= frame.y1 + 1, text.get_text()
    boxes = [ax.title.get_window_extent(renderer) for ax in figure.axes]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    return figure.axes


def check_legible(figure):
    """The same of one panel; and no two labels at the right end overlap."""
    (ax,) = check_panels(figure)
    boxes = [Text.get_window_extent(text) for text in labels(ax)]  # without the leading lines
    assert all(box.x1 <= figure.bbox.x1 + 1 and box.y0 >= 0 and box.y1 <= figure.bbox.y1 for box in boxes)
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    return ax


def widths(ax):
    return [bar.get_width() for bar in ax.patches]


def labels(ax):
    return [text for text in ax.texts if getattr(text, "arrow_patch", None) is not None]


def named_lines(ax):
    return [tuple(np.nan_to_num(line.get_ydata())) for line in ax.lines if line.get_color() in PALETTE]


@pytest.mark.parametrize("p", [5, 200])
def test_path_draws_the_coefficients(p):
    path = make_path(p, 5 if p == 5 else 40)
    names = [f"$name_{j}$ of a feature that has a very long name" for j in range(p)]
    row = len(path) // 2 + 4
    scale = np.linspace(1, 2, p)
    ax = check_legible(plot_path(path, names, chosen=row, scale=scale))
    lines, texts = named_lines(ax), labels(ax)
    assert len(lines) == len(texts) == min(p, 8)
    expected = (path.x * scale)[len(path) // 2 :]
    assert set(lines) <= {tuple(column) for column in expected.T}
    members = {names[j][-13:] for j in path.features.idx[row][path.features.mask[row]]}
    assert members <= {text.get_text()[-13:] for text in texts}
    assert "l2 = 1" in ax.get_title()
    assert any(text.get_text() == "k = 4" for text in ax.texts)
    grey = sum(line.get_color() == REST for line in ax.lines)
    assert len(lines) + grey == len(np.unique(path.features.idx))


def test_path_without_a_choice_names_sixteen_and_takes_axes():
    figure = Figure(figsize=(9, 6))
    ax = figure.subplots()
    assert plot_path(make_path(200, 30, (0.1,)), ax=ax) is figure
    assert len(labels(ax)) == MAX_LABELS


def test_path_of_several_responses_draws_norms():
    path = dataclasses.replace(make_path(15, 4), n_responses=3)
    scale = np.linspace(1, 2, 5)
    row = len(path) // 2 + 4
    ax = check_legible(plot_path(path, list("abcde"), chosen=row, scale=scale))
    expected = np.linalg.norm(path.x, axis=2) * scale
    assert set(named_lines(ax)) <= {tuple(column) for column in expected[len(path) // 2 :].T}
    assert {text.get_text() for text in labels(ax)} == {"abcde"[j] for j in np.flatnonzero(expected[row])}
    assert "norm" in ax.get_ylabel()
    with pytest.raises(TypeError, match="path: holds matrices; draw one by plot_graph"):
        plot_path(dataclasses.replace(make_path(15, 4), n_variables=6))


def test_path_draws_one_line_for_the_levels_of_a_category():
    path, columns = make_path(5, 5), ["city", "age", "city", "city", "sex"]
    row, scale = len(path) // 2 + 3, np.linspace(1, 2, 5)
    names = ["city=Oslo", "age", "city=Rome", "city=Riga", "sex=m"]
    ax = check_legible(plot_path(path, names, chosen=row, scale=scale, columns=columns))
    w = (path.x * scale)[len(path) // 2 :]
    expected = {"city": np.linalg.norm(w[:, [0, 2, 3]], axis=1), "age": w[:, 1], "sex=m": w[:, 4]}
    assert {text.get_text() for text in labels(ax)} == set(expected)
    assert set(named_lines(ax)) == {tuple(line) for line in expected.values()}
    assert "norm over its levels" in ax.get_ylabel()
    alone = plot_path(path, names, chosen=row, scale=scale, columns=list("abcde")).axes[0]
    assert {text.get_text() for text in labels(alone)} == set(names) and "norm" not in alone.get_ylabel()


@pytest.mark.parametrize("l2s", [(0.1,), np.geomspace(1e-4, 10, 12)])
def test_cv_marks_the_choices(l2s):
    cv = make_cv(make_path(6, 6, l2s))
    for given in (cv, cv.table):
        ax = check_legible(plot_cv(given))
        points = {line.get_marker(): line.get_xydata()[0] for line in ax.lines if line.get_linestyle() == "None"}
        np.testing.assert_allclose(points["o"], [cv.path.ks[cv.best], cv.mean[cv.best]])
        np.testing.assert_allclose(points["D"], [cv.path.ks[cv.best_1se], cv.mean[cv.best_1se]])
        curves = [line.get_ydata() for line in ax.lines if len(line.get_xdata()) == 7]
        np.testing.assert_allclose(np.sort(np.concatenate(curves)), np.sort(cv.mean))


def test_cv_with_infinite_scores():
    cv = make_cv(make_path(6, 6))
    cv.scores[:, 5] = np.inf
    cv.scores[:, 6] = 1e9
    assert check_legible(plot_cv(cv)).get_ylim()[1] < 1e3


@pytest.mark.parametrize("p", [6, 200])
def test_shares_draw_the_model_first_and_say_which_sizes_are_as_good(p):
    support, shares = np.arange(p) % 3 == 1, np.round(np.linspace(0, 1, p), 2)
    support[40:] = False
    results = {"shares": shares, "ks": np.arange(7), "row": 2, "as_good": np.array([2, 3, 4])}
    results |= {"scores": np.zeros((20, 7)), "times": 4.0, "l2s": np.full(7, 0.1)}
    ax = check_legible(plot_shares(results, support, [f"feature number {j}" for j in range(p)]))
    inside, outside = (np.sort(shares[part])[::-1] for part in (support, ~support & (shares > 0)))
    np.testing.assert_allclose(widths(ax), np.concatenate([inside, outside])[:30])
    said = ax.get_xlabel()
    assert "20 folds, each row held out 4 times" in said and "k = 2; k = 2 to 4 are as good as the best" in said
    several = results | {"ks": np.tile(np.arange(7), 2), "l2s": np.repeat([0.1, 1], 7), "row": 9}
    assert plot_shares(several, support).axes[0].get_xlabel().endswith("k = 2 to 4 are as good as the best at l2 = 1")


@pytest.mark.parametrize("p", [5, 200])
def test_stability_draws_bars_and_colours_what_reaches_the_threshold(p):
    stability = make_stability(p)
    names = [f"feature number {j}" for j in range(p)]
    ax = check_legible(plot_stability(stability, names, k=3, threshold=0.8))
    chances = stability.probabilities[3]
    np.testing.assert_allclose(widths(ax), np.sort(chances[chances > 0])[::-1][:30])
    coloured = sum(bar.get_facecolor() == to_rgba(PALETTE[0]) for bar in ax.patches)
    reached = stability.selected(0.8)[3].sum()
    assert coloured == min(reached, 30) and ax.get_title().startswith(f"{reached} feature")
    bound = stability.error_bound(0.8).shah_samworth[3]
    assert (f"at most {bound:.2g}" in ax.get_xlabel().replace("\n", " ")) == bool(np.isfinite(bound))


def test_best_swaps_are_those_of_logistic_regression(x64):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 6)) * [1, 2, 1, 1, 3, 1] + 4
    y = np.where(X[:, 1] - X[:, 4] + rng.standard_normal(60) > 0, 1.0, -1.0)
    model = sht.LinearModel(X, y, sht.losses.Logistic(), 0.05, fit_intercept=True, standardize=True)
    solution = sht.solve(model, sht.Sparsity(2), sht.solvers.HTP())
    swaps, near = best_swaps(model, solution), near_exchanges(model, solution, np.inf)
    for i, substitute, gain in zip(swaps.features, swaps.substitutes, swaps.gains, strict=True):
        (kept,) = set(swaps.features.tolist()) - {i}
        values = {
            j: float(sht.solve(model, sht.Sparsity(0, keep=[kept, j]), sht.solvers.HTP()).value)
            for j in set(range(6)) - set(swaps.features.tolist())
        }
        others, rises = zip(*near[i], strict=True)
        assert [*others] == sorted(values, key=values.get) and (substitute, gain) == (others[0], -rises[0])
        np.testing.assert_allclose(rises, [values[j] - float(solution.value) for j in others], rtol=1e-6)
    with pytest.raises(ValueError, match="some but not all"):
        best_swaps(model, solution._replace(support=sht.results.Support(np.arange(6), np.ones(6, bool))))


@pytest.mark.parametrize("m", [3, 60])
def test_swap_gains(m):
    rng = np.random.default_rng(m)
    swaps = Swaps(np.arange(m), np.arange(m) + m, -rng.uniform(0, 1, m), 2.0, 2 * m)
    ax = check_legible(plot_swap_gains(swaps, [f"a rather long name of number {j} of them" for j in range(2 * m)]))
    assert "No exchange" in ax.get_title() and len(ax.patches) == min(m, 30)
    np.testing.assert_allclose(min(widths(ax)), -50 * swaps.gains.max())
    swaps.gains[0] = 0.1
    assert plot_swap_gains(swaps).axes[0].get_title().startswith("1 exchange lowers")


def test_history_draws_every_step():
    history = {"value": np.array([3.0, 2.0, 1.5, 1.2, 1.1]), "grad_norm": np.array([1.0, 0.1, 0.01, 1e-3, 0])}
    objective, gradient = plot_history(history).axes
    np.testing.assert_allclose(objective.lines[0].get_ydata(), history["value"][:-1] - 1.1)
    np.testing.assert_allclose(gradient.lines[0].get_xdata(), [1, 2, 3, 4])


def test_the_history_of_a_solution_ends_with_its_last_step():
    X, y, _ = make_regression(60, 8, 3, snr=5, seed=0)
    solution = sht.solve(sht.LinearModel(X, y), sht.Sparsity(3), sht.solvers.IHT())
    taken = int(solution.num_steps)
    assert taken < solution.history.value.size
    for given, first in ((solution.history, 1), (solution, 0)):
        objective, _ = plot_history(given).axes
        assert f"in {taken} steps" in objective.get_title()
        assert objective.lines[0].get_xdata()[0] == first


@pytest.mark.parametrize("m", [2, 40])
def test_coefficients_are_drawn_the_largest_first(m):
    coefficients = np.random.default_rng(m).standard_normal(m)
    ax = check_legible(
        plot_coefficients([f"a feature with a rather long name, number {j}" for j in range(m)], coefficients)
    )
    expected = coefficients[np.argsort(-abs(coefficients))][:30]
    np.testing.assert_allclose(widths(ax), expected)
    assert ax.get_xlabel() == "coefficient per standard deviation"


def test_levels_of_a_category_stand_together_under_its_name():
    ax = check_legible(
        plot_coefficients(
            ["city", "area", "city", "age"], [1.0, -4.0, 5.0, 3.0], levels=["Rome", "", "Oslo", ""], title="of four"
        )
    )
    assert list(widths(ax)) == [5, 1, -4, 3]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["city", "area", "age"]
    assert list(ax.get_yticks()) == [0.5, 2, 3]
    assert [text.get_text() for text in ax.texts] == ["Oslo 5", "Rome 1", "-4", "3"]


@pytest.mark.parametrize("counts", [False, True])
def test_predictions_are_drawn_against_the_targets(counts):
    X, y, _ = make_regression(60, 4, 2, snr=5, seed=0)
    y = np.round(np.exp(y / y.std())) if counts else y
    estimator = (PoissonRegressor() if counts else LinearRegression()).fit(X, y)
    long = "the number of visits to a very large and very old museum"
    (ax,) = check_panels(plot_predictions(estimator, X, y, target=long))
    drawn = ax.collections[0].get_offsets()
    np.testing.assert_allclose(np.sort(drawn[:, 0]), np.sort(estimator.predict(X)))
    np.testing.assert_allclose(np.sort(drawn[:, 1]), np.sort(y))
    assert f"R2 = {r2_score(y, estimator.predict(X)):.3f}" in ax.get_title()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["held-out rows", "predicted = actual"]


def test_two_classes_draw_roc_calibration_and_confusion():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3))
    y = np.where(X[:, 0] + rng.standard_normal(120) > 1, "an uncommonly long name of a class", "other")
    classifier = LogisticRegression().fit(X, y)
    roc, calibration, confusion = check_panels(plot_predictions(classifier, X, y))
    area = roc_auc_score(y == "other", classifier.decision_function(X))
    assert f"{area:.3f}" in roc.get_title() and f"area {area:.3f}" in roc.get_legend().get_texts()[0].get_text()
    curve = roc.lines[0].get_xydata()
    np.testing.assert_allclose(np.trapezoid(curve[:, 1], curve[:, 0]), area)
    assert calibration.lines
    counts = [int(text.get_text()) for text in confusion.texts]
    np.testing.assert_array_equal(counts, confusion_matrix(y, classifier.predict(X)).ravel())


def test_classes_without_probabilities_and_more_than_two():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    two, three = np.where(X[:, 0] > 0, 1, -1), np.digitize(X[:, 0], [-0.5, 0.5])
    roc, _ = plot_predictions(RidgeClassifier().fit(X, two), X, two, target="relapse").axes
    assert roc.get_ylabel() == "share of relapse = 1 called so"
    assert len(plot_predictions(LogisticRegression().fit(X, three), X, three).axes) == 1
    classifier = LogisticRegression().fit(X, two)
    assert len(plot_predictions(classifier, X[two > 0], two[two > 0]).axes) == 1  # no curve of a single class


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_characters_without_a_font_give_one_warning_and_stay_text(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("sparsehtp.plot.figure._installed", tuple)
    figure = plot_coefficients(["气温", "湿度", "β-carotene"], [1.0, 2.0, 3.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(tmp_path / f"picture.{kind}")
    said = [str(warning.message) for warning in caught]
    if kind == "png":
        assert len(said) == 1 and "no font here has the characters" in said[0] and "β" not in said[0]
    else:
        assert not said and "气温" in (tmp_path / "picture.svg").read_text(encoding="utf-8")


def test_characters_are_taken_from_a_font_that_has_them(tmp_path, monkeypatch):
    monkeypatch.setattr("sparsehtp.plot.figure._installed", lambda: ["STIXGeneral"])
    figure = plot_coefficients(["a\u29f5b", "c"], [1.0, 2.0])
    known = {"STIXGeneral": frozenset({0x29F5})}
    monkeypatch.setattr("sparsehtp.plot.figure._characters", lambda name: known.get(name, frozenset(range(128))))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(tmp_path / "picture.png")
    assert all("STIXGeneral" in label.get_fontfamily() for label in figure.axes[0].get_yticklabels())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_path(make_path(5, 5), ["a"]), "feature_names"),
        (lambda: plot_path(make_path(5, 5), chosen=99), "chosen"),
        (lambda: plot_path(make_path(5, 5), columns=["a"]), "columns"),
        (lambda: plot_stability(make_stability(5), ["a"]), "feature_names"),
        (lambda: plot_stability(make_stability(5), threshold=0.2), "threshold"),
        (lambda: plot_stability(make_stability(5), k=9), "k: needs one of the levels"),
        (lambda: plot_coefficients(["a"], [1.0, 2.0]), "feature_names"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("points", [1, 20])
def test_a_proof_draws_the_bound_and_the_incumbent(points):
    time = np.linspace(0, 3, points)
    lower, upper = 1 - np.exp(-time), 1.5 - 0.1 * (time > 1)
    history = {"seconds": time, "lower": lower, "upper": upper, "nodes": np.arange(points)}
    support, gap = sht.results.Support(np.arange(2), np.ones(2, bool)), 1 - lower[-1] / upper[-1]
    ends = upper[-1], lower[-1], 0.0, gap, False, 1234, 5, 3.0, "", history, None
    ax = check_legible(plot_proof(sht.results.Proof(np.ones(2), 0.0, support, *ends)))
    drawn = [line.get_ydata() for line in ax.lines]
    first = min(points - 1, 1)  # a bound of zero is none
    np.testing.assert_array_equal(drawn, [upper[first:], lower[first:]])
    assert "Not proved" in ax.get_title() and "1,234 nodes" in ax.get_title()


@pytest.mark.parametrize("p", [6, 80])
def test_collected_supports_draw_their_features(p):
    rng = np.random.default_rng(p)
    masks = rng.random((40, p)) < 0.5
    masks[:, [1, 3]], masks[:, 2] = True, False
    collected = sht.results.Collected(masks, np.ones(40), masks.mean(0), p == 6)
    names = [f"a rather long name of number {j} of them" for j in range(p)]
    ax = check_legible(plot_collected(collected, names))
    np.testing.assert_allclose(widths(ax), np.sort(masks.mean(0))[::-1][: min(p - 1, 30)])
    models = "40 good models" if p == 6 else "the best 40 good models"
    assert ax.get_title() == f"2 of {p - 1} features are in all of {models}"


def test_a_notebook_shows_a_figure():
    assert sht.plot.new_figure(2, 1)._repr_png_().startswith(b"\x89PNG")


def test_a_choice_is_drawn_with_the_row_that_its_rule_took():
    X, y, _ = make_regression(60, 8, 3, seed=0)
    model = sht.LinearModel(X, y, fit_intercept=True)
    for rule in ("one-se", "best"):
        choice = sht.choose(model, ks=range(5), l2s=[1e-3, 1.0], rule=rule, folds=3, solver=sht.solvers.HTP())
        assert choice.rule == rule
        assert plot_cv(choice).axes[0].get_title().startswith(f"Cross-validation takes k = {choice.k} (")
    with pytest.raises(ValueError, match="cv: was chosen by bic"):
        plot_cv(sht.choose(model, ks=range(5), rule="bic", solver=sht.solvers.HTP()))
    with pytest.raises(TypeError, match="where folds chose its k"):
        plot_cv(None)


@pytest.mark.parametrize("count", [1, 4])
def test_components_are_drawn_with_their_names(count):
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((30, 6)), columns=list("abcdef"))
    model = sht.SparsePCA(count, k=2).fit(X)
    axes = plot_components(model).axes
    assert len(axes) == count
    for ax, row in zip(axes, model.components_, strict=True):
        chosen = np.flatnonzero(row)
        assert sorted(label.get_text() for label in ax.get_yticklabels()) == sorted(X.columns[chosen])
        np.testing.assert_allclose(sorted(bar.get_width() for bar in ax.patches), sorted(row[chosen]))
    with pytest.raises(ValueError, match="feature_names: needs 6 names"):
        plot_components(model, ["a"])


def test_a_component_past_the_rank_has_no_bars():
    model = sht.SparsePCA(2, k=2).fit(np.outer(np.arange(30.0), [1, 2]))
    assert [len(ax.patches) for ax in plot_components(model).axes] == [2, 0]


def test_the_parts_are_drawn_on_one_scale():
    rng = np.random.default_rng(0)
    Y = np.outer(rng.standard_normal(20), rng.standard_normal(15))
    Y[3, 4] = 50
    model = sht.RobustPCA(1, 1).fit(Y)
    *panels, _ = plot_parts(model, Y).axes
    shown = [ax.images[0] for ax in panels]
    for image, part in zip(shown, (Y, model.low_rank_, model.sparse_), strict=True):
        np.testing.assert_array_equal(image.get_array(), part)
    assert len({image.get_clim() for image in shown}) == 1 and shown[0].get_clim()[1] < 50
    with pytest.raises(ValueError, match="X: needs the shape"):
        plot_parts(model, Y.T)
