"""Data of a user's own as bytes: tables, lines of text and folders of pictures.

Every sample becomes unsigned bytes: a network's inputs are bytes / 255. The rules of this
conversion (`Preparation`) are fitted on the training split and stored with the model. `trainwright
eval` applies them again, so that a new row or picture gets the bytes that it would have had in
training.
"""

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, ClassVar
from unicodedata import category

import numpy as np
import numpy.typing as npt

from trainwright.data.cells import (
    CSV_SUFFIXES,
    MISSING,
    MOSTLY,
    PARQUET,
    Cells,
    lines_of,
    number,
    read_cells,
)
from trainwright.data.dataset import (
    MANY_NUMBERS,
    MOST_CLASSES,
    REGRESSION,
    TASKS,
    DataError,
    DataSet,
    Split,
    alike_names,
    joined,
    label_type,
    moments,
    standardised,
)
from trainwright.data.npz import FULL_SCALE, contrast_notes, cut_off_test, divided
from trainwright.data.picture_files import (
    PICTURES,
    SPLITS,
    TEST,
    Pictures,
    is_picture_folder,
    read_pictures,
)
from trainwright.data.sentences import (
    NO_TAG,
    PADDING,
    TEXT,
    is_text_folder,
    load_sentence_samples,
    load_sentences,
)
from trainwright.support.arguments import is_size
from trainwright.support.plain import NONSENSE
from trainwright.support.settings import OneOf, Option, SettingsModel, check
from trainwright.support.text import amount, shown, suggestion

TABLE_SUFFIXES = (*CSV_SUFFIXES, PARQUET, TEXT)
TARGETS = ("target", "label", "class")
"""Names of columns to predict if `--target` is not given; if none matches, the last column is."""
REACH = 3.0
"""Standard deviations on either side of a column's mean that its 256 levels cover: 99.7 % of a
normal distribution, and a step of 1/43 of a deviation."""
MOST_NAMED = 24
"""Columns that the first line names: more (490 features of a sound) fill a screen."""
MOST_ALIKE = 8
"""Notes of a kind that are shown: a fault of the file, such as another unit, is in every column."""
LEAST_AMOUNTS = 16
"""Different numbers in a target column above which the task is a regression if each of them has few
rows (``FEW_ROWS``). Fewer numbers may be the classes of a first try with a few rows."""
FEW_ROWS = 3
"""Rows for each different number of a target column, on average, below which the task is a
regression: scikit-learn's diabetes has 2.1 (214 numbers from 25 to 346), its `digits` 180."""
MOST_FAR = 0.05
"""Share of a column's values beyond `REACH` above which a note asks for their unit: a normal
distribution has a share of 0.003, heavy tails 0.02."""
MOST_LEVELS = 64
"""Different texts of a column of categories, at most: each is an input. A column of more is
text."""
GAP_MARKS = (-99.0, -999.0, -9999.0, -99999.0, 99.0, 999.0, 9999.0, 99999.0)
"""Numbers that stand for missing values in tables of instruments and surveys."""
MANY_LEVELS = 8
"""Categories that look like numbers above which a note asks whether they are numbers."""
CROWDED = 4
"""Different numbers of a column per level in use, above which a note asks for logarithms.

64 numbers of a normal distribution have 1.1. With a further number a million times as large, they
have 32."""
FLOAT_DIGITS = 15
"""Decimal digits up to which float64 distinguishes all numbers."""
LEAST_RISING = 16
"""Targets that rise from row to row from which a note asks for another column."""
LEAST_WORDS = 3
"""Mean number of words in the cells of a column of many different texts that is taken for text."""
PLAIN_NUMBERS = "write plain numbers such as 1234.5 if they are numbers"
PLAIN_DAYS = "write dates as plain numbers, such as days from the first one"
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}(?:\b|T\d)")
TEXT_INPUTS = 256
"""Inputs of a column of text: each word sets one of them, by its CRC-32."""
_MOST_DIGITS = 400
"""Characters of a number, at most; a longer cell is text."""
MOST_INPUTS = 1 << 16
"""Inputs that a table may have."""

Preparation = Mapping[str, Any]
"""Rules by which samples become bytes: plain data, stored in the model's file."""


def parse_image_size(text: str) -> tuple[int, int]:
    """Read rows and columns as ``28x28``. Raises ``ValueError``."""
    rows, _, columns = text.lower().partition("x")
    is_whole = text.isascii() and rows.isdecimal() and columns.isdecimal()
    if not is_whole or not 0 < int(rows) * int(columns) <= 1 << 20:
        raise ValueError(f"must be ROWSxCOLUMNS such as 28x28, not {text!r}")
    return int(rows), int(columns)


class OwnOptions(SettingsModel):
    """Choices of a user about data of their own."""

    TITLE: ClassVar = "data of your own (docs/guide/data.md)"

    target: Annotated[str | None, Option(metavar="COLUMN")] = None
    """for a table: what to predict (default: target, label, class, or the last column)"""
    task: Annotated[str | None, OneOf(TASKS)] = None
    """for a table: predict a class or a number (default: a number where the targets have fractions
    or are over 256 different numbers, or over 16 of fewer than three rows each on average)"""
    ignore: Annotated[tuple[str, ...], Option(metavar="COLUMN")] = ()
    """for a table: columns to leave out"""
    category: Annotated[tuple[str, ...], Option(metavar="COLUMN")] = ()
    """for a table: numbers that are names, an input each"""
    image_size: Annotated[
        tuple[int, int] | None, Option(metavar="ROWSxCOLUMNS", parse=parse_image_size)
    ] = None
    """resize pictures (default: as they are, all of one size)"""

    def __post_init__(self) -> None:
        check(self)
        for name in ("ignore", "category"):
            names = getattr(self, name)
            if isinstance(names, str) or not all(isinstance(column, str) for column in names):
                raise ValueError(f"{name} must be a list of columns, not {shown(names)}")
        size = self.image_size
        if size is not None and (len(size) != 2 or not all(map(is_size, size))):
            raise ValueError(f"image_size must be rows and columns, not {shown(size)}")


@dataclass(frozen=True)
class OwnSamples:
    """Samples to classify: bytes (samples, rows, columns), and labels where there are some.

    For lines of text, ``images`` has numbers of words in place of bytes.
    """

    images: npt.NDArray[Any]
    labels: npt.NDArray[Any] | None
    tags: npt.NDArray[Any] | None = None
    """Classes of the words of lines (``Split.tags``), where the model classifies words."""
    notes: tuple[str, ...] = ()
    """Lines for the user about cells that are unlike those of the training split."""

    def known(self, preparation: Preparation) -> npt.NDArray[Any] | None:
        """Return the labels that a model predicts, as ``Split.labels`` has them; None: unknown."""
        if "tags" not in preparation:
            return self.labels
        if "classes" not in preparation or self.tags is None or self.labels is None:
            return self.tags if "classes" not in preparation else None
        return joined(self.labels, self.tags)

    def unknown(self, preparation: Preparation) -> npt.NDArray[Any]:
        """Return labels for samples that have none: 0, and -1 behind the last word of a line."""
        if "tags" not in preparation:
            return np.zeros(len(self.images), np.uint8)
        tags = np.where(self.images[:, 0] == PADDING, NO_TAG, 0).astype(np.int16)
        return np.pad(tags, ((0, 0), ("classes" in preparation, 0)))


_TRAIN_RESIZED = "resize them, or train with --image-size ROWSxCOLUMNS, which eval then applies"


def own_kind(root: Path, *, sequences: bool = False) -> str | None:
    """Return "table", "text" or "pictures" for a path that is data of a user's own, else None.

    Lines of a file of text are rows of a table, or ``sequences`` of words.
    """
    suffix = root.suffix.lower()
    if is_text_folder(root) or (sequences and suffix == TEXT):
        return "text"
    if suffix in TABLE_SUFFIXES:
        return "table"
    return "pictures" if suffix in PICTURES or is_picture_folder(root) else None


def load_own(path: Path, options: OwnOptions, kind: str) -> DataSet:
    """Read training data of an `own_kind` and fit its preparation. Raises `DataError`."""
    if kind == "pictures":
        return _picture_data(path, options)
    if kind == "text":
        if options != OwnOptions():
            raise DataError(
                "--target, --ignore, --category, --task and --image-size only apply to tables and "
                f"pictures, {path} has lines of text: omit them"
            )
        return load_sentences(path)
    if options.image_size is not None:
        raise DataError(f"--image-size only applies to pictures, and {path} is a table: omit it")
    return _table_data(path, options)


_KINDS = {"table": "a table", "text": "a file of text", "pictures": "a folder of pictures"}


def load_samples(path: Path, preparation: Preparation) -> OwnSamples:
    """Read samples and convert them as `preparation` says. Raises `DataError`."""
    try:
        kind = own_kind(path, sequences=preparation["kind"] == "text")
        if kind != preparation["kind"]:
            raise DataError(
                f"the model was trained on {_KINDS[preparation['kind']]}, {path} is none"
            )
        if kind == "text":
            return OwnSamples(*load_sentence_samples(path, preparation))
        if kind == "table":
            cells = _cells(path)
            images, labels = _inputs(cells, preparation), _labels(cells, preparation)
            notes = [n for column in preparation["columns"] for n in _new_row_notes(cells, column)]
            notes += cells.notes
            return OwnSamples(images, labels, notes=_few(notes))
        size = preparation["rows"], preparation["columns"]
        pictures = read_pictures(
            path, size if preparation["resized"] else None, preparation["channels"],
            remedy=_TRAIN_RESIZED,
        )  # fmt: skip
        if pictures.images.shape[1:] != (size[0], size[1] * preparation["channels"]):
            rows, columns = pictures.size
            raise DataError(
                f"{path} has pictures of {rows} x {columns}, the model is for {size[0]} x "
                f"{size[1]}: {_TRAIN_RESIZED}"
            )
        labels = _picture_labels(pictures, preparation["classes"], path)
        notes = contrast_notes(path, {TEST: pictures.images})
        if pictures.greyed:
            notes += (
                f"{path} has {amount(pictures.greyed, 'picture')} in colour, read as grey: the "
                "model was trained on grey ones",
            )
        return OwnSamples(pictures.images, labels, notes=notes)
    except NONSENSE as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"the model's preparation of data is damaged: {error!r}") from None


# --- tables -------------------------------------------------------------------------------------


def _cells(path: Path, *, to_train: bool = False) -> Cells:
    """Return the table; a file of text has one line a sample, its label, a tab and the text.

    Without a single tab the lines of a text have no labels, and are to be classified.
    """
    if path.suffix.lower() != TEXT:
        return read_cells(path)
    lines = lines_of(path)
    columns: dict[str, list[str | None]] = {"text": [], "label": []}
    if not to_train and not any("\t" in line for line in lines):
        rows = [(f"line {n}", line) for n, line in enumerate(lines, 1) if line.strip()]
        if rows:
            return Cells(path, {"text": [line for _, line in rows]}, [place for place, _ in rows])
    places = []
    for place, line in enumerate(lines, 1):
        if not line.strip():
            continue
        label, tab, text = line.partition("\t")
        if not tab or not label.strip() or not text.strip():
            raise DataError(f"{path}: line {place}: {shown(line)} is not a label, a tab and a text")
        columns["label"].append(label.strip())
        columns["text"].append(text)
        places.append(f"line {place}")
    if not places:
        raise DataError(f"{path} is empty")
    return Cells(path, columns, places)


def _known(cells: Cells, option: str, name: str) -> str:
    if name not in cells.columns:
        raise DataError(
            f"{option}: {cells.path} has no column {name!r}; there are "
            f"{', '.join(cells.columns)}{suggestion(name, cells.columns)}"
        )
    return name


def _target(cells: Cells, asked: str | None) -> str:
    if asked is not None:
        return _known(cells, "--target", asked)
    if len(named := _named(cells)) > 1:
        raise DataError(
            f"{cells.path} has columns {', '.join(named)}: give the one to predict with --target"
        )
    return named[0] if named else list(cells.columns)[-1]


def _named(cells: Cells) -> list[str]:
    """Return the columns that are called like a target."""
    return [name for name in cells.columns if name.lower() in TARGETS]


def _rising(cells: Cells, target: str) -> list[str]:
    """Return a note on a target that only its place chose, and that numbers or dates the rows."""
    values = _target_values(cells, target)
    if len(values) < LEAST_RISING or not all(a < b for a, b in pairwise(values)):
        return []
    return [
        f"column {target!r} is the target because it is the last one, and rises from row to row, "
        "as numbers and times of rows do: choose another --target"
    ]


def _spelled(text: str) -> str:
    """Return one text for equal numbers, so that 3, 3.0 and 003 are one class."""
    # Numbers end with a digit, or a digit and a point: "true" and "inf" are names.
    value = number(text) if len(text) < _MOST_DIGITS and text.rstrip(".")[-1:].isdigit() else None
    if value is None or not isfinite(value):
        return text
    if text.lstrip("+-").isdigit():
        return str(int(text))  # exact, where a float has 53 bits
    return str(int(value)) if value == int(value) else repr(value)


def _input_columns(cells: Cells, target: str, options: OwnOptions) -> dict[str, bool]:
    """Return the columns that a network reads, and whether each is made a category by an option.

    Raises ``DataError`` for options that contradict each other, and for columns to read with a cell
    that cannot be read.
    """
    ignored = [_known(cells, "--ignore", name) for name in options.ignore]
    categories = [_known(cells, "--category", name) for name in options.category]
    for option, names in (("--ignore", ignored), ("--category", categories)):
        if target in names:
            raise DataError(
                f"{option} {target}: that column is the target: choose another --target"
            )
    if both := set(ignored) & set(categories):
        raise DataError(f"column {min(both)!r} is in --ignore and --category: omit one")
    inputs = [name for name in cells.columns if name != target and name not in ignored]
    for name in (target, *inputs):
        if name in cells.unreadable:
            remedy = f"leave the column out with --ignore {name}"
            if name == target:
                remedy = "choose another --target"
            raise DataError(f"{cells.unreadable[name]}: {remedy}")
    if not inputs:
        raise DataError(
            f"{cells.path} has no column next to the target {target!r}; commas, semicolons, tabs "
            "and bars separate columns"
        )
    return {name: name in categories for name in inputs}


def _table_data(path: Path, options: OwnOptions) -> DataSet:
    """Return the data set of a table: options, then columns, then rows as numbers, then notes."""
    cells = _cells(path, to_train=True)
    if not cells.columns:
        raise DataError(f"{path} has no column with a name: give names in the first line")
    target = _target(cells, options.target)
    inputs = _input_columns(cells, target, options)
    train_rows, test_rows = cut_off_test(path, len(cells.places))
    scale = None
    if _is_regression(cells, target, options.task):
        classes, scale = [target], _target_scale(cells, target, train_rows)
        aim = f"a regression of column {target!r}, {_TOLD[options.task is None]}"
    else:
        classes = _classes(cells, target)
        aim = f"{amount(len(classes), 'class')} from column {target!r}"
        if options.task is None and all(number(name) is not None for name in classes):
            aim += " (--task regression predicts the number)"
    columns = [_column(cells, name, train_rows, asked) for name, asked in inputs.items()]
    preparation = {"kind": "table", "columns": columns, "target": target, "classes": classes}
    if scale is not None:
        preparation["scale"] = list(scale)
    images, labels = _inputs(cells, preparation), _labels(cells, preparation)
    assert labels is not None
    train, held = (Split(images[part], labels[part]) for part in (train_rows, test_rows))
    named = [f"{c['name']} ({c['type']})" for c in columns[:MOST_NAMED]]
    if (more := len(columns) - MOST_NAMED) > 0:
        named.append(amount(more, "more column"))
    notes = [
        f"{path}: {amount(len(cells.places), 'row')}, {amount(images.shape[2], 'input')} from "
        f"{', '.join(named)}; {aim}"
    ]
    notes += cells.notes
    notes += _column_notes(cells, columns, train_rows, None if scale else target)
    if scale is None:
        notes += _like_numbers(target, classes, "classes")
    else:
        notes += _lost_digits(cells, target)
        notes += _rising(cells, target) if target not in (options.target, *_named(cells)) else []
    return DataSet(
        "table",
        train,
        held,
        FULL_SCALE,
        tuple(classes),
        preparation=preparation,
        scale=scale,
        notes=_few(notes),
    )


_PARTICULARS = re.compile(r"'[^']*'|-?\d[\d.,e+-]*")
"""Names and numbers, in which notes of one kind differ."""


def _few(notes: Sequence[str]) -> tuple[str, ...]:
    """Return the notes by kind, the first ``MOST_ALIKE`` of a kind and the number of the rest."""
    kinds: dict[str, list[str]] = {}
    for note in notes:
        kinds.setdefault(_PARTICULARS.sub("", note), []).append(note)
    few: list[str] = []
    for alike in kinds.values():
        few += alike[:MOST_ALIKE]
        if (more := len(alike) - MOST_ALIKE) > 0:
            few.append(f"{amount(more, 'more note')} of this kind, the first: {alike[MOST_ALIKE]}")
    return tuple(few)


def _column_notes(
    cells: Cells, columns: Sequence[dict], train_rows: npt.NDArray[Any], classes: str | None
) -> list[str]:
    """Return what a user should know of the columns; ``classes`` is the column of the classes."""
    notes = [note for column in columns if (note := _gaps(cells, column["name"]))]
    notes += _doubts(columns)
    for column in columns:
        if len(column.get("levels", ())) == len(train_rows) > MANY_LEVELS:
            notes.append(
                f"column {column['name']!r} has a category of its own in each row, which teaches "
                f"nothing about other rows: --ignore {column['name']}"
            )
    written = [(c["name"], "category") for c in columns if c["type"] == "category"]
    written += [(classes, "class")] if classes is not None else []
    notes += [note for name, what in written for note in _merged(cells, name, what)]
    notes += [note for name, what in written for note in _split(cells, name, what)]
    notes += [note for column in columns for note in _crowded(cells, column, train_rows)]
    for column in columns:
        if column["type"] == "number":
            notes += _number_notes(cells, column["name"])
        elif column["type"] == "text" and (note := _wordless(cells, column["name"])):
            notes.append(note)
    return notes


_TOLD = (
    "as --task asks",
    "as its numbers have fractions or are many (--task classification takes them for classes)",
)


def _is_regression(cells: Cells, target: str, task: str | None) -> bool:
    """Return whether to predict a number: as asked for, else as the targets look.

    Raises `DataError` for a rare text among numbers, unless classes are asked for.
    """
    if task is not None:
        return task == REGRESSION
    texts = _present_targets(cells, target)
    values = [value for text in texts if (value := number(text)) is not None]
    fractions = any(value % 1 for value in values)
    if len(values) < len(texts):
        if fractions or len(values) > MOSTLY * len(texts):
            odd = next(row for row, text in enumerate(texts) if number(text) is None)
            raise cells.error(
                odd, target, "is no number, and other targets are: correct it, or take "
                "--task classification for classes with these names",
            )  # fmt: skip
        return False
    different = len(set(values))
    # Few rows have few different numbers: classes would have hardly two samples each.
    are_sparse = LEAST_AMOUNTS < different > len(values) / FEW_ROWS
    return fractions or different > MANY_NUMBERS or are_sparse


def _present_targets(cells: Cells, target: str) -> list[str]:
    """Return the target of each row. Raises `DataError` for a row without one."""
    column = cells.columns[target]
    for row, cell in enumerate(column):
        if cell is None:
            raise DataError(
                f"{cells.path}: {cells.places[row]}, column {target!r}: no target (empty, or "
                f"{', '.join(filter(None, sorted(MISSING)))}): fill it in, spell it "
                "differently, or remove the row"
            )
    return [cell for cell in column if cell is not None]


def _target_values(cells: Cells, target: str) -> list[float]:
    """Return the numbers of a column of targets. Raises `DataError` for other text."""
    values = []
    for row, text in enumerate(_present_targets(cells, target)):
        value = number(text)
        if value is None or not isfinite(value):
            raise cells.error(
                row, target, "is no finite number, and a regression predicts numbers: correct it, "
                "choose another --target, or take --task classification",
            )  # fmt: skip
        values.append(value)
    return values


def _target_scale(cells: Cells, target: str, rows: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Return mean and deviation of the targets of the training split."""
    values = _target_values(cells, target)
    mean, deviation = moments([values[row] for row in rows])
    if deviation == 0:
        differ = len({_spelled(text) for row in rows if (text := cells.columns[target][row])}) > 1
        raise DataError(
            f"{cells.path}: column {target!r} has one value, {mean:g}, in "
            + (
                "64 bits of floating point: subtract one number from all"
                if differ
                else "the training split: choose another --target"
            )
        )
    return mean, deviation


def _doubts(columns: Sequence[Preparation]) -> list[str]:
    """Return notes on columns of one value, and on categories that look alike or like numbers."""
    notes = []
    for column in columns:
        name, levels = column["name"], column.get("levels", ())
        if len(levels) == 1 or column.get("deviation") == 0:
            notes.append(f"column {name!r} has one value in the training split: it teaches nothing")
        notes += [f"column {name!r}: categories {alike}" for alike in alike_names(levels)]
        notes += _like_numbers(name, levels, "categories")
    return notes


def _merged(cells: Cells, name: str, what: str) -> list[str]:
    """Return a note on texts such as 01 and 1, codes as well as numbers, that are taken for one."""
    texts: dict[str, list[str]] = {}
    for cell in sorted({cell for cell in cells.columns[name] if cell is not None}):
        texts.setdefault(_spelled(cell), []).append(cell)
    merged = [
        group
        for group in texts.values()
        if len(group) > 1 and not all(re.fullmatch(r"-?(0|[1-9]\d*)(\.0*)?", t) for t in group)
    ]
    return [
        f"column {name!r}: {', '.join(map(repr, group))} are one {what}: write a letter in front "
        "of codes that differ"
        for group in merged[:1]
    ]


def _split(cells: Cells, name: str, what: str) -> list[str]:
    """Return a note on spellings of one number, such as True and 1, that are told apart."""
    spellings: dict[float, list[str]] = {}
    for level in sorted({_spelled(cell) for cell in cells.columns[name] if cell is not None}):
        if (value := number(level)) is not None:
            spellings.setdefault(value, []).append(level)
    return [
        f"column {name!r}: {', '.join(map(repr, group))} are {value:g}, and more than one {what}: "
        "spell it in one way"
        for value, group in spellings.items()
        # Long integers, which end with a digit, may be one number in floating point alone.
        if len(group) > 1 and not all(level[-1].isdigit() for level in group)
    ][:1]


_ROW_NAMES = re.compile(
    r"(.*[_ ])?(id|idx|index|row|nr|no|number|#)|(?-i:.*[a-z](Id|ID|Idx|Index|Row|Nr|No|Number))",
    re.IGNORECASE,
)
"""Names of columns that probably number the rows, where they rise by 1: a year may do so, too."""


def _lost_digits(cells: Cells, name: str) -> list[str]:
    """Return a note on different numbers, such as large ones, that are equal as float64."""
    texts = {text for text in cells.columns[name] if text is not None}
    if not any(sum(map(str.isdigit, text)) > FLOAT_DIGITS for text in texts):
        return []
    spelled = [text for text in texts if text.lower() not in ("true", "false")]
    exact, held = {Decimal(text) for text in spelled}, {float(text) for text in spelled}
    if len(held) == len(exact):
        return []
    return [
        f"column {name!r}: {len(exact):,} different numbers, such as {max(spelled, key=len)}, are "
        f"{len(held):,} in 64 bits of floating point: subtract one number from all"
    ]


def _number_notes(cells: Cells, name: str) -> list[str]:
    """Return notes on numbers that may be codes, numbers of rows, or marks of missing values."""
    texts = [text for text in cells.columns[name] if text is not None]
    notes = _lost_digits(cells, name)
    padded = [text for text in texts if re.match(r"0\d", text)]
    if len(padded) > MOSTLY * len(texts) or (padded and len({len(text) for text in texts}) == 1):
        notes.append(
            f"column {name!r}: numbers begin with 0, such as {padded[0]}: --category {name} if "
            "they are codes"
        )
    values = [value for text in texts if (value := number(text)) is not None]
    if _ROW_NAMES.fullmatch(name) and all(b - a == 1 for a, b in pairwise(values)):
        notes.append(
            f"column {name!r} numbers the rows: --ignore {name}, or a network learns their order"
        )
    for mark in {value for value in (min(values), max(values)) if value in GAP_MARKS}:
        rest = [value for value in values if value != mark]
        if values.count(mark) > 1 and rest and abs(mark) > 3 * max(map(abs, rest)):
            notes.append(
                f"column {name!r} is {mark:g} in {amount(values.count(mark), 'row')}, far from its "
                "other numbers: leave cells empty where a value is missing"
            )
    return notes


def _plain(level: str) -> str:
    """Return how a text that looks like a date or a number is written as a plain number."""
    return PLAIN_DAYS if _DATE.match(level) else PLAIN_NUMBERS


def _like_numbers(name: str, levels: Sequence[str], what: str) -> list[str]:
    """Return a note on many levels that look like numbers with currencies, units or gaps."""
    digits = [level for level in levels if re.match(r"\W*\d", level)]
    odd = [level for level in levels if number(level) is None]
    # Few levels are a note only if most are plain numbers: 0-9, 10-19 and 20-29 are categories.
    few = len(levels) <= MANY_LEVELS and len(odd) >= len(levels) / 2
    if few or len(digits) <= len(levels) / 2 or not odd:
        return []
    return [
        f"column {name!r} is taken for {len(levels)} {what} such as {shown(odd[0])}: "
        f"{_plain(odd[0])}, and leave cells without one empty"
    ]


def _crowded(cells: Cells, column: Preparation, rows: npt.NDArray[np.int64]) -> list[str]:
    """Return a note on a column whose outliers leave only a few levels to the other numbers."""
    if column["type"] != "number" or not column["deviation"]:
        return []
    present = {cell for row in rows if (cell := cells.columns[column["name"]][row]) is not None}
    values = {value for cell in present if (value := number(cell)) is not None}
    used = len({_level(value, column) for value in values})
    if CROWDED * used > min(len(values), MOST_LEVELS):
        return []
    return [
        f"column {column['name']!r}: {len(values):,} different numbers share {used} of 256 levels, "
        f"because of outliers such as {max(values, key=abs):g}: correct them, or write logarithms"
    ]


def _new_row_notes(cells: Cells, column: Preparation) -> list[str]:
    """Return notes on a column of new rows whose cells are unlike those of the training split."""
    name, notes = column["name"], [_gaps(cells, column["name"])]
    present = [cell for cell in cells.columns[name] if cell is not None]
    if column["type"] == "category":
        new = [cell for cell in present if _spelled(cell) not in column["levels"]]
        if new:
            notes.append(
                f"column {name!r}: {len(new):,} of {amount(len(cells.places), 'row')} have "
                "categories that "
                f"the training split lacks, such as {shown(new[0])}: they set no input"
            )
    elif column["type"] == "number" and column["deviation"] > 0:
        mean, reach = column["mean"], REACH * column["deviation"]
        far = [cell for cell in present if not abs((number(cell) or 0.0) - mean) <= reach]
        if len(far) > MOST_FAR * len(present):
            notes.append(
                f"column {name!r}: {len(far):,} of {amount(len(present), 'value')}, such as "
                f"{far[0]}, are "
                f"outside {mean:g} +- {reach:g}, the range of the training split, and are clipped "
                "to it: check their unit"
            )
    elif column["type"] == "number":
        new = [cell for cell in present if number(cell) != column["mean"]]
        if new:
            notes.append(
                f"column {name!r}: {len(new):,} of {amount(len(present), 'value')}, such as "
                f"{new[0]}, "
                f"are not {column['mean']:g}, the only value of the training split: they are taken "
                "for it"
            )
    elif column["type"] == "text":
        notes.append(_wordless(cells, name))
    return [note for note in notes if note]


def _wordless(cells: Cells, name: str) -> str:
    """Return a note on texts without a word, which set no input; "" if there are none."""
    texts = [cell for cell in cells.columns[name] if cell is not None]
    if not (odd := [text for text in texts if not _words(text)]):
        return ""
    return (
        f"column {name!r}: {len(odd):,} of {amount(len(texts), 'text')} have no letter or "
        "digit, such as "
        f"{shown(odd[0])}: they set no input"
    )


def _gaps(cells: Cells, name: str) -> str:
    """Return a note on the gaps of a column; "" if there are none."""
    gaps = sum(cell is None for cell in cells.columns[name])
    if not gaps:
        return ""
    return f"column {name!r}: {gaps:,} missing, taken as the mean, or as no category"


def _classes(cells: Cells, target: str) -> list[str]:
    texts = _present_targets(cells, target)
    spellings: dict[str, set[str]] = {}
    for text in texts:
        spellings.setdefault(_spelled(text), set()).add(text)
    # A code such as 007 keeps its zeros as long as no row has it without them.
    own = [own.pop() if len(own) == 1 and max(own).isdigit() else n for n, own in spellings.items()]
    is_numeric = all(number(text) is not None for text in own)
    names = sorted(own, key=(lambda t: (number(t), t)) if is_numeric else None)
    if len(names) < 2:
        raise DataError(
            f"{cells.path}: column {target!r} has one class, {names[0]!r}: "
            "add samples of another class, or choose another --target"
        )
    # Many targets that hardly repeat are names, texts or dates of rows and no classes of them.
    if len(names) > MOST_CLASSES or MANY_NUMBERS < len(names) > len(texts) / 2:
        raise cells.error(
            0, target, f"is one of {len(names):,} different targets in "
            f"{amount(len(texts), 'row')}; at most {MOST_CLASSES:,} classes are told apart, of "
            "two rows or more on average: choose another --target, or --task regression for "
            "numbers",
        )  # fmt: skip
    return names


def _column(
    cells: Cells, name: str, rows: npt.NDArray[np.int64], is_category: bool
) -> dict[str, Any]:
    """Fit a column on rows of the training split."""
    present = [cell for row in rows if (cell := cells.columns[name][row]) is not None]
    if not present:
        raise DataError(
            f"{cells.path}: column {name!r} has no value in the training split: --ignore {name}"
        )
    if not is_category and cells.is_numeric(name):
        values = [value for text in present if (value := number(text)) is not None]
        mean, deviation = moments(values)
        return {"name": name, "type": "number", "mean": mean, "deviation": deviation}
    if cells.path.suffix.lower() == TEXT:
        return {"name": name, "type": "text", "inputs": TEXT_INPUTS}
    levels = sorted(set(map(_spelled, present)))
    if len(levels) <= MOST_LEVELS:
        return {"name": name, "type": "category", "levels": levels}
    # Dates and amounts have several groups of digits, which do not make a text.
    if fmean(sum(not word.isdigit() for word in _words(text)) for text in present) < LEAST_WORDS:
        raise DataError(
            f"{cells.path}: column {name!r} has {amount(len(levels), 'different value')}, such as "
            f"{shown(levels[0])}; a category has at most {MOST_LEVELS}: leave the column out with "
            f"--ignore {name}, or {_plain(levels[0])}"
        )
    return {"name": name, "type": "text", "inputs": TEXT_INPUTS}


def _words(text: str) -> list[str]:
    """Split at all but letters, digits, underscores and the marks on them.

    Vowel signs of Hindi, Tamil or Thai are marks, which no class of ``re`` has.
    """
    if text.isascii():
        return re.findall(r"\w+", text.lower())
    kept = " "
    for c in text.lower():
        is_mark = category(c)[0] == "M" and kept[-1] != " "
        kept += c if is_mark or c.isalnum() or c == "_" else " "
    return kept.split()


def _inputs(cells: Cells, preparation: Preparation) -> npt.NDArray[np.uint8]:
    """Return bytes (rows, 1, inputs)."""
    parts = []
    for column in preparation["columns"]:
        name = column["name"]
        if name not in cells.columns:
            raise DataError(
                f"{cells.path} has no column {name!r}, which the model reads; there are "
                f"{', '.join(cells.columns)}"
            )
        if name in cells.unreadable:
            wanted = "numbers" if column["type"] == "number" else "text"
            raise DataError(
                f"{cells.unreadable[name]}, and the model reads the column: convert it to {wanted}"
            )
        parts.append(_ENCODERS[column["type"]](cells, column))
    whole = np.concatenate(parts, 1)
    if whole.shape[1] > MOST_INPUTS:
        raise DataError(
            f"{cells.path} makes {whole.shape[1]:,} inputs, at most {MOST_INPUTS:,} are taken: "
            "leave columns out with --ignore"
        )
    return whole[:, None, :]


def _numbers(cells: Cells, column: Preparation) -> npt.NDArray[np.uint8]:
    """Return 256 levels from `REACH` deviations below the mean to as many above; a gap is 128."""
    name = column["name"]
    levels = np.full((len(cells.places), 1), 128, np.uint8)
    for row, cell in enumerate(cells.columns[name]):
        if cell is None:
            continue
        value = number(cell)
        if value is None or not isfinite(value):
            raise cells.error(row, name, "is no finite number, and the model's column has numbers")
        if column["deviation"] > 0:
            levels[row] = _level(value, column)
    return levels


def _level(value: float, column: Preparation) -> int:
    """Return the level of a number in a column of more than one value."""
    mean, deviation = column["mean"], column["deviation"]
    distance = min(max(standardised(value, mean, deviation), -REACH), REACH)
    return round((distance + REACH) / (2 * REACH) * FULL_SCALE)


def _levels(cells: Cells, column: Preparation) -> npt.NDArray[np.uint8]:
    """Return one column per level: 255 for the row's level, only zeros for gaps and new levels."""
    places = {level: n for n, level in enumerate(column["levels"])}
    whole = np.zeros((len(cells.places), len(places)), np.uint8)
    for row, cell in enumerate(cells.columns[column["name"]]):
        if cell is not None and (place := places.get(_spelled(cell))) is not None:
            whole[row, place] = FULL_SCALE
    return whole


def _texts(cells: Cells, column: Preparation) -> npt.NDArray[np.uint8]:
    """Return the words of each row: 255 in the inputs that their CRC-32 names."""
    whole = np.zeros((len(cells.places), column["inputs"]), np.uint8)
    for row, cell in enumerate(cells.columns[column["name"]]):
        for word in _words(cell or ""):
            whole[row, zlib.crc32(word.encode()) % column["inputs"]] = FULL_SCALE
    return whole


_ENCODERS = {"number": _numbers, "category": _levels, "text": _texts}


def _labels(cells: Cells, preparation: Preparation) -> npt.NDArray[Any] | None:
    """Return each row's class or target; None where the table has no column of targets."""
    target, classes = preparation["target"], preparation["classes"]
    if target not in cells.columns:
        return None
    if (scale := preparation.get("scale")) is not None:
        return np.array([standardised(v, *scale) for v in _target_values(cells, target)])
    places = {_spelled(name): n for n, name in enumerate(classes)}
    labels = []
    for row, cell in enumerate(cells.columns[target]):
        if cell is None:
            raise DataError(
                f"{cells.path}: {cells.places[row]}, column {target!r}: no target: fill it in, "
                "remove the row, or leave out the column to classify all rows"
            )
        if (place := places.get(_spelled(cell))) is None:
            raise cells.error(row, target, f"is no class of the model: {', '.join(classes[:20])}")
        labels.append(place)
    return np.array(labels, label_type(len(classes)))


# --- pictures -----------------------------------------------------------------------------------


def _picture_data(path: Path, options: OwnOptions) -> DataSet:
    if options.target or options.ignore or options.category or options.task == REGRESSION:
        raise DataError(
            f"--target, --ignore, --category and --task regression are of tables, {path} has "
            "pictures"
        )
    if not path.is_dir():
        raise DataError(f"{path} is one picture: train on a folder with a subfolder for each class")
    parts = [path / name for name in SPLITS]
    unread: list[str] = []
    if all(part.is_dir() for part in parts):
        train = read_pictures(parts[0], options.image_size)
        test = read_pictures(parts[1], options.image_size, train.channels)
        unread = sorted({entry.name for entry in path.iterdir() if entry.is_dir()} - {*SPLITS})
    else:
        train, test = read_pictures(path, options.image_size), None
    classes = sorted(set(train.classes or ()))
    if len(classes) < 2:
        what = f"one class, {classes[0]!r}" if classes else "no subfolders, which name the classes"
        raise DataError(f"{path} has {what}: put the pictures of each class into a folder")
    if len(classes) > MOST_CLASSES:
        raise DataError(
            f"{path} has {amount(len(classes), 'folder')}, at most {MOST_CLASSES:,} are classes"
        )
    if test is None:
        labels = _picture_labels(train, classes, path)
        assert labels is not None
        splits = divided(path, Split(train.images, labels))
    else:
        splits = _given_splits(parts, (train, test), classes)
    rows, columns = train.size
    preparation = {
        "kind": "pictures", "rows": rows, "columns": columns, "channels": train.channels,
        "resized": options.image_size is not None, "classes": classes,
    }  # fmt: skip
    colour = "grey" if train.channels == 1 else "RGB"
    count = sum(map(len, splits))
    images = {name: split.images for name, split in zip(SPLITS, splits, strict=True)}
    notes = [
        f"{path}: {amount(count, f'{colour} picture')} of {rows} x {columns}, {len(classes)} "
        "classes"
    ]
    if unread:
        notes.append(
            f"{path}: folders next to {' and '.join(SPLITS)} are not read: {', '.join(unread)}"
        )
    return DataSet(
        "pictures",
        splits[0],
        splits[1],
        FULL_SCALE,
        tuple(classes),
        preparation=preparation,
        channels=train.channels,
        notes=(*notes, *contrast_notes(path, images)),
    )


def _given_splits(
    parts: Sequence[Path], both: tuple[Pictures, Pictures], classes: Sequence[str]
) -> list[Split]:
    """Return the train and the test split that a user made, in the folders ``parts``."""
    train, test = both
    if test.images.shape[1:] != train.images.shape[1:]:
        raise DataError(
            f"{parts[1]} has pictures of {test.size[0]} x {test.size[1]}, {parts[0]} of "
            f"{train.size[0]} x {train.size[1]}: give --image-size ROWSxCOLUMNS"
        )
    splits = []
    for part, pictures in zip(parts, both, strict=True):
        labels = _picture_labels(pictures, classes, part)
        if labels is None:
            raise DataError(f"{part} has no subfolders, which name the classes")
        splits.append(Split(pictures.images, labels))
    return splits


def _picture_labels(
    pictures: Pictures, classes: Sequence[str], path: Path
) -> npt.NDArray[Any] | None:
    if pictures.classes is None:
        return None
    places = {name: place for place, name in enumerate(classes)}
    for name in pictures.classes:
        if name not in places:
            raise DataError(
                f"{path}: folder {name!r} is no class; there are {', '.join(classes[:20])}"
            )
    return np.array([places[name] for name in pictures.classes], label_type(len(classes)))
