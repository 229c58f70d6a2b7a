"""Serial lines that fail now and then."""

import random
from collections.abc import Callable


class FaultyLine:
    """A line that damages what passes, in both directions, from a seed.

    Of each byte: ``flip`` the chance that a bit of it turns over, ``lose`` that it never comes,
    ``noise`` that another byte comes before it. ``before_write`` is called before every write.
    """

    def __init__(self, line, *, seed=0, flip=0.0, lose=0.0, noise=0.0):
        self.line = line
        self.name, self.baud = line.name, line.baud
        self.before_write: Callable[[], None] = lambda: None
        self.damaged = 0
        self._random = random.Random(seed)
        self._chances = flip, lose, noise

    def _damage(self, data: bytes) -> bytes:
        flip, lose, noise = self._chances
        out = bytearray()
        for byte in data:
            if self._random.random() < noise:
                out.append(self._random.randrange(256))
                self.damaged += 1
            if self._random.random() < lose:
                self.damaged += 1
                continue
            if self._random.random() < flip:
                byte ^= 1 << self._random.randrange(8)
                self.damaged += 1
            out.append(byte)
        return bytes(out)

    def write(self, data: bytes) -> None:
        self.before_write()
        self.line.write(self._damage(data))

    def read(self, seconds: float) -> bytes:
        data = self.line.read(seconds)
        # what is lost whole takes no time off the patience of the reader: nothing came
        return self._damage(data)

    def drain(self) -> None:
        self.line.drain()

    def reopen(self) -> None:
        self.line.reopen()

    def close(self) -> None:
        self.line.close()
