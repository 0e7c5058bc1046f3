"""`python -m benchmarks.papers NAME`: the papers' figures by name, and where their claims stand."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.markup import escape
from rich.table import Table

from sparsehtp.cli.common import computing, one_sentence, progress_bar
from sparsehtp.cli.report import Console
from sparsehtp.io import write_whole

from . import EXPERIMENTS, claims_page, decide_again, reproduce
from .reproduce import other_readings, read_config
from .run import BASE

HELP = """Rerun a figure of one of the five papers, and find by code what it says of its claims.

[bold]Examples[/bold]

  python -m benchmarks.papers --list

  python -m benchmarks.papers grahtp-fig2 --quick

  python -m benchmarks.papers grahtp-fig2 --reading mean-10

  python -m benchmarks.papers grahtp-fig4 --data DIR --out reproduced --resume
"""
app = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False, rich_markup_mode="rich")

COLOURS = {"holds": "green", "fails": "red"}  # all else is open


def show_list() -> None:
    """Print the experiments."""
    table = Table("name", "paper", "what it shows", box=None, header_style="bold")
    for name, experiment in EXPERIMENTS.items():
        table.add_row(name, f"[cyan]{experiment.paper}[/]", experiment.title)
    Console().print(table)


def run(name: str, out: Path, options: dict[str, Any], page: Path | None) -> None:
    """Run one experiment or all of them, print the claims, and write the page of claims if one is named."""
    console, errors = Console(), Console(stderr=True)
    names = list(EXPERIMENTS) if name == "all" else [name]
    failed = []
    for each in names:
        try:
            with progress_bar(errors, each) as bar:
                result = reproduce(each, out, progress=bar, **options)
        except (ValueError, OSError) as error:
            if len(names) == 1:
                with one_sentence(errors, ValueError, OSError):
                    raise
            errors.print(f"[bold red]{each}:[/] {escape(str(error))}", soft_wrap=True)
            failed.append(each)
            continue
        show(console, result, out / each)
    if page is not None:
        with one_sentence(errors, OSError):
            for each in names:
                keep(page, out, each, stored_as(options["quick"], options["reading"]))
            write_page(page)
    if failed:
        raise typer.Exit(2)


def run_again(name: str, out: Path, data: Path | None, page: Path) -> None:
    """Decide the results kept beside a page again, without computing, and write the page.

    Those whose data are not there stay as they were decided.
    """
    names = list(EXPERIMENTS) if name == "all" else [name]
    errors = Console(stderr=True)
    with one_sentence(errors, ValueError, OSError):
        for each in names:
            for kept in stored(page, each):
                try:
                    again = decide_again(json.loads(kept.read_text(encoding="utf-8")), out, data)
                except FileNotFoundError as error:
                    errors.print(f"[bold]{each}[/] stays as it is: {escape(str(error))}", soft_wrap=True)
                    continue
                show(Console(), again, out / each)
                keep(page, out, each, stored_as(again["quick"], again["reading"]))
        write_page(page)


def show(console: Console, result: dict[str, Any], folder: Path) -> None:
    """Print one experiment's claims."""
    experiment = EXPERIMENTS[result["experiment"]]
    console.print(f"[bold]{result['experiment']}[/]: {experiment.title} ([cyan]{experiment.paper}[/])")
    for note in result["notes"]:
        console.print(f"[dim]{escape(note)}[/]", soft_wrap=True)
    table = Table("claim", "found", "decided by", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for claim in result["claims"]:
        for reading, finding in claim["findings"].items():
            found = f"[{COLOURS.get(finding['outcome'], 'yellow')}]{finding['outcome']}[/]"
            numbers = [*filter(None, (reading, finding["parts"])), *finding["by"]]
            table.add_row(f"{claim['letter']}. {escape(claim['statement'])}", found, escape("; ".join(numbers)))
    console.print(table)
    console.print(f"[dim]{result['seconds']:.0f} s; figure.png, figure.svg and result.json are in {folder}[/]\n")


def _writing(content: bytes) -> Callable[[BinaryIO], int]:
    return lambda file: file.write(content)


def stored_as(quick: bool, reading: str) -> str:
    """The last part of the name under which a result is kept."""
    return "quick" if quick else "full" if reading == BASE else reading


def stored(page: Path, name: str) -> list[Path]:
    """The results of an experiment that are kept beside a page: the quick one, the full one, and those of readings."""
    folder = page.parent / "reproduced"
    words = ["quick", "full", *other_readings(read_config(name))]
    return [path for word in words if (path := folder / f"{name}-{word}.json").is_file()]


def keep(page: Path, out: Path, name: str, word: str) -> None:
    """Keep an experiment's result beside the page, as `reproduced/NAME-WORD.json`, and the figure of its settings."""
    kept = page.parent / "reproduced"
    kept.mkdir(parents=True, exist_ok=True)
    write_whole(kept / f"{name}-{word}.json", _writing((out / name / "result.json").read_bytes()))
    if word in ("quick", "full"):
        write_whole(kept / f"{name}-{word}.png", _writing((out / name / "figure.png").read_bytes()))


def stored_results(page: Path) -> dict[str, list[dict[str, Any]]]:
    """The contents of all results that are kept beside a page."""
    return {name: [json.loads(path.read_text(encoding="utf-8")) for path in stored(page, name)] for name in EXPERIMENTS}


def write_page(page: Path) -> None:
    """Write the page from all results that are kept beside it."""
    write_whole(page, _writing(claims_page(stored_results(page)).encode()))


@app.command(help=HELP)
def main(
    name: Annotated[str | None, typer.Argument(help="An experiment of --list, or all.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: minutes instead of hours.")] = False,
    reading: Annotated[str, typer.Option(help="Of what the paper leaves open: a name of the configuration.")] = BASE,
    out: Annotated[Path, typer.Option(help="Folder for results, figures and finished parts.")] = Path("reproduced"),
    data: Annotated[Path | None, typer.Option(help="Folder of the real data sets.", envvar="SPARSEHTP_DATA")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a killed run stopped.")] = False,
    page: Annotated[
        Path | None, typer.Option(help="Markdown file of all claims; the results that it shows are kept beside it.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Decide the results kept beside --page again; nothing is computed.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show the experiments and exit.")] = False,
) -> None:
    if list_ or name is None:
        show_list()
    elif again:
        if page is None:
            raise typer.BadParameter("--again decides the results kept beside a page; name it with --page.")
        run_again(name, out, data, page)
    else:
        try:
            with computing():
                run(name, out, {"quick": quick, "reading": reading, "data": data, "resume": resume}, page)
        except KeyboardInterrupt:
            typer.echo("Interrupted: --resume goes on where it stopped.", err=True)
            raise typer.Exit(130) from None


if __name__ == "__main__":
    app(prog_name="python -m benchmarks.papers")
