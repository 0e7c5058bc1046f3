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
from .reproduce import evidence

HELP = """Rerun a figure of one of the five papers, and decide its claims by code.

[bold]Examples[/bold]

  python -m benchmarks.papers --list

  python -m benchmarks.papers grahtp-fig2 --quick

  python -m benchmarks.papers grahtp-fig4 --data DIR --out reproduced --resume
"""
app = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False, rich_markup_mode="rich")

COLOURS = {"confirmed": "green", "refuted": "red"}  # verdicts; all else is none


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
                keep(page, out, each, "quick" if options["quick"] else "full")
            write_page(page)
    if failed:
        raise typer.Exit(2)


def run_again(name: str, out: Path, data: Path | None, page: Path) -> None:
    """Decide the results kept beside a page again, without computing, and write the page."""
    names = list(EXPERIMENTS) if name == "all" else [name]
    errors = Console(stderr=True)
    with one_sentence(errors, ValueError, OSError):
        for size in ("quick", "full"):
            for each in names:
                kept = page.parent / "reproduced" / f"{each}-{size}.json"
                if kept.is_file():
                    show(Console(), decide_again(json.loads(kept.read_text(encoding="utf-8")), out, data), out / each)
                    keep(page, out, each, size)
        write_page(page)


def show(console: Console, result: dict[str, Any], folder: Path) -> None:
    """Print one experiment's claims."""
    experiment = EXPERIMENTS[result["experiment"]]
    console.print(f"[bold]{result['experiment']}[/]: {experiment.title} ([cyan]{experiment.paper}[/])")
    for note in result["notes"]:
        console.print(f"[dim]{escape(note)}[/]", soft_wrap=True)
    table = Table("claim", "verdict", "decided by", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for claim in result["claims"]:
        verdict = f"[{COLOURS.get(claim['verdict'], 'yellow')}]{claim['verdict']}[/]"
        table.add_row(f"{claim['letter']}. {escape(claim['statement'])}", verdict, escape(evidence(claim)))
    console.print(table)
    for claim in result["claims"]:
        if claim["remark"]:
            console.print(f"{claim['letter']}. {escape(claim['remark'])}")
    console.print(f"[dim]{result['seconds']:.0f} s; figure.png, figure.svg and result.json are in {folder}[/]\n")


def _writing(content: bytes) -> Callable[[BinaryIO], int]:
    return lambda file: file.write(content)


def keep(page: Path, out: Path, name: str, size: str) -> None:
    """Keep an experiment's result and figure beside the page, as `reproduced/NAME-SIZE.*`."""
    kept = page.parent / "reproduced"
    kept.mkdir(parents=True, exist_ok=True)
    for source, suffix in (("result.json", "json"), ("figure.png", "png")):
        path = out / name / source
        if path.is_file():
            write_whole(kept / f"{name}-{size}.{suffix}", _writing(path.read_bytes()))


def write_page(page: Path) -> None:
    """Write the page from all results that are kept beside it."""
    results = {}
    for name in EXPERIMENTS:
        files = (page.parent / "reproduced" / f"{name}-{size}.json" for size in ("quick", "full"))
        results[name] = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.is_file()]
    write_whole(page, _writing(claims_page(results).encode()))


@app.command(help=HELP)
def main(
    name: Annotated[str | None, typer.Argument(help="An experiment of --list, or all.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: minutes instead of hours.")] = False,
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
                run(name, out, {"quick": quick, "data": data, "resume": resume}, page)
        except KeyboardInterrupt:
            typer.echo("Interrupted: --resume goes on where it stopped.", err=True)
            raise typer.Exit(130) from None


if __name__ == "__main__":
    app(prog_name="python -m benchmarks.papers")
