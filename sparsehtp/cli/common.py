"""Shared by `fit` and `path`: targets, solvers, errors, progress and the time spent compiling."""

import contextlib
import dataclasses
import functools
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
import pandas as pd
import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from scipy import sparse

from ..datasets import Data
from ..datasets.arrays import load_features
from ..estimators.parameters import LOSSES
from ..io import check_output
from ..io.memory import default_limit
from ..losses import AbstractLoss
from ..plot import new_figure
from .files import Writer, as_images
from .options import ModelOptions
from .report import Console, by_option, print_warning


def plain_name(choice: str) -> str:
    """The library's spelling of a loss or solver."""
    return choice.replace("-", "_")


def loss_of(options: ModelOptions) -> AbstractLoss:
    """The loss of these settings."""
    kind, value = LOSSES[plain_name(options.loss)], options.loss_parameter
    if value is None:
        return kind()
    names = [field.name for field in dataclasses.fields(kind)]
    if not names:
        raise ValueError(f"loss-parameter: the loss {options.loss} has none; leave it out.")
    return kind(**{names[0]: value})


def check_provable(loss: str, l2: float | None, texts: Sequence[str] = ()) -> None:
    """ValueError where there is no proof: for a loss, at the least l2 that was asked for (None: a positive one is
    chosen), or for texts of which several columns are chosen together."""
    if texts:
        raise ValueError(
            f"prove: --dummies makes several columns of {texts[0]!r}, to be chosen together, and proofs are for single "
            "columns; leave out --prove, or such columns with --drop."
        )
    if loss in ("cox", "ordinal"):
        what = {"cox": "times until an event", "ordinal": "ordered classes"}[loss]
        raise ValueError(f"prove: there are no proofs for {what}; leave it out.")
    if loss in ("hinge", "tweedie"):
        instead = {"hinge": "smoothed-hinge", "tweedie": "poisson or gamma"}[loss]
        raise ValueError(f"prove: there are no proofs for the {loss} loss; take {instead}, or leave it out.")
    if loss != "squared" and l2 == 0:
        raise ValueError(f"prove: proofs for the loss {loss} need l2 > 0; give --l2 0.001, or leave it out.")


@contextlib.contextmanager
def one_sentence(errors: Console, *kinds: type[Exception]) -> Iterator[None]:
    """Turn an error that the user can correct into one sentence and exit code 2."""
    try:
        yield
    except kinds as error:
        if hasattr(error, "print_to"):  # more than one sentence
            error.print_to(errors)
            raise typer.Exit(2) from error
        errors.print(f"[bold red]Error:[/] {escape(by_option(str(error)))}", soft_wrap=True)
        raise typer.Exit(2) from error


def check_outputs(out: Path, save: Path | None = None) -> None:
    """OSError or ImportError where results, the model or the plots could not be written: nothing must waste a fit."""
    check_output(out)
    if save is not None:
        if save.is_dir():
            raise OSError(f"save: {save} is a folder; name a file, for example {save / 'model.npz'}.")
        if not save.absolute().parent.is_dir():
            raise OSError(f"save: there is no folder {save.parent}; make it first or choose another place.")
    new_figure(1, 1)


class AfterFit:
    """The work after a fit, part by part: one that fails is a sentence, and takes neither the fit nor other parts away.

    Attributes:
        failed: the sentences by the names of the parts.
    """

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}

    def __call__(self, name: str, part: Callable[[], Any], otherwise: Any = None) -> Any:
        """A part's result, or the other value where it raises."""
        try:
            return part()
        except Exception as error:
            why = " ".join(str(error).split()).rstrip(".")
            kind = "" if isinstance(error, ValueError | OSError) and why else type(error).__name__
            self.failed[name] = f"{name}: failed ({': '.join(each for each in (kind, why) if each)})."
            return otherwise

    def draw(self, figures: dict[str, Any], name: str, plot: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Add a plot to the figures."""
        self(f"plot of {name}", lambda: figures.update({name: plot(*args, **kwargs)}))

    def images(self, figures: dict[str, Any]) -> dict[str, Writer]:
        """Draw the figures, and return the function that writes them; those that cannot be drawn are taken out."""
        files: dict[str, Writer] = {}
        for name, figure in list(figures.items()):
            drawn: dict[str, Writer] = self(f"picture of {name}", functools.partial(as_images, name, figure), {})
            files |= drawn
            if not drawn:
                del figures[name]
        return files

    def told(self, model: dict[str, Any]) -> dict[str, Any]:
        """The description of a fit, with the sentences if any."""
        return model | ({"failed": list(self.failed.values())} if self.failed else {})

    def say(self, errors: Console) -> None:
        """Print the sentences, if any, and exit with 1."""
        if self.failed:
            for sentence in self.failed.values():
                errors.print(f"[bold red]Error:[/] {escape(sentence)}", soft_wrap=True)
            errors.print(
                f"The fit is not lost: all else is shown above{'' if 'files' in self.failed else ' and written'}."
            )
            raise typer.Exit(1)


@contextlib.contextmanager
def plotting(errors: Console, status: str) -> Iterator[None]:
    """A status line around what is written; what the pictures warn of, once each."""
    with errors.status(status), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for sentence in dict.fromkeys(str(each.message) for each in caught if each.category is UserWarning):
        print_warning(errors, sentence)


def features(data: Data, dtype: str) -> Any:
    """The features in a dtype: sparse where at most a tenth of them are nonzero, else a dense array."""
    X = data.X.astype(dtype, copy=False)
    return X.toarray() if sparse.issparse(X) and 10 * X.nnz > X.shape[0] * X.shape[1] else X


def dense_table(path: Path) -> tuple[dict[str, np.ndarray], pd.DataFrame]:
    """All arrays of an NPZ file, and its features as a table; ValueError for sparse ones, and as `load_file`."""
    arrays, X, names = load_features(path, default_limit())
    if sparse.issparse(X):
        raise ValueError(f"path: {path.name} holds a sparse matrix; store a dense array X.")
    return arrays, pd.DataFrame(X.astype(float), columns=list(names))


def encode(data: Any, options: ModelOptions) -> tuple[np.ndarray, dict[str, Any] | None]:
    """The targets of a data set as the losses take them, and what -1 and +1 stand for (None for numbers).

    Raises:
        ValueError: if the loss does not suit the target, or the solver the loss.
    """
    if options.model == "cox":
        return data.y, None  # times in full, since rounding makes ties
    if options.model == "ordinal":
        return _ordered(data, options.classes), None
    loss = loss_of(options)
    if not loss.twice_differentiable and options.solver not in ("auto", "iht"):
        raise ValueError(
            f"solver: {options.solver} cannot refit the {options.loss} loss, which is not smooth; "
            "use --solver iht or --loss smoothed-hinge."
        )
    if not loss.classification:
        if data.y.dtype.kind != "f":
            raise ValueError(
                f"target: {data.target_name!r} is not numeric (for example {str(data.y[0])!r}), which {options.loss} "
                f"needs; {_advice(data.y)}."
            )
        if np.ptp(data.y) == 0:
            of = "a single row" if data.y.size == 1 else f"{data.y[0]:g} in every row"
            raise ValueError(f"target: {data.target_name!r} is {of}, so there is nothing to explain; choose another.")
        loss.check_targets(data.y)
        return data.y.astype(options.dtype, copy=False), None
    labels = np.unique(plain_labels(data.y))
    if labels.size != 2:
        shown = ", ".join(str(label) for label in labels[:4]) + (", ..." if labels.size > 4 else "")
        raise ValueError(
            f"target: {options.loss} needs exactly two classes, but {data.target_name!r} has {labels.size} "
            f"distinct values ({shown}); {_advice(data.y)}."
        )
    signs = np.where(data.y == labels[1], 1.0, -1.0).astype(options.dtype)
    return signs, {"-1": labels[0].item(), "+1": labels[1].item()}


def plain_labels(values: np.ndarray) -> np.ndarray:
    """Labels that are whole numbers, as such."""
    whole = values.dtype.kind == "f" and (values == np.round(values)).all() and np.abs(values).max() < 2**53
    return values.astype(int) if whole else values


def _ordered(data: Any, levels: Sequence[str]) -> pd.Categorical:
    """Labels in the order of the levels, of which each has a row."""
    labels = data.y
    if labels.dtype.kind == "f":  # 1 is 1.0
        named = {float(level): level for level in levels if _is_number(level)}
        labels = np.array([named.get(value, np.format_float_positional(value, trim="-")) for value in labels])
    odd = sorted(set(labels) ^ set(levels))
    if odd or len(set(levels)) < max(len(levels), 2):
        held = sorted(set(labels))
        shown = ", ".join(held[:8]) + (f" and {len(held) - 8} more" if len(held) > 8 else "")
        why = "there are too few, or one stands twice"
        if odd:
            why = f"{str(odd[0])!r} is {'no level' if odd[0] in labels else 'in no row'}"
        raise ValueError(
            f"levels: must name each class of {data.target_name!r} once, from the lowest to the highest, and {why}; "
            f"the classes are {shown}."
        )
    return pd.Categorical(labels, levels, ordered=True)


def _is_number(text: str) -> bool:
    try:
        return np.isfinite(float(text))
    except ValueError:
        return False


def _advice(y: np.ndarray) -> str:
    """Advice about a target that does not suit a loss."""
    number = np.unique(y).size
    if y.dtype.kind == "f":
        return "use --loss squared for numbers, --levels for classes in an order, or choose another target"
    if number == 2:
        return "use --loss logistic for two classes, or encode it as numbers"
    if number < 2:
        return "with a single class there is nothing to tell apart"
    return (
        f"name all {number} by --levels LOW,...,HIGH if they are ordered; else make it one class against the rest, or "
        'fit them in Python by sparsehtp.SparseClassifier(loss="softmax")'
    )


@contextlib.contextmanager
def progress_bar(errors: Console, what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on the terminal that is gone afterwards; a function of (done, total)."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextlib.contextmanager
def computing() -> Iterator[None]:
    """On a terminal, a line where compiling is slow."""
    with CompileNotice() if sys.stderr.isatty() else contextlib.nullcontext():
        yield


class CompileNotice:
    """A line on the standard error, once, when XLA has been compiling one program for some seconds."""

    AFTER = 2.0  # seconds

    def __init__(self) -> None:
        self._said = False
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        jax.monitoring.register_event_duration_secs_listener(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        jax.monitoring.unregister_event_duration_listener(self._listen)
        self._cancel()

    def _listen(self, event: str, *_: Any, **__: Any) -> None:
        if event == "/jax/core/compile/jaxpr_to_mlir_module_duration":  # the compilation comes next
            self._cancel()
            if not self._said:
                self._timer = threading.Timer(self.AFTER, self._say)
                self._timer.daemon = True
                self._timer.start()
        elif event == "/jax/core/compile/backend_compile_duration":
            self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _say(self) -> None:
        self._said = True
        # Not through a Console of our own, which would write over the progress of another.
        print("Compiling once for this shape of data ...", file=sys.stderr, flush=True)


class Stopwatch:
    """Seconds inside a `with` block, and how many of them XLA compiled."""

    compiling = 0.0

    def __enter__(self) -> Self:
        self._start = time.perf_counter()
        jax.monitoring.register_event_duration_secs_listener(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        jax.monitoring.unregister_event_duration_listener(self._listen)
        self.total = time.perf_counter() - self._start

    def _listen(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            self.compiling += duration_secs

    def __str__(self) -> str:
        return f"{self.total:.2f} s, of which {self.compiling:.2f} s compiling"
