"""Lay out the external memory of a step with loss and update on the chip.

The buffers of the compiled step come first; behind them lie targets, state, factors, rows of the
prior, the schedule and the two programs. ``ChipMemory`` is what all programs of ``chip`` are
compiled from; the driver fills its buffers.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from trainwright.compiler.base.compiled import IN_ROWS, CompiledStep
from trainwright.compiler.base.memory import Buffer, MemoryMap
from trainwright.compiler.chip.live import Kept, Live, live_parts, select_name, select_rows, whole
from trainwright.compiler.chip.prior_rows import PriorRows
from trainwright.compiler.step.rows import require_chip
from trainwright.network import Network
from trainwright.onchip.choices import label_bytes, no_label
from trainwright.onchip.layout import WeightLayout, WeightPart, Words
from trainwright.onchip.loss import in_groups
from trainwright.onchip.samples import WEIGHTS_LABEL, digit_rows
from trainwright.onchip.schedule import COLUMNS, row_of

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
rows (``onchip.prior``) and rows of bonds (``onchip.cut_pass``)."""
WORD_BYTES = 2
"""Bytes of a word of logits and gradients."""


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
        # Any other plan has factors in layouts of its own, which the update does not write.
        assert step.plan in IN_ROWS.values()
        kept = whole(layout) if kept is None else kept
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
        if any(part.code for part in layout.parts):
            memory.add(CODES, (lanes, lanes), 2)
        for number, select in select_rows(layout, kept).items():
            memory.add(select_name(number), select.shape, 1)
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
