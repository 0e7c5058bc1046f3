"""The experiments of [DIOM]: primal-dual updating against dual ascent, DIHT and coordinate descent with swaps."""

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sparsehtp._programs import program
from sparsehtp._solve import solve
from sparsehtp.iteration.results import FIRED, RESULTS
from sparsehtp.iteration.termination import AbstractTermination
from sparsehtp.objectives import LinearModel
from sparsehtp.solvers import CDSS, DIHT, PrimalDual
from sparsehtp.thresholds import L0L1L2, Sparsity

from .figures import curves, legend_below, panels, short_log
from .run import Run
from .verdicts import ALPHA, Mean, Ratio, every, shown

# Algorithms 1 to 3 as printed, and in the convex form that climbs the same dual.
FORMS = {"PrimDual": "PrimDual (as printed)", "PrimDual convex": "PrimDual in its convex form"}
ASCENTS = ("DualAst", "DIHT")
ALGORITHMS = (*FORMS, *ASCENTS, "CDSS")
OMEGA = 5e-4
FAST = 5.0  # seconds up to which a fit is timed three times
UNITS = {
    "time": "time (s)",
    "objective": "objective",
    "gap": "duality gap",
    "nonzeros": "nonzeros",
    "recovery": "recovered share",
    "error": "estimation error",
}
Prices = Sequence[float]


class Settled(AbstractTermination):
    """[DIOM]'s rule: the gap is at most `tol`, or has changed by at most that in two steps; `most` steps at most."""

    tol: Any
    most: Any

    def init(self, state: Any) -> Any:
        return jnp.full(2, jnp.inf, state.x.dtype)

    def __call__(self, memory: Any, previous: Any, state: Any, info: Any, t: Any) -> tuple[Any, Array]:
        done = (info.gap <= self.tol) | (jnp.abs(memory[0] - info.gap) <= self.tol) | (t + 1 >= self.most)
        return jnp.stack([memory[1], info.gap]), jnp.where(done, jnp.int32(FIRED.DualGap), 0)


class PaperDIHT(DIHT):
    """DIHT with [DIOM]'s step."""

    def __init__(self) -> None:
        super().__init__()

    def size(self, dual: Any, state_norm: Array, t: Any, blocks: int = 1) -> Array:
        return jnp.asarray(OMEGA, state_norm.dtype)


@program(static_argnames=("algorithm", "k", "steps"))
def _fit(
    X: Any, y: Any, l0: Any, l1: Any, l2: Any, tol: Any, most: Any, *, algorithm: str, k: int, steps: int
) -> tuple[Array, Array, Array]:
    model = LinearModel(X, y, l2=l2)
    limits: dict[str, Any] = {"max_steps": steps, "termination": Settled(tol, most)}
    if algorithm == "DIHT":
        found = solve(model, Sparsity(k), PaperDIHT(), record=None, throw=False, **limits)
        return found.x, found.num_steps, found.result
    solver: Any = {
        "PrimDual": PrimalDual(inner="printed", omega=OMEGA, rule="gap_sphere"),
        "PrimDual convex": PrimalDual(),
        "DualAst": PrimalDual(dual_ascent=True, omega=OMEGA),
        "CDSS": CDSS(),
    }[algorithm]
    found = solve(model, L0L1L2(l0, l1), solver, record=None, throw=False, **(limits if algorithm != "CDSS" else {}))
    return found.x, found.num_steps, found.result


def fitted(
    X: np.ndarray, y: np.ndarray, lam: Prices, algorithm: str, k: int, steps: int, most: int | None = None
) -> tuple[np.ndarray, int, bool]:
    """Coefficients and steps of an algorithm, and whether it came to its end.

    `lam` are the weights of the sum form: lam0 = n l0, lam1 = n l1, lam2 = n l2 / 2.
    """
    n = len(y)
    lam0, lam1, lam2 = lam
    arguments = (jnp.asarray(X), jnp.asarray(y), lam0 / n, lam1 / n, 2 * lam2 / n, 1e-6 / n)
    most = steps if most is None else most
    x, taken, result = _fit(*arguments, most, algorithm=algorithm, k=k, steps=steps)
    return np.asarray(x), int(taken), bool(taken < most and result == RESULTS.converged)


def duality_gap(X: np.ndarray, y: np.ndarray, lam: Prices, x: np.ndarray) -> tuple[float, float]:
    """P(beta) and P(beta) - D(X beta - y), (14) with the dual point of Remark D.3, in the sum form."""
    lam0, lam1, lam2 = lam
    a = X @ x - y
    value = 0.5 * a @ a + lam0 * np.count_nonzero(x) + lam1 * np.abs(x).sum() + lam2 * x @ x
    terms = np.maximum(np.abs(X.T @ a) - lam1, 0) ** 2 / (4 * lam2) - lam0
    return float(value), float(value - (-0.5 * a @ a - y @ a - np.maximum(terms, 0).sum()))


@functools.cache
def _compile(shape: tuple[int, int], algorithm: str, k: int, steps: int) -> None:
    """Compile the fits of data of a shape, on zeros, where each ends at once."""
    fitted(np.zeros(shape), np.zeros(shape[0]), (1.0, 1.0, 1.0), algorithm, k, steps, 1)


def _row(
    X: np.ndarray, y: np.ndarray, lam: Prices, algorithm: str, k: int, steps: int
) -> tuple[np.ndarray, dict[str, Any]]:
    """Coefficients and what they come to; the time without compiling, of what is fast the median of three."""
    _compile(X.shape, algorithm, k, steps)
    times: list[float] = []
    while len(times) < (3 if max(times, default=0) < FAST else 1):
        start = time.perf_counter()
        x, taken, ended = fitted(X, y, lam, algorithm, k, steps)
        times.append(time.perf_counter() - start)
    value, gap = duality_gap(X, y, lam, x)
    return x, {
        "objective": value,
        "gap": gap,
        "nonzeros": int(np.count_nonzero(x)),
        "steps": taken,
        "ended": ended,
        "time": float(np.median(times)),
    }


def simulated(run: Run, n: int, snr: float, copy: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X with columns of unit norm, y and the true coefficients."""
    rng, p = run.rng("problem", n, snr, copy), run["p"]
    X = rng.standard_normal((n, p))
    for j in range(1, p):
        X[:, j] = run["rho"] * X[:, j - 1] + np.sqrt(1 - run["rho"] ** 2) * X[:, j]
    X /= np.linalg.norm(X, axis=0)
    w = np.zeros(p)
    count = round(run["share"] * p)
    w[rng.choice(p, count, replace=False)] = rng.uniform(-1, 1, count)
    signal = X @ w
    return X, signal + rng.standard_normal(n) * np.sqrt(signal.var() / snr), w


class Table:
    """What the copies of a place (n and SNR, or n and p) gave: a row for each, with the results of every algorithm."""

    def __init__(self, rows: list[dict[str, Any]], names: tuple[str, str]) -> None:
        self.names = names
        self.rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in rows:
            self.rows.setdefault(tuple(row[name] for name in names), []).append(row)

    def draws(self, algorithm: str, measure: str, place: tuple[Any, ...]) -> np.ndarray:
        """One number per copy."""
        return np.array([row[algorithm][measure] for row in self.rows[place]])

    def mean(self, algorithm: str, measure: str, place: tuple[Any, ...]) -> float:
        """The mean over the copies."""
        return float(self.draws(algorithm, measure, place).mean())

    def all_ended(self, algorithm: str, places: Iterable[tuple[Any, ...]]) -> bool:
        """Whether none of its runs was stopped."""
        return all(self.draws(algorithm, "ended", place).all() for place in places)

    def stopped(self) -> dict[str, str]:
        """Of each algorithm that was stopped, how many of its runs."""
        ended = {a: np.concatenate([self.draws(a, "ended", place) for place in self.rows]) for a in ALGORITHMS}
        return {a: f"{np.sum(~each)} of {each.size}" for a, each in ended.items() if not each.all()}

    def paired(
        self, difference: Callable[[Any, Any], Any], first: str, second: str, measure: str, places: Sequence[Any]
    ) -> Mean:
        """A difference of two algorithms on the copies of some places."""
        rows = [row for place in places for row in self.rows[place]]
        return Mean([difference(row[first][measure], row[second][measure]) for row in rows])

    def faster(self, first: str, rivals: Iterable[str], groups: Mapping[str, Sequence[Any]]) -> dict[str, Ratio]:
        """Each rival's time over the first's, in each group of places; from one side where runs were stopped."""

        def times(own: float, other: float) -> float:
            return np.log(other / own)

        return {
            f"{rival}, {name}": Ratio(
                self.paired(times, first, rival, "time", places).draws,
                may_be_less=not self.all_ended(first, places),
                may_be_more=not self.all_ended(rival, places),
            )
            for rival in rivals
            for name, places in groups.items()
        }

    def figure(self, run: Run, measures: Sequence[str], title: str) -> Any:
        """A row of panels for every second coordinate of the places."""
        rows = sorted({place[1] for place in self.rows}, key=run[{"snr": "snrs", "p": "ps"}[self.names[1]]].index)
        figure, axes = panels(len(rows), len(measures), width=2.8)
        stopped = self.stopped()
        for line, other in zip(axes, rows, strict=True):
            for ax, measure in zip(line, measures, strict=True):
                to, back = (np.log, np.exp) if measure == "time" else (np.asarray, np.asarray)
                means = {a: [Mean(to(self.draws(a, measure, (n, other)))) for n in run["ns"]] for a in ALGORITHMS}
                bands = {a: back([mean.interval(ALPHA) for mean in each]).T for a, each in means.items()}
                curves(ax, run["ns"], {a: back([mean.value for mean in each]) for a, each in means.items()}, bands)
                for drawn in ax.lines:
                    if drawn.get_label() in stopped:
                        drawn.set_label(f"{drawn.get_label()} (stopped)")
                ax.set(title=f"{UNITS[measure]}, {title} {other}", xlabel="sample size n")
                if measure in ("time", "gap"):
                    ax.set_yscale("log")
                    short_log(ax.yaxis)
        legend_below(figure, axes[0, 0])
        return figure


def fig1(run: Run) -> Any:
    """Figure 1: time, gap, nonzeros, support recovery and error on simulated data."""
    truth = round(run["share"] * run["p"])

    def chosen(n: int, snr: float) -> dict[str, Any]:
        """lam0 and lam1 times one number, so that CDSS finds as many nonzeros as there are, on draws of their own."""
        draws = [simulated(run, n, snr, -1 - pilot)[:2] for pilot in range(run["pilots"])]
        lam0, lam1, lam2 = run["prices_snr20" if snr == 20 else "prices"]
        low, high, counts = -5.0, 1.0, {}
        with jax.enable_x64(True):
            for power in [0.0] + [None] * run["halvings"]:
                power = (low + high) / 2 if power is None else power
                lam = (2.0**power * lam0, 2.0**power * lam1, lam2)
                found = [np.count_nonzero(fitted(X, y, lam, "CDSS", truth, 1)[0]) for X, y in draws]
                counts[power] = float(np.mean(found))
                low, high = (power, high) if counts[power] > truth else (low, power)
        best = min(counts, key=lambda power: abs(counts[power] - truth))
        return {"scale": 2.0**best, "nonzeros": counts[best], "nonzeros_as_printed": counts[0.0]}

    places = [(n, snr) for snr in run["snrs"] for n in run["ns"]]
    scales = run.map(chosen, [{"n": n, "snr": snr} for n, snr in places])

    def prices(n: int, snr: float) -> Prices:
        scale = next(row["scale"] for row in scales if (row["n"], row["snr"]) == (n, snr))
        lam0, lam1, lam2 = run["prices_snr20" if snr == 20 else "prices"]
        return scale * lam0, scale * lam1, lam2

    def compare(n: int, snr: float, copy: int) -> dict[str, Any]:
        X, y, w = simulated(run, n, snr, copy)
        found = {}
        with jax.enable_x64(True):
            for algorithm in ALGORITHMS:
                x, row = _row(X, y, prices(n, snr), algorithm, truth, run["max_steps"])
                row["recovery"] = float(np.mean(x[w != 0] != 0))
                row["error"] = float(np.linalg.norm(x - w) / np.linalg.norm(w))
                found[algorithm] = row
        return found

    cells = [{"n": n, "snr": snr, "copy": copy} for n, snr in places for copy in range(run["copies"])]
    table = Table(run.map(compare, cells), ("n", "snr"))
    _decide_simulated(run, table, truth)
    return table.figure(run, ("time", "gap", "nonzeros", "recovery", "error"), "SNR")


def _decide_simulated(run: Run, table: Table, truth: int) -> None:
    """The claim on simulated data, for both forms of the algorithm."""
    places = list(table.rows)
    by_snr = {f"SNR {snr}": [at for at in places if at[1] == snr] for snr in run["snrs"]}
    by_n = {f"n={n}": [at for at in places if at[0] == n] for n in run["ns"]}
    measures: dict[str, Callable[[Any, Any], Any]] = {"recovery": lambda a, b: a - b, "error": lambda a, b: 1 - a / b}
    faster = {title: table.faster(form, (*ASCENTS, "CDSS"), by_n) for form, title in FORMS.items()}
    run.claim(
        "a",
        "PrimDual takes less time than CDSS, DualAst and DIHT at each n",
        {title: every(each.values()) for title, each in faster.items()},
        draws=run["copies"],
        numbers={title: {f"times faster, {at}": x for at, x in each.items()} for title, each in faster.items()},
        filled={f"n={n}, SNR {snr}": table.mean("PrimDual convex", "nonzeros", (n, snr)) / truth for n, snr in places},
        better_by={
            f"{title}: {measure}, {rival}, {name}": shown(table.paired(difference, form, rival, measure, group))
            for form, title in FORMS.items()
            for rival in ("CDSS", "DualAst")
            for measure, difference in measures.items()
            for name, group in by_snr.items()
        },
        mean_seconds={a: float(np.mean([table.mean(a, "time", at) for at in places])) for a in ALGORITHMS},
        stopped=table.stopped(),
    )


def words(run: Run, data: Any, n: int, p: int, copy: int) -> tuple[np.ndarray, np.ndarray]:
    """n documents and p of the words in them, each word's column of unit norm; labels from -10 to 10."""
    rng = run.rng("rows", n, p, copy)
    rows = rng.choice(data.X.shape[0], n, replace=False)
    part = data.X[rows]
    present = np.flatnonzero(np.asarray((part != 0).sum(0)).ravel())
    X = np.asarray(part[:, rng.choice(present, p, replace=False)].todense(), float)
    y = np.interp(data.y[rows].astype(float), [data.y.min(), data.y.max()], [-10, 10])
    return X / np.linalg.norm(X, axis=0), y


def fig2(run: Run) -> Any:
    """Figure 2: time, objective, gap and nonzeros on the News20 text data, labels mapped to [-10, 10]."""
    data = run.load("news20-topics")
    if data is None:
        raise FileNotFoundError(" ".join(run.notes))
    lam, k = tuple(run["prices"]), run["k"]

    def compare(n: int, p: int, copy: int) -> dict[str, Any]:
        X, y = words(run, data, n, p, copy)
        with jax.enable_x64(True):
            return {
                a: _row(X, y, lam, a, k, run["printed_steps"] if a == "PrimDual" else run["max_steps"])[1]
                for a in ALGORITHMS
            }

    cells = [{"n": n, "p": p, "copy": copy} for p in run["ps"] for n in run["ns"] for copy in range(run["copies"])]
    table = Table(run.map(compare, cells), ("n", "p"))
    _decide_words(run, table)
    return table.figure(run, ("time", "objective", "gap", "nonzeros"), "p =")


def _decide_words(run: Run, table: Table) -> None:
    """The claims on text: the first two for both forms of the algorithm."""
    small, large = run["ps"][0], run["ps"][-1]
    middle = float(np.median(run["ns"]))
    late = {f"n >= {middle:g}": [(n, small) for n in run["ns"] if n >= middle]}
    least, most = {f"p={small}": [(n, small) for n in run["ns"]]}, {f"p={large}": [(n, large) for n in run["ns"]]}

    def objectives(form: str, group: Mapping[str, Sequence[Any]]) -> dict[str, str]:
        """By how much of it a form's objective is below that of others, in a group of places."""
        return {
            f"{rival}, {name}": shown(
                table.paired(lambda own, other: 1 - own / other, form, rival, "objective", places)
            )
            for rival in ("DualAst", "CDSS")
            for name, places in group.items()
        }

    for letter, group, place, rivals in (
        ("a", late, f"p = {small}, {next(iter(late))}", ("DIHT", "CDSS")),  # "DualAst has similar computation cost"
        ("b", most, f"p = {large}", ("CDSS",)),
    ):
        faster = {title: table.faster(form, rivals, group) for form, title in FORMS.items()}
        run.claim(
            letter,
            f"at {place} PrimDual takes less time than {' and '.join(rivals)}",
            {title: every(each.values()) for title, each in faster.items()},
            draws=run["copies"],
            numbers={title: {f"times faster, {at}": x for at, x in each.items()} for title, each in faster.items()},
            objective_lower_by={title: objectives(form, group) for form, title in FORMS.items()},
            stopped=table.stopped(),
        )
    longer = {title: table.faster(form, ("CDSS",), least) for form, title in FORMS.items()}
    others = {a: x for a in ASCENTS for x in table.faster(a, ("CDSS",), least).values()}
    run.claim(
        "c",
        f"CDSS takes the longest time at p = {small}",
        {title: every([*each.values(), *others.values()]) for title, each in longer.items()},
        draws=run["copies"],
        numbers={
            title: {
                **{f"times longer than {title}": x for x in each.values()},
                **{f"times longer than {a}": x for a, x in others.items()},
            }
            for title, each in longer.items()
        },
        mean_seconds={a: float(np.mean([table.mean(a, "time", at) for at in table.rows])) for a in ALGORITHMS},
        stopped=table.stopped(),
    )
    places = next(iter(most.values()))

    def gaps(own: float, other: float) -> float:
        return np.log(other / own)

    def smaller(rival: str) -> Ratio:
        """How much larger a rival's gap is; where it was stopped, its gap might have come to anything."""
        going = not table.all_ended(rival, places)
        return Ratio(table.paired(gaps, "CDSS", rival, "gap", places).draws, may_be_less=going, may_be_more=going)

    than = {
        title: {f"times smaller than {name}": smaller(a) for a, name in ((form, title), ("DualAst", "DualAst"))}
        for form, title in FORMS.items()
    }
    run.claim(
        "d",
        f"CDSS has the smallest duality gap at p = {large}",
        {title: every(each.values()) for title, each in than.items()},
        draws=run["copies"],
        numbers=than,
        compared={a: [table.mean(a, "gap", at) for at in places] for a in (*FORMS, "DualAst", "CDSS")},
    )
