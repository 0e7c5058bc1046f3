"""Scores in float64 NumPy, the same for every solver and independent of all of them; and the tables that hold them."""

import numpy as np

from .timing import save


def least_squares(X, y, support):
    """Residual sum of squares of the refit on a support; no intercept."""
    A = X[:, support]
    r = y - A @ np.linalg.lstsq(A, y, rcond=None)[0]
    return float(r @ r)


def swap_gain(X, y, support):
    """Largest decrease of the residual sum of squares by a full swap of one feature, relative to it."""
    A = X[:, support]
    inverse = np.linalg.inv(A.T @ A)
    H = inverse @ (A.T @ X)
    c = inverse @ (A.T @ y)
    r = y - A @ c
    g = r @ X
    norms = np.einsum("ij,ij->j", X, X)
    q = norms - np.einsum("ij,ij->j", A.T @ X, H)
    d = np.diag(inverse)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = (g + c[:, None] / d * H) ** 2 / (q + H**2 / d) - c[:, None] ** 2 / d
    outside = q > 1e-9 * norms
    outside[support] = False
    return float(max(gain[:, outside].max(), 0) / (r @ r))


def print_table(title, header, lines):
    """A table of strings and numbers, columns padded to their widest cell."""
    cells = [header, *([cell if isinstance(cell, str) else f"{cell:.6g}" for cell in line] for line in lines)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(header))]
    print(f"\n{title}")
    for line in cells:
        print("  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]))
    print()


def finish(name, rows, quick, versions=None):
    """Store and print the rows; a quick run, whose numbers mean nothing, is only printed."""
    if quick:
        for row in rows:
            print(f"{row['name']:<62}{row['value']:>12.4g} {row['unit']}")
        print("quick run: not stored")
    else:
        save(name, rows, versions)


def aim(row, sentence, met):
    """The row with an aim and whether it was met."""
    return row | {"aim": sentence, "met": bool(met)}
