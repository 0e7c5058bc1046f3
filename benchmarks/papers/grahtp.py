"""Support recovery by the methods of [GraHTP], on simulated data."""

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from scipy.special import expit

from sparsehtp._programs import program
from sparsehtp._solve import solve
from sparsehtp._threads import one_blas_thread
from sparsehtp.designs import DenseDesign
from sparsehtp.designs.base import AbstractDesign
from sparsehtp.iteration.termination import Cycle, SmallStep
from sparsehtp.linalg import top_k
from sparsehtp.linalg.power_iteration import random_start
from sparsehtp.losses import Logistic, Squared
from sparsehtp.objectives import LinearModel
from sparsehtp.solvers import HTP, IHT, FoBa, ForwardSelection, GraSP
from sparsehtp.steps import ConstantStep
from sparsehtp.thresholds import Sparsity
from sparsehtp.thresholds.base import next_power_of_two

from .figures import curves, legend_below, panels
from .run import Run
from .verdicts import ALPHA, Decision, Lead, Mean, Parts, Share, all_of, at_least, every

ALGORITHMS = ("GraHTP", "FGraHTP", "GraSP", "FBS", "FoBa")
THRESHOLDING = ALGORITHMS[:3]
STEPPING = ALGORITHMS[:2]
PRINTED = tuple(f"{algorithm} 1/(2M)" for algorithm in STEPPING)  # with the paper's step
LOSSES = {"squared": Squared(), "logistic": Logistic(margin_scale=2.0)}


def solver_of(algorithm: str, step_size: Any) -> Any:
    """The paper's algorithm; the step size is used by GraHTP and FGraHTP alone."""
    return {
        "GraHTP": HTP(ConstantStep(step_size)),
        "FGraHTP": IHT(ConstantStep(step_size)),
        "GraSP": GraSP(debias=False),
        "FBS": ForwardSelection("gradient"),
        "FBS scaled": ForwardSelection("omp"),
        "FoBa": FoBa(),
    }[algorithm]


def over_copies(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.vmap`; on a CPU the copies take turns, so that none waits for the slowest."""
    if jax.default_backend() != "cpu":
        return jax.vmap(function)
    return lambda *stacked: lax.map(lambda each: function(*each), stacked)


@program(static_argnames="k")
def theory_steps(X: Any, weights: Any, l2: Any, smoothness: Any, *, k: int) -> Float[Array, "copies"]:
    """1 / (2 M_2k) of [GraHTP] Theorem 8 for every copy, with M_2k of the mean loss by the truncated power method."""
    return over_copies(lambda X: theory_step(DenseDesign(X), weights, l2, smoothness, k))(X)


def theory_step(
    design: AbstractDesign, weights: Float[Array, "n"], l2: Any, smoothness: Any, k: int
) -> Float[Array, ""]:
    """The same for one design."""
    share, p = weights / jnp.sum(weights), design.shape[1]
    start = random_start(p, design.dtype)
    largest = sparse_eigenvalue(lambda v: design.rmv(share * design.mv(v)), start, min(2 * k, p))
    return 0.5 / (smoothness * largest + l2)


def sparse_eigenvalue(
    matvec: Callable[[Array], Array], start: Float[Array, "p"], k: int, num_steps: int = 100
) -> Float[Array, ""]:
    """The largest v'Av over ||v|| = 1, ||v||_0 <= k, of a positive semidefinite A, estimated from below.

    By the truncated power method (Yuan and Zhang, 2013), which keeps the k largest entries after each product.
    """

    def normalise(v: Float[Array, "p"]) -> Float[Array, "p"]:
        if k < v.shape[0]:
            keep = jnp.zeros(v.shape, bool).at[top_k(jnp.abs(v), k)].set(True)
            v = jnp.where(keep, v, 0)
        size = jnp.linalg.norm(v)
        return jnp.where(size > 0, v / jnp.where(size > 0, size, 1), jnp.full_like(v, v.shape[0] ** -0.5))

    v = lax.fori_loop(0, num_steps, lambda _, v: normalise(matvec(v)), normalise(start))
    v = normalise(v)  # where it began anew, from equal entries, it has more than k of them
    return jnp.vdot(v, matvec(v), precision=lax.Precision.HIGHEST)


@program(static_argnames=("algorithm", "loss", "k_max", "max_steps"))
def fits(
    X: Any,
    y: Any,
    weights: Any,
    l2: Any,
    k: Any,
    step_sizes: Any,
    *,
    algorithm: str,
    loss: str,
    k_max: int,
    max_steps: int | None = None,
) -> tuple[Array, ...]:
    """(w, support as booleans, value, steps) of every copy; the leading axis of X and y is that of the copies."""

    def one(X: Any, y: Any, step_size: Any) -> tuple[Array, Array, Array, Array]:
        return fit(X, y, weights, l2, k, step_size, algorithm, loss, k_max, max_steps)

    return over_copies(one)(X, y, step_sizes)


def fit(
    X: Any,
    y: Any,
    weights: Any,
    l2: Any,
    k: Any,
    step_size: Any,
    algorithm: str,
    loss: str,
    k_max: int,
    max_steps: int | None,
) -> tuple[Array, Array, Array, Array]:
    """The same of one problem."""
    objective = LinearModel(X, y, loss=LOSSES[loss], sample_weight=weights, l2=l2)
    solution = solve(
        objective,
        Sparsity(k, k_max=k_max),
        solver_of(algorithm, step_size),
        record=None,
        throw=False,
        termination=SmallStep(1e-4) | Cycle() if algorithm in THRESHOLDING else None,
        max_steps=max_steps,
    )
    chosen = jnp.zeros(X.shape[1], jnp.int32).at[solution.support.idx].add(solution.support.mask) > 0
    return solution.x, chosen, solution.value, solution.num_steps


def limit(run: Run, algorithm: str) -> int | None:
    """The limit of steps; that of GraSP, which can wander among supports, is its own, as each step is a whole refit."""
    return {"GraSP": run["grasp_steps"], "GraHTP": run["max_steps"], "FGraHTP": run["max_steps"]}.get(algorithm)


def fitted(run: Run, X: Any, y: Any, weights: Any, loss: str, algorithm: str, k: int) -> Any:
    """`fits` with the settings of a run."""
    sizes = theory_steps(X, weights, run["l2"], LOSSES[loss].smoothness, k=k)
    sizes = sizes if algorithm in PRINTED else run["step_scale"] * sizes
    algorithm = algorithm.removesuffix(" 1/(2M)")
    k_max = min(next_power_of_two(k), X.shape[-1])
    steps = limit(run, algorithm)
    with one_blas_thread():
        return jax.block_until_ready(
            fits(X, y, weights, run["l2"], k, sizes, algorithm=algorithm, loss=loss, k_max=k_max, max_steps=steps)
        )


class Recovery:
    """Outcomes of every copy: (copies,) zeros and ones for exact and for relaxed recovery, by k, n and algorithm."""

    def __init__(self, run: Run, rows: list[dict[str, Any]]) -> None:
        self.ks, self.ns, self.k_true = run["ks"], run["ns"], run["k_true"]
        self.outcomes = {
            (metric, row["k"], row["n"], row["algorithm"]): np.array([int(c) for c in row[metric]])
            for row in rows
            for metric in ("exact", "relaxed")
        }
        self.algorithms = tuple(dict.fromkeys(row["algorithm"] for row in rows))

    def curve(self, metric: str, k: int, algorithm: str) -> np.ndarray:
        """The share of successes against n."""
        return np.array([self.outcomes[metric, k, n, algorithm].mean() for n in self.ns])

    def band(self, metric: str, k: int, algorithm: str) -> np.ndarray:
        """The ends of the shares' intervals in percent, (2, ns)."""
        outcomes = [self.outcomes[metric, k, n, algorithm] for n in self.ns]
        return 100 * np.array([Share(each.sum(), each.size).interval(ALPHA) for each in outcomes]).T

    def success(self, ks: Iterable[int], algorithm: str) -> np.ndarray:
        """Success of every copy at some k and every n: the mean of exact and relaxed."""
        cells = [(k, n, algorithm) for k in ks for n in self.ns]
        return np.concatenate([(self.outcomes["exact", *c] + self.outcomes["relaxed", *c]) / 2 for c in cells])

    def lead(self, ks: Iterable[int], first: str, second: str) -> Mean:
        """By how much the first succeeds more often, mean over n, from copies that both were given."""
        ks = list(ks)
        return Mean(self.success(ks, first) - self.success(ks, second))


def rises(table: Recovery) -> Parts:
    """Whether each curve rises from the first third of the sample sizes to the last, and falls in no step between."""
    thirds = [list(part) for part in np.array_split(table.ns, 3) if len(part)]

    def rise(metric: str, k: int, algorithm: str) -> Decision:
        outcomes = [np.concatenate([table.outcomes[metric, k, n, algorithm] for n in part]) for part in thirds]
        shares = [Share(each.sum(), each.size) for each in outcomes]
        steps = [Lead(after, before) for before, after in itertools.pairwise(shares)]
        if any(at_least(step, alpha=ALPHA / len(steps)) is False for step in steps):
            return False
        return at_least(Lead(shares[-1], shares[0]))

    return all_of(rise(m, k, a) for m in ("exact", "relaxed") for k in table.ks for a in table.algorithms)


def trade_off(table: Recovery, ours: str, others: Iterable[str]) -> dict[str, dict[str, Mean]]:
    """By how much a method succeeds more often than each other one, under two readings of a trade-off of accuracy and
    stability: over all k, and at the k where each of the two is at its worst."""

    def worst(algorithm: str) -> np.ndarray:
        return min((table.success([k], algorithm) for k in table.ks), key=lambda draws: draws.mean())

    others = list(others)
    return {
        "over all k": {other: table.lead(table.ks, ours, other) for other in others},
        "at the worst k of each method": {other: Mean(worst(ours) - worst(other)) for other in others},
    }


def fig2(run: Run) -> Any:
    """Figure 2: success of support recovery in sparse linear regression against the sample size."""
    table = Recovery(run, _recovery(run, "squared", ALGORITHMS))
    exactly, some_more, many_more = ([k] for k in run["ks"])
    run.claim("a", "each curve of success rises with n", rises(table), draws=run["copies"])
    leads = {f"k = {k}": table.lead([k], "GraHTP", "FGraHTP") for k in run["ks"]}
    run.claim(
        "b",
        "GraHTP succeeds more often than FGraHTP, mean over n, at each k",
        every(leads.values()),
        draws=run["copies"],
        numbers=leads,
        compared={a: table.success(run["ks"], a) for a in STEPPING},
    )
    for letter, words, ks, upper, lower in (
        (
            "c",
            "k = 50: GraHTP, FGraHTP and GraSP succeed more often than FBS and FoBa",
            exactly,
            THRESHOLDING,
            ALGORITHMS[3:],
        ),
        (
            "d",
            "k = 70: GraHTP and GraSP succeed more often than the rest",
            some_more,
            ("GraHTP", "GraSP"),
            ("FGraHTP", "FBS", "FoBa"),
        ),
        (
            "e",
            "k = 110: FBS, FoBa and GraHTP succeed more often than FGraHTP and GraSP",
            many_more,
            ("FBS", "FoBa", "GraHTP"),
            ("FGraHTP", "GraSP"),
        ),
    ):
        leads = {f"{a} over {b}": table.lead(ks, a, b) for a in upper for b in lower}
        run.claim(
            letter,
            f"{words}, mean over n of exact and relaxed success",
            every(leads.values()),
            draws=run["copies"],
            numbers=leads,
            compared={a: table.success(ks, a) for a in (*upper, *lower)},
        )
    ahead = trade_off(table, "GraHTP", ALGORITHMS[1:])
    _claim_trade_off(run, table, "f", ahead, ALGORITHMS)
    return _recovery_figure(table)


def fig3(run: Run) -> Any:
    """Figure 3: success of support recovery in sparse logistic regression against the sample size."""
    table = Recovery(run, _recovery(run, "logistic", PRINTED + ALGORITHMS))
    above = [k for k in run["ks"] if k > run["k_true"]]
    steps = {"the step 1/(2M)": PRINTED, f"{run['step_scale']:g} times the step": STEPPING}
    ahead = {
        f"{step}, {reading}": leads
        for step, (ours, fast) in steps.items()
        for reading, leads in trade_off(table, ours, (fast, *ALGORITHMS[2:])).items()
    }
    _claim_trade_off(run, table, "a", ahead, PRINTED + ALGORITHMS)
    leads = {step: {f"k = {k}": table.lead([k], *pair) for k in above} for step, pair in steps.items()}
    run.claim(
        "b",
        f"GraHTP succeeds more often than FGraHTP, mean over n, at each k > {run['k_true']}",
        {step: every(each.values()) for step, each in leads.items()},
        draws=run["copies"],
        numbers=leads,
        compared={a: table.success(above, a) for a in STEPPING},
    )
    return _recovery_figure(table)


def _claim_trade_off(
    run: Run, table: Recovery, letter: str, ahead: dict[str, dict[str, Mean]], algorithms: Iterable[str]
) -> None:
    algorithms = list(algorithms)
    run.claim(
        letter,
        "GraHTP succeeds more often than each other method, mean over n of exact and relaxed success",
        {reading: every(leads.values()) for reading, leads in ahead.items()},
        draws=run["copies"],
        numbers=ahead,
        compared={a: table.success(run["ks"], a) for a in algorithms},
        success={f"k={k}": {a: table.success([k], a).mean() for a in algorithms} for k in run["ks"]},
    )


def _recovery(run: Run, loss: str, algorithms: Iterable[str]) -> list[dict[str, Any]]:
    @functools.lru_cache(maxsize=1)
    def copies(n: int) -> tuple[Any, Any, np.ndarray]:
        return _planted(run, loss, n)

    def recovery(n: int, k: int, algorithm: str) -> dict[str, Any]:
        X, y, truth = copies(n)
        weights = (jnp.arange(X.shape[1]) < n).astype(X.dtype)
        x, chosen, _, _ = map(np.asarray, fitted(run, X, y, weights, loss, algorithm, k))
        largest = np.argsort(-np.abs(x), axis=1, kind="stable")[:, : run["k_true"]]
        exact = np.take_along_axis(truth, largest, 1).all(1) & (np.count_nonzero(x, axis=1) >= run["k_true"])
        return {"exact": digits(exact), "relaxed": digits((chosen | ~truth).all(1))}

    cells = [{"n": n, "k": k, "algorithm": a} for n in run["ns"] for k in run["ks"] for a in algorithms]
    return run.map(recovery, cells)


def digits(values: np.ndarray) -> str:
    """Small whole numbers as one string, which keeps a result short."""
    return "".join(map(str, np.asarray(values, int)))


def _planted(run: Run, loss: str, n: int) -> tuple[Any, Any, np.ndarray]:
    """(X, y, true supports) of all copies; rows beyond n are zero, so that one program serves every n."""
    rng = run.rng("copies", n)
    copies, p, k = run["copies"], run["p"], run["k_true"]
    truth = np.zeros((copies, p), bool)
    w = np.zeros((copies, p), np.float32)
    for c in range(copies):
        support = rng.choice(p, k, replace=False)
        truth[c, support] = True
        w[c, support] = run["mean"] + run["deviation"] * rng.standard_normal(k)
    X = np.zeros((copies, max(run["ns"]), p), np.float32)
    X[:, :n] = rng.standard_normal((copies, n, p), np.float32)
    eta = np.einsum("cnp,cp->cn", X, w)
    if loss == "logistic":
        y = np.where(rng.random(eta.shape) < expit(2 * eta), 1.0, -1.0).astype(np.float32)
    else:
        y = eta + rng.standard_normal(eta.shape, np.float32)
    return jnp.asarray(X), jnp.asarray(y), truth


def _recovery_figure(table: Recovery) -> Any:
    figure, axes = panels(2, len(table.ks))
    for row, metric in zip(axes, ("exact", "relaxed"), strict=True):
        for ax, k in zip(row, table.ks, strict=True):
            bands = {a: table.band(metric, k, a) for a in table.algorithms}
            curves(ax, table.ns, {a: 100 * table.curve(metric, k, a) for a in table.algorithms}, bands)
            ax.set_ylim(-4, 104)
            ax.set_title(f"{metric} success, k = {k}", fontsize=10)
            ax.set_xlabel("sample size n")
            ax.set_ylabel("success (%)")
    legend_below(figure, axes[0, 0])
    return figure
