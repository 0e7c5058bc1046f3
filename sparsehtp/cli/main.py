"""The `sparsehtp` command; heavy imports wait until a command runs, so that --help is fast."""

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .options import (
    LOSS,
    CriterionName,
    DecimalName,
    GraphOptions,
    GraphSolverName,
    LossName,
    LowRankOptions,
    MissingName,
    Options,
    PathOptions,
    Precision,
    Problem,
    RuleName,
    SolverName,
    TableOptions,
    ThousandsName,
)

app = typer.Typer(
    help="Choose the k best features of a model: sparse learning by hard thresholding on JAX.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="rich",
)
PROBLEM, FIT, PATH = Problem(), Options(), PathOptions()
LOW_RANK, GRAPH = LowRankOptions(), GraphOptions()

FILES = ".csv, .tsv (also .gz, .zst), .xlsx, .parquet, .npz, or LIBSVM (.libsvm, .svm, .txt, ..., also .gz, .bz2)"
File = Annotated[Path, typer.Argument(help=FILES)]
Target = Annotated[
    str | None, typer.Option(help="Column (of a table) or array (NPZ, default y) to predict; not for LIBSVM.")
]
Drop = Annotated[list[str] | None, typer.Option(help="Column to leave out; repeat it for several.", metavar="COL")]
Missing = Annotated[
    MissingName | None,
    typer.Option(help="Missing values: leave out rows or columns, or fill (anew in every fold).", show_default="error"),
]
Dummies = Annotated[
    bool, typer.Option("--dummies", help="Text columns become columns of 0 and 1 that are chosen together.")
]
Decimal = Annotated[
    DecimalName | None,
    typer.Option(help="Decimal sign of the table's numbers.", show_default="as most cells"),
]
Thousands = Annotated[
    ThousandsName | None,
    typer.Option(help="Sign between groups of three digits.", show_default="where all of a column fits"),
]
Id = Annotated[str | None, typer.Option("--id", help="Column that names the rows, no feature.", metavar="COL")]
Time = Annotated[
    str | None,
    typer.Option(help="In place of --target: column of times until an event, for a Cox model.", metavar="COL"),
]
Event = Annotated[
    str | None,
    typer.Option(help="With --time: column that is 1 where the event was seen, 0 where not.", metavar="COL"),
]
Levels = Annotated[
    str | None,
    typer.Option(
        help="All classes of the target, from the lowest to the highest: a model of ordered classes.",
        metavar="LOW,...,HIGH",
    ),
]
Loss = Annotated[
    LossName,
    typer.Option(help="logistic and the hinges take any two labels, poisson and negative-binomial counts."),
]
LossParameter = Annotated[
    float | None,
    typer.Option(
        help="delta of huber, level of quantile, dispersion of negative-binomial, power of tweedie, gamma of "
        "smoothed-hinge.",
        show_default="the library's",
    ),
]
Solver = Annotated[SolverName, typer.Option(help="auto: best-subset; iht for the hinge.")]
Standardize = Annotated[
    bool, typer.Option("--standardize/--no-standardize", help="Scale features to unit deviation for the fit.")
]
Intercept = Annotated[
    bool, typer.Option("--intercept/--no-intercept", help="Add an intercept, neither penalised nor counted in k.")
]
Dtype = Annotated[Precision, typer.Option(help="Precision of the computation.")]

FIT_HELP = """Fit a sparse model to a table, LIBSVM or NPZ file, and write the chosen features and plots.

[bold]Examples[/bold]

  sparsehtp fit houses.csv --target price --out result

  sparsehtp fit houses.csv --target price --k 8 --prove 60

  sparsehtp fit cancer.csv --target diagnosis --loss logistic --k 5 --test-size 0.3

  sparsehtp fit patients.csv --time days --event died --report

  sparsehtp fit survey.csv --target health --levels poor,fair,good,excellent

  sparsehtp fit survey.xlsx --target income --missing median --dummies --id person

  sparsehtp fit a1a.libsvm --loss logistic --k ebic --save model.npz

  sparsehtp fit claims.csv --target number --loss poisson --exposure years

  sparsehtp fit --shards 'data/*.npz' --k 10 --checkpoint state
"""

PREDICT_HELP = """Predict the target of new rows by a model that `fit --save` wrote.

[bold]Examples[/bold]

  sparsehtp predict model.npz new.csv

  sparsehtp predict model.npz new.xlsx --out predictions.csv
"""

PATH_HELP = """Find the best features for every k, and write tables and plots of coefficients and criteria.

[bold]Examples[/bold]

  sparsehtp path houses.csv --target price --k-max 15 --out result

  sparsehtp path houses.csv --target price --cv 5 --l2 0.001 --l2 0.1 --stability 100

  sparsehtp path cancer.csv --target diagnosis --loss logistic --criterion bic --checkpoint chunks

  sparsehtp path patients.csv --time days --event died --cv 5
"""

LOW_RANK_HELP = """Fit several responses together with coefficients of low rank, and write them with plots.

[bold]Examples[/bold]

  sparsehtp lowrank organs.csv --targets heart,lung,liver --out result

  sparsehtp lowrank panel.npz --targets Y --rank 3 --save model.npz
"""

GRAPH_HELP = """Estimate a sparse precision matrix: which variables are linked, given all others.

[bold]Examples[/bold]

  sparsehtp precision returns.csv --drop date --out result

  sparsehtp precision genes.csv --k ebic --stability 100

  sparsehtp precision genes.csv --k 40 --keep TP53,MDM2 --save model.npz
"""


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"sparsehtp {installed('sparsehtp')}")
        raise typer.Exit()


def _computing(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command that compiles programs, inside `common.computing`; an interrupt says whether it can go on."""

    @functools.wraps(command)
    def inside(*args: Any, **kwargs: Any) -> Any:
        from .common import computing

        try:
            with computing():
                return command(*args, **kwargs)
        except KeyboardInterrupt:
            resumes = kwargs.get("checkpoint") is not None
            typer.echo("Interrupted: run the same command again to resume." if resumes else "Interrupted.", err=True)
            raise typer.Exit(130) from None

    return inside


# Options of `fit` that need all rows in memory.
NOT_STREAMED = (
    "time",
    "event",
    "levels",
    "drop",
    "missing",
    "dummies",
    "id",
    "decimal",
    "thousands",
    "offset",
    "exposure",
    "solver",
    "standardize",
    "cv",
    "rule",
    "test_size",
    "max_steps",
    "prove",
    "save",
    "diagnostics",
    "report",
)


def _command(context: typer.Context) -> str:
    """The command line of this call."""
    words = ["sparsehtp", str(context.info_name)]
    for parameter in context.command.params:
        source, name = context.get_parameter_source(str(parameter.name)), str(parameter.name)
        if source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[name]
        if parameter.param_type_name == "argument":
            words.append(str(value))
        elif isinstance(value, bool):
            words.append((parameter.opts if value else parameter.secondary_opts)[0])
        else:
            for each in value if isinstance(value, list) else [value]:
                words += [parameter.opts[0], str(each)]
    return shlex.join(words)


Report = Annotated[
    bool, typer.Option("--report", help="Write report.html too: everything in one file, to read, print or send.")
]


@app.command(help=FIT_HELP)
@_computing
def fit(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help=FILES, show_default=False)] = None,
    target: Target = None,
    time: Time = None,
    event: Event = None,
    levels: Levels = None,
    drop: Drop = None,
    missing: Missing = None,
    dummies: Dummies = False,
    id: Id = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    offset: Annotated[
        str | None,
        typer.Option(help="Column with a known part of the linear predictor, no feature.", metavar="COL"),
    ] = None,
    exposure: Annotated[
        str | None,
        typer.Option(
            help="The same for its logarithm: the time or area of a count. `predict` is for an exposure of 1 then.",
            metavar="COL",
        ),
    ] = None,
    shards: Annotated[
        str | None,
        typer.Option(
            help="In place of FILE: a quoted pattern of files that together hold the rows.", metavar="PATTERN"
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="For --shards: folder in which a killed run goes on where it stopped.")
    ] = None,
    k: Annotated[
        str,
        typer.Option(
            help="Number of features, cv (cross-validation, which chooses l2 too), or ebic, bic, aic, sic.",
            metavar="NUMBER|cv|ebic|...",
        ),
    ] = FIT.k,
    loss: Loss = LOSS,
    loss_parameter: LossParameter = PROBLEM.loss_parameter,
    solver: Solver = PROBLEM.solver,
    l2: Annotated[
        float | None,
        typer.Option(help="Ridge strength, in units of the mean loss; chosen with k, or tiny, by default.", min=0),
    ] = FIT.l2,
    standardize: Standardize = PROBLEM.standardize,
    intercept: Intercept = PROBLEM.intercept,
    cv: Annotated[int, typer.Option(help="Folds, for --k cv.", min=2)] = FIT.cv,
    rule: Annotated[
        RuleName,
        typer.Option(
            help="For --k cv: features found under a strong ridge and refitted at a tenth of it, the fewest features "
            "within one standard error of the best, or the best itself."
        ),
    ] = FIT.rule,
    test_size: Annotated[
        float, typer.Option(help="Fraction of the rows held out for a test score, below 1.", min=0)
    ] = FIT.test_size,
    seed: Annotated[int, typer.Option(help="Seed of folds and held-out rows.", min=0, max=2**32 - 1)] = PROBLEM.seed,
    max_steps: Annotated[
        int | None, typer.Option(help="Step limit of the final fit; the solver's own by default.", min=1)
    ] = FIT.max_steps,
    prove: Annotated[
        float,
        typer.Option(help="Seconds to prove that the features are the best, or find better ones; 0: none.", min=0),
    ] = FIT.prove,
    dtype: Dtype = PROBLEM.dtype,
    save: Annotated[
        Path | None, typer.Option(help="File for the fitted model, for `sparsehtp predict` and sparsehtp.load.")
    ] = None,
    report: Report = False,
    diagnostics: Annotated[
        bool, typer.Option("--diagnostics", help="Write the solver's history too, as a table and a plot.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for model.json, and plots as PNG and SVG.")] = Path(
        "sparsehtp_output"
    ),
) -> None:
    special, named = _special(context, time, event, levels)
    adds = intercept and special is None
    problem = Problem(special or loss, solver, standardize, adds, seed, dtype, loss_parameter, named)
    options = Options(problem, k, l2, cv, rule, test_size, max_steps, prove)
    if file is not None and shards is None:
        _refuse(context, ("checkpoint",), "it needs --shards")
        from .fit import run
        from .tables import load

        table = TableOptions(tuple(drop or ()), missing, dummies, id, offset, exposure, event, decimal, thousands)
        command = _command(context) if report else None
        run(
            lambda: load(file, target if time is None else time, table, problem),
            options,
            out,
            file.name,
            save,
            diagnostics,
            command,
        )
    elif shards is not None and file is None:
        _refuse(context, NOT_STREAMED, "it has no effect with --shards, which reads the columns as they are")
        from .shards import run as run_shards

        run_shards(shards, target, options, out, checkpoint)
    else:
        raise typer.BadParameter("name one FILE, or several with --shards.")


def _special(
    context: typer.Context, time: str | None, event: str | None, levels: str | None
) -> tuple[Literal["cox", "ordinal"] | None, tuple[str, ...]]:
    """The model of times until an event or of ordered classes, which have no loss to name, and the classes."""
    if (time is None) != (event is None):
        raise typer.BadParameter("--time and --event: name both columns; a Cox model needs them.")
    if time is not None and time == event:
        raise typer.BadParameter(f"--time and --event: both are {time!r}; name a column for each.")
    if time is not None:
        others: tuple[str, ...] = ("target", "loss", "loss_parameter", "intercept", "levels")
        _refuse(context, others, "it has no effect with --time, which fits a Cox model")
        return "cox", ()
    if levels is None:
        return None, ()
    others = ("loss", "loss_parameter", "intercept")
    _refuse(context, others, "it has no effect with --levels, which fits ordered classes")
    return "ordinal", tuple(name.strip() for name in levels.split(",") if name.strip())


def _refuse(context: typer.Context, names: tuple[str, ...], why: str) -> None:
    """An option given where it would be ignored is an error."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"--{name.replace('_', '-')}: {why}; leave it out.")


@app.command(help=PREDICT_HELP)
@_computing
def predict(
    model: Annotated[Path, typer.Argument(help="The model: the file of `fit --save`.")],
    file: Annotated[Path, typer.Argument(help="The new rows: a table with the columns of the fit, in any order.")],
    out: Annotated[
        Path | None, typer.Option(help="CSV file for the predictions; the standard output by default.")
    ] = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
) -> None:
    from .predict import run

    run(model, file, out, decimal, thousands)


@app.command(help=PATH_HELP)
@_computing
def path(
    context: typer.Context,
    file: File,
    target: Target = None,
    time: Time = None,
    event: Event = None,
    levels: Levels = None,
    drop: Drop = None,
    missing: Missing = None,
    dummies: Dummies = False,
    id: Id = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    k_max: Annotated[
        int | None, typer.Option(help="Largest number of features; at most 20 and half the rows by default.", min=0)
    ] = PATH.k_max,
    loss: Loss = LOSS,
    loss_parameter: LossParameter = PROBLEM.loss_parameter,
    solver: Solver = PROBLEM.solver,
    l2: Annotated[
        list[float] | None,
        typer.Option(
            help="Ridge strength, in units of the mean loss; repeat it for several.",
            min=0,
            show_default=", ".join(map(str, PATH.l2)),
        ),
    ] = None,
    standardize: Standardize = PROBLEM.standardize,
    intercept: Intercept = PROBLEM.intercept,
    criterion: Annotated[CriterionName, typer.Option(help="Information criterion.")] = PATH.criterion,
    cv: Annotated[int, typer.Option(help="Folds of a cross-validation, 0 for none.", min=0)] = PATH.cv,
    stability: Annotated[
        int, typer.Option(help="Subsamples for selection probabilities (an even number), 0 for none.", min=0)
    ] = PATH.stability,
    prove: Annotated[
        float, typer.Option(help="Seconds, for all k together, to prove which are the best; 0: none.", min=0)
    ] = PATH.prove,
    seed: Annotated[int, typer.Option(help="Seed of folds and subsamples.", min=0, max=2**32 - 1)] = PROBLEM.seed,
    dtype: Dtype = PROBLEM.dtype,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder for finished parts; the same call with it resumes a killed run.")
    ] = None,
    report: Report = False,
    out: Annotated[Path, typer.Option(help="Folder for path.json, path.csv, and plots as PNG and SVG.")] = Path(
        "sparsehtp_output"
    ),
) -> None:
    special, named = _special(context, time, event, levels)
    adds = intercept and special is None
    problem = Problem(special or loss, solver, standardize, adds, seed, dtype, loss_parameter, named)
    options = PathOptions(problem, k_max, tuple(l2 or PATH.l2), criterion, cv, stability, prove)
    from .path import run
    from .tables import load

    table = TableOptions(tuple(drop or ()), missing, dummies, id, event=event, decimal=decimal, thousands=thousands)
    command = _command(context) if report else None
    named_target = target if time is None else time
    run(lambda: load(file, named_target, table, problem), options, out, file.name, checkpoint, command)


@app.command(help=LOW_RANK_HELP)
@_computing
def lowrank(
    file: File,
    targets: Annotated[
        str, typer.Option(help="Columns (CSV) or the array (NPZ) to predict, joined by commas.", show_default=False)
    ],
    decimal: Decimal = None,
    thousands: Thousands = None,
    rank: Annotated[
        str, typer.Option(help="Rank, cv (cross-validation), aic or bic.", metavar="NUMBER|cv|aic|bic")
    ] = LOW_RANK.rank,
    l2: Annotated[float, typer.Option(help="Ridge strength, in units of the mean loss.", min=0)] = LOW_RANK.l2,
    standardize: Standardize = LOW_RANK.standardize,
    intercept: Intercept = LOW_RANK.intercept,
    cv: Annotated[int, typer.Option(help="Folds, for --rank cv.", min=2)] = LOW_RANK.cv,
    one_se: Annotated[
        bool,
        typer.Option(
            "--one-se/--best", help="The lowest rank within one standard error of the best, or the best itself."
        ),
    ] = LOW_RANK.one_se,
    seed: Annotated[int, typer.Option(help="Seed of the folds.", min=0, max=2**32 - 1)] = LOW_RANK.seed,
    dtype: Dtype = LOW_RANK.dtype,
    save: Annotated[Path | None, typer.Option(help="File for the fitted model, for sparsehtp.load.")] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for model.json, coefficients.csv, and plots as PNG and SVG.")
    ] = Path("sparsehtp_output"),
) -> None:
    options = LowRankOptions(rank, l2, cv, one_se, standardize, intercept, seed, dtype, decimal, thousands)
    from .lowrank import run

    run(file, [name.strip() for name in targets.split(",") if name.strip()], options, out, save)


@app.command(help=GRAPH_HELP)
@_computing
def precision(
    file: Annotated[Path, typer.Argument(help=".csv, .npz (array X), or LIBSVM; one column per variable")],
    drop: Annotated[str | None, typer.Option(help="Column to leave out, for example dates or labels.")] = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    k: Annotated[
        str, typer.Option(help="Number of edges, cv (cross-validation), or ebic, bic.", metavar="NUMBER|cv|ebic|bic")
    ] = GRAPH.k,
    solver: Annotated[GraphSolverName, typer.Option(help="auto: htp.")] = GRAPH.solver,
    standardize: Annotated[
        bool, typer.Option("--standardize/--no-standardize", help="Choose edges on the scale of correlations.")
    ] = GRAPH.standardize,
    shrinkage: Annotated[
        float | None,
        typer.Option(help="Weight of the diagonal in the covariance, 0 for none; as few samples call for.", min=0),
    ] = GRAPH.shrinkage,
    keep: Annotated[
        list[str] | None, typer.Option(help="An edge that is always there, as A,B; repeat it for several.")
    ] = None,
    cv: Annotated[int, typer.Option(help="Folds, for --k cv.", min=2)] = GRAPH.cv,
    stability: Annotated[
        int, typer.Option(help="Subsamples for the selection probabilities of edges, an even number; 0: none.", min=0)
    ] = GRAPH.stability,
    seed: Annotated[int, typer.Option(help="Seed of folds and subsamples.", min=0, max=2**32 - 1)] = GRAPH.seed,
    dtype: Dtype = GRAPH.dtype,
    save: Annotated[Path | None, typer.Option(help="File for the fitted model, for sparsehtp.load.")] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for precision.json, precision.csv, edges.csv, graph.graphml, and two plots.")
    ] = Path("sparsehtp_output"),
) -> None:
    from .precision import load_table, run, split_pairs

    options = GraphOptions(k, solver, standardize, shrinkage, cv, stability, seed, dtype)
    run(lambda: load_table(file, drop, decimal, thousands), lambda: split_pairs(keep), options, out, file.name, save)


@app.command()
@_computing
def demo(out: Annotated[Path, typer.Option(help="Folder for results and plots.")] = Path("demo_output")) -> None:
    """Choose 5 of the 30 features of scikit-learn's breast-cancer data, test on held-out rows, and plot."""
    from .demo import run_demo

    run_demo(out)


@app.command()
def info(
    clear_cache: Annotated[
        bool, typer.Option("--clear-cache", help="First remove the compiled programs that sparsehtp keeps on disk.")
    ] = False,
) -> None:
    """Show versions, devices, precision and the compilation cache."""
    from .info import clear, show

    if clear_cache:
        clear()
    show()
