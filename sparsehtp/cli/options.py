"""Every option of the commands, once: the settings of a command are a class, its options the fields; light imports."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

LossName = Literal[
    "squared",
    "huber",
    "quantile",
    "poisson",
    "negative-binomial",
    "gamma",
    "tweedie",
    "logistic",
    "smoothed-hinge",
    "squared-hinge",
    "hinge",
]
SolverName = Literal["auto", "best-subset", "forward", "foba", "htp", "iht", "grasp", "subspace-pursuit"]
CriterionName = Literal["ebic", "bic", "aic", "sic", "gic"]
GraphSolverName = Literal["auto", "htp", "iht", "grasp", "forward", "foba"]
RuleName = Literal["strong-ridge", "one-se", "best"]
MissingName = Literal["drop-rows", "drop-columns", "mean", "median"]
DecimalName = Literal["point", "comma"]
ThousandsName = Literal["point", "comma", "space", "apostrophe"]
Precision = Literal["float64", "float32"]

FILES = ".csv, .tsv (also .gz, .zst), .xlsx, .parquet, .npz, or LIBSVM (.libsvm, .svm, .txt, ..., also .gz, .bz2)"
PARTS = "Or a folder, or a quoted pattern, of parts that together hold the rows, also .npy."
OUT = Path("sparsehtp_output")


@dataclass(frozen=True, kw_only=True)
class Numerals:
    """How numbers are written in a table; None: as it says itself."""

    decimal: Annotated[
        DecimalName | None, Option(help="Decimal sign of the table's numbers.", show_default="as most cells")
    ] = None
    thousands: Annotated[
        ThousandsName | None,
        Option(help="Sign between groups of three digits.", show_default="where all of a column fits"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Work:
    """Options of every fit."""

    standardize: Annotated[
        bool, Option("--standardize/--no-standardize", help="Scale features to unit deviation for the fit.")
    ] = True
    dtype: Annotated[Precision, Option(help="Precision of the computation.")] = "float64"


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Options of what draws rows."""

    seed: Annotated[
        int, Option(help="Seed of held-out rows, subsamples and the search's starts.", min=0, max=2**32 - 1)
    ] = 0


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Drawn, Work, Numerals):
    """Options of `fit` and `path`: the data, and the model of them.

    Missing None: missing values are an error. With the column `event` the target is the time until the event, or until
    the row was last seen. An offset is a column of known parts of the linear predictor, an exposure one of which the
    logarithm is.
    """

    target: Annotated[
        str | None, Option(help="Column (of a table) or array (NPZ, default y) to predict; not for LIBSVM.")
    ] = None
    time: Annotated[
        str | None,
        Option(help="In place of --target: column of times until an event, for a Cox model.", metavar="COL"),
    ] = None
    event: Annotated[
        str | None,
        Option(help="With --time: column that is 1 where the event was seen, 0 where not.", metavar="COL"),
    ] = None
    levels: Annotated[
        str | None,
        Option(
            help="All classes of the target, from the lowest to the highest: a model of ordered classes.",
            metavar="LOW,...,HIGH",
        ),
    ] = None
    drop: Annotated[list[str] | None, Option(help="Column to leave out; repeat it for several.", metavar="COL")] = None
    missing: Annotated[
        MissingName | None,
        Option(
            help="Missing values of features: leave out rows or columns, or fill (anew in every fold).",
            show_default="error",
        ),
    ] = None
    drop_missing_target: Annotated[
        bool, Option("--drop-missing-target", help="Leave out the rows without a target.")
    ] = False
    dummies: Annotated[
        bool, Option("--dummies", help="Text columns become columns of 0 and 1 that are chosen together.")
    ] = False
    id: Annotated[str | None, Option("--id", help="Column that names the rows, no feature.", metavar="COL")] = None
    groups: Annotated[
        str | None,
        Option(
            help="Column, no feature, of which rows with one value are held out together: a patient, a copy.",
            metavar="COL",
        ),
    ] = None
    offset: Annotated[
        str | None, Option(help="Column with a known part of the linear predictor, no feature.", metavar="COL")
    ] = None
    exposure: Annotated[
        str | None,
        Option(
            help="The same for its logarithm: the time or area of a count. `predict` is for an exposure of 1 then.",
            metavar="COL",
        ),
    ] = None
    loss: Annotated[
        LossName, Option(help="logistic and the hinges take any two labels, poisson and negative-binomial counts.")
    ] = "squared"
    loss_parameter: Annotated[
        float | None,
        Option(
            help="delta of huber, level of quantile, dispersion of negative-binomial, power of tweedie, gamma of "
            "smoothed-hinge.",
            show_default="the library's; the dispersion is estimated",
        ),
    ] = None
    solver: Annotated[SolverName, Option(help="auto: best-subset; iht for the hinge.")] = "auto"
    intercept: Annotated[
        bool, Option("--intercept/--no-intercept", help="Add an intercept, neither penalised nor counted in k.")
    ] = True
    rule: Annotated[
        RuleName,
        Option(
            help="Of a choice by folds: features found under a strong ridge and refitted at a tenth of it, the fewest "
            "features within one standard error of the best, or the best itself."
        ),
    ] = "strong-ridge"
    report: Annotated[
        bool, Option("--report", help="Write report.html too: everything in one file, to read, print or send.")
    ] = False
    out: Annotated[Path, Option(help="Folder for the numbers as JSON and CSV, and plots as PNG and SVG.")] = OUT

    @property
    def model(self) -> str:
        """A loss, or what has none to name: "cox" for times until an event, "ordinal" for ordered classes."""
        return "cox" if self.event is not None else "ordinal" if self.levels is not None else self.loss

    @property
    def fit_intercept(self) -> bool:
        """Whether an intercept is added; the special models have none, or thresholds."""
        return self.intercept and self.model == self.loss

    @property
    def classes(self) -> list[str]:
        """The classes of an ordinal model, in their order."""
        return [name.strip() for name in (self.levels or "").split(",") if name.strip()]


@dataclass(frozen=True, kw_only=True)
class FitOptions(ModelOptions):
    """The settings of `sparsehtp fit`; k is a number, "cv" or a criterion, and 0 seconds to prove are no proof."""

    file: Annotated[Path, Argument(help=f"{FILES}. {PARTS}")]
    checkpoint: Annotated[
        Path | None,
        Option(help="For parts: folder in which a killed run goes on, and another question finds what was read."),
    ] = None
    k: Annotated[
        str,
        Option(
            help="Number of features, cv (cross-validation, which chooses l2 too), or ebic, bic, aic, sic.",
            metavar="NUMBER|cv|ebic|...",
        ),
    ] = "cv"
    l2: Annotated[
        float | None,
        Option(help="Ridge strength, in units of the mean loss; chosen with k, or tiny, by default.", min=0),
    ] = None
    cv: Annotated[int, Option(help="Folds, for --k cv.", min=2)] = 5
    test_size: Annotated[float, Option(help="Fraction of the rows held out for a test score, below 1.", min=0)] = 0.0
    max_steps: Annotated[
        int | None, Option(help="Step limit of the final fit; the solver's own by default.", min=1)
    ] = None
    prove: Annotated[
        float,
        Option(help="Seconds to prove that the features are the best, or find better ones; 0: none.", min=0),
    ] = 0.0
    save: Annotated[
        Path | None, Option(help="File for the fitted model, for `sparsehtp predict` and sparsehtp.load.")
    ] = None
    diagnostics: Annotated[
        bool, Option("--diagnostics", help="Write the solver's history too, as a table and a plot.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class PathOptions(ModelOptions):
    """The settings of `sparsehtp path`; 0 folds, subsamples or seconds to prove: none."""

    file: Annotated[Path, Argument(help=f"{FILES}. {PARTS}")]
    k_max: Annotated[
        int | None, Option(help="Largest number of features; at most 20 and half the rows by default.", min=0)
    ] = None
    l2: Annotated[
        list[float],
        Option(help="Ridge strength, in units of the mean loss; repeat it for several.", min=0),
    ] = (1e-4,)  # type: ignore[assignment]  # typer gives lists, and a default one would be shared
    criterion: Annotated[CriterionName, Option(help="Information criterion.")] = "ebic"
    cv: Annotated[int, Option(help="Folds of a cross-validation, 0 for none.", min=0)] = 0
    stability: Annotated[
        int, Option(help="Subsamples for selection probabilities (an even number), 0 for none.", min=0)
    ] = 0
    prove: Annotated[
        float, Option(help="Seconds, for all k together, to prove which are the best; 0: none.", min=0)
    ] = 0.0
    checkpoint: Annotated[
        Path | None, Option(help="Folder for finished parts; the same call with it resumes a killed run.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class LowRankOptions(Work, Numerals):
    """The settings of `sparsehtp lowrank`; rank is a number, "cv" or a criterion."""

    file: Annotated[Path, Argument(help=FILES)]
    targets: Annotated[
        str, Option(help="Columns (CSV) or the array (NPZ) to predict, joined by commas.", show_default=False)
    ]
    rank: Annotated[str, Option(help="Rank, cv (cross-validation), aic or bic.", metavar="NUMBER|cv|aic|bic")] = "cv"
    l2: Annotated[float, Option(help="Ridge strength, in units of the mean loss.", min=0)] = 1e-6
    intercept: Annotated[bool, Option("--intercept/--no-intercept", help="Add an intercept, never penalised.")] = True
    cv: Annotated[int, Option(help="Folds, for --rank cv.", min=2)] = 5
    one_se: Annotated[
        bool,
        Option("--one-se/--best", help="The lowest rank within one standard error of the best, or the best itself."),
    ] = True
    save: Annotated[Path | None, Option(help="File for the fitted model, for sparsehtp.load.")] = None
    out: Annotated[Path, Option(help="Folder for model.json, coefficients.csv, and plots as PNG and SVG.")] = OUT


@dataclass(frozen=True, kw_only=True)
class GraphOptions(Drawn, Work, Numerals):
    """The settings of `sparsehtp precision`; k is a number, "cv" or a criterion, and shrinkage None: by the rule."""

    file: Annotated[Path, Argument(help=".csv, .npz (array X), or LIBSVM; one column per variable")]
    drop: Annotated[str | None, Option(help="Column to leave out, for example dates or labels.")] = None
    k: Annotated[
        str, Option(help="Number of edges, cv (cross-validation), or ebic, bic.", metavar="NUMBER|cv|ebic|bic")
    ] = "cv"
    solver: Annotated[GraphSolverName, Option(help="auto: htp.")] = "auto"
    shrinkage: Annotated[
        float | None,
        Option(help="Weight of the diagonal in the covariance, 0 for none; as few samples call for.", min=0),
    ] = None
    keep: Annotated[list[str] | None, Option(help="An edge that is always there, as A,B; repeat it for several.")] = (
        None
    )
    cv: Annotated[int, Option(help="Folds, for --k cv.", min=2)] = 5
    stability: Annotated[
        int, Option(help="Subsamples for the selection probabilities of edges, an even number; 0: none.", min=0)
    ] = 0
    save: Annotated[Path | None, Option(help="File for the fitted model, for sparsehtp.load.")] = None
    out: Annotated[
        Path, Option(help="Folder for precision.json, precision.csv, edges.csv, graph.graphml, and two plots.")
    ] = OUT


@dataclass(frozen=True, kw_only=True)
class PredictOptions(Numerals):
    """The settings of `sparsehtp predict`."""

    model: Annotated[Path, Argument(help="The model: the file of `fit --save`.")]
    file: Annotated[Path, Argument(help="The new rows: a table with the columns of the fit, in any order.")]
    out: Annotated[Path | None, Option(help="CSV file for the predictions; the standard output by default.")] = None


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """The settings of `sparsehtp demo`."""

    out: Annotated[Path, Option(help="Folder for results and plots.")] = Path("demo_output")


OPTIONS = {
    f"--{field.name.replace('_', '-')}"
    for settings in (FitOptions, PathOptions, LowRankOptions, GraphOptions, PredictOptions)
    for field in fields(settings)
    if field.name not in ("file", "model")
}
