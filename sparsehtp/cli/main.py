"""The `sparsehtp` command; heavy imports wait until a command runs, so that --help is fast."""

import dataclasses
import functools
import inspect
import io
import shlex
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from .options import (
    DemoOptions,
    Drawn,
    FitOptions,
    GraphOptions,
    LowRankOptions,
    ModelOptions,
    Numerals,
    PathOptions,
    PredictOptions,
    Work,
)

app = typer.Typer(
    help="Choose the k best features of a model: sparse learning by hard thresholding on JAX.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode=None,  # boxes of 80 columns cut the names of options
)
CHOICES = ("--loss", "--solver", "--rule", "--missing")  # whose values are words
# Options that need neither a table nor all rows in memory: of every loss, and of least squares, which reads rows once.
OF_PARTS = {"file", "target", "drop", "checkpoint", "k", "loss", "loss_parameter", "l2", "intercept", "seed", "out"}
AGAIN = OF_PARTS | {"dtype"}
OF_FOLDS = {"solver", "cv", "rule", "k_max", "criterion", "max_steps"}
ONCE = OF_PARTS | OF_FOLDS | {"standardize", "prove", "save", "diagnostics", "report"}

FIT_HELP = """Fit a sparse model to a table, LIBSVM or NPZ file, and write the chosen features and plots.

\b
Examples:
  sparsehtp fit houses.csv --target price --out result
  sparsehtp fit houses.csv --target price --k 8 --prove 60
  sparsehtp fit cancer.csv --target diagnosis --loss logistic --k 5 --test-size 0.3
  sparsehtp fit patients.csv --time days --event died --report
  sparsehtp fit survey.csv --target health --levels poor,fair,good,excellent
  sparsehtp fit survey.xlsx --target income --missing median --dummies --id person
  sparsehtp fit a1a.libsvm --loss logistic --k ebic --save model.npz
  sparsehtp fit claims.csv --target number --loss poisson --exposure years
  sparsehtp fit 'data/*.parquet' --target price --checkpoint state
"""

PREDICT_HELP = """Predict the target of new rows by a model that `fit --save` wrote.

\b
Examples:
  sparsehtp predict model.npz new.csv
  sparsehtp predict model.npz new.xlsx --out predictions.csv
"""

PATH_HELP = """Find the best features for every k, and write tables and plots of coefficients and criteria.

\b
Examples:
  sparsehtp path houses.csv --target price --k-max 15 --out result
  sparsehtp path houses.csv --target price --cv 5 --l2 0.001 --l2 0.1 --stability 100
  sparsehtp path cancer.csv --target diagnosis --loss logistic --criterion bic --checkpoint chunks
  sparsehtp path patients.csv --time days --event died --cv 5
  sparsehtp path 'data/*.parquet' --target price --checkpoint state
"""

LOWRANK_HELP = """Fit several responses together with coefficients of low rank, and write them with plots.

\b
Examples:
  sparsehtp lowrank organs.csv --targets heart,lung,liver --out result
  sparsehtp lowrank panel.npz --targets Y --rank 3 --save model.npz
"""

PRECISION_HELP = """Estimate a sparse precision matrix: which variables are linked, given all others.

\b
Examples:
  sparsehtp precision returns.csv --drop date --out result
  sparsehtp precision genes.csv --k ebic --stability 100
  sparsehtp precision genes.csv --k 40 --keep TP53,MDM2 --save model.npz
"""


class _Command(TyperCommand):
    """A command that takes choices as Python spells them too, such as one_se; its context keeps the line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, with hyphens in choices."""
        ctx.obj = shlex.join(["sparsehtp", str(ctx.info_name), *args])
        pairs = zip(["", *args], args, strict=False)
        spelled = [
            arg.replace("_", "-") if before in CHOICES or arg.partition("=")[0] in CHOICES else arg
            for before, arg in pairs
        ]
        return super().parse_args(ctx, spelled)


def _command(settings: type, text: str) -> Callable[[Callable[[typer.Context, Any], None]], None]:
    """Make a command of a function of a context and settings; the fields of the settings are its options.

    It runs inside `common.computing`, and an interrupt says whether it can go on.
    """
    hints, fields = get_type_hints(settings, include_extras=True), dataclasses.fields(settings)
    of_all = {
        field.name for kind in (Drawn, Numerals, Work) for field in dataclasses.fields(kind)
    }  # which help lists last
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in sorted(fields, key=lambda field: field.name in of_all)
    ]

    def register(function: Callable[[typer.Context, Any], None]) -> None:
        @functools.wraps(function)
        def command(context: typer.Context, **given: Any) -> None:
            from .common import computing

            try:
                with computing():
                    function(context, settings(**given))
            except KeyboardInterrupt:
                resumes = given.get("checkpoint") is not None
                typer.echo(
                    "Interrupted: run the same command again to resume." if resumes else "Interrupted.", err=True
                )
                raise typer.Exit(130) from None

        of_context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        command.__signature__ = inspect.Signature([of_context, *options])  # type: ignore[attr-defined]
        app.command(help=text, short_help=text.partition("\n")[0], cls=_Command)(command)

    return register


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # Windows' pipes know some hundred characters
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"sparsehtp {installed('sparsehtp')}")
        raise typer.Exit()


def _given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _refuse(context: typer.Context, names: Iterable[str], why: str) -> None:
    """An option given where it would be ignored is an error."""
    for name in names:
        if _given(context, name):
            raise typer.BadParameter(f"--{name.replace('_', '-')}: {why}; leave it out.")


def _refuse_all_but(context: typer.Context, options: Any, names: set[str], what: str) -> None:
    others = {field.name for field in dataclasses.fields(options)} - names
    _refuse(context, sorted(others), f"it has no effect on {what}, of which the columns are used as they are")


def _check_model(context: typer.Context, options: ModelOptions) -> None:
    """Options of times until an event and of ordered classes, which have no loss to name."""
    time, event = options.time, options.event
    if (time is None) != (event is None):
        raise typer.BadParameter("--time and --event: name both columns; a Cox model needs them.")
    others = ("loss", "loss_parameter", "intercept")
    if time is not None:
        _refuse(context, ("target", *others, "levels"), "it has no effect with --time, which fits a Cox model")
    elif options.levels is not None:
        _refuse(context, others, "it has no effect with --levels, which fits ordered classes")


@_command(FitOptions, FIT_HELP)
def fit(context: typer.Context, options: FitOptions) -> None:
    _check_model(context, options)
    from .parts import Gathered, Stream, opened, read_once

    shards = opened(options)
    if shards is None:
        _refuse(context, ("checkpoint",), "it is for data in parts, a folder or a pattern of files")
        from .fit import Fit

        Fit(options).run(context.obj)
    elif read_once(options, shards):
        _refuse_all_but(context, options, ONCE, "data in parts")
        Gathered(options, shards).run(context.obj)
    else:
        _refuse_all_but(context, options, AGAIN, "data in parts that are read again and again")
        Stream(options, shards).run()


@_command(PredictOptions, PREDICT_HELP)
def predict(_: typer.Context, options: PredictOptions) -> None:
    from .predict import write_predictions

    write_predictions(options)


@_command(PathOptions, PATH_HELP)
def path(context: typer.Context, options: PathOptions) -> None:
    _check_model(context, options)
    from .parts import GatheredSubsets, opened, read_once

    shards = opened(options)
    if shards is None:
        from .path import Subsets

        Subsets(options).run(context.obj)
    else:
        if not read_once(options, shards):
            raise typer.BadParameter("FILE: data in parts have a path for the squared loss and few columns; use `fit`.")
        _refuse_all_but(context, options, ONCE, "data in parts")
        GatheredSubsets(options, shards).run(context.obj)


@_command(LowRankOptions, LOWRANK_HELP)
def lowrank(_: typer.Context, options: LowRankOptions) -> None:
    from .lowrank import LowRank

    LowRank(options).run()


@_command(GraphOptions, PRECISION_HELP)
def precision(_: typer.Context, options: GraphOptions) -> None:
    from .precision import Graph

    Graph(options).run()


@_command(
    DemoOptions, "Choose 5 of the 30 features of scikit-learn's breast-cancer data, test on held-out rows, and plot."
)
def demo(_: typer.Context, options: DemoOptions) -> None:
    from .demo import Demo

    Demo(options.out).run()


@app.command()
def info(
    clear_cache: Annotated[
        bool, typer.Option("--clear-cache", help="First remove the compiled programs that sparsehtp keeps on disk.")
    ] = False,
) -> None:
    """Show versions, devices, precision and the compilation cache."""
    from .info import print_info, remove_cache

    if clear_cache:
        remove_cache()
    print_info()
