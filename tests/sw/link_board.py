"""A board in Python at the end of a line: frames, registers and memory, and no accelerator."""

from collections.abc import Callable

import numpy as np

from trainwright.accelerator import registers
from trainwright.link.frames import FrameDecoder, encode_frame
from trainwright.link.host import LinkError
from trainwright.link.protocol import VERSION, Request, Status
from trainwright.parameters import AcceleratorParameters


class Board:
    """A line to a board whose runs end when ``run_ends`` looks have been answered.

    ``gone``: how many requests from now on find no line. ``at_look`` is called before each look at
    STATUS of a run under way, and may raise.
    """

    name, baud = "the line", 3e6

    def __init__(self, parameters: AcceleratorParameters, *, memory_bytes: int = 1 << 16):
        self.memory = np.zeros(memory_bytes, np.uint8)
        self.registers: dict[int, int] = {}
        self.looks_left = self.gone = self.reopened = self.starts = 0
        self.refuses_to_open = False
        self.at_look: Callable[[], None] = lambda: None
        self._decoder, self._answer = FrameDecoder(), b""
        self._fingerprint = parameters.fingerprint
        self.session = False
        self.reset()

    def reset(self):
        """Reset each register; the memory keeps its contents."""
        self.session = False
        self.registers = {
            registers.IDENTITY: registers.IDENTITY_VALUE,
            registers.FINGERPRINT: self._fingerprint,
        }

    def begin(self, count: int):
        """Begin a run that is busy for the next ``count`` reads of STATUS."""
        self.registers[registers.STATUS] = registers.STATUS_BUSY
        self.looks_left = count

    def write(self, data: bytes):
        if self.gone:
            self.gone -= 1
            raise LinkError("no line")
        for body in self._decoder.feed(data):
            self._answer += encode_frame(self._reply(body))

    def read(self, seconds: float) -> bytes:
        answer, self._answer = self._answer, b""
        return answer

    def drain(self):
        self._answer = b""

    def reopen(self):
        self.reopened += 1
        if self.refuses_to_open:
            raise LinkError("no port")

    def close(self):
        pass

    def _reply(self, body: bytes) -> bytes:
        sequence, request, count = body[0], body[1], body[2] + 1
        address, words = int.from_bytes(body[4:8], "little"), np.frombuffer(body[8:], "<u4")
        status, answer = Status.OK, []
        if request == Request.HELLO:
            self.session = True
            answer = [VERSION, 60_000_000, self.memory.size, 0]
        elif not self.session:
            status = Status.NO_SESSION
        elif request == Request.READ_REGISTERS:
            answer = [self._register(address + 4 * n) for n in range(count)]
        elif request == Request.WRITE_REGISTERS:
            for n, word in enumerate(words.tolist()):
                self._set(address + 4 * n, word)
        elif request == Request.READ_MEMORY:
            answer = self.memory[address : address + 4 * count].view("<u4").tolist()
        else:
            self.memory[address : address + words.nbytes] = words.view(np.uint8)
        head = bytes([sequence, request, status, 0])
        return head + np.array(answer, "<u4").tobytes()

    def _register(self, address: int) -> int:
        value = self.registers.get(address, 0)
        if address == registers.STATUS and value & registers.STATUS_BUSY:
            self.at_look()
            self.looks_left -= 1
            if self.looks_left < 0:
                self.registers[address] = value = registers.STATUS_DONE
                times = self.registers.get(registers.TIMES, 0)
                self.registers[registers.STEP] = self.registers.get(registers.STEP, 0) + times
        return value

    def _set(self, address: int, word: int):
        if address == registers.CONTROL:
            self.registers[registers.STATUS] = 0
            if word & registers.CONTROL_START:
                self.starts += 1
                self.begin(3)
        else:
            self.registers[address] = word
