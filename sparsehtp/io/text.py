"""Texts of strangers, made safe for terminals, XML and spreadsheets."""

import re

# Neither terminals nor XML take these: control characters, halves of surrogate pairs, two that are none; and those that
# turn the direction of what follows.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_SPACES = "\t\n\v\f\r\x85\u2028\u2029"
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20\t\r]")


def printable(text: str, keep: str = "") -> str:
    """A text with characters that are none shown as in Python (\\x1b), and spaces for those that break lines."""

    def shown(found: re.Match[str]) -> str:
        character = found[0]
        if character in keep:
            return character
        if character in _SPACES:
            return " "
        return f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"

    return _UNSAFE.sub(shown, text)


def quoted(text: str) -> str:
    """A text as the cell of a CSV file: with an apostrophe before what a spreadsheet would run as a formula."""
    text = printable(text)
    if not _FORMULA.match(text):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
