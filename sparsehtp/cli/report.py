"""Text and tables for a person at the terminal."""

import dataclasses
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from rich import box
from rich import console as rich_console
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from ..estimators.parameters import LOSSES
from ..grids.cross_validation import folds_told, sizes_told
from ..io.text import printable
from .caveats import exchanges_told, substitute
from .options import OPTIONS

MAX_ROWS = 30
# Stopping criteria in words.
ENDED = {
    "StableSupport": "the same features came out again",
    "SmallStep": "the last step hardly changed a coefficient",
    "SmallGradient": "no small change of the coefficients helps",
    "DualGap": "a bound shows that no fit is clearly better",
    "SwapOptimal": "no exchange of one feature for another helps",
    "Complete": "no further feature was to be added",
}
SHIFTED = ("poisson", "negative-binomial", "gamma", "tweedie")  # losses that leave out what no model changes
# The library's names of arguments that the command line calls otherwise.
OF_LIBRARY = {
    "path": "FILE",
    "X": "FILE",
    "model": "MODEL",
    "y": "--target",
    "ks": "--k-max",
    "l2s": "--l2",
    "r": "--rank",
    "folds": "--cv",
    "n_resamples": "--stability",
    "max_iter": "--max-steps",
    "random_state": "--seed",
    **{field.name: "--loss-parameter" for loss in LOSSES.values() for field in dataclasses.fields(loss)},
}


class Console(rich_console.Console):
    """A terminal to which no control character in a name or message gets, but those of the console itself."""

    def render(
        self, renderable: rich_console.RenderableType, options: rich_console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The pieces of text, cleaned."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text, keep="\n"), style, control)


def by_option(sentence: str) -> str:
    """A sentence that begins with the library's name of an argument, with the command line's in its place."""
    name, colon, rest = sentence.partition(": ")
    option = OF_LIBRARY.get(name, f"--{name.replace('_', '-')}")
    return f"{option}{colon}{rest}" if option in {*OPTIONS, *OF_LIBRARY.values()} else sentence


def chosen_told(model: dict[str, Any], done: str = "chosen") -> str:
    """How many features were chosen of how many, as k counts them, or what they do."""
    chosen = len({feature["column"] for feature in model["coefficients"]})
    text = " (a text counts as one)" if model["n_units"] < model["p"] else ""
    return f"{chosen} of {model['n_units']} features {done}{text}"


def digits(value: float) -> str:
    """A number to five digits, as many in every row of a table."""
    return f"{value:#.5g}".removesuffix(".")


def level_of(feature: dict[str, Any]) -> str:
    """The level that a column of zeros and ones stands for; empty for a number."""
    return feature["name"].removeprefix(feature["column"]).removeprefix("=")


def coefficient_rows(
    features: Sequence[dict[str, Any]], references: Mapping[str, str]
) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Rows of a table of coefficients: a name, the feature of its numbers, and the feature of what is said once for all
    columns of a text (empty: nothing); a text of several levels is a row without numbers above them."""
    rows: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    for column, group in groupby(features, lambda feature: feature["column"]):
        members = list(group)
        against = f" (against {references[column]})" if column in references else ""
        if len(members) == 1:
            rows.append((f"{members[0]['name']}{against}", members[0], members[0]))
        else:
            rows += [(f"{column}{against}", {}, members[0])]
            rows += [(f"\u00a0\u00a0{level_of(each)}", each, {}) for each in members]
    return rows


def moves_told(coefficients: Sequence[Sequence[dict[str, Any]]], rows: Iterable[int]) -> dict[int, str]:
    """For some rows of a path what enters, and -what leaves, since the row before."""
    told, before = {}, dict[str, None]()
    for i in rows:
        members = dict.fromkeys(feature["column"] for feature in coefficients[i])
        moves = [*(name for name in members if name not in before), *(f"-{n}" for n in before if n not in members)]
        told[i], before = ", ".join(moves), members
    return told


class Number(float):
    """A number in a cell of a table, and how it is shown."""

    shown: str

    def __new__(cls, value: float, shown: str | None = None) -> Self:
        """None: to six digits."""
        number = super().__new__(cls, value)
        number.shown = f"{float(value):.6g}" if shown is None else shown
        return number

    def __str__(self) -> str:
        return self.shown


def signed(value: float) -> Number:
    """A coefficient in a cell."""
    return Number(value, f"{value:+.5g}")


class Sheet(NamedTuple):
    """A table for the terminal and for a report.

    Attributes:
        title, head: above the table, and above its columns.
        rows: cells, `Number` or text; columns with numbers are aligned.
        chosen: numbers of the rows that are bold.
        foot: rows that stand apart.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    chosen: Sequence[int] = ()
    foot: Sequence[Sequence[object]] = ()

    @property
    def numeric(self) -> list[bool]:
        """Which columns have numbers."""
        return [any(isinstance(row[j], Number) for row in (*self.rows, *self.foot)) for j in range(len(self.head))]


def on_terminal(sheet: Sheet, whole: str | None = None) -> Table:
    """A table for the terminal: all of it, or the first rows of one that the named file holds whole."""
    table = Table(title=sheet.title, title_justify="left", box=box.SIMPLE_HEAD)
    for j, (name, numeric) in enumerate(zip(sheet.head, sheet.numeric, strict=True)):
        if numeric:
            table.add_column(name, justify="right", no_wrap=True)
        else:
            widest = max((len(str(row[j])) for row in sheet.rows), default=0)
            table.add_column(name, overflow="fold", min_width=min(widest, 12))
    for i, row in enumerate(sheet.rows if whole is None else sheet.rows[:MAX_ROWS]):
        table.add_row(*(escape(str(cell)) for cell in row), style="bold" if i in sheet.chosen else None)
    if sheet.foot:
        table.add_section()
    for row in sheet.foot:
        table.add_row(*(escape(str(cell)) for cell in row))
    if whole is not None and len(sheet.rows) > MAX_ROWS:
        table.caption = f"... and {len(sheet.rows) - MAX_ROWS} more in {whole}"
    return table


def feature_sheet(model: dict[str, Any]) -> Sheet:
    """The chosen features of a fit."""
    features = model["coefficients"]
    shared = "share_of_folds" in (features or [{}])[0]
    exchanged = any(feature.get("substitute") for feature in features)
    head = ["feature", "coefficient\n(original units)", "coefficient per\nstandard deviation"]
    head += ["share of\nthe folds"] * shared + ["best substitute\n(more loss)"] * exchanged
    rows = []
    for name, numbers, unit in coefficient_rows(features, model["reference_levels"]):
        row = [name, *(signed(numbers[each]) if numbers else "" for each in ("coefficient", "standardized"))]
        if shared:
            row.append(Number(unit["share_of_folds"], f"{unit['share_of_folds']:.0%}") if unit else "")
        rows.append([*row, *([substitute(unit)] if exchanged else [])])
    intercept = ["intercept", signed(model["intercept"]), *[""] * (len(head) - 2)]
    return Sheet(chosen_told(model), head, rows, foot=[intercept] if model["fit_intercept"] else [])


def choice_sheet(model: dict[str, Any]) -> Sheet:
    """The rows of the cross-validation that explain the choice."""
    cv, told = model["cv"], choice_rows(model)
    rows = []
    for i, note in told:
        row = cv["table"][i]
        loss, se = Number(row["mean_loss"], digits(row["mean_loss"])), Number(row["se"], f"{row['se']:.3g}")
        rows.append([Number(row["k"]), Number(row["l2"]), loss, se, note])
    title = f"Cross-validation, {folds_told(cv['folds'], cv['repeats'])}"
    chosen = [place for place, (i, _) in enumerate(told) if i == cv["chosen"]]
    return Sheet(title, ["k", "l2", "held-out loss", "std. error", ""], rows, chosen)


def fit_facts(model: dict[str, Any]) -> dict[str, str]:
    """Data, model, scores, how the run ended and what that means, by their names."""
    result = model["result"]
    choice = {None: "", "cv": " (by cross-validation)"}.get(model["chosen_by"], f" (by {model['chosen_by']})")
    facts = {"data": f"{model['file']}, {model['n']} training rows, target {model['target']}"}
    if model["classes"]:
        facts["predicts"] = "{+1} (positive side) against {-1}".format_map(model["classes"])
    if "events" in model:
        facts["events"] = f"{model['events']} of the training rows; the others are censored"
    if "levels" in model:
        facts["predicts"] = " < ".join(model["levels"])
    l2 = f"l2 = {model['l2']:g}"
    if model["refit_l2"] != model["l2"]:
        l2 = f"features found at {l2}, coefficients at l2 = {model['refit_l2']:g}"
    parameter = "" if model["loss_parameter"] is None else f"({model['loss_parameter']:g})"
    special = {"cox": "Cox model", "ordinal": "cumulative logits"}
    name = special.get(model["loss"], f"{model['loss']}{parameter} loss")
    facts["model"] = f"{name}, k = {model['k']}, {l2}{choice}"
    if model["cv"] is not None:
        facts["how sure"] = how_sure(model["cv"])
    for part, rows in (("train", model["n"]), ("test", model["n_test"])):
        if rows:
            score = model[f"{part}_score"]
            of = " of the deviance explained," if model["metric"] == "D2" else ""
            text = "undefined (constant target)" if score is None else f"{score:.4f}{of} on {rows} rows"
            text = "not computed" if score is not None and math.isnan(score) else text
            facts[f"{part} {model['metric']}"] = text
    why = " and ".join(ENDED[name] for name in result["fired"].split(" and ") if name in ENDED)
    facts["result"] = f"{result['name']} after {model['num_steps']} steps{': ' if why else ''}{why}"
    apart = ", but for a constant of the data" if model["loss"] in SHIFTED else ""
    mean = "half the mean squared error" if model["loss"] == "squared" else "the mean loss"
    ridge = " with the ridge" if model["l2"] else ""
    facts["objective"] = f"{model['objective']:.6g} ({mean}{ridge}{apart}; less is better)"
    near, what = exchanges_told(model), "certificate" if model["caveat"] is None else "caveat"
    proof = model.get("proof", {"proved": False, "statement": None})
    certificate = None if proof["proved"] and what == "certificate" else model[what]
    said = {"exchange": "; ".join(near), "proof": proof["statement"], what: certificate}
    return facts | {name: text for name, text in said.items() if text}


def how_sure(cv: dict[str, Any]) -> str:
    """The sizes that the folds cannot tell from the best."""
    grid, taken = cv["table"], cv["table"][cv["chosen"]]
    l2 = taken["l2"] if len({row["l2"] for row in grid}) > 1 else None
    sizes = sizes_told(np.array(cv["as_good"]), np.array([row["k"] for row in grid]), l2)
    return f"{sizes} ({folds_told(cv['folds'], cv['repeats'])})"


def choice_rows(model: dict[str, Any]) -> list[tuple[int, str]]:
    """The rows of the cross-validation that explain the choice, and why."""
    cv, grid = model["cv"], model["cv"]["table"]
    rows = {min(range(len(grid)), key=lambda i: grid[i]["k"]): "no feature"}
    if cv["rule"] == "strong-ridge":
        for each in cv["contenders"]:
            near = each["difference"] <= 2 * each["standard_error"]
            rows[each["row"]] = "best k of its l2, " + ("not clearly worse" if near else "clearly worse")
        rows.setdefault(cv["chosen"], "fewest features that are as good at this l2")
    else:
        rows[cv["one_standard_error"]] = "fewest features within one std. error"
    rows[cv["best"]] = "best"
    ordered = sorted(rows.items(), key=lambda item: (grid[item[0]]["k"], item[0]))
    return [(i, note + (" (chosen)" if i == cv["chosen"] else "")) for i, note in ordered]


def print_facts(console: Console, facts: Mapping[str, str], paths: Sequence[Path]) -> None:
    """Print the facts, with the files written as the last one."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts.items():
        table.add_row(name, escape(text))
    table.add_row("written", "\n".join(escape(str(path)) for path in paths))
    console.print(table)


def print_warning(errors: Console, sentence: str) -> None:
    """A warning, before anyone uses the coefficients."""
    errors.print(f"[yellow]Warning:[/] {escape(sentence)}", soft_wrap=True)


def warnings_told(caught: Sequence[warnings.WarningMessage], estimator: str) -> list[str]:
    """Those of the caught warnings that are for users; each begins with the estimator's name, which they know."""
    users = [each for each in caught if issubclass(each.category, UserWarning)]  # ConvergenceWarning is one
    return [by_option(str(each.message).removeprefix(f"{estimator}: ")) for each in users]
