"""The host's side of the link: requests, repeated until they are answered."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import AcceleratorError, AcceleratorReset
from trainwright.link.frames import MOST_BYTES, FrameDecoder, encode_frame
from trainwright.link.protocol import MOST_WORDS, VERSION, WORD_BYTES, Hello, Request, Status

BITS_A_BYTE = 10
"""Bits that a byte takes on the line, start and stop bit included."""

MOST_UNASKED = 32 * MOST_BYTES
"""Bytes without an answer after which a line counts as faulty: late replies have fewer."""


class Connection(Protocol):
    """A board at the other end of a line or a bus, which may fail and be opened again."""

    @property
    def name(self) -> str:
        """Name of the connection in messages, such as the path of its device."""
        ...

    def drain(self) -> None:
        """Discard the bytes that have come."""
        ...

    def reopen(self) -> None:
        """Open a connection that failed again. Raises ``LinkError`` where that fails."""
        ...

    def close(self) -> None:
        """Close the connection; idempotent."""
        ...


class Line(Connection, Protocol):
    """A serial line."""

    @property
    def baud(self) -> float:
        """Bits a second."""
        ...

    def write(self, data: bytes, /) -> None:
        """Send bytes."""
        ...

    def read(self, seconds: float, /) -> bytes:
        """Return the bytes that have come, at least one unless ``seconds`` pass without any."""
        ...


class HostLink(Connection, Protocol):
    """Access to the registers and the memory of an accelerator, in words of 32 bits."""

    memory_bytes: int
    """Bytes of the accelerator's memory, known after ``hello``."""

    def hello(self) -> None:
        """Open a session."""
        ...

    def read(self, request: Request, address: int, count: int, /) -> npt.NDArray[np.uint32]:
        """Read ``count`` words from a byte address on."""
        ...

    def write(self, request: Request, address: int, words: npt.NDArray[np.uint32], /) -> None:
        """Write words from a byte address on."""
        ...

    def rest(self, seconds: float, /) -> None:
        """Pass time without asking the accelerator anything."""
        ...


class LinkError(AcceleratorError):
    """The board does not answer, or answers wrongly."""


@dataclass
class LinkCounts:
    """Errors of a line so far that were recovered."""

    requests: int = 0
    repeats: int = 0
    bad_frames: int = 0
    """Damaged frames among the board's replies."""


class Link:
    """Reads and writes registers and memory of a board, in words of 32 bits.

    A request that is not answered within ``patience`` seconds, the time on the line added, is
    repeated, ``attempts`` times in all. Raises ``LinkError`` after the last attempt, and
    ``AcceleratorReset`` when the board was reset since ``hello``.
    """

    def __init__(self, line: Line, *, patience: float = 0.25, attempts: int = 8):
        self._line = line
        self._patience = patience
        self._attempts = attempts
        self._sequence = 0
        self._decoder = FrameDecoder()
        self.counts = LinkCounts()
        self.clock_hz = 0
        self.memory_bytes = 0

    def hello(self) -> None:
        """Open a session; learn ``clock_hz`` and ``memory_bytes``."""
        words = self._request(Request.HELLO, 0, len(Hello))
        if len(words) != len(Hello) or words[Hello.VERSION] != VERSION:
            version = int(words[Hello.VERSION]) if len(words) else 0
            raise LinkError(
                f"the board at {self._line.name} speaks version 0x{version:08x} of the link, not "
                f"0x{VERSION:08x}: load a bitstream of this trainwright (`trainwright build`)"
            )
        self.clock_hz = int(words[Hello.CLOCK_HZ])
        self.memory_bytes = int(words[Hello.MEMORY_BYTES])

    def read(self, request: Request, address: int, count: int) -> npt.NDArray[np.uint32]:
        """Read ``count`` words from a byte address on."""
        parts = [
            self._request(request, address + WORD_BYTES * start, min(MOST_WORDS, count - start))
            for start in range(0, count, MOST_WORDS)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint32)

    def write(self, request: Request, address: int, words: npt.NDArray[np.uint32]) -> None:
        """Write words from a byte address on."""
        for start in range(0, len(words), MOST_WORDS):
            part = words[start : start + MOST_WORDS]
            self._request(request, address + WORD_BYTES * start, len(part), part)

    @property
    def name(self) -> str:
        """Name of the line."""
        return self._line.name

    def rest(self, seconds: float) -> None:
        """Wait without a request, and discard late replies."""
        for _ in self._decoder.feed(self._line.read(seconds)):
            pass  # a late reply to a request that was repeated

    def drain(self) -> None:
        """Discard the bytes that have come."""
        self._line.drain()

    def reopen(self) -> None:
        """Open a line again that failed; the session on the board goes on."""
        self._line.reopen()
        self._decoder.clear()

    def close(self) -> None:
        """Close the line; idempotent."""
        self._line.close()

    def _request(
        self,
        request: Request,
        address: int,
        count: int,
        words: npt.NDArray[np.uint32] | None = None,
    ) -> npt.NDArray[np.uint32]:
        self._sequence = (self._sequence + 1) & 0xFF
        header = bytes([self._sequence, request, count - 1, 0])
        data = b"" if words is None else words.astype("<u4").tobytes()
        frame = encode_frame(header + address.to_bytes(WORD_BYTES, "little") + data)
        expected = 0 if words is not None else count
        seconds = self._patience
        seconds += 2 * BITS_A_BYTE * (len(frame) + WORD_BYTES * expected) / self._line.baud
        self.counts.requests += 1
        for attempt in range(self._attempts):
            self.counts.repeats += attempt > 0
            self._line.write(frame)
            reply = self._reply(request, expected, seconds)
            if reply is not None:
                return reply
        raise LinkError(
            f"no answer from the board at {self._line.name} in {self._attempts} attempts of "
            f"{seconds:.2g} s: is it powered, loaded (`trainwright load`) and at "
            f"{self._line.baud:g} baud? ({self._decoder.bad} damaged frames came)"
        )

    def _reply(
        self, request: Request, expected: int, seconds: float
    ) -> npt.NDArray[np.uint32] | None:
        """Return the answer to the last request; None where it is late or damaged."""
        damaged, come = self._decoder.bad, 0
        while come < MOST_UNASKED and (data := self._line.read(seconds)):
            come += len(data)
            for body in self._decoder.feed(data):
                if body[:2] != bytes([self._sequence, request]):
                    continue  # a late reply to a request that was repeated
                status = body[2]
                if status == Status.NO_SESSION:
                    raise AcceleratorReset(f"the board at {self._line.name} was reset")
                if status != Status.OK:
                    raise LinkError(f"the board at {self._line.name} refused {request.name}")
                words = np.frombuffer(body[WORD_BYTES:], "<u4")
                if request == Request.HELLO or len(words) == expected:
                    return words
            if self._decoder.bad != damaged:
                self.counts.bad_frames += self._decoder.bad - damaged
                return None
        return None
