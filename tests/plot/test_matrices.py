"""Pictures of sparse components and of a matrix in two parts show the numbers of the fit."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import sparsehtp as sht
from sparsehtp.plot import plot_components, plot_parts

mpl.use("Agg")

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.standard_normal((30, 6)), columns=list("abcdef"))


@pytest.mark.parametrize("count", [1, 4])
def test_components_are_drawn_with_their_names(count):
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
    model = sht.SparsePCA(2, k=2).fit(X.to_numpy()[:, :1] * [1.0, 2.0])
    assert [len(ax.patches) for ax in plot_components(model).axes] == [2, 0]


def test_the_parts_are_drawn_on_one_scale():
    Y = np.outer(RNG.standard_normal(20), RNG.standard_normal(15))
    Y[3, 4] = 50
    model = sht.RobustPCA(1, 1).fit(Y)
    *panels, _ = plot_parts(model, Y).axes
    shown = [ax.images[0] for ax in panels]
    for image, part in zip(shown, (Y, model.low_rank_, model.sparse_), strict=True):
        np.testing.assert_array_equal(image.get_array(), part)
    assert len({image.get_clim() for image in shown}) == 1 and shown[0].get_clim()[1] < 50
    with pytest.raises(ValueError, match="X: needs the shape"):
        plot_parts(model, Y.T)
