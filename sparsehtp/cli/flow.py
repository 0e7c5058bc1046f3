"""The run of a command: load, work, describe, draw, write and tell, each in one place."""

import abc
import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import typer

import sparsehtp as sht

from ..io import describe_device, versions
from .common import AfterFit, Stopwatch, check_outputs, one_sentence, plotting
from .files import Writer, as_json, write_files
from .report import Console, print_facts, print_warning, warnings_told

WRONG = (ValueError, TypeError, OSError, ImportError)  # what a user can correct


class Flow(abc.ABC):
    """A command with its settings; subclasses say what each part is.

    It exits with 2 for bad input, and with 1 where something that follows the work failed.
    """

    json = "model.json"
    own: Iterable[str] = ()  # files that are removed where they are not written: they would show an earlier run
    estimator = ""  # the name that its warnings begin with
    remarks: Mapping[str, Sequence[str]] = MappingProxyType({})  # about the data: "notes" and "warnings"

    def __init__(self, options: Any) -> None:
        self.options, self.errors, self.after = options, Console(stderr=True), AfterFit()

    @property
    def source(self) -> str:
        """The name of the data."""
        return str(self.options.file.name)

    @abc.abstractmethod
    def load(self) -> None:
        """Read the data, and refuse what cannot be fitted."""

    @abc.abstractmethod
    def work(self) -> None:
        """Compute; parts that may fail through `after`."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Everything about the result that is worth keeping, as JSON can hold it, but for `device` and `versions`."""

    def draw(self, model: dict[str, Any]) -> dict[str, Any]:
        """The figures by their names."""
        return {}

    def files(self, model: dict[str, Any]) -> dict[str, Writer]:
        """Files beside the JSON file and the figures."""
        return {}

    def page(self, model: dict[str, Any], facts: Mapping[str, str], figures: dict[str, Any], command: str) -> Writer:
        """The report, of a command with that option."""
        raise NotImplementedError("report: this command has none.")

    def tables(self, model: dict[str, Any]) -> Iterable[Any]:
        """Tables that the terminal shows above the facts."""
        return ()

    @abc.abstractmethod
    def facts(self, model: dict[str, Any]) -> dict[str, str]:
        """Data, model and how the run ended, by their names."""

    def saved(self) -> Any:
        """The model that --save writes, of a command with that option."""
        raise NotImplementedError("save: this command has no model.")

    def ended(self, model: dict[str, Any]) -> bool:
        """Warn of how the work ended; False: it is of no use."""
        return True

    def run(self, command: str = "") -> None:
        """All of it; the command is what a report names."""
        options, errors, after, console = self.options, self.errors, self.after, Console()
        save = getattr(options, "save", None)
        with one_sentence(errors, *WRONG), errors.status("1/3 Loading data"):
            check_outputs(options.out, save)
            self.load()
        with (
            one_sentence(errors, *WRONG),
            Stopwatch() as timing,
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            self.work()
        with plotting(errors, "3/3 Plotting"):
            warned = warnings_told(caught, self.estimator)
            said = {"notes": [*self.remarks.get("notes", ())], "warnings": [*self.remarks.get("warnings", ()), *warned]}
            model = self.describe() | said | {"versions": versions(), "device": describe_device()}
            facts = self.facts(model) | {"time": f"{timing} on {model['device']['kind']}"}
            figures = self.draw(model)
            files = after.images(figures)
            paths = [] if save is None else after("save", lambda: [sht.save(self.saved(), save).absolute()], [])
            if getattr(options, "report", False):
                files |= after(
                    "report", lambda: {"report.html": self.page(after.told(model), facts, figures, command)}, {}
                )
            files |= self.files(model) | {self.json: as_json(after.told(model))}
            paths = [*after("files", lambda: write_files(options.out, files, self.own), []), *paths]
        for table in self.tables(model):
            console.print(table)
        print_facts(console, facts, paths)
        for sentence in warned:
            print_warning(errors, sentence)
        fine = self.ended(model)
        after.say(errors)
        if not fine:
            raise typer.Exit(1)
