"""Text that fits the terminal: tables with fewer columns, folded lines."""

import re
import shutil
from collections.abc import Sequence
from textwrap import wrap

from trainwright.support.tables import markdown, spell

LEAST_WIDTH = 40
"""Columns of the narrowest terminal that text is folded for."""
MOST_HELP = 98
"""Columns of a paragraph of a help text on wide terminals."""
LEAST_CELL = 12
"""Columns of a folded cell; terminals too narrow for such cells get longer lines."""


def screen_width() -> int:
    """Return the columns of the terminal: ``COLUMNS``, else its own, else 80."""
    return max(LEAST_WIDTH, shutil.get_terminal_size().columns)


def in_columns(text: str, width: int) -> str:
    """Wrap the paragraphs of a help text, but keep tables and paragraphs with an indented line."""
    return "\n\n".join(
        "\n".join(folded(line, width, 6) for line in paragraph.splitlines())
        if re.search(r"^[ |]", paragraph, re.MULTILINE)
        else "\n".join(wrap(paragraph, width, break_on_hyphens=False))
        for paragraph in text.rstrip().split("\n\n")
    )


def folded(text: str, width: int, indent: int) -> str:
    """Fold a line, at two spaces rather than at one; what follows is indented."""
    lines = [""]
    for gap, clause in re.findall(r"(^ *|  +)((?:\S| (?! ))+)", text):
        if not lines[0] or len(lines[-1] + gap + clause) <= width:
            lines[-1] += gap + clause
        else:
            lines.append(" " * indent + clause)
        if len(lines[-1]) > width:
            long, at = lines.pop(), indent if len(lines) else 0
            blank = long[: len(long) - len(long.lstrip())]
            lines += wrap(
                long.lstrip(), width, initial_indent=blank,
                subsequent_indent=" " * (indent + (2 if at else 0)), break_on_hyphens=False,
            )  # fmt: skip
    return "\n".join(lines)


def _width(text: str) -> int:
    return max(map(len, text.splitlines()))


def is_within(text: str, width: int) -> bool:
    """Return whether every line of a text has at most ``width`` columns."""
    return _width(text) <= width


def fitted(
    head: Sequence[str], rows: Sequence[Sequence[object]], width: int, spare: Sequence[str] = ()
) -> str:
    """Return a table of at most ``width`` columns.

    Columns named in ``spare`` are left out, in that order, until the others fit, and a line below
    says so; what is too wide then has its longest cells folded.
    """
    gone: list[str] = []
    kept, cells = list(head), [list(row) for row in rows]
    while _width(text := markdown(kept, cells)) > width and len(gone) < len(spare):
        gone.append(spare[len(gone)])
        places = [place for place, column in enumerate(head) if column not in gone]
        kept = [head[place] for place in places]
        cells = [[row[place] for place in places] for row in rows]
    if _width(text) > width:
        text = _with_folded_cells(kept, cells, width)
    note = f"not shown: {', '.join(gone)} (--wide or --json)" if gone else ""
    return text + "".join(f"{line}\n" for line in wrap(note, width))


def _with_folded_cells(head: Sequence[str], rows: list[list[object]], width: int) -> str:
    """Return the table with the texts of its widest columns folded over lines."""
    limits = {
        place: max(map(len, (name, *(spell(row[place]) for row in rows))))
        for place, name in enumerate(head)
        if all(isinstance(row[place], str) for row in rows)
    }
    words = {
        place: max(len(w) for row in rows for w in f"{row[place]} -".split()) for place in limits
    }
    excess = _width(markdown(head, rows)) - width
    while excess > 0 and limits and max(limits.values()) > LEAST_CELL:
        # Names are cut when no column has a space left to fold at.
        loose = [place for place in limits if limits[place] > words[place]] or list(limits)
        limits[max(loose, key=lambda place: limits[place])] -= 1  # the widest of them
        excess -= 1
    lines: list[list[object]] = []
    for row in rows:
        parts = [
            wrap(str(cell), limits[place], break_on_hyphens=False) or [""]
            if place in limits
            else [cell]
            for place, cell in enumerate(row)
        ]
        for at in range(max(map(len, parts))):
            lines.append([part[at] if at < len(part) else "" for part in parts])
    return markdown(head, lines)


def transposed(head: Sequence[str], rows: Sequence[Sequence[object]], width: int) -> str:
    """Return a table of few rows, each as a column, if it is too wide as it stands.

    Rows that are too wide side by side get a table each, if that fits.
    """
    text = markdown(head, rows)
    if _width(text) <= width:
        return text
    turned = [[name, *(row[place] for row in rows)] for place, name in enumerate(head) if place]
    text = markdown([head[0], *(spell(row[0]) for row in rows)], turned)
    if _width(text) <= width or len(rows) == 1:
        return text
    apart = "\n".join(transposed(head, [row], width) for row in rows)
    return apart if _width(apart) <= width else text
