"""A figure that notebooks show; apart from `style`, which is imported where matplotlib may be missing."""

import functools
import io
import warnings
from typing import Any

from matplotlib import font_manager, rc_context
from matplotlib.figure import Figure
from matplotlib.text import Text

from ..io.text import printable

# Fonts with more scripts than matplotlib's own, from Linux, Windows and macOS.
FALLBACKS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "Noto Sans JP",
    "Noto Sans KR",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "SimHei",
    "PingFang SC",
    "PingFang HK",
    "Hiragino Sans",
    "Hiragino Sans GB",
    "Apple SD Gothic Neo",
    "Arial Unicode MS",
    "Noto Sans",
    "Noto Sans Devanagari",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Thai",
    "FreeSans",
    "Unifont",
)


@functools.cache
def _installed() -> list[str]:
    """The fallbacks that are on this machine; looked for where matplotlib's font lacks characters."""
    known = set(font_manager.get_font_names())
    return [name for name in FALLBACKS if name in known]


@functools.cache
def _characters(name: str) -> frozenset[int]:
    return frozenset(font_manager.get_font(font_manager.findfont(name)).get_charmap())


class ShownFigure(Figure):
    """A matplotlib figure outside pyplot that shows itself at the end of a notebook's cell.

    Characters that matplotlib's font lacks are taken from another that is installed. Where there is none they are
    boxes in a PNG, and one warning says so; an SVG then holds all text as text, which the reader's own fonts show.
    """

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()

    def draw(self, renderer: Any) -> None:
        """Draw with fonts that have the characters, as far as there are any."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"(?s)Glyph .* missing from", category=UserWarning)
            self._find_fonts()
            super().draw(renderer)

    def savefig(self, fname: Any, **kwargs: Any) -> None:
        """As matplotlib's, with one sentence on characters that no font has."""
        missing = self._find_fonts()
        if missing and str(kwargs.get("format") or fname).rpartition(".")[2].lower() != "svg":
            warnings.warn(
                f"plot: no font here has the characters {''.join(sorted(missing)[:8])}, so pictures in PNG show boxes; "
                "SVG shows them wherever it is opened with such a font. Install one, for example Noto Sans CJK.",
                stacklevel=2,
            )
        with rc_context({"svg.fonttype": "none"} if missing else {}):
            super().savefig(fname, **kwargs)

    def _find_fonts(self) -> set[str]:
        """Give the texts, without control characters, the fonts that they need; the characters that none has."""
        texts = self.findobj(Text)
        for text in texts:
            if printable(text.get_text(), keep="\n") != text.get_text():
                text.set_text(printable(text.get_text(), keep="\n"))
        used = {character for text in texts for character in text.get_text() if character.isprintable()}
        lacking = {character for character in used if ord(character) not in _characters("DejaVu Sans")}
        families = []
        for name in _installed() if lacking else ():
            found = {character for character in lacking if ord(character) in _characters(name)}
            if found:
                families.append(name)
                lacking -= found
        for text in texts if families else ():
            text.set_fontfamily(["DejaVu Sans", *families])
        return lacking
