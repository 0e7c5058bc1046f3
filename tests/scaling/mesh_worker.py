"""Solves on the four devices of this process, cut by samples or by features, along explicit axes, against one device.

mesh_worker.py, with XLA_FLAGS=--xla_force_host_platform_device_count=4; with --short, a mesh that is set
has one solve, and one cut has a certificate.
"""

import contextlib
import math
import re
import sys

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from scipy.sparse import csr_array

import sparsehtp as sht

rng = np.random.default_rng(0)
X = rng.standard_normal((64, 32)).astype(np.float32)
y = (2 * X[:, 3] - X[:, 8] + 0.1 * rng.standard_normal(64)).astype(np.float32)
mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Explicit,))
k, htp = sht.Sparsity(2), sht.solvers.HTP()
answers, short = {}, "--short" in sys.argv
for cut, of_X, of_y in (("rows", P("d", None), P("d")), ("columns", P(None, "d"), P())):
    for here in (contextlib.nullcontext(), jax.set_mesh(mesh)):
        with here:
            name = f"{cut} {type(here).__name__}"
            parts = jax.device_put(X, NamedSharding(mesh, of_X)), jax.device_put(y, NamedSharding(mesh, of_y))
            model = sht.LinearModel(*parts, l2=0.1, standardize=True, fit_intercept=True)
            solution = sht.solve(model, k, htp)
            answers[f"{name} x"] = solution.x
            if short and not isinstance(here, contextlib.nullcontext):
                continue
            if cut == "rows" or not short:
                assert sht.certificate(model, k, solution).stationary
            if cut == "rows":
                answers[f"{name} bound"] = sht.lower_bound(model, k, float(solution.value)).lower
                answers[f"{name} folds"] = sht.cross_validate(model, ks=[1, 2], folds=3, solver=htp).scores
            else:
                answers[f"{name} swaps"] = sht.solve(model, k).x

whole = sht.LinearModel(X, y, l2=0.1, standardize=True, fit_intercept=True)
one = {"x": sht.solve(whole, k, htp).x, "swaps": sht.solve(whole, k).x}
one["folds"] = sht.cross_validate(whole, ks=[1, 2], folds=3, solver=htp).scores
one["bound"] = sht.lower_bound(whole, k, float(sht.solve(whole, k, htp).value)).lower
for name, value in answers.items():
    np.testing.assert_allclose(value, one[name.split()[-1]], rtol=2e-4, atol=1e-6, err_msg=name)


def said(function, *args):
    try:
        function(*args)
    except TypeError as error:
        return str(error)
    raise AssertionError("nothing was refused")


parts = jax.device_put(X, NamedSharding(mesh, P("d", None))), jax.device_put(y, NamedSharding(mesh, P("d")))
assert said(jax.jit(lambda X, y: sht.solve(sht.LinearModel(X, y), k, htp).x), *parts).startswith("X: inside jit")
explicit = sht.LinearModel(*parts)
assert said(jax.jit(lambda model: sht.solve(model, k, htp).x), explicit).startswith("objective: inside jit")
assert said(jax.jit(lambda model: sht.solve_path(model, ks=[1], solver=htp).x), explicit).startswith("objective: ")


def each(y):
    return sht.solve(sht.LinearModel(X, y), k, htp).x


def around(w):
    return ((parts[0] @ w - parts[1]) ** 2).mean()


def passed(w, X, y):
    return ((X @ w - y) ** 2).mean()


like = np.zeros(32, np.float32)
assert said(lambda: sht.Custom(around, like=like)).endswith("cut along explicit axes; pass it through args.")
cut_sum = sht.solve(sht.Custom(passed, *parts, like=like), k, htp)
np.testing.assert_allclose(cut_sum.x, sht.solve(sht.Custom(passed, X, y, like=like), k, htp).x, rtol=1e-4, atol=1e-6)
sparse_rows = sht.LinearModel(csr_array(X), parts[1], l2=0.1, standardize=True, fit_intercept=True)
np.testing.assert_allclose(sht.solve(sparse_rows, k).x, one["swaps"], rtol=2e-4, atol=1e-6)
targets = jax.device_put(np.stack([y] * 4), NamedSharding(mesh, P("d")))
cut = {"mesh": mesh, "in_specs": P("d"), "out_specs": P("d")}
assert "check_vma=False" in said(jax.jit(jax.shard_map(jax.vmap(each), **cut)), targets)
found = jax.jit(jax.shard_map(jax.vmap(each), check_vma=False, **cut))(targets)
np.testing.assert_allclose(found, np.stack([each(y)] * 4), rtol=1e-5, atol=1e-6)

# X is never gathered: vectors travel between devices, the columns of a support, and a local search's working set.
n, p = 512, 1024
large = rng.standard_normal((n, p)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
auto = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
for of_X, of_y in ((P("d", None), P("d")), (P(None, "d"), P())):
    shards = NamedSharding(auto, of_X), NamedSharding(auto, of_y)
    for solver in (htp, sht.solvers.IHT(), sht.solvers.BestSubset()):

        def fit(X, y, solver=solver):
            return sht.solve(sht.LinearModel(X, y, l2=0.1), k, solver, record=None).x

        text = jax.jit(fit, in_shardings=shards).lower(*large).compile().as_text()
        moves = r"(all-gather|all-to-all|collective-permute|all-reduce)(?:-start)?\("
        lines = [line for line in text.splitlines() if re.search(rf"= .*\b{moves}", line)]
        assert lines
        for line in lines:
            made = re.split(moves, line.split(" = ", 1)[1])
            size = max(
                math.prod(map(int, filter(None, shape.split(",")))) for shape in re.findall(r"\[([\d,]*)\]", made[0])
            )
            assert size <= {"BestSubset": n * n}.get(type(solver).__name__, 16 * n), line

print(f"{len(answers)} answers on {len(jax.devices())} devices")
