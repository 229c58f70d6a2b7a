"""Cases that random programs meet too seldom.

Programs after an error, a reset at any cycle, the ends of every field, an older command that is
slow, and programs that are damaged.
"""

import zlib
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from accelerators import BUSY

from trainwright.accelerator import registers
from trainwright.golden.backend import GoldenAccelerator
from trainwright.program.descriptors import (
    Compute,
    Descriptor,
    End,
    Halt,
    Level,
    Loop,
    Program,
    Set,
    Transfer,
    TransferLevel,
)
from trainwright.program.encoding import HEADER, MAGIC, VERSION, decode, encode_descriptors
from trainwright.program.errors import ProgramError
from trainwright.program.fields import DESCRIPTOR_BYTES, Engine, Operation
from trainwright.program.footprint import footprint
from trainwright.program.validation import check_program
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.library import Simulator, Stop
from trainwright_sim.memory import MemoryModel

P = BUSY
MEMORY_BYTES, PROGRAM, OUT = 1 << 16, 0xC000, 0x8000
ROWS, RESULTS = P.scratchpad_rows, 512
CONTRACTIONS = (Operation.PE3, Operation.PE4)
OPERATIONS = (*CONTRACTIONS, Operation.BIAS, Operation.MASK)


@pytest.fixture(scope="module")
def rtl() -> Iterator[RtlAccelerator]:
    with RtlAccelerator(P, memory_bytes=MEMORY_BYTES, hang_cycles=20_000) as accelerator:
        yield accelerator


def data(seed: int) -> np.ndarray:
    """Draw words of all sizes: sums of 2^14 products of two words fit the accumulators."""
    return np.random.default_rng(seed).integers(0, 256, MEMORY_BYTES, np.uint8)


def loads() -> list[Descriptor]:
    """Load everything."""
    rows = Transfer(operation=Operation.LOAD, address=0, local=0, beats=2 * ROWS)
    return [rows, Loop(iterations=1, wait=Engine.ALL), End()]


def stores() -> list[Descriptor]:
    """Store everything."""
    store = Transfer(
        operation=Operation.STORE, address=OUT, local=0, beats=2 * ROWS // 2, wait=Engine.ALL
    )
    return [replace(store, local=RESULTS), Halt(wait=Engine.ALL)]


def program(*body: Descriptor) -> Program:
    return Program((*loads(), *body, *stores()), P.fingerprint)


def assert_same(rtl: RtlAccelerator, body: Program, seed: int = 0) -> None:
    """Check rows in writing order, statistics and memory against the golden model."""
    golden = GoldenAccelerator(P, memory_bytes=MEMORY_BYTES)
    for accelerator in (rtl, golden):
        accelerator.write(0, data(seed))
    golden.write(PROGRAM, np.frombuffer(encode_descriptors(body), np.uint8))
    want, got = (a.run(body, PROGRAM, trace=True) for a in (golden, rtl))
    for engine, trace in want.traces.items():
        assert got.traces[engine].addresses.tolist() == trace.addresses.tolist(), engine
        assert np.array_equal(got.traces[engine].rows, trace.rows), engine
    assert got.sums.tolist() == want.sums.tolist()
    assert got.saturations.tolist() == want.saturations.tolist()
    assert np.array_equal(rtl.read(0, PROGRAM), golden.read(0, PROGRAM))


def reduction(operation: Operation, **options) -> Compute:
    """Make a command that sums over several steps."""
    by_entries = operation is Operation.PE4
    rows = P.pe1_rows if by_entries else P.pe2_rows
    plain = Compute(
        operation=operation, levels=(Level(3, x=5, z=rows), Level(6, x=3, g=2)), x=0, g=0,
        z=RESULTS, reduce_levels=1, last_rows=rows - 1, x_row_stride=int(by_entries),
        z_row_stride=1, g_row_stride=int(by_entries), shift=18, slot=1,
    )  # fmt: skip
    return replace(plain, **options)


GOOD = program(
    reduction(Operation.PE4),
    reduction(Operation.PE3, z=RESULTS + 16, slot=2),
    reduction(Operation.PE4, g=20, z=RESULTS + 32, slot=3),
    reduction(Operation.PE3, x=7, g=30, z=RESULTS + 48, slot=4),
)

# What comes after an error.


def started(rtl: RtlAccelerator, body: bytes, length: int, *, watchdog: int = 20_000) -> Simulator:
    """Return the simulation with a program begun that no driver would give."""
    rtl.write(PROGRAM, np.frombuffer(body, np.uint8))
    simulator = rtl._simulator(True)
    simulator.write_register(registers.WATCHDOG, watchdog)
    simulator.write_register(registers.PROGRAM_ADDRESS, PROGRAM)
    simulator.write_register(registers.PROGRAM_LENGTH, length)
    simulator.write_register(registers.CONTROL, registers.CONTROL_START)
    return simulator


def encoded(*descriptors: Descriptor) -> tuple[bytes, int]:
    return encode_descriptors(Program(descriptors, P.fingerprint)), len(descriptors)


WORK = tuple(GOOD.descriptors[:-1])
NEST = Loop(iterations=2)
FAILING: dict[str, tuple[tuple[bytes, int], registers.Error, int]] = {
    "no descriptor": ((b"", 0), registers.Error.OPERATION, 0),
    "too many": ((encoded(Halt())[0], 0x10000), registers.Error.PROGRAM, 0),
    "no HALT": (encoded(*WORK), registers.Error.OPERATION, len(WORK)),
    **{
        f"operation {number}": (
            (encoded(*WORK)[0] + bytes([number, *[0] * 127]), len(WORK) + 1),
            registers.Error.OPERATION,
            len(WORK),
        )
        for number in (3, 4)
    },
    "too deep": (
        encoded(*WORK, *[NEST] * (P.loop_depth + 1), Halt()),
        registers.Error.NESTING,
        len(WORK) + P.loop_depth,
    ),
    "no LOOP": (encoded(*WORK, End(), Halt()), registers.Error.NESTING, len(WORK)),
    "in a loop": (encoded(*WORK, NEST, End(), End(), Halt()), registers.Error.NESTING,
                  len(WORK) + 2),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_rtl_program_after_failed_one_is_exact(rtl, name):
    """Whatever was under way: the error is told, and nothing of it is left in the next run."""
    (body, length), error, number = FAILING[name]
    rtl.memory = MemoryModel(bandwidth=0.3)
    rtl.write(0, data(1))
    for _ in range(2):  # the error twice, and between good programs
        simulator = started(rtl, body, length)
        assert simulator.run(100_000, 100_000) is Stop.INTERRUPT
        status = simulator.read_register(registers.STATUS)
        assert status & 7 == registers.STATUS_ERROR
        assert registers.status_error(status) == (error, number)
        assert_same(rtl, GOOD, seed=2)
        assert simulator.read_register(registers.STATUS) & 7 == 0


def test_rtl_program_after_hanging_one_is_exact(rtl):
    rtl.memory = MemoryModel(read_latency=10_000)
    simulator = started(rtl, *encoded(*WORK, Halt()), watchdog=500)
    assert simulator.run(20_000, 20_000) is Stop.INTERRUPT
    status = simulator.read_register(registers.STATUS)
    assert registers.status_error(status)[0] == registers.Error.WATCHDOG
    simulator.reset()  # the memory still owes an answer
    rtl.memory = MemoryModel()
    rtl._set_up(simulator)
    assert_same(rtl, GOOD, seed=3)


def load(**options) -> Transfer:
    return replace(Transfer(operation=Operation.LOAD, address=0, local=0, beats=64), **options)


def store(**options) -> Transfer:
    return replace(load(operation=Operation.STORE, address=OUT, wait=Engine.ALL), **options)


PAGE = 4096
OUTSIDE: dict[str, Descriptor] = {
    "LOAD's page": load(address=MEMORY_BYTES),
    "LOAD's last address": load(address=(1 << 32) - 512),
    "LOAD's later runs": load(beats=2, levels=(TransferLevel(9, PAGE * 2, 0),)),
    "LOAD's rows": load(local=ROWS - 31),
    "STORE's page": store(address=MEMORY_BYTES),
    "STORE's later runs": store(beats=2, levels=(TransferLevel(5, PAGE * 2, 0),)),
    "STORE's rows": store(local=ROWS - 31),
    "x of PE4": reduction(Operation.PE4, x=ROWS - 20),
    "g of PE4": reduction(Operation.PE4, g=ROWS - 10),
    "z of PE4": reduction(Operation.PE4, z=ROWS - 2),
    "x of PE3": reduction(Operation.PE3, x=1 << 17),
    "g of PE3": reduction(Operation.PE3, g=ROWS * 2 - 1),
    "z of PE3": reduction(Operation.PE3, z=(1 << 20) - 1),
    "x of BIAS": Compute(operation=Operation.BIAS, levels=(Level(2, x=1, g=1, z=1),), x=ROWS - 1,
                         g=0, z=RESULTS, z_row_stride=1, tile_level=0),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTSIDE)
def test_rtl_address_outside_memory_ends_run(rtl, name):
    """Whose it is, and nothing outside is touched: of the memory what STORE may write alone."""
    rtl.memory = MemoryModel(bandwidth=0.4, stall={"w": 0.3})
    rtl.write(0, data(5))
    number = len(WORK)
    simulator = started(rtl, *encoded(*WORK, OUTSIDE[name], *[GOOD.descriptors[-2]] * 3, Halt()))
    assert simulator.run(100_000, 100_000) is Stop.INTERRUPT
    status = simulator.read_register(registers.STATUS)
    assert status & 7 == registers.STATUS_ERROR
    code, at = registers.status_error(status)
    assert code == registers.Error.ADDRESS
    assert at >= number
    wanted, read = data(5), rtl.read(0, MEMORY_BYTES)
    changed = np.flatnonzero(wanted[:PROGRAM] != read[:PROGRAM])
    assert changed.size and changed.min() >= OUT
    assert_same(rtl, GOOD, seed=6)


def test_rtl_touches_only_pages_in_window(rtl):
    """Pages of the memory that are not the accelerator's are neither read into it nor written."""
    rtl.memory = MemoryModel(bandwidth=0.4)
    simulator = rtl._simulator(True)

    def window(first: int, last: int) -> None:
        simulator.write_register(registers.WINDOW, first)
        simulator.write_register(registers.WINDOW + 4, last)
        got = [simulator.read_register(registers.WINDOW + at) for at in (0, 4)]
        assert got == [first, last]

    def ends_with(error: registers.Error, *descriptors: Descriptor) -> None:
        rtl.write(0, data(7))
        started(rtl, *encoded(*descriptors, Halt(wait=Engine.ALL)))
        assert simulator.run(100_000, 100_000) is Stop.INTERRUPT
        status = simulator.read_register(registers.STATUS)
        assert registers.status_error(status)[0] == error
        assert status & registers.STATUS_ERROR == (error and registers.STATUS_ERROR)

    def is_unchanged() -> bool:
        return np.array_equal(rtl.read(0, PROGRAM), data(7)[:PROGRAM])

    last, words = OUT // PAGE, PAGE // P.beat_bytes
    rows = load(beats=words)
    pages = [store(address=PAGE * n, beats=words) for n in range(last + 2)]
    try:
        window(1, PROGRAM // PAGE)
        ends_with(registers.Error.ADDRESS, rows, pages[last])
        # Not the rows of the window's first page: a burst outside is moved there, and masked.
        ends_with(registers.Error.ADDRESS, replace(rows, address=2 * PAGE), pages[0])
        assert is_unchanged()
        ends_with(registers.Error.NONE, replace(rows, address=PAGE), pages[1], pages[last])
        assert np.array_equal(rtl.read(OUT, PAGE), data(7)[PAGE : 2 * PAGE])
        window(0, PROGRAM // PAGE - 1)  # the program itself
        ends_with(registers.Error.ADDRESS, rows, pages[last])
        assert is_unchanged()
    finally:
        simulator.reset()
        rtl._set_up(simulator)
    assert_same(rtl, GOOD, seed=8)


def test_programs_back_to_back(rtl):
    """The next one begins in the cycles after the interrupt: no run leaves anything to the next."""
    rtl.memory = MemoryModel()
    bodies = [GOOD, program(reduction(Operation.PE4)), Program((Halt(),), P.fingerprint), GOOD]
    for seed, body in enumerate(bodies):
        assert_same(rtl, body, seed)
    simulator, outputs = rtl._simulator(True), []
    golden = GoldenAccelerator(P, memory_bytes=MEMORY_BYTES)
    for seed in range(4):  # without clearing what the last one left
        for accelerator in (rtl, golden):
            accelerator.write(0, data(seed))
        started(rtl, *encoded(*GOOD.descriptors))
        assert simulator.run(100_000, 100_000) is Stop.INTERRUPT
        assert simulator.read_register(registers.STATUS) & 7 == registers.STATUS_DONE
        golden.run(GOOD, PROGRAM)
        assert np.array_equal(rtl.read(0, PROGRAM), golden.read(0, PROGRAM))
        outputs.append(rtl.read(OUT, 64).tolist())
    assert len({tuple(rows) for rows in outputs}) == 4


# Resets.


def short() -> Program:
    """Return reductions as small as possible: no two cycles are alike."""
    rows, *loop = loads()
    assert isinstance(rows, Transfer)
    few = replace(rows, beats=2 * 64)
    store = Transfer(
        operation=Operation.STORE, address=OUT, local=RESULTS, beats=2 * 11, wait=Engine.ALL,
        levels=(TransferLevel(4, 16 * 2 * P.beat_bytes, 16),),
    )  # fmt: skip
    work = [d for d in GOOD.descriptors if isinstance(d, Compute)]
    return Program((few, *loop, *work, store, Halt(wait=Engine.ALL)), P.fingerprint)


def check_resets(rtl: RtlAccelerator, first: int, step: int) -> None:
    """Reset at cycles of a run, each ``step``-th from ``first`` on; what follows is right."""
    rtl.memory = MemoryModel(read_latency=20)
    golden, program_of_it = GoldenAccelerator(P, memory_bytes=MEMORY_BYTES), short()
    for accelerator in (rtl, golden):
        accelerator.write(0, data(4))
    cycles = rtl.run(program_of_it, PROGRAM).counters.cycles
    golden.run(program_of_it, PROGRAM)
    want = golden.read(0, PROGRAM)
    body, tried = encoded(*program_of_it.descriptors), 0
    for at in range(first, cycles + 40, step):
        rtl.write(0, data(4))
        simulator = started(rtl, *body)
        simulator.run(at, 100_000)
        simulator.reset()
        simulator.write_register(registers.INTERRUPT_ENABLE, 1)
        rtl.write(0, data(4))
        started(rtl, *body)
        assert simulator.run(100_000, 100_000) is Stop.INTERRUPT, f"reset at cycle {at}"
        assert simulator.read_register(registers.STATUS) & 7 == registers.STATUS_DONE
        assert np.array_equal(rtl.read(0, PROGRAM), want), f"reset at cycle {at}"
        tried += 1
    assert tried > 500 / step


def test_rtl_program_after_reset_is_exact(rtl):
    check_resets(rtl, 2, 7)


@pytest.mark.slow
def test_resets_at_every_cycle(rtl):
    check_resets(rtl, 1, 1)


# Fields at their ends.


def ends(random: Random, operation: Operation) -> Compute:
    """Draw each field from one of its ends, or anywhere."""
    entries = operation is Operation.PE4
    elementwise = operation not in CONTRACTIONS
    rows = 1 if elementwise else P.pe1_rows if entries else P.pe2_rows
    count = random.choice((1, 2, 10))
    summed = 0 if elementwise else random.choice((0, count - 1, random.randrange(count)))

    def stride() -> int:
        return random.choice((0, 1, -1, RESULTS - 1, 1 - RESULTS, random.randrange(-9, 9)))

    levels = [
        Level(random.choice((1, 1, 1, 2, 3)), stride(), stride(), 0 if n >= count - summed
              else random.choice((0, stride()))) for n in range(count)
    ]  # fmt: skip
    registers_of = {f"{name}_register": random.choice((0, 0, 1, 7)) for name in "xgz"}
    return Compute(
        operation=operation, levels=tuple(levels), reduce_levels=summed,
        tile_level=random.choice((0, count - summed - 1)),
        x=random.choice((0, RESULTS - 1, random.randrange(RESULTS))),
        g=random.choice((0, ROWS - 1, random.randrange(ROWS))),
        z=random.choice((RESULTS, ROWS - 1, random.randrange(RESULTS, ROWS))),
        last_rows=random.choice((1, rows)),
        x_row_stride=random.choice((0, 1, -1, 100)) if entries else 0,
        z_row_stride=random.choice((1, -1, 100)),
        g_row_stride=random.choice((0, 1, -1, 60)) if entries else 0,
        shift=random.choice((0, 1, 62, 63)),
        out_width=random.choice((1, 2, P.word_width - 1, P.word_width)),
        slot=random.choice((0, P.statistics_depth - 1)),
        relu=random.random() < 0.5,
        x_shift=random.choice((0, P.most_alignment)), g_shift=random.choice((0, P.most_alignment)),
        **registers_of,
    )  # fmt: skip


MOST_STEPS = 1 << 13
"""Steps of a command, few enough to simulate and to fit the accumulators."""


def work(d: Descriptor) -> int:
    """Return steps, beats, or repetitions of the following descriptors."""
    if isinstance(d, Compute):
        return d.steps
    if isinstance(d, Transfer):
        return d.runs * d.beats
    return 1 << 8 * min(2, d.iterations - 1) if isinstance(d, Loop) else 1


def crosses(d: Descriptor) -> bool:
    """Return whether a command writes rows that it also reads: its result is undefined."""
    if not isinstance(d, Compute):
        return False
    *read, written = footprint(d, P)
    return any(map(written.overlaps, read))


def accepted(body: Program) -> bool:
    """Return whether drivers run a program."""
    try:
        check_program(body, P, memory_bytes=MEMORY_BYTES)
    except ProgramError:
        return False
    return True


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_fields_at_their_ends(rtl, operation):
    rtl.memory = MemoryModel()
    for seed in range(4):
        random = Random(f"{operation.name} {seed}")
        values = tuple((n, random.choice((0, 1, 300))) for n in range(1, 8))
        body: list[Descriptor] = [Set(values=values)]
        while len(body) < 9:
            d = replace(ends(random, operation), wait=Engine.ALL)
            moved = replace(d, x=d.x + dict(values).get(d.x_register, 0),
                            g=d.g + dict(values).get(d.g_register, 0),
                            z=d.z + dict(values).get(d.z_register, 0))  # fmt: skip
            if d.steps < MOST_STEPS and not crosses(moved) and accepted(program(body[0], d)):
                body.append(d)
        assert_same(rtl, program(*body), seed)


def test_rtl_longest_counts_are_exact(rtl):
    """65,535 tiles of a row, and as many terms of a sum."""
    rtl.memory = MemoryModel()
    most = (1 << 16) - 1
    tiles = reduction(Operation.BIAS, levels=(Level(most),), reduce_levels=0, last_rows=1, g=1)
    terms = reduction(Operation.PE3, levels=(Level(1), Level(most)), z=RESULTS + 8, shift=32)
    assert_same(rtl, program(tiles, terms))


def test_transfers_at_their_ends(rtl):
    """Last rows, last bytes, steps back, runs of one beat's worth, three levels."""
    rtl.memory = MemoryModel(bandwidth=0.5)
    store = Transfer(operation=Operation.STORE, address=OUT, local=ROWS - 1, beats=2)
    down = (TransferLevel(2, -256, -8), TransferLevel(3, 64, 2), TransferLevel(1, -(1 << 31), 0))
    cases = [
        store,
        replace(store, address=PROGRAM - 32),
        replace(store, address=PROGRAM - 512, local=0, beats=32),
        replace(store, address=OUT + 512, local=ROWS - 9, levels=down),
        replace(store, element_bytes=1, beats=1, address=OUT + 16 * 77),
        replace(store, operation=Operation.LOAD, address=MEMORY_BYTES - 32, wait=Engine.ALL),
        replace(store, operation=Operation.LOAD, local=0, wait=Engine.ALL),
    ]
    assert_same(rtl, program(*cases))


# Older commands, and PE4 while everything else wants the scratchpad.


@pytest.mark.parametrize("seed", range(6))
def test_rtl_read_waits_for_older_command(rtl, seed):
    """PE2 waits for each command of PE1 but the last, while LOAD and STORE take banks.

    A last row that comes late is read as it was before.
    """
    random = Random(f"older {seed}")
    rtl.memory = MemoryModel(bandwidth=random.choice((0.3, 2.0)), seed=seed + 1)
    body: list[Descriptor] = []
    for n in range(12):
        z, last = RESULTS + 32 * (n % 3), random.randint(1, P.pe1_rows)
        tiles = random.randint(1, 5)
        levels = (Level(tiles, x=1, z=P.pe1_rows), Level(random.randint(1, 9), x=1, g=1))
        reduced = reduction(
            Operation.PE4, levels=levels, z=z, last_rows=last, slot=n, wait=Engine.PE2
        )
        other = reduction(Operation.PE4, z=RESULTS + 200, slot=60, levels=(Level(40), Level(1)))
        rows = P.pe1_rows * (tiles - 1) + last
        read = Compute(
            operation=Operation.MASK, levels=(Level(rows, x=-1, g=-1, z=1),), x=z + rows - 1,
            g=z + rows - 1, z=RESULTS + 100 + 24 * (n % 4), slot=20 + n, wait_older=Engine.PE1,
        )  # fmt: skip
        traffic = Transfer(
            operation=Operation.STORE, address=OUT, local=random.randrange(RESULTS - 64), beats=64
        )
        body += [traffic, reduced, other, read]
    assert_same(rtl, program(*body), seed)


PE4_SEEDS = [pytest.param(n, marks=[pytest.mark.slow] if n >= 5 else []) for n in range(60)]


@pytest.mark.parametrize("seed", PE4_SEEDS)
def test_pe4_among_others(rtl, seed):
    """PE4 alone in PE1's array, PE3, STORE and LOAD beside it at the same banks."""
    random = Random(f"PE4 {seed}")
    stalls = {name: random.choice((0.0, 0.9)) for name in ("r", "w", "ar")}
    rtl.memory = MemoryModel(bandwidth=random.choice((0.5, 2.0)), stall=stalls, seed=seed + 1)
    body: list[Descriptor] = []
    while len(body) < 40:
        reduced = reduction(
            Operation.PE4,
            levels=(
                Level(random.randint(1, 4), x=random.randint(0, 3), z=P.pe1_rows),
                Level(random.choice((1, 2, 7)), x=random.randint(0, 3), g=random.randint(0, 9)),
            ),
            x=random.randrange(200), g=random.randrange(200), z=RESULTS + random.randrange(100),
            last_rows=random.randint(1, P.pe1_rows), g_row_stride=random.choice((0, 1, 2, 9)),
            x_row_stride=random.choice((0, 1, 4)), slot=random.randrange(8),
        )  # fmt: skip
        beside = random.choice((
            reduction(Operation.PE3, g=random.randrange(400), z=RESULTS + 128, slot=9),
            Transfer(operation=Operation.STORE, address=OUT, local=random.randrange(400), beats=32),
            Transfer(operation=Operation.LOAD, address=0, local=ROWS - 64, beats=64),
        ))  # fmt: skip
        body += [reduced, beside] if random.random() < 0.5 else [reduced]
    assert_same(rtl, program(*body[:40]), seed)


# Damaged programs.


def damaged(random: Random) -> bytes:
    """Change some bits of descriptors."""
    body = bytearray(encode_descriptors(GOOD))
    for _ in range(random.choice((1, 1, 2, 5))):
        bit = random.randrange(8 * len(body))
        if random.random() < 0.8:  # most bits of a descriptor are of fields that are 0 here
            bit = bit // 1024 * 1024 + random.choice((*range(250), *range(400, 640)))
        body[bit // 8] ^= 1 << bit % 8
    return bytes(body)


def sealed(body: bytes) -> bytes:
    """Return a program file of descriptors with the right CRC."""
    count = len(body) // DESCRIPTOR_BYTES
    return HEADER.pack(MAGIC, VERSION, 0, count, P.fingerprint, zlib.crc32(body)) + body


def waiting(d: Descriptor) -> Descriptor:
    """Make each descriptor wait for all engines: damage may remove a wait."""
    return replace(d, wait=Engine.ALL)


def test_damaged_programs_are_refused_or_executed_alike(rtl):
    """Programs that the driver accepts give the same bits on hardware and golden model."""
    rtl.memory = MemoryModel()
    refused = alike = 0
    for seed in range(120):
        try:
            program = decode(sealed(damaged(Random(f"damaged {seed}"))), P)
            program = replace(program, descriptors=tuple(map(waiting, program.descriptors)))
            if max(map(work, program.descriptors)) >= MOST_STEPS or any(
                map(crosses, program.descriptors)
            ):
                continue
            GoldenAccelerator(P, memory_bytes=MEMORY_BYTES).run(program, PROGRAM)
        except ProgramError:
            refused += 1
            continue
        assert_same(rtl, program, seed)
        alike += 1
    assert refused > 20 and alike > 20


def test_rtl_reset_ends_invalid_program(rtl):
    """Start programs that drivers refuse: the accelerator or a reset ends them.

    Afterwards the accelerator is as new.
    """
    rtl.memory = MemoryModel()
    ended = 0
    for seed in range(12):
        body = damaged(Random(f"hostile {seed}"))
        simulator = started(rtl, body, len(GOOD.descriptors), watchdog=2000)
        stop = simulator.run(8000, 20_000)
        ended += stop is Stop.INTERRUPT
        simulator.reset()
        rtl._set_up(simulator)
        assert_same(rtl, GOOD, seed)
    assert ended > 3
