"""A figure that notebooks show; apart from `style`, which is imported where matplotlib may be missing."""

import io

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A matplotlib figure outside pyplot that shows itself at the end of a notebook's cell."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()
