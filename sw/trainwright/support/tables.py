"""Tables as Markdown, aligned so that they also read well on a terminal."""

from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass
from typing import Any


def spell(value: object) -> str:
    """Write a cell: three digits after the point for small or large numbers, ``-`` for None."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, float):
        return (
            f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        )
    if value == 0 or value != value or value in (float("inf"), float("-inf")):
        return f"{value:g}"
    return f"{value:.3e}" if not 1e-2 <= abs(value) < 1e5 else f"{value:.4g}"


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; cells are spelled, numbers set to the right."""
    body = list(rows)
    cells = [[spell(value) for value in row] for row in body]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    right = [
        bool(body) and all(isinstance(row[n], int | float | None) for row in body)
        for n in range(len(head))
    ]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join(
        "-" * (width + 1) + (":" if to_right else "-")
        for width, to_right in zip(widths, right, strict=True)
    )
    return "\n".join([line(head), rule + "|", *map(line, cells)]) + "\n"


def table(head: Sequence[str], rows: Iterable[Any]) -> str:
    """Return a table of rows: sequences, or dataclasses with a column for each field."""
    return markdown(head, [tuple(vars(r).values()) if is_dataclass(r) else r for r in rows])
