"""Progress of a board that trains alone, read from its card and registers without disturbing it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Protocol

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Accelerator, AcceleratorError, registers
from trainwright.driver.card import Card, read_card
from trainwright.kernels.tables import FRACTION


class Observed(Accelerator, Protocol):
    """An accelerator on a board."""

    @property
    def exponents(self) -> Sequence[int]:
        """Exponents of the exponent file, by slot; they can be read while a program runs."""
        ...

    def read_registers(self, address: int, count: int, /) -> npt.NDArray[np.uint32]:
        """Read ``count`` registers from an address on."""
        ...


@dataclass(frozen=True)
class Look:
    """Progress of a board that trains, as far as its card and registers show it."""

    state: str
    """``running``; ``done``: it waits for the host; ``failed``; ``idle``: nothing was started since
    the run's program was written, or the host runs programs of its own, such as the test set's."""
    network: str
    ranks: Sequence[Sequence[int]]
    total: int
    """Steps of the training."""
    exponents: Mapping[str, int]
    """Exponent of each tensor."""
    step: int | None = None
    """Steps done since the training began; None, like all further fields, on an idle board."""
    epoch: int | None = None
    """Epoch of the present step, from 1."""
    loss: float | None = None
    """Mean loss of the steps since the last start; may include the step that is running. None
    before the first step is done."""
    correct: int | None = None
    """Samples, or words, that were classified right in the steps of ``loss``."""
    samples: int | None = None
    """Samples in the steps of ``loss``, or their words, estimated by the mean of all lines."""


def look(accelerator: Observed) -> Look:
    """Read the progress of the run that the accelerator executes.

    Raises ``AcceleratorError`` if the accelerator's memory holds no run.
    """
    card = read_card(accelerator)
    if card is None or not card.run:
        raise AcceleratorError(
            "no run is on this board: begin one by `trainwright train --update chip`, with an "
            "accelerator that has vector_engine=1, exponents=64 and sample_loads=1"
        )
    status = int(accelerator.read_registers(registers.STATUS, 1)[0])
    times, step = accelerator.read_registers(registers.TIMES, 2).tolist()
    address = int(accelerator.read_registers(registers.PROGRAM_ADDRESS, 1)[0])
    state = _state(status) if address == card.address and times else "idle"
    values = accelerator.exponents
    exponents = {name: values[slot] for name, slot in card.exponents.items()}
    known = Look(state, card.network, card.ranks, card.total, exponents)
    if state == "idle":
        return known
    done = _done(card, step, times, running=state == "running")
    base = (
        registers.statistics_base(accelerator.parameters)
        + registers.STATISTICS_BYTES * card.loss_slot
    )
    low, high, correct, _ = accelerator.read_registers(base, 4).tolist()
    samples = round(done * card.batch * card.labels)
    units = low | high << 32
    return replace(
        known, step=step,
        epoch=-(-step // card.epoch) if state == "done" else step // card.epoch + 1,
        loss=units * log(2) / (1 << FRACTION) / samples if samples else None,
        correct=correct, samples=samples,
    )  # fmt: skip


def _state(status: int) -> str:
    names = {
        registers.STATUS_BUSY: "running",
        registers.STATUS_ERROR: "failed",
        registers.STATUS_DONE: "done",
    }
    return next((name for bit, name in names.items() if status & bit), "idle")


def _done(card: Card, step: int, times: int, *, running: bool) -> int:
    """Return the steps done since the last start, which asked for ``times`` steps."""
    end = card.end(step) if running else step
    return min(max(step - (end - times), 0), times)
