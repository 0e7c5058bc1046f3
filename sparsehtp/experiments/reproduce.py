"""Running experiments by name, and the page that shows where every claim stands."""

import os
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

from .._progress import Callback, reporting
from ..io import check_output
from .catalogue import EXPERIMENTS
from .run import Run

# In a checkout the configurations are at the top level; an installed package keeps them among the shared data.
_FOLDERS = (
    Path(__file__).parents[2] / "configs",
    Path(sysconfig.get_path("data")) / "share" / "sparsehtp" / "configs",
)


def read_config(name: str, path: str | Path | None = None) -> dict[str, Any]:
    """The configuration of an experiment: tables `settings`, `quick` (what it replaces) and `remarks`.

    Raises:
        ValueError: for an unknown name, or a file that is not such a configuration.
        FileNotFoundError: if there is no such file.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"name: there is no experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}.")
    paths = [Path(path)] if path else [folder / f"{name}.toml" for folder in _FOLDERS]
    found = next((p for p in paths if p.is_file()), None)
    if found is None:
        raise FileNotFoundError(f"config: there is no file {paths[0]}; name the configuration of {name}.")
    try:
        config = tomllib.loads(found.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"config: {found} is not TOML ({error}); correct it.") from error
    if "seed" not in config.get("settings", {}) or set(config) - {"settings", "quick", "remarks"}:
        raise ValueError(f"config: {found} needs a table [settings] with a seed, and may have [quick] and [remarks].")
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
    config = {"settings": stored["settings"], "remarks": read_config(name).get("remarks", {})}
    data = data or os.environ.get("SPARSEHTP_DATA")
    run = Run(name, config, folder, quick=stored["quick"], data=Path(data) if data else None, stored=stored)
    return run.finish(EXPERIMENTS[name].function(run))


def claims_page(results: dict[str, list[dict[str, Any]]]) -> str:
    """A Markdown page of all figures beside their claims, with the verdict and the numbers of each run.

    It shows the figures `reproduced/NAME-full.png`, or `-quick.png` where there is no full run.

    Args:
        results: experiment -> contents of its result.json files, the quick one and the full one.
    """
    lines = [
        "# Where each claim of the papers stands",
        "",
        "Most of these runs are *quick*: a few copies at small sizes, in minutes. A quick run is no verdict on a "
        "paper: it says *as claimed* or *not as claimed at this size*, and no more. Only a *full* run, at the size of "
        "the paper, says *confirmed* or *refuted*. *Vacuous* is a check that could not have told: all methods that it "
        "compares give the same, or the supports are nearly empty; the reason stands beside it.",
        "",
        "Written by `make reproduce-quick`, or from the stored results by `make claims`.",
    ]
    for name, experiment in EXPERIMENTS.items():
        runs = results.get(name, [])
        lines += ["", f"## {name}: {experiment.title} [{experiment.paper}]", ""]
        if not runs:
            lines.append("Not run.")
            continue
        figure = f"reproduced/{name}-{'quick' if runs[-1]['quick'] else 'full'}.png"
        lines += [f"![{experiment.title}]({figure})", ""]
        lines += ["| claim | run | outcome | decided by |", "|---|---|---|---|"]
        for i, claim in enumerate(runs[0]["claims"]):
            for run in runs:
                row = run["claims"][i]
                size = "quick" if run["quick"] else "full"
                statement = f"{claim['letter']}. {claim['statement']}" if run is runs[0] else ""
                lines.append(f"| {statement} | {size} | **{row['verdict']}** | {evidence(row)} |")
        remarks = {claim["letter"]: claim["remark"] for run in runs for claim in run["claims"] if claim["remark"]}
        lines += [line for letter, remark in remarks.items() for line in ("", f"*{letter}.* {remark}")]
        lines += [line for note in runs[0]["notes"] for line in ("", f"Data: {note}")]
        for run in runs:
            device, size = run["device"], "quick" if run["quick"] else "full"
            lines += ["", f"({size}: {run['seconds']:.0f} s on {device['platform']}, JAX {run['versions']['jax']})"]
    return "\n".join(lines) + "\n"


def evidence(claim: dict[str, Any]) -> str:
    """The numbers that decided a claim, as one line."""
    return "; ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in claim["evidence"].items())


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_short(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(_short, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
