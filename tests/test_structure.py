"""The order of layers: every room has its place, no import goes up, and CONTRIBUTING says the same."""

import re

import pytest
import structure


def test_every_room_has_one_place():
    named = [room for layer in structure.LAYERS for room in layer]
    assert sorted(named) == structure.rooms()


RULES = (structure.upward, structure.guesses, structure.private_imports, structure.twice, structure.leaning)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_nothing_breaks_a_rule(rule):
    assert list(rule()) == []


def test_no_door_is_untyped():
    assert structure.untyped()[0] == 0


def test_an_import_upwards_is_seen(tmp_path):
    package = tmp_path / "sparsehtp"
    (package / "linalg").mkdir(parents=True)
    (package / "linalg" / "__init__.py").write_text("def f():\n    from ..solvers.htp import refit\n")
    (package / "_types.py").write_text("from . import _programs, linalg\n")
    assert [line.split(",")[0] for line in structure.upward(package)] == [
        "sparsehtp._types imports linalg",
        "sparsehtp.linalg.__init__ imports solvers",
    ]


def test_contributing_states_the_order():
    text = (structure.PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert structure.in_words() in " ".join(text.replace("`", "").split())


def test_the_walk_names_modules_that_exist():
    root = structure.PACKAGE.parent
    text = (root / "docs" / "how_it_works.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)`", text)
    assert "_solve.py" in named
    assert [name for name in named if not any((folder / name).exists() for folder in (root, structure.PACKAGE))] == []


def test_a_guess_is_seen(tmp_path):
    (tmp_path / "room.py").write_text(
        "def f(objective):\n    return getattr(objective.loss, 'a', 1), hasattr(3, 'b')\n"
    )
    assert list(structure.guesses(tmp_path)) == ["room.py: getattr(objective.loss, 'a', 1)"]


# Where a part is asked for its class, by the reason why: to narrow it to what is computed with, or to check what a user
# passes. Declared attributes (`plain`, `penalises`, `descends`, ...) answer all else.
ASKED = {
    "what a user passes": (
        "certificates/certificate.py: isinstance(threshold, AbstractUnitThreshold | L0L1L2)",
        "certificates/certificate.py: threshold.kind == 'pairs'",
        "certificates/generalised.py: isinstance(loss, AbstractConjugateLoss)",
        "certificates/prove.py: isinstance(objective, LinearModel)",
        "certificates/prove.py: isinstance(threshold, Sparsity)",
        "derivatives/implicit.py: isinstance(objective, AbstractRefittable)",
        "duality/dual.py: isinstance(objective, LinearModel)",
        "duality/dual.py: isinstance(objective.loss, AbstractConjugateLoss)",
        "duality/dual.py: isinstance(threshold, Sparsity | L0L1L2)",
        "objectives/linear_model.py: isinstance(loss, AbstractLoss)",
        "objectives/multi_response.py: isinstance(loss, AbstractRowLoss)",
        "solvers/base.py: isinstance(objective, self.requires)",
        "solvers/base.py: isinstance(threshold, objective.thresholds)",
        "solvers/stochastic.py: isinstance(self.step_rule, SampleStep)",
        "steps/sample.py: isinstance(objective, AbstractFiniteSum)",
    ),
    "estimators: names or instances that a user passes": (
        "estimators/classifier.py: isinstance(model.loss, AbstractLoss)",
        "estimators/classifier.py: isinstance(self.loss, AbstractLoss)",
        "estimators/classifier.py: isinstance(self.loss, Logistic)",
        "estimators/classifier.py: isinstance(self.loss, str)",
        "estimators/parameters.py: isinstance(loss, AbstractLoss)",
        "estimators/parameters.py: isinstance(loss, str)",
        "estimators/parameters.py: isinstance(solver, AbstractSolver)",
        "estimators/parameters.py: isinstance(solver, str)",
    ),
    "a loss of a user's own may have a mean or not": ("estimators/classifier.py: type(model.loss).mean",),
    "one objective or several, a share and no part, a pipeline and no objective": (
        "cli/predict.py: isinstance(model, Pipeline)",
        "grids/choose.py: isinstance(objective, Sequence)",
        "grids/stability.py: isinstance(threshold, numbers.Real)",
    ),
    "a loss of one response or of all": ("estimators/base.py: isinstance(loss, AbstractVectorLoss)",),
    "the two that have a dual, one with a k and one with prices": (
        "certificates/certificate.py: isinstance(threshold, L0L1L2)",
        "duality/dual.py: isinstance(self.threshold, L0L1L2)",
        "duality/dual.py: isinstance(self.threshold, Sparsity)",
        "grids/penalised_path.py: isinstance(threshold, L0L1L2)",
        "screening/bounds.py: isinstance(threshold, L0L1L2)",
        "solvers/primal_dual.py: isinstance(threshold, L0L1L2)",
    ),
    "only these choose units, by scores and up to a k": (
        "_solve.py: isinstance(threshold, AbstractUnitThreshold)",
        "derivatives/margin.py: isinstance(threshold, AbstractUnitThreshold)",
        "objectives/custom_ends.py: isinstance(threshold, AbstractUnitThreshold)",
        "tuning/tune.py: isinstance(threshold, AbstractUnitThreshold)",
    ),
    "only these can be restricted to a support": (
        "_solve.py: isinstance(objective, AbstractRefittable)",
        "certificates/certificate.py: isinstance(objective, AbstractRefittable)",
    ),
    "only these have a curvature of every coefficient": (
        "solvers/unit_search.py: isinstance(objective, AbstractScored)",
    ),
    "columns say more than a Hessian": (
        "certificates/certificate.py: isinstance(fit.objective, LinearModel)",
        "certificates/certificate.py: isinstance(objective, AbstractModel)",
        "certificates/exchanges.py: isinstance(objective, LinearModel)",
        "certificates/swap_scan.py: isinstance(objective, LinearModel)",
        "grids/tall.py: isinstance(objective, LinearModel)",
    ),
    "groups are units of several features": (
        "estimators/padding.py: isinstance(threshold, GroupSparsity)",
        "estimators/parameters.py: isinstance(threshold, GroupSparsity)",
        "estimators/selection.py: threshold.kind == 'entries'",
        "grids/grid.py: threshold.kind != 'entries'",
    ),
    "what a solver takes, or is the default for": (
        "_solve.py: threshold.kind == 'rank'",
        "estimators/parameters.py: isinstance(solver, IHT)",
        "solvers/forward.py: threshold.kind in ('entries', 'pairs')",
        "solvers/pursuit.py: threshold.kind != 'rank'",
    ),
}


def test_a_part_is_asked_for_its_class_where_a_list_says_so():
    assert set(structure.ladders()) == {each for asked in ASKED.values() for each in asked}


def test_a_question_for_a_class_is_seen(tmp_path):
    (tmp_path / "solvers").mkdir()
    asked = ["isinstance(self.threshold, A)", "threshold.kind == 'rank'"]
    not_asked = ["type(solver).b", "type(loss).__name__", "x.kind == 'f'"]
    (tmp_path / "solvers" / "one.py").write_text("\n".join(asked + not_asked))
    assert list(structure.ladders(tmp_path)) == [f"solvers/one.py: {each}" for each in asked]
