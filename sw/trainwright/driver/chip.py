"""A step with loss and update on the accelerator: the host sends inputs, labels and shifts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import torch

from trainwright.accelerator import Accelerator, AcceleratorError, Run
from trainwright.compiler import Bound, CompiledProgram
from trainwright.compiler.base.compiled import AUTO, IN_ROWS
from trainwright.compiler.chip.bound import UpdatePrograms
from trainwright.compiler.chip.exponents import LOSS_SLOT
from trainwright.compiler.chip.live import Kept
from trainwright.compiler.chip.loss import loss_program
from trainwright.compiler.chip.memory import (
    COLUMNS,
    FACTORS,
    LOSS,
    STATE,
    TARGETS,
    UPDATE,
    ChipMemory,
    Words,
    gradient_of,
)
from trainwright.driver.driver import Driver
from trainwright.driver.model import QuantisedModel
from trainwright.fixed.random_bits import STREAM_STEP
from trainwright.fixed.scale import Scales, TensorStatistics
from trainwright.onchip.cut_pass import CUT
from trainwright.onchip.layout import LANES, WeightLayout
from trainwright.onchip.loss import UNITS, gradient_exponent
from trainwright.onchip.prior import pull_words
from trainwright.onchip.state import ChipState, UpdateStep, rate_shifts
from trainwright.onchip.update import PASSES
from trainwright.onchip.update_pass import PartUpdate
from trainwright.program.descriptors import Program


@dataclass(frozen=True)
class Executed:
    """A program that has been run, and what came of it."""

    name: str
    program: Program
    run: Run


@dataclass(frozen=True)
class LossResult:
    """Summed loss of samples, over all heads, and how many of them are correct.

    The loss is in units of the loss function (``onchip.loss.UNITS``); a sample is correct whose
    label has the largest logit of the first head.
    """

    total: int
    correct: int


class ChipDriver(Driver):
    """Runs steps of a network whose weights are in the accelerator's memory.

    ``put`` writes them once; after that factors, biases, images and state are written by the
    accelerator's own programs. The host binds shifts, and sends the prior's coefficients. Raises
    ``CompileError`` for what the programs do not take.
    """

    def __init__(
        self, accelerator: Accelerator, layout: WeightLayout, batch: int, *,
        kept: Kept | None = None, trace: bool = False, loss: str = "cross-entropy",
        plan: str = AUTO,
    ) -> None:  # fmt: skip
        """Compile programs that have the columns ``kept`` of each bond of ``layout``.

        None keeps all columns. ``loss`` is one of ``onchip.loss.LOSSES``, ``plan`` of
        ``compiler.base.compiled.IN_ROWS``.
        """
        network = layout.network
        if kept is not None:
            columns = iter(kept)
            ranks = [[len(next(columns)) for _ in layer.ranks] for layer in network.layers]
            network = network.with_ranks(ranks)
        super().__init__(accelerator, network, batch, plan=IN_ROWS[plan], trace=trace)
        self.layout, self.loss = layout, loss
        self.memory = ChipMemory.of(self.step, layout, kept)
        if self.memory.size > accelerator.memory_bytes:
            raise AcceleratorError(
                f"a step needs {self.memory.size} bytes of external memory, the accelerator has "
                f"{accelerator.memory_bytes}"
            )
        self._loss_program = lru_cache(16)(partial(loss_program, self.memory, loss))
        self._updates = UpdatePrograms(self.memory)
        self.moment_exponents = np.zeros(len(layout.parts), np.int64)
        """Exponent of each part's gradient when its moments were written."""
        self._bound: Bound | None = None
        self.executed: list[Executed] = []
        """Programs that have been run, in order, since a caller emptied the list."""

    @property
    def loss_unit(self) -> float:
        """Value of a unit of a summed loss."""
        return UNITS[self.loss]

    # What the host writes.

    def put(self, state: ChipState, model: QuantisedModel) -> None:
        """Write the whole state, and the images of its factors."""
        arrays = state.to_arrays()
        self._write(STATE, arrays["state"].astype(np.int64))
        self._write(FACTORS, arrays["factors"])
        for name, words in self.memory.constants().items():
            self._write(name, words)
        for program in (self.step.forward, self.step.backward):
            self._put_images(program, model)
        for part in self.layout.parts:
            if part.index < 0:
                values = arrays["factors"].ravel()[part.places].astype(np.int64)
                self._put(part.name, torch.from_numpy(values))
        self.moment_exponents = state.exponents.copy()

    def put_columns(self, state: ChipState, exponents: Sequence[int]) -> None:
        """Write the prior's coefficients and shifts, for gradients of these exponents.

        Columns that were cut have negative shifts, which an update with ``cuts`` obeys.
        """
        raised, shifts = pull_words(self.layout, state.pulls, np.array(exponents))
        gone = np.ones(self.layout.columns, np.int64)
        for bond, kept in zip(self.layout.bonds, state.kept, strict=True):
            for side in (bond.left, bond.right):
                gone[side.first + kept] = 0
        gone[0] = 0  # that is no column
        self._write(COLUMNS, self.memory.column_words(raised, shifts + CUT * gone))

    def _write(self, name: str, words: Words) -> None:
        buffer = self.memory.buffers[name]
        self.accelerator.write(buffer.address, buffer.pack(torch.from_numpy(np.asarray(words))))

    def factors(self) -> Words:
        """Read factors and biases in the rows of the layout, int64 (rows, LANES)."""
        result = np.zeros((self.layout.rows, LANES), np.int64)
        for part in self.layout.parts:
            place = self.memory.place_of(part)
            blocks = part.blocks if place.name == FACTORS else len(self.memory.live(part).left)
            last = place.row + blocks * (part.rows // part.blocks)
            rows = self.rows(place.name)[place.row : last]
            result[part.row : part.row + len(rows)] = rows
        return result

    def rows(self, name: str) -> Words:
        """Read a buffer, such as ``STATE``, int64 (rows, LANES), as it is in memory."""
        buffer = self.memory.everything[name]
        data = self.accelerator.read(buffer.address, buffer.size)
        return data.view(buffer.kind).reshape(-1, LANES).astype(np.int64)

    # A step.

    def _run(self, name: str, program: Program, address: int) -> Run:
        run = self.accelerator.run(program, address, trace=self.trace)
        self.executed.append(Executed(name, program, run))
        return run

    def _bind(self, program: CompiledProgram, scales: Scales, operands: dict[str, int]) -> Bound:
        self._bound = program.bind(scales.exponents, operands)
        return self._bound

    def run_forward(
        self, inputs: torch.Tensor, scales: Scales, masks: int | None = None
    ) -> dict[str, TensorStatistics]:
        """Run the forward pass of ``inputs`` int64 (batch, I); return its statistics.

        ``masks`` is the seed of the masks of dropout.
        """
        operands = self._given_exponents()
        operands |= {part.name: part.exponent for part in self.layout.parts}
        for number, layer in enumerate(self.network.layers, 1):
            if not layer.bias:
                operands[f"l{number}.b"] = scales.exponents.get(f"l{number}.y", 0)
        self._put_inputs(inputs, masks)
        bound = self._bind(self.step.forward, scales, operands)
        run = self._run("forward", bound.program, self.step.forward.address)
        for part in self.layout.parts:
            if bound.exponents[part.name] != part.exponent:
                raise AcceleratorError(
                    f"{part.name} is more than 15 powers of two away from the sum it joins; give "
                    "the network a wider bias"
                )
        return self._statistics(self.step.forward, bound, run)

    def run_loss(self, labels: Words) -> LossResult:
        """Run the loss of the last ``run_forward`` and the gradient of its logits."""
        assert self._bound is not None
        self._write(TARGETS, self.memory.targets(labels))
        exponents = tuple(self._bound.exponents[head.logits] for head in self.memory.heads)
        run = self._run("loss", self._loss_program(exponents), self.memory.buffers[LOSS].address)
        return LossResult(int(run.sums[LOSS_SLOT]), int(run.saturations[LOSS_SLOT]))

    def run_backward(self, scales: Scales) -> dict[str, TensorStatistics]:
        """Run the backward pass of the gradient that ``run_loss`` left; return its statistics."""
        assert self._bound is not None
        operands = self._bound.exponents | self._loss_exponents
        bound = self._bind(self.step.backward, scales, operands)
        run = self._run("backward", bound.program, self.step.backward.address)
        return self._statistics(self.step.backward, bound, run)

    @property
    def _loss_exponents(self) -> dict[str, int]:
        """Exponents of the gradients of all heads, which never move."""
        exponent = gradient_exponent(self.loss, self.step.batch * self.network.labels)
        return dict.fromkeys(self.step.uppers, exponent)

    @property
    def gradient_exponents(self) -> list[int]:
        """Exponents of every part's gradient in the last ``run_backward``."""
        assert self._bound is not None
        return [self._bound.exponents[gradient_of(part)] for part in self.layout.parts]

    def run_update(self, step: UpdateStep, *, pulled: bool, cuts: bool = False) -> None:
        """Run the update by the gradients of the last ``run_backward``.

        ``put_columns`` came before where ``pulled``; with ``cuts`` the columns that were cut are
        cleared.
        """
        assert self._bound is not None
        exponents = self.gradient_exponents
        bonds = self.layout.bonds if pulled else ()
        left, right = ({side.part for side in sides} for sides in
                       ([bond.right for bond in bonds], [bond.left for bond in bonds]))  # fmt: skip
        shifts = rate_shifts(self.layout, step, np.array(exponents))
        parts = [
            PartUpdate(
                hidden=part.hidden,
                rate=step.entry.rate,
                rate_shift=int(shift),
                moved=exponent - int(before),
                left=number in left,
                right=number in right,
                cuts=cuts,
            )
            for number, (part, exponent, before, shift) in enumerate(
                zip(self.layout.parts, exponents, self.moment_exponents, shifts, strict=True)
            )
        ]
        seed = (step.seed + PASSES * step.number * STREAM_STEP) % (1 << 32)
        self._run("update", self._updates.get(parts, seed), self.memory.buffers[UPDATE].address)
        self.moment_exponents = np.array(exponents, np.int64)
