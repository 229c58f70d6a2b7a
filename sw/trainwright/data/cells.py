"""Rows of a CSV, TSV or Parquet file as named columns of texts and gaps."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from importlib.util import find_spec
from itertools import islice
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unicodedata import normalize

import numpy as np

from trainwright.data.content import MOST_BYTES
from trainwright.data.dataset import DataError
from trainwright.support.errors import file_errors
from trainwright.support.text import amount, shown

CSV_SUFFIXES = (".csv", ".tsv")
PARQUET = ".parquet"
MISSING = frozenset(["", "na", "n/a", "nan", "null", "none", "?"])
"""Cells, in lower case, that stand for no value."""
_ROW_NUMBERS = re.compile(r"(Unnamed: \d+|__index_level_\d+__)?")
"""Names that pandas gives to columns of row numbers: a network would learn the order of the file,
and in a Parquet file the column is the last one, which is the target by default."""
_SAMPLE_ROWS = 100
"""Number of rows that decide which character separates columns."""
MOSTLY = 0.9
"""Share of numbers above which a column's other cells are taken for typing errors. A column with
fewer numbers holds categories, some of which have names like 7."""


@dataclass(frozen=True)
class Cells:
    """Columns by name, in the order of the file; `places` name each row for messages."""

    path: Path
    columns: dict[str, list[str | None]]
    places: Sequence[str]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Complaint about each column that cannot be read: an error only where it is used."""
    notes: Sequence[str] = ()
    """Lines for the user about columns that are left out."""

    def is_numeric(self, column: str) -> bool:
        """Return whether a column is of numbers: some are, and every other cell is empty.

        Raises `DataError` for a number that is not finite, and for a rare text among numbers.
        """
        rows = [row for row, cell in enumerate(self.columns[column]) if cell is not None]
        numbers = [number(self.columns[column][row] or "") for row in rows]
        for row, value in zip(rows, numbers, strict=True):
            if value is not None and not isfinite(value):
                raise self.error(
                    row, column, "is not finite: correct it, empty it, or treat the column as "
                    f"categories with --category {column}",
                )  # fmt: skip
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
    with file_errors(f"cannot read {path}", DataError):
        content = path.read_bytes() if path.stat().st_size <= MOST_BYTES else None
    if content is None:
        raise DataError(f"{path} is longer than {MOST_BYTES:,} bytes, which is not read")
    read = _parquet if path.suffix.lower() == PARQUET else _csv
    cells = read(path, content)
    if not cells.places:
        raise DataError(f"{path} has no rows")
    return cells


def lines_of(path: Path) -> list[str]:
    """Return the lines of a text file. Raises ``DataError``."""
    with file_errors(f"cannot read {path}", DataError):
        text = text_of(path.read_bytes(), path)
    # str.splitlines would end a line at characters that texts may have inside, such as U+2028.
    lines = re.split("\r\n|\r|\n", text)
    return lines if lines[-1] else lines[:-1]


def text_of(content: bytes, path: Path) -> str:
    """Return a file's text. Raises `DataError` where the file is not UTF-8, or has a NUL.

    A letter with an accent becomes one character: some systems write two, which look the same.
    """
    try:
        text = normalize("NFC", content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8: save it as UTF-8") from None
    if (place := content.find(0)) >= 0:  # UTF-16 decodes as UTF-8, too
        raise DataError(f"{path}: byte {place} is a NUL: mend the file, or save it as UTF-8")
    return text


def _csv(path: Path, content: bytes) -> Cells:
    text = text_of(content, path)
    if stated := re.match("sep=(.)\r?\n", text):  # as Excel writes it
        text = text[stated.end() :]
    delimiter = stated[1] if stated else _delimiter(text)
    # A cell may have line breaks in quotes: the reader's own count of lines is the one to report.
    reader = _reader(text, delimiter)
    skipped = 1 if stated else 0
    rows: list[list[str]] = []
    places: list[str] = []
    head: list[str] | None = None
    blank: list[int] = []
    inner_blank = 0  # blank rows before the last row with values: blank rows at the end are usual
    try:
        for row in reader:
            if not any(cell.strip() for cell in row):
                # An empty line is a row without a value only where there is one column.
                if head and (row or len(head) == 1):
                    blank.append(reader.line_num + skipped)
                continue
            if head is None:
                head = _head(path, [cell.strip() for cell in row])
            elif len(row) != len(head):
                raise DataError(
                    f"{path}: line {reader.line_num + skipped} has {amount(len(row), 'value')}, "
                    f"the first line names {amount(len(head), 'column')}: begin the file with a "
                    "name for each column, and give every row a value for each"
                )
            else:
                rows.append(row)
                inner_blank = len(blank)
                places.append(f"line {reader.line_num + skipped}")
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num + skipped} is no CSV ({error})") from None
    if head is None:
        raise DataError(f"{path} is empty")
    texts = [[row[n].strip() for row in rows] for n in range(len(head))]
    if rows and all(name in cells for name, cells in zip(head, texts, strict=True)):
        raise DataError(
            f"{path}: the first line, {shown(head)}, has values of its columns: put the "
            "columns' names into the first line, and only there"
        )
    notes: list[str] = []
    if delimiter != ",":
        texts, notes = _with_decimal_points(head, texts, delimiter)
    if inner_blank:
        notes.append(
            f"{amount(inner_blank, 'row')} without any value, such as line {blank[0]}: left out, "
            "and not predicted"
        )
    return _cells(path, zip(head, texts, strict=True), places, notes=notes)


def _reader(text: str, delimiter: str) -> Any:
    """Return a reader of rows; a quoted cell may follow a separator and a space."""
    return csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True
    )


def _delimiter(text: str) -> str:
    """Return the separator by which every row has as many cells as the first line has names.

    The comma is tried last: it may be the decimal point where another character separates.
    """
    head = text.lstrip().splitlines()[:1] or [""]
    for delimiter in "\t;|,":
        reader = _reader(text, delimiter)
        try:
            lengths = {len(row) for row in islice(reader, _SAMPLE_ROWS) if "".join(row).strip()}
        except csv.Error:
            continue
        if len(lengths) == 1 and lengths != {1}:
            return delimiter
    return max(",;\t|", key=head[0].count)


def _with_decimal_points(
    head: list[str], columns: list[list[str]], delimiter: str
) -> tuple[list[list[str]], list[str]]:
    """Return columns with decimal points, and notes on marks that may separate thousands."""
    pointed = [_with_points(cells) for cells in columns]
    notes: list[str] = []
    # Semicolons separate where the comma is the decimal mark, even if no number has decimals.
    if pointed == columns and delimiter != ";":
        return columns, notes
    for name, cells in zip(head, columns, strict=True):
        marked = [cell for cell in cells if "," in cell or "." in cell]
        if marked and all(map(_THOUSANDS.fullmatch, marked)):
            value = number(marked[0].replace(",", "."))
            notes.append(
                f"column {name!r}: {marked[0]} is read as {value}: write plain numbers such as "
                "1234 if the mark separates thousands"
            )
    return pointed, notes


_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")
"""Numbers whose mark may separate thousands, as well as decimals."""


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
            f"{path}: {what} must name the columns, it has numbers: {shown(names)}: put a line "
            "with names first"
        )
    named = [name for name in names if not _ROW_NUMBERS.fullmatch(name)]
    for name in named:
        if named.count(name) > 1:
            raise DataError(
                f"{path}: {what} has two columns called {name!r}: rename one of {shown(names)}"
            )
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
        # The old INT96 times are nanoseconds unless asked for otherwise, which wrap around: years
        # before 1677 and after 2262 would be others.
        file: Any = pyarrow.parquet.ParquetFile(
            pyarrow.BufferReader(content), coerce_int96_timestamp_unit="us"
        )
        schema = file.schema_arrow
        names: list[str] = [_as_in_csv(name) for name in schema.names]
        _head(path, names, "the file")
        # No threads: a process that ends while those of pyarrow begin is aborted, with status 134
        # in half of the runs (a reader of io.BytesIO begins some, too).
        table: Any = file.read(use_threads=False)  # by places: row numbers may have one name twice
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: not a sound Parquet file ({reason})") from None
    # pandas writes its index behind the columns, where the target is looked for: in a CSV file it
    # is the first.
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    order = sorted(range(len(names)), key=lambda n: schema.names[n] not in index)
    places = [f"row {n}" for n in range(1, table.num_rows + 1)]
    columns: list[tuple[str, list[str]]] = []
    unreadable: dict[str, str] = {}
    for place in order:
        name = names[place]
        try:
            cells: list[Any] = table.column(place).to_pylist()
        except (ValueError, OverflowError) as error:  # nanoseconds and years that Python lacks
            unreadable[name] = f"{path}: column {name!r} cannot be read ({error})"
            cells = [None] * table.num_rows
        for row, cell in enumerate(cells):
            if not isinstance(cell, _READABLE):
                unreadable[name] = (
                    f"{path}: {places[row]}, column {name!r}: {shown(cell)} is "
                    f"{type(cell).__name__}, neither number nor text"
                )
                break
        narrow = _NARROW_FLOATS.get(str(table.schema.field(place).type), lambda cell: cell)
        columns.append((name, ["" if cell is None else _as_in_csv(narrow(cell)) for cell in cells]))
    return _cells(path, columns, places, unreadable)


def _as_in_csv(cell: object) -> str:
    """Return the text that a CSV file with the same cell gives."""
    return normalize("NFC", str(cell)).strip()


_NARROW_FLOATS: dict[str, Any] = {"float": np.float32, "halffloat": np.float16}
"""Types of Parquet whose numbers Python widens: 0.1 of 32 bits would be 0.10000000149011612."""
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
    columns: Iterable[tuple[str, list[str]]],
    places: Sequence[str],
    unreadable: Mapping[str, str] = MappingProxyType({}),
    notes: Iterable[str] = (),
) -> Cells:
    """Put None where a text stands for no value, and leave out columns that have no name."""
    named: dict[str, list[str | None]] = {}
    notes = list(notes)
    for place, (name, texts) in enumerate(columns, 1):
        if not name and place > 1 and any(text.lower() not in MISSING for text in texts):
            raise DataError(f"{path} has a column without a name: give column {place} a name")
        if _ROW_NUMBERS.fullmatch(name):
            why = f"is called {name!r}, as numbers of rows are" if name else "has no name"
            notes.append(f"column {place} {why}: it is left out")
        else:
            named[name] = [None if text.lower() in MISSING else text for text in texts]
    return Cells(path, named, places, unreadable, notes)
