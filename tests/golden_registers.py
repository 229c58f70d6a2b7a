"""Registers of an accelerator in front of the golden model, as drivers see them."""

import numpy as np

from trainwright.accelerator import registers
from trainwright.accelerator.interface import Run
from trainwright.golden.backend import GoldenAccelerator
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program
from trainwright.program.encoding import decode_descriptor
from trainwright.program.fields import DESCRIPTOR_BYTES
from trainwright.program.sample_order import SampleOrder


class GoldenRegisters:
    """Register port whose CONTROL runs the program in memory on the golden model.

    After a start STATUS is busy for two reads. Writes while it is busy are errors: no driver may do
    that.
    """

    def __init__(self, parameters: AcceleratorParameters, memory_bytes: int):
        self.golden = GoldenAccelerator(parameters, memory_bytes=memory_bytes)
        self.busy = 0
        self.starts: list[tuple[int, int, int, int]] = []
        """Address, length, times and step of each start."""
        self.words = {
            registers.IDENTITY: registers.IDENTITY_VALUE,
            registers.FINGERPRINT: parameters.fingerprint,
            registers.TIMES: 1,
        }
        self.run: Run | None = None

    def read(self, offset: int) -> int:
        p = self.golden.parameters
        if offset == registers.STATUS and self.busy:
            self.busy -= 1
            return registers.STATUS_BUSY
        order = offset - registers.ORDER
        if 0 <= order < 12:
            now = self.golden.order
            return (now.next, now.increment, now.left)[order // 4]
        slot = (offset - registers.EXPONENTS_BASE) // 4
        if 0 <= slot < p.exponents:
            return self.golden.exponents[slot] & 0xFFFFFFFF
        place = offset - registers.STATISTICS_BASE
        if place >= 0 and self.run:
            slot, field = divmod(place, registers.STATISTICS_BYTES)
            total = int(self.run.sums[slot])
            counts = self.run.saturations, self.run.underflows
            words = total & 0xFFFFFFFF, total >> 32, *(int(count[slot]) for count in counts)
            return words[field // 4]
        return self.words.get(offset, 0)

    def write(self, offset: int, value: int) -> None:
        assert not self.busy, f"register {offset:#x} written under a run"
        order = offset - registers.ORDER
        slot = (offset - registers.EXPONENTS_BASE) // 4
        if 0 <= order < 12:
            now = self.golden.order
            words = [now.next, now.increment, now.left]
            words[order // 4] = value
            self.golden.order = SampleOrder(*words)
        elif 0 <= slot < self.golden.parameters.exponents:
            values = self.golden.exponents
            values[slot] = int(np.uint32(value).astype(np.int32))
            self.golden.exponents = values
        elif offset == registers.CONTROL:
            if value & registers.CONTROL_CLEAR:
                self.words[registers.STATUS] = 0
            if value & registers.CONTROL_START:
                self._start()
        else:
            self.words[offset] = value

    def _start(self) -> None:
        address = self.words[registers.PROGRAM_ADDRESS]
        length = self.words[registers.PROGRAM_LENGTH]
        times, step = self.words[registers.TIMES], self.words.get(registers.STEP, 0)
        self.starts.append((address, length, times, step))
        encoded = self.golden.read(address, length * DESCRIPTOR_BYTES).tobytes()
        program = Program(
            tuple(
                decode_descriptor(encoded[n : n + DESCRIPTOR_BYTES])
                for n in range(0, len(encoded), DESCRIPTOR_BYTES)
            ),
            self.golden.parameters.fingerprint,
        )
        if self.golden.parameters.exponents:
            self.run = self.golden.repeat(program, times, address=address, step=step)
            self.words[registers.STEP] = step + times
        else:
            self.run = self.golden.run(program, address)
        self.busy, self.words[registers.STATUS] = 2, registers.STATUS_DONE
