"""What the site takes from elsewhere in the tree: the reference from docstrings, claims, benchmarks, changelog."""

import importlib
import re
from pathlib import Path

from mkdocs.structure.files import File

import sparsehtp

ROOT = Path(__file__).parents[1]

# A page, its rooms of the package, and its opening. Every public name is on the page of the room that defines it.
REFERENCE = {
    "estimators": (("estimators", "_save"), "Estimators with scikit-learn's interface, and how they are saved."),
    "objectives": (("objectives", "designs"), "What is minimised, and the data behind it."),
    "losses": (("losses",), "The loss of one sample, by name or as an object."),
    "thresholds": (("thresholds",), "Which structure a solution may have."),
    "solvers": (("_solve", "solvers", "_keep_top_k", "_programs"), "How a solution is found."),
    "grids": (
        ("grids", "_stream", "statistics"),
        "Many fits as one batch: paths, folds, criteria, resamples; and data on disk.",
    ),
    "certificates": (("certificates", "screening", "duality"), "What is known about a solution: bounds and proofs."),
    "steps": (("steps", "linalg"), "Step sizes, and the eigenvalues that they come from."),
    "results": (("iteration", "_types"), "Solutions, histories, and what stops a run."),
    "tuning": (("tuning",), "Hyper-parameters by gradient, step sizes by trial."),
    "plot": (("plot",), "Figures."),
    "datasets": (("datasets",), "Data: files, downloads, and problems whose answer is known."),
    "testing": (("testing",), "Checks for losses, objectives, step sizes and thresholds of your own."),
}
# Whose names are public beside those at the top level.
MODULES = ("datasets", "designs", "losses", "plot", "results", "solvers", "steps", "stopping", "testing")
COPIED = {
    "papers/CLAIMS.md": "benchmarks/results/CLAIMS.md",
    "benchmarks.md": "benchmarks/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}


def public():
    """(name, where it is defined) of every public class and function."""
    names = {name: getattr(sparsehtp, name) for name in sparsehtp.__all__}
    for room in MODULES:
        module = importlib.import_module(f"sparsehtp.{room}")
        each = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
        names |= {name: value for name, value in each.items() if callable(value)}
    return {name: f"{v.__module__}.{v.__qualname__}" for name, v in names.items() if hasattr(v, "__qualname__")}


def reference(page):
    """The Markdown of a page of the reference."""
    rooms, opening = REFERENCE[page]
    places = sorted({place for place in public().values() if place.split(".")[1] in rooms})
    return "\n\n".join([f"# {page.capitalize()}", opening, *(f"::: {place}" for place in places)]) + "\n"


def on_config(config):
    """The version, at the foot of every page."""
    config.copyright = f"sparsehtp {sparsehtp.__version__}"


def on_files(files, config):
    """Add the pages that are made of other files."""
    for page in REFERENCE:
        files.append(File.generated(config, f"reference/{page}.md", content=reference(page)))
    for page, source in COPIED.items():
        files.append(File.generated(config, page, content=relinked((ROOT / source).read_text(encoding="utf-8"))))
    for kept in (ROOT / "benchmarks" / "results" / "reproduced").iterdir():  # pictures and numbers
        files.append(File.generated(config, f"papers/reproduced/{kept.name}", abs_src_path=str(kept)))
    return files


def on_page_markdown(markdown, page, **_):
    """Links to files that are pages here lead to these. A tick of the comparison shows its test when pointed at: a
    column of long names is too narrow to read."""
    up = "../" * page.file.src_uri.count("/")
    for name, source in COPIED.items():
        markdown = markdown.replace(f"](../{up}{source}", f"]({up}{name}")
    if page.file.src_uri != "features.md":
        return markdown
    return re.sub(r"✓ `([^`]+::[^`]+)`", r'<span title="tests/\1">✓</span>', markdown)


def relinked(text):
    """Links within the repository as links within the site; files that are not on it become their names."""
    text = re.sub(r"\]\((?:\.\./)*docs/", "](", text)
    return re.sub(r"\[([^]]+)\]\((?!http|#|guide/|reference/|reproduced/|index|papers/|systems)[^)]*\)", r"\1", text)
