"""The report of `fit` and `path`: one file that needs nothing else and says what model.json says."""

import base64
import re
import shlex
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from commands import made, saved, words
from scipy import sparse

import sparsehtp as sht
from sparsehtp.cli.options import PathOptions
from sparsehtp.cli.path import Subsets
from sparsehtp.datasets import Data

N = 40
X = np.random.default_rng(0).standard_normal((N, 4))
NAMES = ["area", '<script>alert("1")</script> & more', "气温", "d"]
TABLE = pd.DataFrame(X, columns=NAMES)
TARGET = "price $title"
TABLE[TARGET] = 3 + X[:, 0] - 2 * X[:, 1] + 0.1 * np.random.default_rng(1).standard_normal(N)
CHEAP = ("--solver", "htp")  # compiles much less than the default
VOID = {"meta", "img", "br", "hr", "link", "input"}
LOADING = {"src", "href", "srcset", "data", "action", "poster", "xlink:href"}


class Page(HTMLParser):
    """Checks that tags are closed in order, and keeps texts, numbers, pictures and what would be loaded."""

    def __init__(self, text):
        super().__init__()
        self.open, self.loaded, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert not self.open
        self.numbers = {float(value) for value in re.findall(r'<data value="([^"]+)"', text)}
        self.alts = re.findall(r'<img [^>]*alt="([^"]+)"', text)
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag, attributes):
        assert len(dict(attributes)) == len(attributes) and tag not in ("script", "link", "iframe")
        self.loaded += [value for name, value in attributes if name in LOADING]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def check_page(text):
    """Well-formed, with nothing to load, and with pictures that are themselves so."""
    page = Page(text)
    assert not re.search(r"https?:|url\(|@import", text)
    assert "prefers-color-scheme: dark" in text and "size: A4" in text
    for source in page.loaded:
        kind, _, content = source.partition(",")
        assert kind == "data:image/svg+xml;base64"
        picture = ElementTree.fromstring(base64.b64decode(content))
        for element in picture.iter():
            assert all(v.startswith(("#", "data:")) for k, v in element.items() if k.endswith("href"))
    assert len(page.alts) == len(page.loaded)
    return page


def reported(out, *arguments):
    """What is printed, the page, and what the file of numbers holds."""
    result, model = made(out, *arguments, "--report")
    return result, check_page((out / "report.html").read_text(encoding="utf-8")), model


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    out, file = folder / "out", saved(folder, TABLE, "my houses.csv")
    arguments = ("fit", file, "--target", TARGET, "--k", 2, *CHEAP, "--no-standardize")
    return arguments, out, *reported(out, *arguments, "--test-size", 0.25)


def test_the_report_of_a_fit_holds_what_model_json_holds(fitted):
    arguments, out, _, page, model = fitted
    for feature in model["coefficients"]:
        assert {feature["coefficient"], feature["standardized"]} <= page.numbers
        assert feature["name"] in page.text and feature["substitute"]["name"] in page.text
    assert model["intercept"] in page.numbers and " ".join(model["certificate"].split()) in page.text
    for part in ("train", "test"):
        assert f"{model[f'{part}_score']:.4f}" in page.text
    assert TARGET in page.text  # what looks like a placeholder of the template is not one
    names = ["coefficients", "predictions", "swaps"]
    assert len(page.loaded) == len(names) and all((out / f"{name}.png").exists() for name in names)
    assert any("held-out rows" in alt for alt in page.alts)
    (command,) = (line for line in page.texts if line.startswith("sparsehtp fit"))
    typed = ["sparsehtp", *map(str, arguments), "--test-size", "0.25", "--report", "--out", str(out)]
    assert sorted(shlex.split(command)) == sorted(typed) and shlex.split(command)[2] == typed[2]


def test_the_screen_of_a_fit_says_what_model_json_holds(fitted):
    """What the facts say of a description is in test_told.py."""
    _, out, result, _, model = fitted
    table, _, facts = result.stdout.partition("\ndata ")
    assert f"train R2 {model['train_score']:.4f} on 30 rows" in words(facts)
    assert re.search(r"s compiling on cpu\s+written", facts)
    written = facts.partition("written")[2].replace(" ", "").replace("\n", "")  # long paths are folded
    assert all(str(path).replace(" ", "") in written for path in out.iterdir())
    for feature in model["coefficients"]:
        assert f"{feature['coefficient']:+.5g} " in table and f"{feature['standardized']:+.5g} " in table


def test_the_report_holds_what_was_done_to_the_data_and_texts_as_one_feature(tmp_path):
    city = np.array(["Bonn", "Oslo", "Rome"])[np.arange(N) % 3]
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "flat": 1, "note": "x", "city": city, "y": X[:, 0]})
    table["y"] += 2 * (city == "Oslo") - (city == "Rome") + 0.1 * X[:, 2]
    table.loc[3, "b"], table.loc[4, "y"] = np.nan, np.nan
    file = saved(tmp_path, table)
    options = ("--target", "y", "--dummies", "--missing", "median", "--drop-missing-target", "--drop", "note", *CHEAP)
    for command, k in (("path", "--k-max"), ("fit", "--k")):
        result, page, model = reported(tmp_path / command, command, file, *options, k, 2)
        for said in ("1 of 40 rows left out, without a target", "'b' filled with the median", "'flat': the same in"):
            assert said in page.text
        assert "'note' (--drop)" in page.text and "city (against Bonn)" in page.text
        assert model["reference_levels"] == {"city": "Bonn"} and "city=Oslo" not in result.stdout
    named = {feature["name"]: feature["substitute"]["name"] for feature in model["coefficients"]}
    assert set(named) == {"a", "city=Oslo", "city=Rome"} and named["city=Oslo"] == named["city=Rome"] in ("b", "flat")
    assert "2 of 4 features chosen (a text counts as one)" in page.text and (tmp_path / "fit" / "swaps.png").exists()


@pytest.mark.slow
def test_the_report_of_classes_with_a_cross_validated_k(tmp_path):
    classes = TABLE.assign(**{TARGET: np.where(X[:, 0] + 0.7 * X[:, 3] > 0.4, "yes & so", "no")})
    arguments = ("--target", TARGET, "--loss", "logistic", *CHEAP)
    _, page, model = reported(tmp_path / "out", "fit", saved(tmp_path, classes), *arguments)
    chosen = model["cv"]["table"][model["cv"]["chosen"]]
    assert {chosen["k"], chosen["l2"], chosen["mean_loss"], chosen["se"]} <= page.numbers
    assert "ROC" in " ".join(page.alts) and "Cross-validation" in " ".join(page.alts)


def test_the_report_of_a_path_and_an_objective_that_never_rises(tmp_path):
    common = ("--target", TARGET, "--k-max", 4, "--l2", 0.5, "--solver", "forward")
    result, page, model = reported(tmp_path / "out", "path", saved(tmp_path, TABLE), *common)
    objectives = [row["objective"] for row in model["rows"]]
    assert set(objectives) <= page.numbers and (np.diff(objectives) <= 0).all()
    shown = [float(line.split()[1]) for line in result.stdout.splitlines() if re.match(r"\s+\d+\s+[\d.]+\s", line)]
    np.testing.assert_allclose(shown, objectives, rtol=1e-4)
    assert len(page.loaded) == 1 and (model["n"], model["p"]) == (40, 4)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_the_picture_of_a_path_draws_coefficients_per_standard_deviation(make):
    path = sht.solve_path(sht.LinearModel(X, TABLE[TARGET], fit_intercept=True), ks=[0, 1, 2], solver=sht.solvers.HTP())
    flow = Subsets(PathOptions(file=None))
    flow.path, flow.chosen, flow.cv, flow.stability = path, 2, None, None
    flow.data, flow.table, flow.units = Data(make(X), TABLE[TARGET], NAMES, TARGET), None, NAMES
    figure = flow.draw({})["path"]
    drawn = [np.nan_to_num(line.get_ydata()) for line in figure.axes[0].lines if len(line.get_ydata()) == 3]
    for expected in (path.x * X.std(axis=0)).T[[0, 1]]:
        assert any(np.allclose(expected, found) for found in drawn)


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "microsoft-edge")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_a_browser_shows_and_prints_it(fitted, tmp_path):
    page = fitted[1] / "report.html"
    flags = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}")

    def browse(*more):
        return subprocess.run([BROWSER, *flags, *more, page.as_uri()], capture_output=True, timeout=120, check=True)

    shown = browse("--dump-dom").stdout.decode()
    assert fitted[3].numbers == set(map(float, re.findall(r'<data value="([^"]+)"', shown)))
    browse(f"--screenshot={tmp_path / 'page.png'}")
    browse(f"--print-to-pdf={tmp_path / 'page.pdf'}")
    assert (tmp_path / "page.png").stat().st_size > 5000
    assert re.search(rb"/MediaBox ?\[0 0 59[45]\S* 84[12]", (tmp_path / "page.pdf").read_bytes())  # A4 in points
