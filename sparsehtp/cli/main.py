"""The `sparsehtp` command; heavy imports wait until a command runs, so that --help is fast."""

from pathlib import Path
from typing import Annotated

import typer

from .options import LossName, Options, Precision, SolverName

app = typer.Typer(
    help="Choose the k best features of a model: sparse learning by hard thresholding on JAX.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="rich",
)
DEFAULTS = Options()
Out = Annotated[Path, typer.Option(help="Folder for model.json, history.csv, fit.png and fit.svg.")]

FIT_HELP = """Fit a k-sparse model to a CSV, LIBSVM or NPZ file, and write the chosen features and a plot.

[bold]Examples[/bold]

  sparsehtp fit houses.csv --target price --k 10 --out result

  sparsehtp fit cancer.csv --target diagnosis --loss logistic --k 5 --test-size 0.3

  sparsehtp fit a1a.libsvm --loss logistic --solver grasp --l2 1e-3

  sparsehtp fit counts.npz --target visits --loss poisson --no-standardize
"""


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
):
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"sparsehtp {installed('sparsehtp')}")
        raise typer.Exit()


@app.command(help=FIT_HELP)
def fit(
    file: Annotated[Path, typer.Argument(help=".csv, .npz, or LIBSVM as .libsvm, .svm, .svmlight, .txt")],
    target: Annotated[
        str | None, typer.Option(help="Column (CSV) or array (NPZ, default y) to predict; not for LIBSVM.")
    ] = None,
    k: Annotated[int, typer.Option(help="Number of features to choose.", min=0)] = DEFAULTS.k,
    loss: Annotated[
        LossName, typer.Option(help="logistic and the hinges take any two labels; poisson takes counts.")
    ] = DEFAULTS.loss,
    solver: Annotated[SolverName, typer.Option(help="Algorithm; hinge needs iht.")] = DEFAULTS.solver,
    l2: Annotated[float, typer.Option(help="Ridge strength, in units of the mean loss.", min=0)] = DEFAULTS.l2,
    standardize: Annotated[
        bool,
        typer.Option("--standardize/--no-standardize", help="Scale features to unit deviation for the fit."),
    ] = DEFAULTS.standardize,
    intercept: Annotated[
        bool,
        typer.Option("--intercept/--no-intercept", help="Add an intercept, neither penalised nor counted in k."),
    ] = DEFAULTS.intercept,
    test_size: Annotated[
        float, typer.Option(help="Fraction of the rows held out for a test score, below 1.", min=0)
    ] = DEFAULTS.test_size,
    seed: Annotated[int, typer.Option(help="Seed of the held-out split.", min=0, max=2**32 - 1)] = DEFAULTS.seed,
    max_steps: Annotated[
        int | None, typer.Option(help="Step limit; the solver's own by default.", min=1)
    ] = DEFAULTS.max_steps,
    dtype: Annotated[Precision, typer.Option(help="Precision of the computation.")] = DEFAULTS.dtype,
    out: Out = Path("sparsehtp_output"),
):
    options = Options(k, loss, solver, l2, standardize, intercept, test_size, seed, max_steps, dtype)
    from ..datasets import load_file
    from .fit import run

    run(lambda: load_file(file, target), options, out, file.name)


@app.command()
def demo(out: Out = Path("demo_output")):
    """Choose 5 of the 30 features of scikit-learn's breast-cancer data, test on held-out rows, and plot."""
    from .demo import run_demo

    run_demo(out)


@app.command()
def info():
    """Show versions, devices, precision and the compilation cache."""
    from .info import show

    show()
