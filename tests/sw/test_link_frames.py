"""Whatever comes on the line: the frames that were sent, or one clear error."""

from random import Random

import numpy as np
import pytest

from trainwright.accelerator import AcceleratorError
from trainwright.link.backend import LinkAccelerator
from trainwright.link.frames import MOST_BYTES, FrameDecoder, encode_frame
from trainwright.link.host import Link
from trainwright.link.protocol import ESCAPE, FLAG, VERSION, Request
from trainwright.parameters import AcceleratorParameters


def bodies(random: Random) -> list[bytes]:
    """Draw whole words, many of them of escaped bytes."""
    specials = [FLAG, ESCAPE, 0, 255, *range(0x5C, 0x60)]
    return [
        bytes(
            random.choice((random.choice(specials), random.randrange(256)))
            for _ in range(4 * words)
        )
        for words in random.choices(range(1, 12), k=random.randint(1, 6))
    ]


def split(random: Random, data: bytes) -> list[bytes]:
    parts = []
    while data:
        size = random.randint(1, 40)
        parts, data = [*parts, data[:size]], data[size:]
    return parts


def test_no_frame_comes_that_was_not_sent():
    """Seeded: bytes changed, lost, doubled; every body that comes was sent, and in that order."""
    whole = damaged = 0
    for seed in range(1500):
        random = Random(f"frames {seed}")
        sent = bodies(random)
        line = bytearray(b"".join(map(encode_frame, sent)))
        for _ in range(random.randint(0, 3)):
            at = random.randrange(len(line))
            kind = random.randrange(3)
            if kind == 0:
                line[at] = random.choice((FLAG, ESCAPE, random.randrange(256)))
            elif kind == 1:
                del line[at : at + random.randint(1, 6)]
            else:
                line[at:at] = random.choice((random.randbytes(5), line[at : at + 5]))
            if not line:
                break
        decoder, come = FrameDecoder(), []
        for part in split(random, bytes(line)):
            come += decoder.feed(part)
        rest = iter(sent)
        assert all(body in rest for body in come), seed
        whole += come == sent
        damaged += decoder.bad
    assert whole > 400 and damaged > 400


def test_link_frames_drop_bytes_outside_frames():
    decoder = FrameDecoder()
    assert not list(decoder.feed(bytes([FLAG])))
    for _ in range(100):
        assert not list(decoder.feed(b"x" * MOST_BYTES))
        assert len(decoder._pending) <= 3 * MOST_BYTES
    assert decoder.bad >= 1
    assert list(decoder.feed(bytes([FLAG]) + encode_frame(b"good"))) == [b"good"]


class Talker:
    """A board that answers anything: ``reply(request body)`` gives bodies of frames."""

    name, baud = "talker", 1e6

    def __init__(self, reply):
        self._reply, self._decoder, self._out = reply, FrameDecoder(), bytearray()
        self.writes = 0

    def write(self, data):
        self.writes += 1
        for body in self._decoder.feed(data):
            self._out += b"".join(map(encode_frame, self._reply(body)))

    def read(self, seconds):
        data, self._out = bytes(self._out[:700]), self._out[700:]
        return data

    def drain(self):
        self._out.clear()

    def close(self):
        pass


def test_sound_frames_of_nonsense():
    """Seeded: right CRCs and sequences, anything else inside: an error of ours, never another."""
    opened = 0
    for seed in range(400):
        random = Random(f"talker {seed}")

        def reply(body, random=random):
            head = bytes(
                [body[0], body[1], random.choice((0, 0, 0, 1, 2, 255)), random.getrandbits(8)]
            )
            words = random.choice((0, 1, 3, body[2] + 1, body[2] + 1, 4, 300))
            data = np.array([random.getrandbits(32) for _ in range(words)], "<u4")
            if body[1] == Request.HELLO and words and random.random() < 0.8:
                data[0] = VERSION
            return [head + data.tobytes()] * random.choice((1, 1, 0, 3))

        try:
            link = Link(Talker(reply), attempts=2)
            link.hello()
            opened += 1
            words = link.read(Request.READ_MEMORY, 0, 5)
            assert words.shape == (5,)
            link.write(Request.WRITE_MEMORY, 0, words)
            LinkAccelerator(AcceleratorParameters(), Talker(reply), attempts=2)
        except AcceleratorError as error:
            assert "\n" not in str(error)
    assert opened > 40


def test_link_frames_board_that_talks_without_end_is_given_up():
    """Sound frames for another request, as many as are read."""

    class Endless(Talker):
        def read(self, seconds):
            self.reads = getattr(self, "reads", 0) + 1
            assert self.reads < 10_000
            return encode_frame(bytes([99, 99, 0, 0]))

    line = Endless(lambda body: [])
    with pytest.raises(AcceleratorError, match="no answer from the board at talker in 3 attempts"):
        Link(line, attempts=3).hello()
    assert line.writes == 3
