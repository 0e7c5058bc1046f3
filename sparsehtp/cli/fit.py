"""Load, solve, score, plot, write: the path of `fit` and `demo`."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

import sparsehtp as sht

from ..datasets import Data
from ..io import check_output, describe_device, versions, write_results
from ..plot import new_figure, plot_fit, solver_colour
from ..steps import ScheduleStep, inverse_sqrt
from .options import Options
from .report import print_report, print_warnings

LOSSES: dict[str, Any] = {
    "squared": sht.Squared,
    "huber": sht.Huber,
    "logistic": sht.Logistic,
    "hinge": sht.Hinge,
    "smoothed-hinge": sht.SmoothedHinge,
    "poisson": sht.Poisson,
}
SOLVERS: dict[str, Any] = {"htp": sht.HTP, "iht": sht.IHT, "grasp": sht.GraSP, "subspace-pursuit": sht.SubspacePursuit}


class Problem(NamedTuple):
    """A fit ready to run; `test` is None without held-out rows, `classes` is None for regression."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray] | None
    classes: dict[str, Any] | None
    model: sht.LinearModel
    threshold: sht.Sparsity
    solver: Any


class Timing(NamedTuple):
    """Seconds."""

    compile: float
    run: float


def run(load: Callable[[], Data], options: Options, out: Path, source: str) -> None:
    """Fit what `load` returns and report it; exits with 2 for bad input and 1 for a nonfinite result."""
    console, errors = Console(), Console(stderr=True)
    with jax.enable_x64(options.dtype == "float64"):
        with _one_sentence(errors, ValueError, OSError, ImportError), errors.status("1/3 Loading data"):
            check_output(out)
            new_figure(1, 1)  # a missing matplotlib must not waste a fit
            data = load()
            problem = prepare(data, options)
        with errors.status(f"2/3 Compiling and solving on {jax.devices()[0].platform.upper()}"):
            solution, timing = solve(problem, options.max_steps)
        with _one_sentence(errors, OSError), errors.status("3/3 Plotting"):
            model = describe(data, problem, solution, options, source)
            steps = int(solution.num_steps)
            history = {name: np.asarray(column)[:steps] for name, column in solution.history._asdict().items()}
            features = model["coefficients"]
            figure = plot_fit(
                history,
                [feature["name"] for feature in features],
                np.array([feature["standardized"] for feature in features]),
                title=f"{source}: {model['solver']}, {options.loss} loss, k = {options.k}, {_scores(model)}",
                start_value=float(problem.model.value(jax.numpy.zeros(data.X.shape[1] + options.intercept))),
                caption="coefficient per standard deviation of the feature",
                colour=solver_colour(model["solver"]),
            )
            paths = write_results(out, model, history, figure)
    print_report(console, model, timing, paths)
    print_warnings(errors, model)
    if model["result"]["name"] == "nonfinite":
        raise typer.Exit(1)


@contextlib.contextmanager
def _one_sentence(errors: Console, *kinds: type[Exception]):
    """Turn an error that the user can correct into one sentence and exit code 2."""
    try:
        yield
    except kinds as error:
        errors.print(f"[bold red]Error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from error


def prepare(data: Data, options: Options) -> Problem:
    """Encode the target, split the rows and build the parts of the solve."""
    loss = LOSSES[options.loss]
    if not loss.twice_differentiable and options.solver != "iht":
        raise ValueError(
            f"solver: {options.solver} cannot refit the {options.loss} loss, which is not smooth; "
            "use --solver iht or --loss smoothed-hinge."
        )
    y, classes = _encode(data, options.loss) if loss.classification else (_numbers(data, options.loss), None)
    X, test = data.X.astype(options.dtype, copy=False), None
    y = y.astype(options.dtype, copy=False)
    if options.test_size:
        from sklearn.model_selection import train_test_split

        try:
            stratify = None if classes is None else y
            X, X_test, y, y_test = train_test_split(
                X, y, test_size=options.test_size, random_state=options.seed, stratify=stratify
            )
        except ValueError as error:
            raise ValueError(f"test-size: {options.test_size} does not suit these data: {error}") from error
        test = (X_test, y_test)
    model = sht.LinearModel(X, y, loss(), options.l2, fit_intercept=options.intercept, standardize=options.standardize)
    rough_iht = options.solver == "iht" and not loss.twice_differentiable
    solver = sht.IHT(ScheduleStep(inverse_sqrt)) if rough_iht else SOLVERS[options.solver]()
    return Problem((X, y), test, classes, model, sht.Sparsity(options.k).bind(model), solver)


def _encode(data, loss):
    labels = np.unique(data.y)
    if labels.size != 2:
        shown = ", ".join(str(label) for label in labels[:4]) + (", ..." if labels.size > 4 else "")
        raise ValueError(
            f"target: {loss} needs exactly two classes, but {data.target_name!r} has {labels.size} "
            f"distinct values ({shown}); choose another target, or --loss squared for numbers."
        )
    classes = {"-1": labels[0].item(), "+1": labels[1].item()}
    return np.where(data.y == labels[1], 1.0, -1.0), classes


def _numbers(data, loss):
    if data.y.dtype.kind != "f":
        raise ValueError(
            f"target: {data.target_name!r} is not numeric (for example {str(data.y[0])!r}), which {loss} "
            "needs; use --loss logistic for two classes, or encode it as numbers."
        )
    return data.y


def solve(problem: Problem, max_steps: int | None) -> tuple[sht.Solution, Timing]:
    """Compile, then run."""

    @jax.jit
    def whole(model, threshold):
        return sht.solve(model, threshold, problem.solver, max_steps=max_steps, throw=False)

    start = time.perf_counter()
    compiled = whole.lower(problem.model, problem.threshold).compile()
    middle = time.perf_counter()
    solution = jax.block_until_ready(compiled(problem.model, problem.threshold))
    return solution, Timing(middle - start, time.perf_counter() - middle)


def describe(data: Data, problem: Problem, solution: sht.Solution, options: Options, source: str) -> dict:
    """Everything about a fit that is worth keeping, as JSON can hold it."""
    X, y = problem.train
    result = sht.RESULTS(int(solution.result))
    fired = sht.FIRED(int(solution.fired))
    w, intercept = np.asarray(solution.x, np.float64), float(solution.intercept)
    chosen = np.asarray(solution.support.idx)[np.asarray(solution.support.mask)]
    standardized = w[chosen] * X[:, chosen].std(axis=0, dtype=np.float64)
    order = np.argsort(-np.abs(standardized), kind="stable")
    features = [
        {
            "name": data.feature_names[chosen[i]],
            "index": int(chosen[i]),
            "coefficient": float(w[chosen[i]]),
            "standardized": float(standardized[i]),
        }
        for i in order
    ]

    def predictor(X):
        return X[:, chosen].astype(np.float64) @ w[chosen] + intercept

    metric, score = _metric(options.loss)
    return {
        "file": source,
        "target": data.target_name,
        "classes": problem.classes,
        "n": X.shape[0],
        "n_test": 0 if problem.test is None else len(problem.test[1]),
        "p": X.shape[1],
        "k": options.k,
        "loss": options.loss,
        "solver": type(problem.solver).__name__,
        "l2": options.l2,
        "standardize": options.standardize,
        "fit_intercept": options.intercept,
        "dtype": options.dtype,
        "seed": options.seed,
        "coefficients": features,
        "intercept": intercept,
        "result": {
            "name": result.name,
            "sentence": result.sentence,
            "fired": [member.name for member in sht.FIRED if member.value and member in fired],
        },
        "num_steps": int(solution.num_steps),
        "objective": float(solution.value),
        "metric": metric,
        "train_score": score(y, predictor(X)),
        "test_score": None if problem.test is None else score(problem.test[1], predictor(problem.test[0])),
        "separable": bool(problem.classes is not None and np.all(y * predictor(X) > 0)),
        "versions": versions(),
        "device": describe_device(),
    }


def _metric(loss: str) -> tuple[str, Callable[[np.ndarray, np.ndarray], float | None]]:
    """Name of the score, and the score of targets and linear predictors (None where it is undefined)."""
    if LOSSES[loss].classification:
        return "accuracy", lambda y, eta: float(np.mean((eta >= 0) == (y > 0)))
    if loss == "poisson":
        return "deviance explained", lambda y, eta: _explained(y, lambda m: _poisson_deviance(y, m), np.exp(eta))
    return "R2", lambda y, eta: _explained(y, lambda m: np.sum((y - m) ** 2), eta)


def _explained(y, deviance, prediction):
    """1 - deviance(prediction) / deviance(mean); None if the target is constant."""
    constant = np.ptp(y) == 0
    return None if constant else float(1 - deviance(prediction) / deviance(np.mean(y, dtype=np.float64)))


def _poisson_deviance(y, mean):
    from scipy.special import xlogy

    y = y.astype(np.float64)
    return 2 * np.sum(xlogy(y, y) - xlogy(y, mean) - y + mean)


def _scores(model: dict) -> str:
    """The scores as text, for the figure's title."""
    parts = [(part, model[f"{part}_score"]) for part in ("train", "test")]
    return ", ".join(f"{part} {model['metric']} {score:.3f}" for part, score in parts if score is not None)
