"""The host link: real driver, real gateware, a line between them that is simulated and fails."""

import os
import random
import threading
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
from serial_lines import FaultyLine
from slowly import mostly_slow

from trainwright.accelerator import AcceleratorError, AcceleratorReset, open_accelerator, registers
from trainwright.link.backend import LinkAccelerator
from trainwright.link.frames import encode_frame
from trainwright.link.host import Link, LinkError
from trainwright.link.protocol import MOST_WORDS, Request
from trainwright.parameters import AcceleratorParameters
from trainwright.program.encoding import encode_descriptors
from trainwright_sim.board import CLOCK_HZ, SimulatedLine, open_line
from trainwright_sim.copier import DEFAULT_OFFSET, Copier

P = AcceleratorParameters(lanes=8)
MEMORY_BYTES = 1 << 17
PATIENCE = 1e-4


@pytest.fixture(scope="module")
def board() -> Iterator[SimulatedLine]:
    """Simulate a board whose accelerator is a copier."""
    line = open_line(P, memory_bytes=MEMORY_BYTES, accelerator=Copier(P))
    yield line
    line.close()


@pytest.fixture
def line(board) -> SimulatedLine:
    board.reset()
    board.drain()
    return board


@pytest.fixture
def link(line) -> Link:
    link = Link(line, patience=PATIENCE)
    link.hello()
    return link


def words(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint32)


class Kept:
    """A line that a test does not close."""

    def __init__(self, line):
        self._line = line

    def __getattr__(self, name):
        return getattr(self._line, name)

    def close(self) -> None:
        pass


def accelerator(line, **options) -> LinkAccelerator:
    return LinkAccelerator(P, Kept(line), patience=PATIENCE, **options)


def test_hello_tells_of_the_board(link):
    assert link.memory_bytes == MEMORY_BYTES
    assert link.clock_hz == CLOCK_HZ


@pytest.mark.parametrize("count", [1, 2, MOST_WORDS - 1, MOST_WORDS, MOST_WORDS + 1, 1000])
def test_link_memory_returns_written_words(link, count):
    data = words(count, seed=count)
    address = MEMORY_BYTES - 4 * count
    link.write(Request.WRITE_MEMORY, address, data)
    assert (link.read(Request.READ_MEMORY, address, count) == data).all()
    assert link.counts.repeats == 0


def test_every_byte_value_passes(link):
    data = np.arange(256, dtype=np.uint8).repeat(4).view(np.uint32)
    link.write(Request.WRITE_MEMORY, 0, data)
    assert (link.read(Request.READ_MEMORY, 0, len(data)) == data).all()


def test_registers_are_those_of_the_accelerator(link):
    values = link.read(Request.READ_REGISTERS, registers.IDENTITY, 2).tolist()
    assert values == [registers.IDENTITY_VALUE, P.fingerprint]
    link.write(Request.WRITE_REGISTERS, registers.PROGRAM_ADDRESS, words(1))
    assert (link.read(Request.READ_REGISTERS, registers.PROGRAM_ADDRESS, 1) == words(1)).all()


@pytest.mark.parametrize("size, address", [(1, 0), (3, 1), (4, 4), (7, 2), (1025, 3), (0, 5)])
def test_bytes_at_any_address(line, size, address):
    with accelerator(line) as board:
        around = np.arange(2000, dtype=np.uint8)
        board.write(0, around)
        data = words(size).view(np.uint8)[:size]
        board.write(address, data)
        around[address : address + size] = data
        assert (board.read(0, around.size) == around).all()
        assert (board.read(address, size) == data).all()


def test_link_runs_program_once(line, make_program):
    program = make_program(P, 9)
    with accelerator(line) as board:
        run = board.run(program, 4096)
        size = len(encode_descriptors(program))
        assert bytes(board.read(4096 + DEFAULT_OFFSET, size)) == encode_descriptors(program)
        assert run.sums[0] == size // P.beat_bytes
        assert run.counters.cycles > 0


def test_link_rejects_address_outside_memory(line, link):
    with pytest.raises(LinkError, match="refused READ_MEMORY"):
        link.read(Request.READ_MEMORY, MEMORY_BYTES - 4, 2)
    with accelerator(line) as board, pytest.raises(ValueError, match="outside of the board's"):
        board.write(MEMORY_BYTES - 1, np.zeros(2, np.uint8))


@pytest.mark.parametrize(
    "request_number, length", [(9, 0), (Request.READ_MEMORY, 1), (Request.WRITE_MEMORY, 2)]
)
def test_link_rejects_malformed_request(line, link, request_number, length):
    body = bytes([200, request_number, 0, 0]) + bytes(4 + 4 * length)
    line.write(encode_frame(body))
    reply = bytes(line.read(PATIENCE))
    while reply.count(b"~") < 2:
        reply += line.read(PATIENCE)
    assert reply[:4] == bytes([0x7E, 200, request_number, 2])


DAMAGE = [{"flip": 0.002}, {"lose": 0.002}, {"noise": 0.002}, {"flip": 1e-3, "lose": 1e-3}]


@pytest.mark.parametrize("damage", DAMAGE, ids=str)
@mostly_slow("seed", range(3), quick=[0])
def test_damage_is_mended(line, damage, seed):
    faulty = FaultyLine(line, seed=seed, **damage)
    link = Link(faulty, patience=PATIENCE, attempts=40)
    link.hello()
    for number in range(12):
        data = words(random.Random(number).randrange(1, 200), seed=number)
        link.write(Request.WRITE_MEMORY, 512 * number, data)
        assert (link.read(Request.READ_MEMORY, 512 * number, len(data)) == data).all()
    assert faulty.damaged > 0
    assert link.counts.repeats > 0


def test_link_runs_program_once_on_damaged_line(line, make_program):
    """A start that is repeated, as its answer was lost, is no second start."""
    program = make_program(P, 5)
    for seed in range(6):
        faulty = FaultyLine(line, seed=seed, flip=5e-4, lose=3e-4)
        with accelerator(faulty, attempts=40) as board:
            run = board.run(program, 0)
            size = len(encode_descriptors(program))
            assert run.sums[0] == size // P.beat_bytes
            assert bytes(board.read(DEFAULT_OFFSET, size)) == encode_descriptors(program)


def test_link_repeated_write_is_applied_once(line, link):
    """A repeated sequence number is answered and not applied again."""
    address = registers.PROGRAM_ADDRESS.to_bytes(4, "little")
    for value, sequence in ((5, 77), (6, 77)):
        body = bytes([sequence, Request.WRITE_REGISTERS, 0, 0]) + address + bytes([value, 0, 0, 0])
        line.write(encode_frame(body))
        assert line.read(PATIENCE)
        line.drain()
    link._sequence = 90
    assert link.read(Request.READ_REGISTERS, registers.PROGRAM_ADDRESS, 1) == [5]


@pytest.mark.parametrize("seed", range(4))
def test_noise_before_a_frame_does_no_harm(line, link, seed):
    noise = random.Random(seed).randbytes(700)
    line.write(noise)
    data = words(20)
    link.write(Request.WRITE_MEMORY, 0, data)
    assert (link.read(Request.READ_MEMORY, 0, 20) == data).all()


def test_bad_frames_are_counted_by_the_board(line, link):
    body = encode_frame(bytes(8))
    line.write(body[:-2] + bytes([body[-2] ^ 1]) + body[-1:])
    assert link._request(Request.HELLO, 0, 4)[3] == 1


def test_half_a_frame_and_then_a_whole_one(line, link):
    line.write(encode_frame(bytes(range(1, 100)))[:50])
    data = words(3)
    link.write(Request.WRITE_MEMORY, 64, data)
    assert (link.read(Request.READ_MEMORY, 64, 3) == data).all()


def test_link_notices_board_reset(line):
    with accelerator(line) as board:
        board.write(0, np.zeros(64, np.uint8))
        line.reset()
        with pytest.raises(AcceleratorReset, match="was reset"):
            board.read(0, 64)
        # and then all is as before
        assert board.read_register(registers.IDENTITY) == registers.IDENTITY_VALUE
        assert board.read_register(registers.INTERRUPT_ENABLE) == 1


def test_link_notices_reset_within_frame(line):
    faulty = FaultyLine(line)
    with accelerator(faulty) as board:
        sent = []

        def halfway() -> None:
            if not sent:
                line.write(b"~" + bytes(30))
                line.reset()
            sent.append(1)

        faulty.before_write = halfway
        with pytest.raises(AcceleratorReset):
            board.write(0, np.ones(4000, np.uint8))
        board.write(0, np.ones(4000, np.uint8))
        assert (board.read(0, 4000) == 1).all()


def test_link_silent_line_is_one_error(line):
    faulty = FaultyLine(line, lose=1.0)
    with pytest.raises(LinkError, match=r"no answer from the board at the simulated line in 3 att"):
        LinkAccelerator(P, Kept(faulty), patience=PATIENCE, attempts=3)


def test_another_design_is_named(line):
    other = AcceleratorParameters()
    with pytest.raises(AcceleratorError, match=f"other parameters .*{P.fingerprint:08x}"):
        LinkAccelerator(other, Kept(line), patience=PATIENCE)


@pytest.fixture
def port(line) -> Iterator[str]:
    """Open the board at a pseudo-terminal of this computer."""
    pty = pytest.importorskip("pty", reason="pseudo-terminals are Unix")
    tty = pytest.importorskip("tty")
    ours, theirs = pty.openpty()
    tty.setraw(ours)
    tty.setraw(theirs)
    os.set_blocking(ours, False)
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            with suppress(BlockingIOError):
                line.write(os.read(ours, 4096))
            if data := line.read(1e-5):
                os.write(ours, data)

    server = threading.Thread(target=serve)
    server.start()
    yield os.ttyname(theirs)
    stop.set()
    server.join()
    os.close(ours)
    os.close(theirs)


def test_serial_backend_runs_at_pseudo_terminal(port, make_program):
    pytest.importorskip("serial", reason="pyserial is not installed")
    from trainwright.link.backend import SerialAccelerator

    with SerialAccelerator(P, target=port) as board:
        data = words(600).view(np.uint8)
        board.write(100, data)
        assert (board.read(100, data.size) == data).all()
        assert board.run(make_program(P, 4), 4096).counters.cycles > 0


@pytest.mark.parametrize(
    "target, message",
    [
        ("", "name the board's port"),
        ("/dev/ttyNONE", "cannot open /dev/ttyNONE"),
        ("/dev/ttyNONE@fast", "rate behind @ must be a positive integer, not 'fast'"),
    ],
)
def test_serial_backend_rejects_bad_port(target, message):
    pytest.importorskip("serial", reason="pyserial is not installed")
    from trainwright.link.backend import SerialAccelerator

    with pytest.raises((ValueError, LinkError), match=message):
        SerialAccelerator(P, target=target)


def test_backend_target_follows_colon():
    from trainwright.accelerator import backend_names

    if "serial" not in backend_names():
        pytest.skip("the back end 'serial' is not installed: install trainwright again")
    pytest.importorskip("serial", reason="pyserial is not installed")
    with pytest.raises(LinkError, match="cannot open /dev/ttyNONE"):
        open_accelerator("serial:/dev/ttyNONE", P, memory_bytes=64)


def test_frames_survive_any_split():
    from trainwright.link.frames import FrameDecoder

    bodies = [bytes(random.Random(n).randbytes(4 * (n % 9 + 1))) for n in range(40)]
    stream = b"\x11\x22" + b"".join(encode_frame(body) for body in bodies)
    for seed in range(5):
        decoder, decoded, rest = FrameDecoder(), [], stream
        rng = random.Random(seed)
        while rest:
            size = rng.randrange(1, 30)
            decoded += decoder.feed(rest[:size])
            rest = rest[size:]
        assert decoded == bodies
        assert decoder.bad == 0
