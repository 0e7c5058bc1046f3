"""Tiny inputs: what is said names what the user passed, or what decides by default."""

import re
import warnings

import numpy as np
import pytest

import sparsehtp as sht

KINDS = (sht.SparseRegressor, sht.SparseClassifier, sht.SparseOrdinal, sht.SparseCox)
UNPASSED = re.compile("sample_weight|class_weight|groups|offset|strata|bounds|l2|keep")


def targets(kind, n):
    if kind is sht.SparseCox:
        return [np.column_stack([np.arange(1.0, n + 1), np.arange(n) % 2 == first]) for first in (0, 1)]
    return [np.zeros(n), np.arange(n) % 2]


@pytest.mark.parametrize("kind", KINDS)
def test_messages_name_what_was_passed(kind):
    said = []
    for n in (1, 2):
        for y in targets(kind, n):
            for settings in ({"solver": "htp"}, {"k": "bic", "solver": "htp"}):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    try:
                        kind(**settings).fit(np.random.default_rng(n).standard_normal((n, 3)), y)
                    except ValueError as error:
                        said.append(str(error))
                said += [str(each.message) for each in caught]
    assert said and not [each for each in said if UNPASSED.search(each)]
