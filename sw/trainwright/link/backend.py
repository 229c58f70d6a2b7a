"""The accelerator on a board, behind the host link: back end ``serial:PORT``."""

import time
from collections.abc import Callable
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import (
    AcceleratorError,
    AcceleratorReset,
    Run,
    control,
    memory_bytes_of,
    registers,
)
from trainwright.accelerator.segmented import run_segments
from trainwright.link.host import HostLink, Line, Link
from trainwright.link.protocol import WORD_BYTES, Request
from trainwright.link.serial_line import DEFAULT_BAUD, SerialLine
from trainwright.link.watch import LOST_SECONDS, await_run
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program
from trainwright.program.encoding import encode_descriptors
from trainwright.program.sample_order import SampleOrder

Answer = TypeVar("Answer")

RUN_SECONDS = 60.0
"""Seconds after which a run fails: the largest network takes a fraction of a second."""


class HostedAccelerator:
    """Accelerator at the other end of a link (``trainwright.accelerator.Accelerator``).

    A run of more than ``run_seconds`` fails. A run returns counters and statistics, but no traces.
    After a reset of the board the pending call raises ``AcceleratorReset``, and the next call sets
    the accelerator up again.

    A run continues on the board if the link fails or the host ends. The host that waits for the run
    retries the link for ``lost_seconds``; a new host takes the run over by ``attend``. Until the
    end of the run nothing else can be written or run.

    Raises ``AcceleratorError`` if the board does not answer or has other parameters.
    """

    def __init__(
        self,
        parameters: AcceleratorParameters,
        link: HostLink,
        *,
        run_seconds: float = RUN_SECONDS,
        lost_seconds: float = LOST_SECONDS,
    ):
        self._parameters, self._link = parameters, link
        self._run_seconds = run_seconds
        self._lost_seconds = lost_seconds
        self.resets = 0
        """See ``UnattendedAccelerator.resets``."""
        self._closed = False
        try:
            link.drain()
            self._open()
        except BaseException:
            link.close()
            raise

    def _open(self) -> None:
        self._link.hello()
        self._lost = False
        control.introduce(self, self._parameters)
        control.set_up(self, self._parameters, memory_bytes=self.memory_bytes)
        self._under_way = self._is_busy()  # a run that another host has started

    @property
    def parameters(self) -> AcceleratorParameters:
        """Parameters of the accelerator on the board."""
        return self._parameters

    @property
    def memory_bytes(self) -> int:
        """Size of the board's memory."""
        return self._link.memory_bytes

    @property
    def order(self) -> SampleOrder:
        """See ``Accelerator.order``."""
        return control.order(self, self._parameters)

    @order.setter
    def order(self, order: SampleOrder) -> None:
        self._require_idle()
        control.set_order(self, self._parameters, order)

    @property
    def exponents(self) -> list[int]:
        """Exponents of the exponent file, by slot.

        Raises ``AcceleratorError`` for an accelerator without an exponent file, and, when set,
        ``ProgramError`` for values that the file does not hold.
        """
        return control.exponents(self, self._parameters)

    @exponents.setter
    def exponents(self, values: list[int]) -> None:
        self._require_idle()
        control.set_exponents(self, self._parameters, values)

    @property
    def step(self) -> int:
        """Number of the present step; after a run, number of the step that comes next."""
        return control.step(self, self._parameters)

    def write(self, address: int, data: npt.NDArray[np.uint8]) -> None:
        """Write bytes to the board's memory. Raises ``ValueError`` for an address outside."""
        data = memory_bytes_of(data)
        self._check_place(address, data.size)
        self._require_idle()
        first, stop = _whole_words(address, data.size)
        if first != address or stop != address + data.size:
            around = self.read(first, stop - first)
            around[address - first : address - first + data.size] = data
            data = around
        self._write(Request.WRITE_MEMORY, first, data.view("<u4"))

    def read(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        """Read bytes of the board's memory. Raises ``ValueError`` for an address outside."""
        self._check_place(address, size)
        first, stop = _whole_words(address, size)
        words = self._read(Request.READ_MEMORY, first, (stop - first) // WORD_BYTES)
        return words.astype("<u4").view(np.uint8)[address - first : address - first + size].copy()

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        """Write a program to ``address`` and execute the program. See ``Accelerator.run``."""
        control.require_program(program, address, self._parameters, self.memory_bytes)
        self._require_idle()
        depth = self._parameters.statistics_depth
        return run_segments(program, depth, lambda part: self._run(part.program, address))

    def _run(self, program: Program, address: int) -> Run:
        """Run a program, or a part of it, once."""
        self.write(address, np.frombuffer(encode_descriptors(program), np.uint8))
        run = self._execute(program, address, seconds=self._run_seconds)
        self.write_register(registers.CONTROL, registers.CONTROL_CLEAR)
        return run

    def repeat(
        self, program: Program, times: int, *, address: int, step: int = 0, trace: bool = False
    ) -> Run:
        """Execute the program stored at ``address`` ``times`` times by one start.

        The first repetition has the step number ``step``. The run fails after ``times`` x
        ``run_seconds``. ``attend`` returns its results again until the next start. Raises
        ``AcceleratorError`` for an accelerator without an exponent file.
        """
        self._check_repetition(program, times, address)
        self._require_idle()
        seconds = times * self._run_seconds
        return self._execute(program, address, seconds=seconds, times=times, step=step)

    def attend(
        self, program: Program, times: int, *, address: int, step: int = 0, trace: bool = False
    ) -> Run | None:
        """See ``UnattendedAccelerator.attend``.

        The run on the board is recognised by the address and length of its program, its repetitions
        and its step number. The caller must know that the program itself is the same.
        """
        self._check_repetition(program, times, address)
        status = self.read_register(registers.STATUS)
        given = self.read_registers(registers.PROGRAM_ADDRESS, 2).tolist()
        given += self.read_registers(registers.TIMES, 1).tolist()
        at = (self.step - step) % (1 << 32)
        if given != [address, len(program.descriptors), times] or at > times:
            return None
        done = status & registers.STATUS_DONE and at == times
        if not (done or status & (registers.STATUS_BUSY | registers.STATUS_ERROR)):
            return None
        return self._finish(program, seconds=times * self._run_seconds)

    @property
    def kept(self) -> bool:
        """See ``UnattendedAccelerator.kept``: a reset clears TIMES."""
        return bool(self.read_register(registers.TIMES))

    def _check_repetition(self, program: Program, times: int, address: int) -> None:
        control.require_repetition(program, times, self._parameters)
        control.require_program(program, address, self._parameters, self.memory_bytes)

    def _execute(
        self, program: Program, address: int, *, seconds: float, times: int = 1, step: int = 0
    ) -> Run:
        control.start(self, program, address, self._parameters, times=times, step=step)
        return self._finish(program, seconds=seconds)

    def _finish(self, program: Program, *, seconds: float) -> Run:
        """Wait for the run under way and return its results; giving up does not stop the run."""
        p, begin = self._parameters, time.perf_counter()
        self._under_way = True
        await_run(self._link, self._is_busy, seconds=seconds, lost_seconds=self._lost_seconds)
        self._under_way = False
        control.check(self, program, p)
        seconds = time.perf_counter() - begin
        return Run(*control.statistics(self, p), control.counters(self), seconds)

    def _is_busy(self) -> bool:
        return bool(self.read_register(registers.STATUS) & registers.STATUS_BUSY)

    def _require_idle(self) -> None:
        if not self._under_way:
            return
        self._under_way = self._is_busy()
        if self._under_way:
            at = f" at step {self.step} of" if self._parameters.exponents else " in"
            raise AcceleratorError(
                f"the board at {self._link.name} is{at} a run that another host has started: go on "
                "with it by `trainwright train --resume` in its folder, wait for its end, or press "
                "the board's reset button"
            )

    def read_registers(self, address: int, count: int) -> npt.NDArray[np.uint32]:
        """Read ``count`` registers from ``address`` on."""
        return self._read(Request.READ_REGISTERS, address, count)

    def read_register(self, address: int) -> int:
        """Read one register."""
        return int(self.read_registers(address, 1)[0])

    def write_register(self, address: int, value: int) -> None:
        """Write one register."""
        self._write(Request.WRITE_REGISTERS, address, np.array([value], np.uint32))

    def close(self) -> None:
        """Close the line; idempotent."""
        self._closed = True
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, request: Request, address: int, count: int) -> npt.NDArray[np.uint32]:
        return self._asked(lambda: self._link.read(request, address, count))

    def _write(self, request: Request, address: int, words: npt.NDArray[np.uint32]) -> None:
        self._asked(lambda: self._link.write(request, address, words))

    def _asked(self, ask: Callable[[], Answer]) -> Answer:
        if self._closed:
            raise AcceleratorError("the accelerator was closed")
        if self._lost:
            self._open()
        try:
            return ask()
        except AcceleratorReset:
            self._lost = True
            self.resets += 1
            raise

    def _check_place(self, address: int, size: int) -> None:
        if address < 0 or size < 0 or address + size > self.memory_bytes:
            raise ValueError(
                f"bytes {address} to {address + size} are outside of the board's memory "
                f"({self.memory_bytes} bytes)"
            )


def _whole_words(address: int, size: int) -> tuple[int, int]:
    first = address // WORD_BYTES * WORD_BYTES
    return first, -(-(address + size) // WORD_BYTES) * WORD_BYTES


class LinkAccelerator(HostedAccelerator):
    """``HostedAccelerator`` behind a line; ``patience`` and ``attempts`` are those of ``Link``."""

    def __init__(
        self, parameters: AcceleratorParameters, line: Line, *, patience: float = 0.25,
        attempts: int = 8, **seconds: float,
    ):  # fmt: skip
        self.link = Link(line, patience=patience, attempts=attempts)
        """Link with its counts and the board's clock."""
        super().__init__(parameters, self.link, **seconds)


class SerialAccelerator(LinkAccelerator):
    """``LinkAccelerator`` at a serial port of this computer: back end ``serial:PORT``.

    ``target`` is the port, followed by ``@BAUD`` for another rate than the default.
    ``memory_bytes`` is ignored: the board reports the size of its memory.
    """

    def __init__(
        self, parameters: AcceleratorParameters, *, memory_bytes: int = 0, target: str = ""
    ):
        port, _, baud = target.partition("@")
        if not port:
            raise ValueError("name the board's port, as in serial:/dev/ttyUSB0")
        if baud and not (baud.isascii() and baud.isdecimal() and int(baud) > 0):
            raise ValueError(f"the rate behind @ must be a positive integer, not {baud!r}")
        line = SerialLine(port, baud=int(baud) if baud else DEFAULT_BAUD)
        super().__init__(parameters, line)
