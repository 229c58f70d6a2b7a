"""Frames as bytes (``trainwright.link.protocol``)."""

import zlib
from collections.abc import Iterator

from trainwright.link.protocol import ESCAPE, ESCAPE_XOR, FLAG, MOST_WORDS, WORD_BYTES

MOST_BYTES = WORD_BYTES * (MOST_WORDS + 3)
_FLAG = bytes([FLAG])
_ESCAPED = {byte: bytes([ESCAPE, byte ^ ESCAPE_XOR]) for byte in (ESCAPE, FLAG)}


def encode_frame(body: bytes) -> bytes:
    """Return the bytes on the line for a frame of ``body``."""
    whole = body + zlib.crc32(body).to_bytes(WORD_BYTES, "little")
    for byte, escaped in _ESCAPED.items():  # ESCAPE first
        whole = whole.replace(bytes([byte]), escaped)
    return _FLAG + whole + _FLAG


class FrameDecoder:
    """Finder of frames in bytes as they arrive. ``bad`` counts damaged and incomplete frames."""

    def __init__(self) -> None:
        self.bad = 0
        self._pending = bytearray()
        self._hunting = True

    def clear(self) -> None:
        """Drop what has come, up to the next flag."""
        self._pending.clear()
        self._hunting = True

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the bodies of the good frames that end in ``data``."""
        parts = bytes(data).split(_FLAG)
        for number, part in enumerate(parts):
            if not self._hunting:
                self._pending += part
            if len(self._pending) > 2 * MOST_BYTES:
                self.bad += 1
                self.clear()
            if number == len(parts) - 1:
                return
            if self._pending:
                body = _decode(bytes(self._pending))
                self._pending.clear()
                if body is None:
                    self.bad += 1
                else:
                    yield body
            self._hunting = False


def _decode(escaped: bytes) -> bytes | None:
    whole, pending = bytearray(), 0
    for byte in escaped:
        if byte == ESCAPE and not pending:
            pending = ESCAPE_XOR
        else:
            whole.append(byte ^ pending)
            pending = 0
    body, crc = whole[:-WORD_BYTES], whole[-WORD_BYTES:]
    sound = not pending and len(body) >= WORD_BYTES and len(whole) % WORD_BYTES == 0
    return bytes(body) if sound and zlib.crc32(body) == int.from_bytes(crc, "little") else None
