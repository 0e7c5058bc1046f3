"""Mutants are programs of one changed line, the same for a seed."""

import ast
import difflib

import mutants


def test_a_mutant_is_a_program_with_one_change():
    drawn = list(mutants.draw(mutants.ROOMS, 0, 30))
    assert drawn == list(mutants.draw(mutants.ROOMS, 0, 30)) and len(drawn) == 30
    for path, function, source in drawn:
        old = (mutants.ROOT / path).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(source)) != ast.dump(ast.parse(old)), (path, function)
        blocks = difflib.SequenceMatcher(None, old.splitlines(), source.splitlines(), autojunk=False).get_opcodes()
        assert sum(tag != "equal" for tag, *_ in blocks) <= 2, (path, function)


def test_texts_errors_and_annotations_stay():
    source = """
def f(x: int = 1) -> int:
    \"\"\"Two.\"\"\"
    if x < 0:
        raise ValueError(f"x: {x + 1}")
    return x
"""
    found = {ast.unparse(node) for _, node, _ in mutants.candidates(source)}
    assert found == {"1", "x < 0", "0"}
