"""The report as one HTML file that needs nothing else: no script, no request, pictures inside."""

import base64
import html
import io
from collections.abc import Iterable, Mapping
from importlib.resources import files
from string import Template
from typing import Any

from ..io.text import printable
from .caveats import exchanges_told
from .files import Writer, as_text
from .report import Number, Sheet, choice_sheet, chosen_told, coefficient_rows, feature_sheet, how_sure, signed


def escape(text: str) -> str:
    """A text in HTML."""
    return html.escape(printable(text))


def fit_report(model: dict[str, Any], facts: Mapping[str, str], figures: Mapping[str, Any], command: str) -> Writer:
    """The report of a fit: data, choice of k, features, exchanges, certificate, pictures and the command."""
    near = exchanges_told(model)
    what = "certificate" if model["caveat"] is None else "caveat"
    apart = ("exchange", what, "proof")  # which have sections of their own
    parts = [_section("Data and model", _facts({name: facts[name] for name in facts if name not in apart}))]
    parts += _remarks(model)
    if model["cv"] is not None:
        said = f"Cross-validation by the rule {model['cv']['rule']} takes k = {model['k']}; {how_sure(model['cv'])}."
        parts.append(_section("Choice of k", _sentence(said) + table(choice_sheet(model))))
    parts.append(_section(chosen_told(model), table(feature_sheet(model))))
    if any(feature.get("substitute") for feature in model["coefficients"]):
        said = (
            f"Nearly as good: {'; '.join(near)}."
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


def path_report(
    model: dict[str, Any], sheet: Sheet, facts: Mapping[str, str], figures: Mapping[str, Any], command: str
) -> Writer:
    """The report of a path: data and choice, the best features of every k, pictures and the command."""
    chosen = model["chosen"]
    found = coefficient_rows(model["rows"][chosen["row"]]["coefficients"], model["reference_levels"])
    rows = [[name, signed(feature["coefficient"]) if feature else ""] for name, feature, _ in found]
    coefficients = Sheet(f"The features at k = {chosen['k']}", ["feature", "coefficient"], rows)
    parts = [
        _section("Data and choice", _facts(facts)),
        *_remarks(model),
        *(_section(each.title, table(each)) for each in (sheet, coefficients)),
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


def table(sheet: Sheet) -> str:
    """A table; the numbers in its cells hold all digits."""
    right = {True: ' class="number"', False: ""}
    titles = (f"<th{right[n]}>{escape(name)}</th>" for name, n in zip(sheet.head, sheet.numeric, strict=True))
    lines = (
        ('<tr class="chosen">' if i in sheet.chosen else "<tr>") + "".join(map(_cell, row)) + "</tr>"
        for i, row in enumerate([*sheet.rows, *sheet.foot])
    )
    return f"<table><thead><tr>{''.join(titles)}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _cell(cell: object) -> str:
    if isinstance(cell, Number):
        return f'<td class="number"><data value="{float(cell)!r}">{cell}</data></td>'
    return f"<td>{escape(str(cell))}</td>"


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
