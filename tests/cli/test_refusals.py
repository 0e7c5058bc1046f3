"""What every command refuses: exit code 2, one sentence, and nothing left behind."""

import re

import numpy as np
import pandas as pd
import pytest
from commands import invoke, saved, words

N, P = 40, 6
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.standard_normal((N, P)), columns=list("abcdef"))
ETA = FRAME["a"] - FRAME["d"]
LEVELS = np.array(["poor", "fair", "good"])[np.arange(N) % 3]
TABLES = {
    "data": FRAME.assign(target=ETA - 10),
    "text": FRAME.assign(target=np.where(ETA > 0, "a", "b")),
    "claims": FRAME.assign(
        target=np.arange(N) % 4, zero=np.arange(N) % 2, years=ETA**2 + 1, log_years=np.log(ETA**2 + 1)
    ),
    "owned": FRAME.assign(target=ETA, one=1, half=ETA > 0),
    "several": FRAME.assign(heart=ETA, lung=-ETA),
    "health": FRAME.assign(target=LEVELS),
    "life": FRAME.assign(days=1.5 * np.arange(N), died=np.arange(N) % 2),
    "lives": FRAME.assign(days=np.arange(N) % 7 - 3, died=np.arange(N) % 2, none=0, said=[f"{i} d" for i in range(N)]),
    "names": FRAME.rename(columns={"a": "alpha"}),
    "dates": FRAME.assign(day="monday"),
    "ways": FRAME.assign(a=np.resize(["1 234", "1'234"], N)),
    "towns": FRAME.assign(target=ETA, town=np.resize(["Ulm", "Bonn", "Kiel"], N)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for name, table in TABLES.items():
        saved(folder, table, f"{name}.csv")
    several = {"half": np.ones(N // 2), "said": LEVELS, "cube": np.ones((N, 2, 2))}
    np.savez(folder / "several.npz", X=FRAME, Y=TABLES["several"][["heart", "lung"]], **several)
    np.savez(folder / "flat.npz", X=FRAME, y=np.full(N, 2))
    np.savez(folder / "one.npz", X=FRAME[:1], y=[2])
    (folder / "file").write_text("")
    return folder


LINES = """
fit absent.csv | Error: FILE: there is no file
fit absent.parquet | Error: FILE: there is no file
fit absent.csv --out file/out | is not a folder
lowrank several.npz --targets X | Error: --targets: 'X' are the features
fit data.csv --target price | no column 'price'
fit data.csv --target target --k 7 | only 6 features
fit data.csv --target target --k best | Error: --k: needs an integer
fit text.csv --target target | not numeric
fit text.csv --target target --loss hinge --solver htp | --solver iht
fit data.csv --target target --loss poisson | counts >= 0
fit data.csv --target target --test-size 1 | Error: --test-size: is a fraction of the rows, below 1
fit data.csv --target target --save absent/model.npz | Error: --save: there is no folder
fit data.csv --target target --save . | Error: --save: . is a folder
path data.csv --target target --k-max 7 | Error: --k-max: 7 is more than the 6 features
path data.csv --target target --rule one_se --cv 41 | Error: --cv: needs from 2 to 40
path data.csv --target target --cv 1 | Error: --cv: needs from 2 to 40
path data.csv --target target --stability 9 | even
fit text.csv --target target --loss hinge --prove 1 | no proofs for the hinge loss
path text.csv --target target --loss hinge --prove 1 | no proofs for the hinge loss
fit text.csv --target target --loss logistic --l2 0 --prove 1 | Error: --prove: proofs for the loss logistic need l2 > 0
path text.csv --target target --loss logistic --l2 0.1 --l2 0 --prove 1 | --prove: proofs for the loss logistic need l2
fit claims.csv --target target --loss poisson --exposure zero | an exposure must be a number above 0
fit claims.csv --target target --loss poisson --exposure time | exposure:
fit claims.csv --target target --exposure years --offset log_years | Error: --exposure: cannot be combined with offset
fit claims.csv --target target --offset target | Error: --offset: 'target' is that of --target too
fit claims.csv --target target --loss gamma --loss-parameter 2 | Error: --loss-parameter: the loss gamma has none
fit claims.csv --target target --loss tweedie --loss-parameter 3 | --loss-parameter: must be a number from 1 to 2
fit claims.csv --target target --loss tweedie --prove 5 | Error: --prove: there are no proofs for the tweedie loss
lowrank several.csv --targets heart,spleen | spleen
lowrank several.csv --targets , | targets
lowrank several.csv --targets heart,heart | named twice
lowrank several.csv --targets a,b,c,d,e,f,heart,lung | --targets: no column is left
fit flat.npz --k 1 | 'y' is 2 in every row
fit one.npz --k 1 | 'y' is a single row
fit flat.npz --loss hinge --prove 1 | no proofs for the hinge loss
lowrank several.csv --targets heart,lung --rank 9 | Error: --rank: is 9
lowrank several.csv --targets heart --rank many | Error: --rank:
lowrank several.npz --targets Z | no array
lowrank several.npz --targets half | needs numbers of shape (40, responses), got shape (20,)
lowrank several.npz --targets said | needs numbers of shape (40, responses)
lowrank several.npz --targets cube | got shape (40, 2, 2)
lowrank flat.npz --targets y,z | no column 'z' in flat.npz
lowrank nothing.npz --targets Y | no file
fit health.csv --target target | by --levels LOW,...,HIGH if they are ordered
fit data.csv --target target --k 2 --groups a | Error: --groups: nothing is held out
predict data.csv data.csv | Error: MODEL: data.csv is a table; the model comes first
path data.csv --target target --groups a | Error: --groups: nothing is held out
fit owned.csv --target target --groups target | Error: --groups: 'target' is that of --target too
fit owned.csv --target target --groups a --offset a | Error: --offset: 'a' is that of --groups too
path owned.csv --target target --groups one --cv 3 --drop one | Error: --drop: 'one' is that of --groups too
fit owned.csv --target target --id a --drop a | Error: --drop: 'a' is that of --id too
fit owned.csv --target target --groups one --drop half | one all rows are in one group, so that none can be held out
fit owned.csv --target target --groups half --drop one --test-size .9 | --test-size: 0.9 leaves none of the 2 groups
fit owned.csv --target target --groups half --drop one --loss=smoothed_hinge | exactly two classes
fit several.npz --target Y --drop-missing-target | Error: --drop-missing-target: several.npz is no table
fit health.csv --target target --levels poor,fair,good,best | 'best' is in no row
fit health.csv --target target --levels poor,fair,good,good | Error: --levels: must name each class of 'target' once
fit health.csv --target target --levels poor,fair,good --loss logistic | --loss
fit health.csv --target target --levels poor,fair,good --prove 3 | no proofs for ordered classes
fit life.csv --time days | name both columns
path life.csv --time days | name both columns
fit life.csv --time days --event dead | event
fit life.csv --time days --event a | the event is 1
fit lives.csv --time days --event said --drop died --drop none | but '0 d' in rows 2, 3
fit lives.csv --time days --event none --drop said | no row has an event
fit life.csv --time days --event died --loss huber | --loss
fit life.csv --time days --event died --prove 3 | no proofs
fit lives.csv --time days --event died --drop said --drop none | times must be >= 0
fit towns.csv --target target --dummies --k 8 | --k: is 8, but there are only 7 features, where a text counts as one
fit towns.csv --target target --dummies --prove 1 | Error: --prove: --dummies makes several columns of 'town'
path towns.csv --target target --dummies --prove 1 | Error: --prove: --dummies makes several columns of 'town'
fit lives.csv --time said --event died --drop none | the time is a number, but
fit life.csv --time died --event died | name a column for each
precision no.csv | Error: FILE:
precision no.npz | Error: FILE: there is no file
precision ways.csv | numbers written in several ways
precision names.csv --drop day | Error: --drop:
precision several.npz --drop day | Error: --drop:
precision dates.csv | Error: FILE:
precision names.csv --keep alpha | Error: --keep:
precision names.csv --keep alpha,omega | Error: --keep:
precision names.csv --stability 3 | Error: --stability:
precision names.csv --k aic | Error: --k:
precision names.csv --k 1 --shrinkage 1 | Error: --shrinkage: needs a number from 0 up to but not 1
""".strip().splitlines()


@pytest.mark.parametrize("line", LINES)
def test_what_is_refused_is_one_sentence_and_leaves_nothing(tmp_path, folder, monkeypatch, line):
    monkeypatch.chdir(folder)
    before = sorted(path.name for path in folder.iterdir())
    command, sentence = line.split(" | ")
    out = () if "--out" in command else ("--out", tmp_path / "out")
    result = invoke(*command.split(), *out)
    said = words(result.stderr)
    assert result.exit_code == 2 and sentence.strip() in said and "Traceback" not in result.output, result.output
    assert result.stdout == "" and (result.stderr.count("\n") == 1 or re.search("^Usage|problem", said))
    assert sorted(path.name for path in folder.iterdir()) == before and not (tmp_path / "out").exists()
