"""The command line as tests call it."""

import json

from typer.testing import CliRunner

from sparsehtp.cli.main import app


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def made(out, *arguments):
    """The result of a command that succeeds, and what its JSON file in the folder holds."""
    result = invoke(*arguments, "--out", out)
    assert result.exit_code == 0, result.output
    (path,) = (out / f"{name}.json" for name in ("model", "path", "precision") if (out / f"{name}.json").exists())
    return result, json.loads(path.read_text(encoding="utf-8"))


def named(model):
    """The coefficients in a model.json, or in a row of a path.json, by the names of their features."""
    return {feature["name"]: feature["coefficient"] for feature in model["coefficients"]}


def words(screen):
    """What a screen says, however wide it is."""
    return " ".join(screen.replace("│", "").split())


def saved(folder, frame, name="data.csv"):
    """The file of a table."""
    frame.to_csv(folder / name, index=False)
    return folder / name
