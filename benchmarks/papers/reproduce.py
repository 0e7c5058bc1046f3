"""Running experiments by name, and the page that shows where every claim stands."""

import os
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from sparsehtp._progress import Callback, reporting
from sparsehtp.io import check_output

from .catalogue import EXPERIMENTS, Experiment
from .run import UNTESTABLE, VACUOUS, Run

_CONFIGS = Path(__file__).parents[2] / "configs"
_TABLES = {"settings", "quick", "quotes", "remarks", "deviations"}


def read_config(name: str, path: str | Path | None = None) -> dict[str, Any]:
    """The configuration of an experiment.

    It has the tables `settings`, `quick` (what it replaces), `quotes` (the paper's words on each claim, and their
    place) and `remarks` (on what is not as claimed), and the list `deviations` (from the paper's text, with reasons).

    Raises:
        ValueError: for an unknown name, or a file that is not such a configuration.
        FileNotFoundError: if there is no such file.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"name: there is no experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}.")
    found = Path(path) if path else _CONFIGS / f"{name}.toml"
    if not found.is_file():
        raise FileNotFoundError(f"config: there is no file {found}; name the configuration of {name}.")
    try:
        config = tomllib.loads(found.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"config: {found} is not TOML ({error}); correct it.") from error
    if "seed" not in config.get("settings", {}) or set(config) - _TABLES:
        raise ValueError(
            f"config: {found} needs a table [settings] with a seed, and may have {', '.join(sorted(_TABLES))}."
        )
    unknown = set(config.get("quick", {})) - set(config["settings"])
    if unknown:
        raise ValueError(f"config: [quick] of {found} names {', '.join(sorted(unknown))}, which [settings] lacks.")
    return config


def reproduce(
    name: str,
    out: str | Path = "reproduced",
    *,
    quick: bool = False,
    data: str | Path | None = None,
    resume: bool = False,
    config: str | Path | None = None,
    progress: Callback | bool | None = None,
) -> dict[str, Any]:
    """Rerun a figure of one of the five papers and decide its claims.

    Finished parts of the work are kept under `out/name/cells`; `out/name` gets result.json (settings, device,
    versions, times, every number, the claims with what decided them) and the figure as PNG and SVG.

    Args:
        name: experiment, one of `EXPERIMENTS`.
        out: folder for the results, created if missing.
        quick: small sizes: minutes instead of hours. The rules that decide the claims are the same.
        data: folder of the real data sets; default: the environment variable SPARSEHTP_DATA.
        resume: go on where a killed run of the same settings stopped.
        config: another configuration file than the experiment's own.
        progress: True for a bar, or a function of (parts done, parts in all).

    Returns:
        The content of result.json.

    Raises:
        ValueError: for an unknown experiment, a wrong configuration, or a resumed run with other settings.
        FileNotFoundError: if none of the data sets that it needs is there; the message says how to get them.
        OSError: if `out` cannot be written.
    """
    settings, folder = read_config(name, config), Path(out) / name
    check_output(folder)
    data = data or os.environ.get("SPARSEHTP_DATA")
    with reporting(progress) as report:
        run = Run(
            name, settings, folder, quick=quick, data=Path(data) if data else None, resume=resume, progress=report
        )
        figure = EXPERIMENTS[name].function(run)
    return run.finish(figure)


def decide_again(stored: dict[str, Any], out: str | Path, data: str | Path | None = None) -> dict[str, Any]:
    """Decide the claims of a stored result, and draw its figure, by the present rules; no cell is computed.

    Args:
        stored: content of a result.json.
        out: folder; `out/NAME` gets the new result.json and the figure.
        data: as for `reproduce`.

    Returns:
        The new content of result.json: that of the old one but for the claims.

    Raises:
        ValueError: if the cells are not those that the experiment now asks for.
        FileNotFoundError, OSError: as `reproduce`.
    """
    name, folder = stored["experiment"], Path(out) / stored["experiment"]
    check_output(folder)
    config = {**read_config(name), "settings": stored["settings"], "quick": {}}
    data = data or os.environ.get("SPARSEHTP_DATA")
    run = Run(name, config, folder, quick=stored["quick"], data=Path(data) if data else None, stored=stored)
    return run.finish(EXPERIMENTS[name].function(run))


DECIDED = ("confirmed", "refuted", "undecided", VACUOUS, UNTESTABLE)


def claims_page(results: dict[str, list[dict[str, Any]]]) -> str:
    """A Markdown page of all figures beside their claims, with the verdicts and the numbers of the largest run.

    It shows the figures `reproduced/NAME-full.png`, or `-quick.png` where there is no full run.

    Args:
        results: experiment -> contents of its result.json files; a full one is taken before a quick one.
    """
    largest = {name: min(runs, key=lambda run: run["quick"]) for name, runs in results.items() if runs}
    lines = [
        "# Where each claim of the papers stands",
        "",
        "A claim is a statement about a population of problems, and a run is a sample of it: *confirmed* and *refuted* "
        "need an interval (95%) that excludes the other; what the sample leaves open is *undecided*, with what it "
        "would take. *Vacuous* is a check that could not have told: all methods that it compares give the same, or the "
        "supports are nearly empty. A *quick* run is no verdict on a paper: it says *as claimed* or *not as claimed at "
        "this size*, and no more.",
        "",
        "Written by `make reproduce-quick`, or from the stored results by `make claims`.",
        "",
        *_summary(largest),
    ]
    for name, experiment in EXPERIMENTS.items():
        lines += ["", f"## {name}: {experiment.title} [{experiment.paper}]", ""]
        lines += _section(name, experiment, largest[name]) if name in largest else ["Not run."]
    return "\n".join(lines) + "\n"


def _summary(largest: dict[str, dict[str, Any]]) -> list[str]:
    """The table of verdicts: one row a figure, the letters of its claims under their verdict, and the counts."""
    lines = ["| paper | figure | " + " | ".join(DECIDED) + " | quick run only |", "|---" * (len(DECIDED) + 3) + "|"]
    counts: Counter[str] = Counter()
    for name, experiment in EXPERIMENTS.items():
        run = largest.get(name)
        quick = run is None or run["quick"]
        letters: dict[str, list[str]] = {}
        for claim in run["claims"] if run else []:
            letters.setdefault("quick" if quick else claim["verdict"], []).append(claim["letter"])
        counts.update({verdict: len(found) for verdict, found in letters.items()})
        cells = (", ".join(letters.get(verdict, [])) for verdict in (*DECIDED, "quick"))
        lines.append(f"| {experiment.paper} | {name} | " + " | ".join(cells) + " |")
    lines.append(
        f"| all | {sum(counts.values())} claims | " + " | ".join(str(counts[v]) for v in (*DECIDED, "quick")) + " |"
    )
    return lines


def _section(name: str, experiment: Experiment, run: dict[str, Any]) -> list[str]:
    size = "quick" if run["quick"] else "full"
    lines = [
        f"![{experiment.title}](reproduced/{name}-{size}.png)",
        "",
        "| claim | outcome | decided by |",
        "|---|---|---|",
    ]
    for claim in run["claims"]:
        lines.append(f"| {claim['letter']}. {claim['statement']} | **{claim['verdict']}** | {evidence(claim)} |")
    for claim in run["claims"]:
        texts = [f"The paper: {claim['quote']}"] if claim["quote"] else []
        texts += [claim["remark"]] if claim["remark"] else []
        lines += ["", f"*{claim['letter']}.* {' '.join(texts)}"] if texts else []
    if run["deviations"]:
        lines += ["", "Not as in the paper:", "", *(f"- {text}" for text in run["deviations"])]
    lines += [line for note in run["notes"] for line in ("", f"Note: {note}")]
    return [
        *lines,
        "",
        f"({size}: {run['seconds']:.0f} s on {run['device']['platform']}, JAX {run['versions']['jax']})",
    ]


def evidence(claim: dict[str, Any]) -> str:
    """The numbers that decided a claim, as one line."""
    return "; ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in claim["evidence"].items())


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_short(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(_short, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
