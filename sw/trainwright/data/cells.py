"""Rows of a CSV, TSV or Parquet file as named columns of texts and gaps."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trainwright.data.content import MOST_BYTES
from trainwright.data.dataset import DataError
from trainwright.support.text import shown

CSV_SUFFIXES = (".csv", ".tsv")
PARQUET = ".parquet"
MISSING = frozenset(["", "na", "n/a", "nan", "null", "none", "?"])
"""Cells, in lower case, that stand for no value."""
MOSTLY = 0.9
"""Share of numbers above which a column's other cells are taken for typing errors: with fewer the
column is one of categories that happen to have names like 7."""


@dataclass(frozen=True)
class Cells:
    """Columns by name, in the order of the file; `places` name each row for messages."""

    path: Path
    columns: dict[str, list[str | None]]
    places: Sequence[str]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Complaint about each column that cannot be read: an error only where it is used."""

    def is_numeric(self, column: str) -> bool:
        """Return whether a column is of numbers: some are, and every other cell is empty.

        Raises `DataError` for a number that is not finite, and for a rare text among numbers.
        """
        rows = [row for row, cell in enumerate(self.columns[column]) if cell is not None]
        numbers = [number(self.columns[column][row] or "") for row in rows]
        for row, value in zip(rows, numbers, strict=True):
            if value is not None and not isfinite(value):
                raise self.error(row, column, "is not finite")
        odd = [row for row, value in zip(rows, numbers, strict=True) if value is None]
        if odd and len(odd) < (1 - MOSTLY) * len(rows):
            raise self.error(
                odd[0],
                column,
                "is no number, and the column's other values are: correct it, empty it, or treat "
                f"the column as categories with --category {column}",
            )
        return bool(rows) and not odd

    def error(self, row: int, column: str, problem: str) -> DataError:
        """Return the error that names file, row, column and value."""
        value = self.columns[column][row]
        return DataError(
            f"{self.path}: {self.places[row]}, column {column!r}: {shown(value)} {problem}"
        )


def read_cells(path: Path) -> Cells:
    """Read a table. Raises `DataError` in one line that names the file and the place in it."""
    try:
        content = path.read_bytes() if path.stat().st_size <= MOST_BYTES else None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    if content is None:
        raise DataError(f"{path} is longer than {MOST_BYTES:,} bytes, which is not read")
    read = _parquet if path.suffix.lower() == PARQUET else _csv
    cells = read(path, content)
    if not cells.places:
        raise DataError(f"{path} has no rows")
    return cells


def lines_of(path: Path) -> list[str]:
    """Return the lines of a text file. Raises ``DataError``."""
    try:
        return text_of(path.read_bytes(), path).splitlines()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None


def text_of(content: bytes, path: Path) -> str:
    """Return a file's text. Raises `DataError` where it is not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8: save it as UTF-8") from None


def _csv(path: Path, content: bytes) -> Cells:
    text = text_of(content, path)
    first = text.partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    # A cell may have line breaks in quotes: the reader's own count of lines is the one to report.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[list[str]] = []
    places: list[str] = []
    head: list[str] | None = None
    try:
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if head is None:
                head = _head(path, [cell.strip() for cell in row])
            elif len(row) != len(head):
                raise DataError(
                    f"{path}: line {reader.line_num} has {len(row)} values, the first line names "
                    f"{len(head)} columns"
                )
            else:
                rows.append(row)
                places.append(f"line {reader.line_num}")
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num} is no CSV ({error})") from None
    if head is None:
        raise DataError(f"{path} is empty")
    texts = [[row[n].strip() for row in rows] for n in range(len(head))]
    if delimiter != ",":
        texts = [_with_points(cells) for cells in texts]
    return _cells(path, dict(zip(head, texts, strict=True)), places)


def _with_points(cells: list[str]) -> list[str]:
    """Return a column with points for commas where it is of numbers with decimal commas."""
    present = [cell for cell in cells if cell.lower() not in MISSING]
    if not any("," in cell for cell in present) or any("." in cell for cell in present):
        return cells
    pointed = [cell.replace(",", ".", 1) for cell in cells]
    numbers = sum(number(cell.replace(",", ".", 1)) is not None for cell in present)
    return pointed if numbers >= MOSTLY * len(present) else cells


def _head(path: Path, names: list[str], what: str = "the first line") -> list[str]:
    if what == "the first line" and any(number(name) is not None for name in names):
        raise DataError(
            f"{path}: the first line must name the columns, it has numbers: {shown(names)}"
        )
    for name in names:
        if not name or names.count(name) > 1:
            problem = "has two columns called" if name else "has a column without a name,"
            raise DataError(f"{path}: {what} {problem} {name!r}: {shown(names)}")
    return names


def _parquet(path: Path, content: bytes) -> Cells:
    if find_spec("pyarrow") is None:
        raise DataError(
            f"{path}: Parquet is read by pyarrow, which is not installed: "
            "pip install 'trainwright[data]'"
        )
    import pyarrow  # pyright: ignore[reportMissingImports]
    import pyarrow.parquet  # pyright: ignore[reportMissingImports]

    try:
        names: list[str] = pyarrow.parquet.ParquetFile(io.BytesIO(content)).schema_arrow.names
        _head(path, names, "the file")
        table: Any = pyarrow.parquet.read_table(io.BytesIO(content))
        values: dict[str, list[Any]] = table.to_pydict()
    except pyarrow.ArrowException as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: not a sound Parquet file ({reason})") from None
    places = [f"row {n}" for n in range(1, table.num_rows + 1)]
    columns: dict[str, list[str]] = {}
    unreadable: dict[str, str] = {}
    for name, cells in values.items():
        for row, cell in enumerate(cells):
            if not isinstance(cell, _READABLE):
                unreadable[name] = (
                    f"{path}: {places[row]}, column {name!r}: {shown(cell)} is "
                    f"{type(cell).__name__}, neither number nor text: leave the column out with "
                    f"--ignore {name}"
                )
                break
        columns[name] = ["" if cell is None else str(cell) for cell in cells]
    return _cells(path, columns, places, unreadable)


_READABLE = (bool, int, float, Decimal, date, str, type(None))
"""Types of values that are read by their text; datetimes are dates, too."""


def number(text: str) -> float | None:
    """Return the number that a cell spells, else None. May be infinite."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return {"true": 1.0, "false": 0.0}.get(text.lower())


def _cells(
    path: Path,
    columns: dict[str, list[str]],
    places: Sequence[str],
    unreadable: Mapping[str, str] = MappingProxyType({}),
) -> Cells:
    """Put None where a text stands for no value."""
    return Cells(
        path,
        {
            name: [None if text.lower() in MISSING else text for text in texts]
            for name, texts in columns.items()
        },
        places,
        unreadable,
    )
