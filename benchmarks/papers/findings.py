"""What a user of the methods takes from the claims: written by hand, each sentence with the rows that it rests on."""

from typing import NamedTuple


class Advice(NamedTuple):
    """A sentence, and the (experiment, letter) of the rows under it."""

    text: str
    rows: tuple[tuple[str, str], ...]


FINDINGS: tuple[Advice, ...] = ()
