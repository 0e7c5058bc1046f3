"""Killed and resumed runs give the same bits."""

import json
import os
import subprocess
import sys
import warnings

import cases
import jax
import numpy as np
import pytest
import screening

import sparsehtp as sht
from sparsehtp.io.checkpoint import Checkpoint

SOLVER = screening.Screening()
KILLED = """
import os, sys
import sparsehtp as sht, screening
def kill(done, total):
    if done > total // 2:
        os._exit(9)
sht.cross_validate(screening.model(), ks=range(4), l2s=[0.01, 0.1], folds=4, solver=screening.Screening(),
                   memory=17_000, checkpoint=sys.argv[1], progress=kill)
"""


def validate(memory=17_000, **options):
    options |= {"ks": range(4), "l2s": [0.01, 0.1], "folds": 4, "solver": SOLVER, "memory": memory}
    return sht.cross_validate(screening.model(), **options)


def arrays(cv):
    return [
        leaf for part in (vars(cv), vars(cv.path)) for leaf in jax.tree.leaves(part) if isinstance(leaf, np.ndarray)
    ]


def assert_same_bits(a, b):
    for one, other in zip(arrays(a), arrays(b), strict=True):
        np.testing.assert_array_equal(one, other)


def chunks(folder):
    return sorted(path.name for path in folder.glob("chunk-*.npz"))


def test_a_stopped_run_goes_on_with_the_same_bits(tmp_path):
    def stop(done, total):
        if done >= 24:
            raise KeyboardInterrupt

    whole = validate()
    with pytest.raises(KeyboardInterrupt):
        validate(checkpoint=tmp_path, progress=stop)
    stored = chunks(tmp_path)
    times = {name: (tmp_path / name).stat().st_mtime_ns for name in stored}
    (tmp_path / ".chunk-000009.npz-1.partial").write_bytes(b"half a chunk")
    # Another memory bound does not change the width of a run that has begun.
    assert_same_bits(validate(checkpoint=tmp_path, memory=2**30), whole)
    assert len(chunks(tmp_path)) > len(stored) > 0
    assert times == {name: (tmp_path / name).stat().st_mtime_ns for name in stored}
    assert_same_bits(validate(checkpoint=tmp_path), whole)  # nothing left to do


def test_a_killed_process_goes_on_with_the_same_bits(tmp_path):
    path = os.pathsep.join(filter(None, sys.path))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], env={**os.environ, "PYTHONPATH": path}, timeout=300
    )
    assert killed.returncode == 9
    stored = chunks(tmp_path)
    assert_same_bits(validate(checkpoint=tmp_path), validate())
    assert 0 < len(stored) < len(chunks(tmp_path))


def test_a_folder_is_made_with_those_above_it(tmp_path):
    assert Checkpoint(tmp_path / "a" / "b", 1.0, 3, 4).width == Checkpoint(tmp_path / "a" / "b", 1.0, 3, 9).width == 4


def test_another_problem_is_refused(tmp_path):
    validate(checkpoint=tmp_path)
    for options in ({"key": jax.random.key(7)}, {"groups": np.arange(40) // 2}):
        with pytest.raises(ValueError, match=r"checkpoint: .* holds results of another problem"):
            validate(checkpoint=tmp_path, **options)
    manifest = tmp_path / "manifest.json"
    facts = json.loads(manifest.read_text())
    facts["versions"]["jax"] = "0.0.1"
    manifest.write_text(json.dumps(facts))
    cases.refused(ValueError, r"checkpoint: .* holds results of other versions", lambda: validate(checkpoint=tmp_path))
    manifest.unlink()
    cases.refused(ValueError, r"checkpoint: .* holds chunks without a manifest", lambda: validate(checkpoint=tmp_path))
    with pytest.raises(ValueError, match=r"checkpoint: .* is a file"):
        validate(checkpoint=tmp_path / chunks(tmp_path)[0])


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(1, 10))])
def test_damaged_files_change_no_result(tmp_path, seed):
    """A damaged chunk is computed again, a damaged manifest is refused in one sentence."""
    rng = np.random.default_rng(seed)
    whole = validate(checkpoint=tmp_path)
    paths = sorted(tmp_path.iterdir())
    kept = {path: path.read_bytes() for path in paths}
    for path in paths:
        bad = bytearray(kept[path])
        if rng.random() < 0.5:
            bad = bad[: rng.integers(len(bad))]
        else:
            bad[rng.integers(len(bad))] ^= rng.integers(1, 256)
        path.write_bytes(bytes(bad))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                assert_same_bits(validate(checkpoint=tmp_path), whole)
            except ValueError as error:
                assert path.name == "manifest.json"
                assert str(error).startswith("checkpoint: ") and str(error).endswith(".") and "\n" not in str(error)
        assert all("is damaged, and is computed again." in str(each.message) for each in caught)
        path.write_bytes(kept[path])


def test_damaged_files_are_named(tmp_path):
    whole = validate(checkpoint=tmp_path)
    first = tmp_path / chunks(tmp_path)[0]
    kept = first.read_bytes()
    first.write_bytes(kept[: len(kept) // 2])
    with pytest.warns(UserWarning, match=rf"^checkpoint: .*{first.name} is damaged, and is computed again\.$"):
        assert_same_bits(validate(checkpoint=tmp_path), whole)
    assert len(first.read_bytes()) == len(kept)
    manifest = tmp_path / "manifest.json"
    text = manifest.read_text()
    facts = json.loads(text)
    wider = json.dumps({**facts, "width": facts["width"] + 1})
    for content in (text[: len(text) // 2], "", "[]", "3", "[" * 10**5, wider):
        manifest.write_text(content)
        with pytest.raises(ValueError, match=r"^checkpoint: .*manifest\.json is damaged or .*empty the folder"):
            validate(checkpoint=tmp_path)
