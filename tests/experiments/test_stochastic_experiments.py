"""The experiments on stochastic solvers, on problems so small that the verdicts are known."""

import numpy as np
import pytest

from sparsehtp.experiments import reproduce
from sparsehtp.experiments.hsg import _first

FIG2 = """
[settings]
seed = 0
d = 32
K = 1
ns = [2, 32]
n = 32
Ks = [1]
signals = 4
stages = 400
"""
HSG = """
[settings]
seed = 0
data = { rcv1 = 3 }
rows = 60
l2 = 1e-3
passes = 2
points = 20
optimum_steps = 200
step_powers = [0, 3]
svrg_inner = [0.5]
growth = [1.3]
momentum = [0.3]
"""


def write(path, text):
    path.write_text(text)
    return path


def test_first_times():
    row = {"value": [3.0, 1.0, 2.0, 0.5], "ifo": [1, 2, 3, 4], "thresholds": [10, 20, 30, 40]}
    np.testing.assert_array_equal(_first(row, [2.5, 0.9, 0.1]), [[2, 20], [4, 40], [np.inf, np.inf]])


def test_success_needs_measurements(tmp_path):
    result = reproduce("tight-fig2", tmp_path, config=write(tmp_path / "c.toml", FIG2))
    success = {(cell["n"], cell["K"]): cell["HT-SVRG"] for cell in result["cells"]}
    assert success[32, 1] == 1 and success[2, 1] < 1
    assert [claim["verdict"] for claim in result["claims"]] == ["not testable here"] * 2


@pytest.mark.slow
def test_the_five_algorithms_are_traced_within_their_budget(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 8)).astype(np.float32)
    y = np.where(X[:, 0] - X[:, 3] + 0.3 * rng.standard_normal(60) > 0, 1, -1)
    rows, columns = np.nonzero(X)
    np.savez(
        tmp_path / "rcv1_vw1500.npz",
        data=X[rows, columns],
        indices=columns,
        indptr=np.arange(61) * 8,
        shape=np.array([60, 8]),
        y=y,
    )
    result = reproduce("hsg-fig1", tmp_path / "out", config=write(tmp_path / "c.toml", HSG), data=tmp_path)
    curves = {cell["algorithm"]: cell for cell in result["cells"] if "algorithm" in cell}
    assert set(curves) == {"FG-HT", "SG-HT", "SVRG-HT", "HSG-HT", "AHSG-HT"}
    for curve in curves.values():
        assert curve["ifo"][-1] <= 2 + 1e-6 and min(curve["value"]) < np.log(2)
    assert curves["FG-HT"]["thresholds"] == [1, 2] and curves["SG-HT"]["thresholds"][-1] == 120
    assert [claim["letter"] for claim in result["claims"]] == ["a", "b", "c"]
