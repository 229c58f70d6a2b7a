"""Contents of files that state their own size: read that many bytes, and one more.

So a small file that unpacks to more than it states is found out before it fills the memory.
"""

from typing import Protocol

MOST_BYTES = 1 << 31
"""Bytes of one array, unpacked: forty times the images of MNIST."""
_CHUNK = 1 << 20


class Readable(Protocol):
    """A binary stream."""

    def read(self, size: int, /) -> bytes:
        """Read at most ``size`` bytes, none at the end."""
        ...


def read_stated(stream: Readable, size: int) -> bytearray:
    """Read ``size`` bytes, and one more where there is one; fewer where the stream ends.

    Raises what the stream raises.
    """
    content = bytearray()
    while block := stream.read(min(_CHUNK, size + 1 - len(content))):
        content += block
    return content
