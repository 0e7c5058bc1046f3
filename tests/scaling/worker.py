"""One of several processes that fit the same data: python worker.py PROCESS PROCESSES PORT DEVICES OUT [LOST].

Every process holds an equal part of the rows. With LOST the last process leaves before the fit, without a word.
"""

import os
import sys

process, processes, port, devices = map(int, sys.argv[1:5])
out, lost = sys.argv[5], "LOST" in sys.argv
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

import sparsehtp as sht  # noqa: E402

jax.config.update("jax_enable_x64", True)
if processes > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, process, heartbeat_timeout_seconds=10)

rng = np.random.default_rng(0)
n, p = 160, 40
X = rng.standard_normal((n, p)) + 1.0
y = X[:, [3, 8, 20]] @ [2.0, -1.0, 1.5] + 0.3 * rng.standard_normal(n)
weights = rng.uniform(0.5, 1.5, n)
mesh = Mesh(np.array(jax.devices()), ("devices",))
mine = slice(n // processes * process, n // processes * (process + 1))


def placed(array, *axes):
    """The array on all devices of all processes, from this process's rows."""
    sharding = NamedSharding(mesh, PartitionSpec(*axes))
    return jax.make_array_from_process_local_data(sharding, array[mine] if axes[0] else array, array.shape)


by = ("devices", None) if not out.endswith("columns.npz") else (None, "devices")
A = placed(X, *by)
b, s = (placed(a, by[0]) if by[0] else jnp.asarray(a) for a in (y, weights))
if lost and process == processes - 1:
    os._exit(0)
model = sht.LinearModel(A, b, l2=0.01, sample_weight=s, fit_intercept=True, standardize=True)
three = sht.Sparsity(3)
htp = sht.solve(model, three, sht.solvers.HTP())
svrg = sht.solve(model, three, sht.solvers.SVRGHT(batch_size=8), max_steps=5, key=jax.random.key(1))
path = sht.solve_path(model, ks=range(5), solver=sht.solvers.BestSubset("fast"))
scores = sht.cross_validate(model, ks=range(5), l2s=[0.01, 0.1], folds=4, solver=sht.solvers.HTP()).scores
if process == 0:
    np.savez(out, htp=htp.x, intercept=htp.intercept, svrg=svrg.x, path=path.x, scores=scores)
