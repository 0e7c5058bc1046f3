"""What a person reads in the terminal after a fit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

MAX_ROWS = 30


def print_report(console: Console, model: dict[str, Any], timing: Any, paths: Sequence[Path]) -> None:
    """The chosen features, the scores, how the run ended and what was written."""
    features = model["coefficients"]
    table = Table(title=f"{len(features)} of {model['p']} features chosen", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("feature", overflow="fold")
    table.add_column("coefficient\n(original units)", justify="right", no_wrap=True)
    table.add_column("coefficient\n(per std. dev.)", justify="right", no_wrap=True)
    for feature in features[:MAX_ROWS]:
        numbers = (f"{feature[unit]:+.5g}" for unit in ("coefficient", "standardized"))
        table.add_row(escape(feature["name"]), *numbers)
    if model["fit_intercept"]:
        table.add_section()
        table.add_row("[italic]intercept[/]", f"{model['intercept']:+.5g}", "")
    console.print(table)
    if len(features) > MAX_ROWS:
        console.print(f"... and {len(features) - MAX_ROWS} more in model.json\n")

    result = model["result"]
    fired = f" ({', '.join(result['fired'])})" if result["fired"] else ""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("data", escape(f"{model['file']}, {model['n']} training rows, target {model['target']}"))
    if model["classes"]:
        facts.add_row("predicts", escape("{+1} (positive side) against {-1}".format_map(model["classes"])))
    facts.add_row("model", f"{model['loss']} loss, {model['solver']}, k = {model['k']}, l2 = {model['l2']:g}")
    for part, rows in (("train", model["n"]), ("test", model["n_test"])):
        if rows:
            score = model[f"{part}_score"]
            text = "undefined (constant target)" if score is None else f"{score:.4f} on {rows} rows"
            facts.add_row(f"{part} {model['metric']}", text)
    facts.add_row("result", f"{result['name']} after {model['num_steps']} steps{fired}")
    facts.add_row("objective", f"{model['objective']:.6g}")
    facts.add_row("time", f"compile {timing.compile:.2f} s, run {timing.run:.3f} s on {model['device']['kind']}")
    facts.add_row("written", "\n".join(escape(str(path)) for path in paths))
    console.print(facts)


def print_warnings(console: Console, model: dict[str, Any]) -> None:
    """What a person should know before using the coefficients."""
    result = model["result"]
    if result["name"] == "nonfinite":
        console.print(f"[bold red]Error:[/] {result['sentence']}", soft_wrap=True)
    elif result["name"] != "converged":
        console.print(f"[yellow]Warning:[/] {result['sentence']}", soft_wrap=True)
    if model["separable"] and model["loss"] == "logistic" and model["l2"] == 0:
        console.print(
            "[yellow]Warning:[/] the chosen features separate the two classes, so without a ridge the "
            "coefficients grow without bound; set --l2 to 1e-4 or more.",
            soft_wrap=True,
        )
