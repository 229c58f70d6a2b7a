"""Protocol between host and board: frames, operations, status (``docs/reference/link.md``).

A frame lies between two ``FLAG`` bytes; inside, ``FLAG`` and ``ESCAPE`` are sent as ``ESCAPE`` and
the byte with ``ESCAPE_XOR``. Unescaped it is words of 32 bits, little-endian: a header, a payload,
and the CRC-32 of both (that of zlib).
"""

from enum import IntEnum

FLAG = 0x7E
ESCAPE = 0x7D
ESCAPE_XOR = 0x20

WORD_BYTES = 4
MOST_WORDS = 256
"""Words of a payload at most."""
VERSION = 0x54524C32
"""First word of HELLO's answer: "TRL2"."""


class Request(IntEnum):
    """The second byte of a request.

    A request is ``sequence, request, words - 1, 0``, then the address (0 for HELLO), then what is
    written.
    """

    HELLO = 0
    READ_REGISTERS = 1
    WRITE_REGISTERS = 2
    READ_MEMORY = 3
    WRITE_MEMORY = 4


WRITES = (Request.WRITE_REGISTERS, Request.WRITE_MEMORY)


class Status(IntEnum):
    """The third byte of a reply.

    A reply is ``sequence, request, status, 0``, then what was read. A status other than OK has no
    payload, and the request had no effect.
    """

    OK = 0
    NO_SESSION = 1
    """The board was reset since the last HELLO, or never had one."""
    REFUSED = 2
    """Unknown request, wrong length, or an address outside of the memory."""


class Hello(IntEnum):
    """Words of the answer to HELLO."""

    VERSION = 0
    CLOCK_HZ = 1
    MEMORY_BYTES = 2
    BAD_FRAMES = 3
    """Frames that the board dropped since it was reset."""
