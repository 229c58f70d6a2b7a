"""Lay out the external memory of a step with loss and update on the chip.

The buffers of the compiled step come first; behind them lie targets, state, factors, rows of the
prior, the schedule and the two programs. ``ChipMemory`` is what all programs of ``chip`` are
compiled from; the driver fills its buffers.

A cut column stays in the state as zeros, in its row and lane, so that no part has to move. The
programs of a step were compiled for the smaller ranks and expect rows without gaps. ``Live`` says
how to get from one to the other: runs of indices along the first axis, products with selecting rows
along the lanes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from trainwright.compiler.base.compiled import IN_ROWS, CompiledStep
from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.base.memory import Buffer, MemoryMap
from trainwright.compiler.step.rows import require_chip
from trainwright.network import Network
from trainwright.onchip import prior as by
from trainwright.onchip.choices import label_bytes, no_label
from trainwright.onchip.layout import WeightLayout, WeightPart, Words, line_rows
from trainwright.onchip.loss import in_groups
from trainwright.onchip.samples import WEIGHTS_LABEL, digit_rows
from trainwright.onchip.schedule import COLUMNS, row_of
from trainwright.program.vector import THREADS

TARGETS, STATE, FACTORS = "targets", "state", "factors"
"""Buffers of the targets of the loss, and of words and factors of the state, in rows."""
NUMBERS = "numbers"
"""Buffer with rows of the number of each class, if logits have classes in rows; its last row has
-1, the label of no class."""
DIGITS = "digits of labels"
"""Buffer of two rows for labels of two bytes: weights of the digits, and the digits of no label."""
CODES = "identity of codes"
"""Buffer of an identity times the power of two by which factors are encoded."""
SCHEDULE, PRIOR = "schedule", "prior"
"""Buffers of the counters and the table of rates (``onchip.schedule``); of the prior's side
rows and rows of bonds (``onchip.prior``)."""
WORD_BYTES = 2
"""Bytes of a word of logits and gradients."""


# -- rows of the rank prior
@dataclass(frozen=True)
class PriorRows:
    """Layout of ``PRIOR``: fields of side rows, then fields of bonds.

    A bond has a *block* of side rows for its two sides: first a line, with the columns of the left
    side along the lanes, then a row for each column of the right side. Each thread of the vector
    engine takes a bond, so rows of bonds are padded to whole groups of threads.
    """

    layout: WeightLayout

    @property
    def bonds(self) -> int:
        """Bonds of all layers."""
        return len(self.layout.bonds)

    @cached_property
    def columns(self) -> int:
        """Most columns of any bond."""
        return max((bond.left.columns for bond in self.layout.bonds), default=0)

    @property
    def line_rows(self) -> int:
        """Rows of a line, which has a column in each lane."""
        return line_rows(self.columns, self.layout.lanes)

    @property
    def block(self) -> int:
        """Side rows of a bond."""
        return self.line_rows + self.columns

    @property
    def side_rows(self) -> int:
        """Side rows of all bonds."""
        return self.bonds * self.block

    @property
    def padded(self) -> int:
        """Bonds of whole groups of THREADS, including those that only pad a group."""
        return -(-self.bonds // THREADS) * THREADS

    def field(self, name: str) -> int:
        """Return the first row of a field of the side rows."""
        return by.FIELDS.index(name) * self.side_rows

    def of_bonds(self, name: str) -> int:
        """Return the first row of a field of bonds.

        The fields are the number of columns that are left (with a row before), the three rows of
        ``elements_per_column``, and the costs. Passes also read fields of bonds that only pad a
        group, so the rows begin behind the last row of such a bond.
        """
        # A pass over eight bonds also reads the flags of bonds that do not exist: these reads must
        # stay within the buffer.
        flags = self.field(by.KEPT) + self.padded * self.block
        fields = max(len(by.STORED) * self.side_rows, flags)
        return fields + by.BOND_FIELDS.index(name) * (self.padded + 2)

    @property
    def rows(self) -> int:
        """Rows of the whole buffer."""
        return self.of_bonds(by.BOND_FIELDS[-1]) + self.padded + 2

    def sides_of(self, part: WeightPart) -> tuple[int | None, int | None]:
        """Return the first side rows of the bonds on the left and on the right of a part."""
        number, bonds = self.layout.parts.index(part), list(enumerate(self.layout.bonds))
        left = {bond.right.part: n * self.block + self.line_rows for n, bond in bonds}
        right = {bond.left.part: n * self.block for n, bond in bonds}
        return left.get(number), right.get(number)

    @cached_property
    def numbers(self) -> Words:
        """Column number, (side rows, lanes), that each word of a side row belongs to."""
        numbers = np.zeros((self.bonds, self.block, self.layout.lanes), np.int64)
        for rows, bond in zip(numbers, self.layout.bonds, strict=True):
            left, right = (side.first + np.arange(side.columns) for side in (bond.left, bond.right))
            rows[: self.line_rows].reshape(-1)[: len(left)] = left
            rows[self.line_rows :][: len(right)] = right[:, None]
        return numbers.reshape(-1, self.layout.lanes)

    def words(self, sums: Words, pulls: by.Pulls, kept: Sequence[Words]) -> Words:
        """Return all rows; ``sums`` has a sum for each column, ``kept`` the columns left."""
        layout = self.layout
        words = np.zeros((self.rows, layout.lanes), np.int64)
        costs = by.column_costs(layout, kept)
        by.require_cost(int(costs.max(initial=0)))
        elements = (*by.elements_per_column(layout), costs)
        for name, values in zip(by.BOND_FIELDS[1:], elements, strict=True):
            words[self.of_bonds(name) :][: self.bonds] = values[:, None]
        # Columns that were cut keep the flag CUT; the flags of other columns start at 0.
        flags = np.where(layout.marks(kept), 0, by.CUT)
        # A sum of squares has more bits than a word, and takes two fields, low and high.
        low, high = sums & by.MOST_WORD, sums >> by.LOW_WIDTH
        fields = low, high, pulls.coefficients, pulls.exponents, flags, by.offsets(layout)
        sides = np.concatenate([field[self.numbers] for field in fields])
        words[: len(sides)] = sides
        return words

    def values(self, words: Words, field: str) -> Words:
        """Return a field of each column from all rows; 0 of the column that no element has."""
        result = np.zeros(self.layout.columns, np.int64)
        result[self.numbers] = words[self.field(field) :][: self.side_rows]
        result[0] = 0
        return result


# -- columns that cuts have left
Kept = tuple[tuple[int, ...], ...]
"""Columns of each bond that are left, in rising order."""


def whole(layout: WeightLayout) -> Kept:
    """Return every column of every bond."""
    return tuple(tuple(range(bond.left.columns)) for bond in layout.bonds)


def is_prefix(columns: Sequence[int]) -> bool:
    """Return whether there is no gap: the programs then find columns where they expect them."""
    return list(columns) == list(range(len(columns)))


@dataclass(frozen=True)
class Live:
    """Columns of a part that are left."""

    left: tuple[int, ...]
    """Indices of the first axis that are left."""
    select: str
    """Name of the buffer that selects these words; empty where there are no gaps."""
    line_rows: int
    """Rows of a line as the programs have it."""

    @property
    def packed(self) -> bool:
        """Whether the part lies as the programs expect it."""
        return is_prefix(self.left) and not self.select

    def runs(self, most: int) -> list[tuple[int, int, int]]:
        """Return runs of indices as (first index, its place among those left, count).

        A run has at most ``most`` indices.
        """
        runs: list[tuple[int, int, int]] = []
        for place, index in enumerate(self.left):
            if runs and sum(runs[-1][::2]) == index and runs[-1][2] < most:
                first, start, count = runs[-1]
                runs[-1] = first, start, count + 1
            else:
                runs.append((index, place, 1))
        return runs


def live_parts(layout: WeightLayout, kept: Kept) -> list[Live]:
    """Return the columns and rows of every part of a layout that the kept columns leave."""
    bonds, selecting = [*zip(layout.bonds, kept, strict=True)], select_rows(layout, kept)
    names = {layout.bonds[n].left.part: select_name(n) for n in selecting}
    # The part on the right of a bond has the bond's columns along its first axis, the part on its
    # left has them along the lanes.
    left = {bond.right.part: columns for bond, columns in bonds}
    lines = {bond.left.part: line_rows(len(columns), layout.lanes) for bond, columns in bonds}
    return [
        Live(left.get(n, tuple(range(part.blocks))), names.get(n, ""), lines.get(n, part.line_rows))
        for n, part in enumerate(layout.parts)
    ]


def select_name(bond: int) -> str:
    """Return the name of the buffer of a bond's selecting rows."""
    return f"bond {bond + 1}"


def select_rows(layout: WeightLayout, kept: Kept) -> dict[int, Words]:
    """Return rows that move the words of columns to the lowest lanes and back, by number of bond.

    Bonds whose columns lie as the programs have them need none. The rows are factors of products of
    rows: for each row of a program's line a row for each lane and row of the state's line, which
    gather its words, times the power of two by which a coded factor is encoded, then the same with
    both lines exchanged, which scatter words.
    """
    selecting, lanes = dict[int, Words](), layout.lanes
    for number, (bond, columns) in enumerate(zip(layout.bonds, kept, strict=True)):
        full, left = (line_rows(n, lanes) for n in (bond.left.columns, len(columns)))
        if is_prefix(columns) and full == left:
            continue
        gather = np.zeros((left * lanes, full * lanes), np.int64)
        gather[np.arange(len(columns)), list(columns)] = 1
        code = layout.parts[bond.left.part].code
        matrices = gather * (code.times if code else 1), gather.T
        tiles = (_tiles(matrix, lanes) for matrix in matrices)
        selecting[number] = np.concatenate([*tiles])
    return selecting


def _tiles(matrix: Words, lanes: int) -> Words:
    """Return the tiles of ``lanes`` x ``lanes`` of a matrix, row by row, one below the other."""
    rows, columns = (size // lanes for size in matrix.shape)
    return matrix.reshape(rows, lanes, columns, lanes).swapaxes(1, 2).reshape(-1, lanes)


# -- buffers
@dataclass(frozen=True)
class LabelKind:
    """Labels that several heads share: one of each sample, or one of each token."""

    targets: str
    """Buffer of the labels."""
    numbers: str
    """Buffer of the numbers of classes, if logits have classes in rows."""
    labels: int
    """Labels of a sample."""
    classes: int


def label_kinds(network: Network) -> dict[int, LabelKind]:
    """Return the kinds of labels by the labels of a sample; the first is that of the main head."""
    kinds: dict[int, LabelKind] = {}
    for labels in sorted({network.rows_of(name) for name in network.heads}, reverse=True):
        heads = [name for name in network.heads if network.rows_of(name) == labels]
        suffix = " of sequences" if kinds else ""
        classes = max(map(network.classes_of, heads))
        kinds[labels] = LabelKind(TARGETS + suffix, NUMBERS + suffix, labels, classes)
    return kinds


@dataclass(frozen=True)
class Head:
    """Logits with a loss of their own."""

    logits: str
    gradient: str
    """Tensor of the gradient of the logits."""
    outputs: int
    """Logits for each label."""
    classes: int
    kind: LabelKind
    main: bool
    """Whether the head classifies: correct samples are counted for one head only."""


@dataclass(frozen=True)
class ChipMemory:
    """Compiled step, layout of its state, and the buffers of both programs."""

    step: CompiledStep
    layout: WeightLayout
    buffers: dict[str, Buffer] = field(default_factory=dict)
    size: int = 0
    """Bytes of external memory, including those of the step."""
    kept: Kept = ()

    @classmethod
    def of(cls, step: CompiledStep, layout: WeightLayout, kept: Kept | None = None) -> "ChipMemory":
        """Lay out the buffers of a loop behind the buffers of ``step``.

        ``kept`` are the columns left of each bond, as many as ``step`` has; None stands for all
        columns. The memory has the ``layout`` in rows of the accelerator. Raises ``CompileError``
        for what the passes do not take yet, with the remedy.
        """
        require_chip(layout.network, step.parameters)
        kept = whole(layout) if kept is None else kept
        what = f"{step.network.name}: loss and update on the chip"
        # Any other plan has factors in layouts of its own, which the update does not write.
        if step.plan not in IN_ROWS.values():
            raise CompileError(f"{what} do not go with plan {step.plan}; use --update chip")
        columns = [*map(len, kept)]
        if columns != [rank for ranks in step.network.ranks for rank in ranks]:
            raise CompileError(
                f"{what} have {columns} columns left, not {step.network.ranks}; compile them for "
                "these ranks"
            )
        memory, lanes = MemoryMap(top=step.memory_bytes), step.parameters.lanes
        network, layout = step.network, layout.split(lanes)
        for kind in label_kinds(network).values():
            if not classes_in_rows(network, lanes):
                memory.add(kind.targets, (step.batch, lanes), 1)
                continue
            grid, size = LabelGrid.of(kind, step.batch, lanes), label_bytes(kind.classes)
            memory.add(kind.targets, (grid.sequences * grid.blocks, lanes), size)
            memory.add(kind.numbers, (kind.classes * grid.blocks + 1, lanes), size)
            if size > 1 and DIGITS not in memory.buffers:
                memory.add(DIGITS, (2, lanes), 1)
        memory.add(STATE, (layout.rows, lanes), 2)
        wide = any(part.width > 8 for part in layout.parts)  # more than a byte for each value
        memory.add(FACTORS, (layout.rows, lanes), 1 + wide)
        memory.add(SCHEDULE, (row_of(COLUMNS, lanes), lanes), 2)
        memory.add(PRIOR, (PriorRows(layout).rows, lanes), 2)
        if coded := any(part.code for part in layout.parts):
            memory.add(CODES, (lanes, lanes), 2)
        for number, select in select_rows(layout, kept).items():
            memory.add(select_name(number), select.shape, 1 + coded)
        return cls(step, layout, memory.buffers, memory.top, kept)

    @property
    def heads(self) -> tuple[Head, ...]:
        """Heads of the network; losses are summed, and the main head classifies."""
        step, network = self.step, self.step.network
        kinds, names = label_kinds(network), network.heads
        tensors = zip(names, step.results, step.uppers, network.head_sizes, strict=True)
        return tuple(
            Head(logits, gradient, size // kind.labels, network.classes_of(name), kind,
                 main=name == network.main)
            for name, logits, gradient, size in tensors
            for kind in [kinds[network.rows_of(name)]]
        )  # fmt: skip

    @cached_property
    def prior_rows(self) -> PriorRows:
        """Layout of the buffer ``PRIOR``."""
        return PriorRows(self.layout)

    @cached_property
    def factors(self) -> dict[tuple[int, int], str]:
        """Buffer in which programs of the step read each factor, by layer and index."""
        images = (*self.step.forward.images, *self.step.backward.images)
        return {(image.layer, image.index): image.name for image in images if image.is_factor}

    @cached_property
    def everything(self) -> dict[str, Buffer]:
        """Buffers of the step, its factors, its loss and its update, by name."""
        return {**self.step.everything, **self.buffers}

    def live(self, part: WeightPart) -> Live:
        """Return what cuts have left of a part."""
        return live_parts(self.layout, self.kept)[self.layout.parts.index(part)]

    def constants(self) -> dict[str, Words]:
        """Return the words that the host writes once, by buffer."""
        selecting = select_rows(self.layout, self.kept)
        words = {select_name(number): rows for number, rows in selecting.items()}
        for kind in label_kinds(self.step.network).values():
            if kind.numbers in self.buffers:
                rows, lanes = self.buffers[kind.numbers].shape
                numbers = np.arange(kind.classes).repeat((rows - 1) // kind.classes * lanes)
                words[kind.numbers] = np.append(numbers, [-1] * lanes).reshape(rows, lanes)
        if CODES in self.buffers:
            times = next(part.code.times for part in self.layout.parts if part.code)
            words[CODES] = times * np.eye(self.layout.lanes, dtype=np.int64)
        if DIGITS in self.buffers:
            none = np.array([no_label(self.step.network.classes)])
            words[DIGITS] = digit_rows(np.append(WEIGHTS_LABEL, none), self.layout.lanes)
        return words

    def place_of(self, part: WeightPart) -> tuple[str, int]:
        """Return the buffer in which the factors of a part are kept, and their first row.

        Without gaps that is where the step reads them, so that no copy is needed; else, and where
        the step reads coded words, ``FACTORS``.
        """
        # Every program that reads a factor in rows of the state names it by an image; if cuts left
        # no gaps, the update may write there directly.
        image = self.factors.get((part.layer, part.index)) if self.live(part).packed else None
        return (image, 0) if image and not part.code else (FACTORS, part.row)


def classes_in_rows(network: Network, lanes: int) -> bool:
    """Return whether logits have classes in rows, and samples or words along the lanes.

    Heads of up to ``lanes`` outputs with one label for each sample have a row for each sample
    instead. Heads of one kind read the same targets, so the largest head decides.
    """
    return in_groups(max(network.head_sizes), network.classes, lanes, of_words=network.labels > 1)


@dataclass(frozen=True)
class LabelGrid:
    """Labels of a batch in rows of lanes: of samples, or of the words of each sequence."""

    sequences: int
    """Groups of labels that begin in a row of their own."""
    samples: int
    """Labels of a group; the last lanes of its last row may hold none."""
    lanes: int

    @classmethod
    def of(cls, kind: LabelKind, batch: int, lanes: int) -> "LabelGrid":
        """Return the grid of a batch; groups of whole rows are divided into groups of one row."""
        groups, samples = (batch, kind.labels) if kind.labels > 1 else (1, batch)
        if samples % lanes:
            return cls(groups, samples, lanes)
        return cls(groups * samples // lanes, lanes, lanes)

    @property
    def blocks(self) -> int:
        """Rows of a group."""
        return -(-self.samples // self.lanes)


def gradient_of(part: WeightPart) -> str:
    """Return the name of the tensor that is the gradient of a part."""
    return f"l{part.layer + 1}.db" if part.index < 0 else f"l{part.layer + 1}.dG{part.index + 1}"
