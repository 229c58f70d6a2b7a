"""A network whose weights are in the accelerator's memory: the host writes and reads them."""

from dataclasses import dataclass

import numpy as np
import torch

from trainwright.accelerator import Accelerator, Run
from trainwright.compiler.base.compiled import AUTO, IN_ROWS
from trainwright.compiler.chip.live import Kept
from trainwright.compiler.chip.memory import FACTORS, STATE, ChipMemory, Words
from trainwright.driver.driver import Driver
from trainwright.driver.model import QuantisedModel
from trainwright.onchip.layout import LANES, WeightLayout
from trainwright.onchip.loss import UNITS
from trainwright.onchip.state import ChipState
from trainwright.program.descriptors import Program


@dataclass(frozen=True)
class Executed:
    """Program that has been run, with the result of its run."""

    name: str
    program: Program
    run: Run


@dataclass(frozen=True)
class LossResult:
    """Summed loss of samples, over all heads, and how many of them are correct.

    The loss is in units of the loss function (``onchip.loss.UNITS``). A sample is correct if its
    label has the largest logit of the first head.
    """

    total: int
    correct: int


class ChipDriver(Driver):
    """Driver of a network whose weights are in the accelerator's memory.

    ``put`` writes the weights once. From then on the accelerator's own programs write factors and
    biases, the images of factors (each a factor as one program reads it), and the state of the
    update. Raises ``CompileError`` for a network that the programs do not support.
    """

    def __init__(
        self, accelerator: Accelerator, layout: WeightLayout, batch: int, *,
        kept: Kept | None = None, trace: bool = False, loss: str = "cross-entropy",
        plan: str = AUTO,
    ) -> None:  # fmt: skip
        """Compile programs for the columns ``kept`` of each bond of ``layout``.

        If ``kept`` is None, all columns are kept. ``loss`` is a key of ``onchip.loss.KERNELS``,
        ``plan`` a key of ``compiler.base.compiled.IN_ROWS``.
        """
        network = layout.network
        if kept is not None:
            columns = iter(kept)
            ranks = [[len(next(columns)) for _ in layer.ranks] for layer in network.layers]
            network = network.with_ranks(ranks)
        super().__init__(accelerator, network, batch, plan=IN_ROWS[plan], trace=trace)
        self.layout, self.loss = layout, loss
        self.memory = ChipMemory.of(self.step, layout, kept)
        self._require_memory(self.memory.size)
        self.executed: list[Executed] = []
        """Programs in the order of their runs, since a caller last emptied the list."""

    @property
    def loss_unit(self) -> float:
        """Loss that one unit of ``LossResult.total`` stands for."""
        return UNITS[self.loss]

    def put(self, state: ChipState, model: QuantisedModel) -> None:
        """Write the whole state, and the images of its factors."""
        arrays = state.to_arrays()
        # Rows of ``trainwright.onchip`` have LANES words, rows in memory the accelerator's lanes.
        for name, words in ((STATE, arrays["state"]), (FACTORS, arrays["factors"])):
            self._write(name, words.astype(np.int64).reshape(-1, self.memory.layout.lanes))
        for name, words in self.memory.constants().items():
            self._write(name, words)
        for program in self.step.programs.values():
            self._put_images(program, model)
        for part in self.layout.parts:
            if part.index < 0:
                values = arrays["factors"].ravel()[part.places].astype(np.int64)
                self._put(part.name, torch.from_numpy(values))

    def _write(self, name: str, words: Words) -> None:
        buffer = self.memory.buffers[name]
        self.accelerator.write(buffer.address, buffer.pack(torch.from_numpy(np.asarray(words))))

    def factors(self) -> Words:
        """Read factors and biases in the rows of the layout, int64 (rows, LANES)."""
        layout = self.memory.layout
        result = np.zeros((layout.rows, layout.lanes), np.int64)
        for part in layout.parts:
            place = self.memory.place_of(part)
            blocks = part.blocks if place.name == FACTORS else len(self.memory.live(part).left)
            last = place.row + blocks * (part.rows // part.blocks)
            rows = self.rows(place.name)[place.row : last]
            result[part.row : part.row + len(rows)] = rows
        return result.reshape(-1, LANES)

    def rows(self, name: str) -> Words:
        """Read a buffer, such as ``STATE``, int64 (rows, lanes), as it is in memory."""
        buffer = self.memory.everything[name]
        data = self.accelerator.read(buffer.address, buffer.size)
        return data.view(buffer.dtype).reshape(-1, self.memory.layout.lanes).astype(np.int64)
