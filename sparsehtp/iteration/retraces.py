"""Why a program was traced again."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np

_seen: dict[str, list[dict[str, str]]] = {}
_listeners: list[Callable[[str], None]] = []


@contextlib.contextmanager
def debug(say: Callable[[str], None] | None = print) -> Iterator[list[str]]:
    """Tell which argument made `solve` (or a path) be traced and compiled anew.

    Inside the `with` block every trace is explained by what differs from the most similar one before it: a shape, a
    dtype, or a static field, named by its place in the problem.

    Args:
        say: called with one sentence per trace; None: nothing is said.

    Returns:
        The list of the sentences, filled as the block runs.

    For example, a `Custom` objective whose function is a lambda made anew in every call is traced in every call, and
    the sentence names `objective.fun`.
    """
    sentences: list[str] = []

    def listen(sentence: str) -> None:
        sentences.append(sentence)
        if say is not None:
            say(sentence)

    _listeners.append(listen)
    try:
        yield sentences
    finally:
        _listeners.remove(listen)


def traced(name: str, problem: Any, max_steps: int, record: Any) -> None:
    """Note that the program `name` is being traced; called from its body."""
    signature = _describe(problem) | {"max_steps": repr(max_steps), "record": repr(record)}
    before = _seen.setdefault(name, [])
    if _listeners:
        sentence = _explain(name, signature, before)
        for listen in _listeners:
            listen(sentence)
    if signature not in before:
        before.append(signature)


def _explain(name: str, signature: dict[str, str], before: list[dict[str, str]]) -> str:
    if not before:
        return f"{name}: traced for the first time."

    def differences(old: dict[str, str]) -> list[str]:
        both = [*signature, *(place for place in old if place not in signature)]
        return [place for place in both if signature.get(place) != old.get(place)]

    nearest = min(reversed(before), key=lambda old: len(differences(old)))
    changes = differences(nearest)
    if not changes:
        return (
            f"{name}: traced again with the same arguments: a jit, vmap or grad around it was traced, or a setting of "
            "JAX changed."
        )
    changed = "; ".join(
        f"{place}: {nearest.get(place, 'absent')} -> {signature.get(place, 'absent')}" for place in changes
    )
    return f"{name}: traced again, because of {changed}."


def _describe(value: Any, place: str = "") -> dict[str, str]:
    """What a trace depends on, by place: types, static fields, shapes and dtypes."""
    if isinstance(value, jax.Array | np.ndarray):
        weak = ", weak" if getattr(value, "weak_type", False) else ""
        return {place: f"{value.dtype}[{','.join(map(str, value.shape))}{weak}]"}
    parts: dict[Any, Any]
    if isinstance(value, eqx.Module):
        parts = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = dict(zip(value._fields, value, strict=True))
    elif isinstance(value, tuple | list):
        parts = dict(enumerate(value))
    elif isinstance(value, dict):
        parts = value
    else:
        return {place: repr(value)}
    out = {f"{place} (type)" if place else "(type)": type(value).__name__}
    for key, part in parts.items():
        out |= _describe(part, f"{place}.{key}" if place else str(key))
    return out
