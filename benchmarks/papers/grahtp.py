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
from .verdicts import ALPHA, Decision, Lead, Mean, Share, at_least, at_most, both, every, most, shown

ALGORITHMS = ("GraHTP", "FGraHTP", "GraSP", "FBS", "FoBa")
THRESHOLDING = ALGORITHMS[:3]
STEPPING = ALGORITHMS[:2]
PRINTED = tuple(f"{algorithm} 1/(2M)" for algorithm in STEPPING)  # with the paper's step
SEEN = 0.05  # what a plot of shares shows
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

    def success(self, ks: Iterable[int], algorithm: str) -> np.ndarray:
        """Success of every copy at some k and every n: the mean of exact and relaxed."""
        cells = [(k, n, algorithm) for k in ks for n in self.ns]
        return np.concatenate([(self.outcomes["exact", *c] + self.outcomes["relaxed", *c]) / 2 for c in cells])

    def lead(self, ks: Iterable[int], first: str, second: str) -> Mean:
        """By how much the first succeeds more often, mean over n, from copies that both were given."""
        ks = list(ks)
        return Mean(self.success(ks, first) - self.success(ks, second))


def superior(lead: Mean) -> Decision:
    """Whether a lead is above zero; not so too if it is too small for a plot to show."""
    found = at_least(lead)
    return False if found is not True and at_most(lead, SEEN) is True else found


def rises(table: Recovery) -> Decision:
    """Whether every curve rises from the first third of the sample sizes to the last, and none falls in between."""
    ups, steps = [], []
    thirds = [list(part) for part in np.array_split(table.ns, 3) if len(part)]
    for metric in ("exact", "relaxed"):
        for k in table.ks:
            for a in table.algorithms:
                outcomes = [np.concatenate([table.outcomes[metric, k, n, a] for n in part]) for part in thirds]
                shares = [Share(each.sum(), each.size) for each in outcomes]
                ups.append(Lead(shares[-1], shares[0]))
                steps += [Lead(after, before) for before, after in itertools.pairwise(shares)]
    falls = any(at_most(step, -SEEN, alpha=ALPHA / len(steps)) is True for step in steps)
    return both(not falls, every(ups, SEEN))


def trade_off(table: Recovery, ours: str, others: Iterable[str]) -> Decision:
    """Whether one method is superior to all others at most k."""
    others = list(others)
    return most([both(*(superior(table.lead([k], ours, other)) for other in others)) for k in table.ks])


def fig2(run: Run) -> Any:
    """Figure 2: success of support recovery in sparse linear regression against the sample size."""
    table = Recovery(run, _recovery(run, "squared", ALGORITHMS))
    exactly, some_more, many_more = ([k] for k in run["ks"])
    run.claim(
        "a",
        "each success curve rises by at least 5 points from the first third of the sample sizes to the last, and falls "
        "by 5 from no third to the next",
        rises(table),
        least_rise=min(
            table.curve(m, k, a)[-1] - table.curve(m, k, a)[0]
            for m in ("exact", "relaxed")
            for k in run["ks"]
            for a in ALGORITHMS
        ),
    )
    _claim_leads(
        run,
        table,
        "b",
        f"k = 70 and 110 together: GraHTP succeeds more often than FGraHTP, mean over n of exact and relaxed success; "
        f"below {SEEN:.0%} a plot would not show it",
        some_more + many_more,
        ("GraHTP",),
        ("FGraHTP",),
    )
    alike = [
        decision(table.lead(exactly, a, b), level)
        for a, b in itertools.combinations(THRESHOLDING, 2)
        for decision, level in ((at_least, -2 * SEEN), (at_most, 2 * SEEN))
    ]
    _claim_leads(
        run,
        table,
        "c",
        "k = 50: GraHTP, FGraHTP and GraSP within 10 points of each other, and above FBS and FoBa, mean over n",
        exactly,
        THRESHOLDING,
        ("FBS", "FoBa"),
        *alike,
    )
    _claim_leads(
        run,
        table,
        "d",
        "k = 70: GraHTP and GraSP above the rest, mean over n",
        some_more,
        ("GraHTP", "GraSP"),
        ("FGraHTP", "FBS", "FoBa"),
    )
    _claim_leads(
        run,
        table,
        "e",
        "k = 110: FBS, FoBa and GraHTP at least 5 points above FGraHTP and GraSP, mean over n",
        many_more,
        ("FBS", "FoBa", "GraHTP"),
        ("FGraHTP", "GraSP"),
        decide=lambda lead: at_least(lead, SEEN),
    )
    _claim_trade_off(run, table, "f", "GraHTP", ALGORITHMS[1:])
    return _recovery_figure(table)


def fig3(run: Run) -> Any:
    """Figure 3: success of support recovery in sparse logistic regression against the sample size."""
    table = Recovery(run, _recovery(run, "logistic", PRINTED + ALGORITHMS))
    above = [k for k in run["ks"] if k > run["k_true"]]
    for letters, (ours, fast) in zip(("ab", "cd"), (PRINTED, STEPPING), strict=True):
        _claim_trade_off(run, table, letters[0], ours, (fast, *ALGORITHMS[2:]))
        _claim_leads(
            run,
            table,
            letters[1],
            f"k > {run['k_true']}: {ours} succeeds more often than {fast}, mean over n",
            above,
            (ours,),
            (fast,),
        )
    return _recovery_figure(table)


def _claim_leads(
    run: Run,
    table: Recovery,
    letter: str,
    statement: str,
    ks: list[int],
    upper: Iterable[str],
    lower: Iterable[str],
    *more: Decision,
    decide: Callable[[Mean], Decision] = superior,
) -> None:
    """The claim that all upper methods lead all lower ones."""
    leads = {f"{a} over {b}": table.lead(ks, a, b) for a in upper for b in lower}
    run.claim(
        letter,
        statement,
        both(*map(decide, leads.values()), *more),
        compared={a: table.success(ks, a) for a in (*upper, *lower)},
        leads={name: shown(lead) for name, lead in leads.items()},
    )


def _claim_trade_off(run: Run, table: Recovery, letter: str, ours: str, others: Iterable[str]) -> None:
    run.claim(
        letter,
        f"{ours} succeeds more often than every other method, mean over n of exact and relaxed success, at most k",
        trade_off(table, ours, others),
        compared={a: table.success(run["ks"], a) for a in (ours, *others)},
        success={f"k={k}": {a: table.success([k], a).mean() for a in (ours, *others)} for k in run["ks"]},
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
            curves(ax, table.ns, {a: 100 * table.curve(metric, k, a) for a in table.algorithms})
            ax.set_ylim(-4, 104)
            ax.set_title(f"{metric} success, k = {k}", fontsize=10)
            ax.set_xlabel("sample size n")
            ax.set_ylabel("success (%)")
    legend_below(figure, axes[0, 0])
    return figure
