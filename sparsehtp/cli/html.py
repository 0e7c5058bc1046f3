"""The report as one HTML file that needs nothing else: no script, no request, pictures inside."""

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any

from ..io.text import printable
from .caveats import exchanges_told, substitute
from .files import Writer, as_text
from .report import choice_rows, chosen_told, coefficient_rows, how_sure, moves_told


def escape(text: str) -> str:
    """A text in HTML."""
    return html.escape(printable(text))


def fit_report(model: dict[str, Any], facts: Mapping[str, str], figures: Mapping[str, Any], command: str) -> Writer:
    """The report of a fit: data, choice of k, features, exchanges, certificate, pictures and the command."""
    features = model["coefficients"]
    exchanged = any(feature.get("substitute") for feature in features)
    shared = "share_of_folds" in (features or [{}])[0]
    head = ["feature", "coefficient", "coefficient per standard deviation"]
    head += ["share of the folds"] * shared + ["best substitute (more loss)"] * exchanged
    rows = [
        [name, *(Number(numbers[each]) if numbers else "" for each in ("coefficient", "standardized"))]
        + ([f"{unit['share_of_folds']:.0%}" if unit else ""] if shared else [])
        + ([substitute(unit)] if exchanged else [])
        for name, numbers, unit in coefficient_rows(features, model["reference_levels"])
    ]
    if model["fit_intercept"]:
        rows.append(["intercept", Number(model["intercept"]), *[""] * (1 + shared + exchanged)])
    near = exchanges_told(model)
    what = "certificate" if model["caveat"] is None else "caveat"
    apart = ("exchange", what, "proof")  # which have sections of their own
    parts = [_section("Data and model", _facts({name: facts[name] for name in facts if name not in apart}))]
    parts += _remarks(model)
    if model["cv"] is not None:
        grid, chosen = model["cv"]["table"], model["cv"]["chosen"]
        choice = [
            [Number(grid[i]["k"]), Number(grid[i]["l2"]), Number(grid[i]["mean_loss"]), Number(grid[i]["se"]), note]
            for i, note in choice_rows(model)
        ]
        marked = [row for row, (i, _) in enumerate(choice_rows(model)) if i == chosen]
        said = f"Cross-validation by the rule {model['cv']['rule']} takes k = {model['k']}; {how_sure(model['cv'])}."
        header = ["k", "l2", "mean held-out loss", "standard error", "why this row is here"]
        parts.append(_section("Choice of k", _sentence(said) + table(header, choice, marked)))
    parts.append(_section(chosen_told(model), table(head, rows)))
    if exchanged:
        said = (
            f"{near[0][0].upper()}{'; '.join(near)[1:]}."
            if near
            else "No other feature could take the place of a chosen one at nearly no loss."
        )
        parts.append(_section("What could be exchanged", _sentence(said)))
    statements = [facts[name] for name in ("proof", what) if name in facts]
    parts.append(_section(what.capitalize(), "".join(map(_sentence, statements))))
    if "failed" in model:
        parts.append(_section("What failed", "".join(_sentence(each) for each in model["failed"])))
    title = f"{model['target']}: {chosen_told(model, 'chosen from ' + model['file'])}"
    return page(title, parts, figures, model["versions"], command)


def path_report(model: dict[str, Any], facts: Mapping[str, str], figures: Mapping[str, Any], command: str) -> Writer:
    """The report of a path: data and choice, the best features of every k, pictures and the command."""
    chosen = model["chosen"]
    rows: list[list[Any]] = []
    marked: list[int] = []
    shown = [i for i, row in enumerate(model["rows"]) if row["l2"] == chosen["l2"]]
    for i, moved in moves_told([row["coefficients"] for row in model["rows"]], shown).items():
        row = model["rows"][i]
        cv = [] if model["cv"] is None else [Number(row["cv_mean"]), Number(row["cv_se"])]
        marked += [len(rows)] * (i == chosen["row"])
        criterion = Number(row[model["criterion"]["name"]])
        rows.append([Number(row["k"]), Number(row["objective"]), criterion, *cv, moved])
    folds = [] if model["cv"] is None else ["mean held-out loss", "standard error"]
    head = ["k", "objective", model["criterion"]["name"], *folds, "enters (-leaves)"]
    coefficients = [
        [name, Number(feature["coefficient"]) if feature else ""]
        for name, feature, _ in coefficient_rows(
            model["rows"][chosen["row"]]["coefficients"], model["reference_levels"]
        )
    ]
    parts = [
        _section("Data and choice", _facts(facts)),
        *_remarks(model),
        _section(f"The best features of every k at l2 = {chosen['l2']:g}", table(head, rows, marked)),
        _section(f"The features at k = {chosen['k']}", table(["feature", "coefficient"], coefficients)),
    ]
    title = f"{model['target']}: the best features of every k from {model['file']}"
    return page(title, parts, figures, model["versions"], command)


def page(
    title: str, parts: Iterable[str], figures: Mapping[str, Any], versions: Mapping[str, str], command: str
) -> Writer:
    """Write sections, pictures and the command that makes them again."""
    pictures = "".join(_picture(figure) for figure in figures.values())
    software = ", ".join(f"{name} {version}" for name, version in versions.items())
    again = f"<pre>{escape(command)}</pre>" + _sentence(f"Made with {software}.")
    body = [*parts, _section("Pictures", pictures) if pictures else "", _section("How to make this again", again)]
    template = Template((files(__package__) / "report.html").read_text(encoding="utf-8"))
    return as_text(template.substitute(title=escape(title), body="\n".join(body)))


class Number(float):
    """A number in a cell, rounded for the eye."""

    def cell(self) -> str:
        """The cell of a table; `value` holds all digits."""
        return f'<td class="number"><data value="{float(self)!r}">{float(self):.6g}</data></td>'


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], chosen: Sequence[int] = ()) -> str:
    """A table; rows that are chosen are bold, and columns of numbers aligned."""
    rows = list(rows)
    numeric = [any(isinstance(row[i], Number) for row in rows) for i in range(len(head))]
    right = {True: ' class="number"', False: ""}
    titles = (f"<th{right[n]}>{escape(name)}</th>" for name, n in zip(head, numeric, strict=True))
    lines = (
        ('<tr class="chosen">' if i in chosen else "<tr>")
        + "".join(cell.cell() if isinstance(cell, Number) else f"<td>{escape(str(cell))}</td>" for cell in row)
        + "</tr>"
        for i, row in enumerate(rows)
    )
    return f"<table><thead><tr>{''.join(titles)}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _facts(facts: Mapping[str, str]) -> str:
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts.items())
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def _remarks(model: Mapping[str, Any]) -> list[str]:
    """Notes and warnings about the data and the fit, as sections."""
    said = {"Notes": [f"{note[0].upper()}{note[1:]}." for note in model["notes"]], "Warnings": model["warnings"]}
    return [_section(title, "".join(map(_sentence, sentences))) for title, sentences in said.items() if sentences]


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _sentence(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _picture(figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg")
    titles = "; ".join(" ".join(ax.get_title().split()) for ax in figure.axes if ax.get_title())
    source = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f'<figure><img alt="{escape(titles)}" src="data:image/svg+xml;base64,{source}"></figure>'
