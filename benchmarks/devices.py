"""Seconds per iteration on 1, 2, 4 and 8 devices, with the data cut by samples, by features, or not at all.

On a CPU the devices are virtual and share its cores: then the figures show what cutting costs, not what it gains. Every
number of devices is a process of its own.
"""

import json
import os
import subprocess
import sys

import jax
import numpy as np

from .scores import finish, print_table

COUNTS = (1, 2, 4, 8)
STEPS = 50


def measure(n, p, k):
    """{name: seconds per iteration} on all devices of this process; what a worker prints."""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import sparsehtp as sht

    from .timing import best_of

    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p), np.float32)
    y = X[:, :k].sum(1) + rng.standard_normal(n, np.float32)
    mesh = Mesh(np.array(jax.devices()), ("devices",))

    def placed(array, *axes):
        return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*axes)))

    def iterations(X, y):
        model = sht.LinearModel(X, y)
        step = sht.steps.ConstantStep(1e-4)
        return lambda: (
            sht.solve(
                model,
                sht.Sparsity(k),
                sht.solvers.IHT(step),
                max_steps=STEPS,
                termination=sht.stopping.Never(),
                record=None,
            ).value
        )

    whole = sht.LinearModel(X, y)
    lanes = placed(np.full(32, 1e-3, np.float32), "devices")

    @jax.jit
    def grid(l2s):
        def one(l2):
            model = whole.reweighted(l2=l2)
            step = sht.steps.ConstantStep(1e-4)
            solution = sht.solve(
                model,
                sht.Sparsity(k, k_max=k),
                sht.solvers.IHT(step),
                max_steps=STEPS,
                termination=sht.stopping.Never(),
                record=None,
            )
            return solution.value

        return jax.vmap(one)(l2s)

    seconds = best_of(
        {
            "by samples": iterations(placed(X, "devices", None), placed(y, "devices")),
            "by features": iterations(placed(X, None, "devices"), placed(y)),
            "32 lanes of a grid": lambda: grid(lanes),
        },
        3,
    )
    return {name: value / STEPS for name, value in seconds.items()}


def main(quick=False):
    """n = 20,000, p = 2,000, k = 20."""
    sizes = (500, 100, 5) if quick else (20_000, 2000, 20)
    table = {}
    code = (
        "import json, sys; from benchmarks.devices import measure; print(json.dumps(measure(*map(int, sys.argv[1:]))))"
    )
    for count in COUNTS:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
        run = subprocess.run(
            [sys.executable, "-c", code, *map(str, sizes)],
            env={**os.environ, "XLA_FLAGS": flags},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        table[count] = json.loads(run.stdout.splitlines()[-1])
    names = list(table[1])
    print_table("seconds per iteration", ["devices", *names], [[c, *row.values()] for c, row in table.items()])
    rows = [
        {"name": f"{name}, {count} devices over one", "value": table[count][name] / table[1][name], "unit": "times"}
        | {"seconds_per_iteration": table[count][name]}
        for name in names
        for count in COUNTS
    ]
    finish("devices", rows, quick)
