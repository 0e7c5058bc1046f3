"""Running experiments by name."""

import os
import tomllib
from pathlib import Path
from typing import Any

from sparsehtp._progress import Callback, reporting
from sparsehtp.io import check_output

from .catalogue import EXPERIMENTS
from .run import BASE, Run

_CONFIGS = Path(__file__).parents[2] / "configs"
_TABLES = {"settings", "quick", "readings", "quotes", "margins", "remarks", "read", "withdrawn", "deviations", "cost"}


def read_config(name: str, path: str | Path | None = None) -> dict[str, Any]:
    """The configuration of an experiment.

    Its tables are `settings`; `quick` (what it replaces); `readings` of what the paper leaves open: in words, for
    `base`, that of the settings, and for each other one as `reads`, beside the settings that it replaces; `quotes`, the
    paper's words on each claim, and their place; `margins`, where the numbers in the rule of a claim come from;
    `remarks` on what was found; `read`, what a reader who did not write the row says of it with the paper open, in 25
    words at most; `withdrawn`, claims that are not decided here, and why. `deviations` is the list of
    what is not as in the paper's text, with reasons, and `cost` says what a full run takes.

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
    for table, changes in {"quick": config.get("quick", {}), **other_readings(config)}.items():
        unknown = set(changes) - set(config["settings"]) - {"reads"}
        if unknown:
            raise ValueError(
                f"config: [{table}] of {found} names {', '.join(sorted(unknown))}, which [settings] lacks."
            )
    return config


def other_readings(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The readings of a configuration beside that of its settings, by name."""
    return {name: changes for name, changes in config.get("readings", {}).items() if name != BASE}


def reproduce(
    name: str,
    out: str | Path = "reproduced",
    *,
    quick: bool = False,
    reading: str = BASE,
    data: str | Path | None = None,
    resume: bool = False,
    config: str | Path | None = None,
    progress: Callback | bool | None = None,
) -> dict[str, Any]:
    """Rerun a figure of one of the five papers, and find what it says of its claims.

    Finished parts of the work are kept under `out/name/cells`; `out/name` gets result.json (settings, device,
    versions, times, every number, the claims with what was found) and the figure as PNG and SVG. The page of claims
    (`claims_page`) says where they stand after the runs of all readings.

    Args:
        name: experiment, one of `EXPERIMENTS`.
        out: folder for the results, created if missing.
        quick: small sizes: minutes instead of hours. The rules are the same.
        reading: of what the paper leaves open, a name in the configuration's `readings`.
        data: folder of the real data sets; default: the environment variable SPARSEHTP_DATA.
        resume: go on where a killed run of the same settings stopped.
        config: another configuration file than the experiment's own.
        progress: True for a bar, or a function of (parts done, parts in all).

    Returns:
        The content of result.json.

    Raises:
        ValueError: for an unknown experiment or reading, a wrong configuration, or a resumed run with other settings.
        FileNotFoundError: if none of the data sets that it needs is there; the message says how to get them.
        OSError: if `out` cannot be written.
    """
    settings, folder = read_config(name, config), Path(out) / name
    names = [BASE, *other_readings(settings)]
    if reading not in names:
        raise ValueError(f"reading: {name} has no reading {reading!r}; choose one of {', '.join(names)}.")
    check_output(folder)
    data = data or os.environ.get("SPARSEHTP_DATA")
    with reporting(progress) as report:
        where: dict[str, Any] = {"data": Path(data) if data else None, "resume": resume, "progress": report}
        run = Run(name, settings, folder, quick=quick, reading=reading, **where)
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
    # A setting that is younger than the result had its present value.
    settings = {**read_config(name)["settings"], **stored["settings"]}
    reading = stored.get("reading", BASE)
    config = {"settings": settings, "readings": {reading: {}}}
    data = data or os.environ.get("SPARSEHTP_DATA")
    run = Run(
        name, config, folder, quick=stored["quick"], reading=reading, data=Path(data) if data else None, stored=stored
    )
    return run.finish(EXPERIMENTS[name].function(run))
