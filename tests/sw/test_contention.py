"""Speeds of commands that share ports, beside speeds worked out by hand."""

import math
from random import Random

import pytest

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level, Transfer, TransferLevel
from trainwright.program.fields import Engine, Operation
from trainwright.timing.commands import RESULTS, CommandWork, PortRows, work_of
from trainwright.timing.contention import MemoryTiming, speeds

P = AcceleratorParameters()
MEMORY = MemoryTiming()


def work(*rows: tuple[float, dict[int, float]], engine: Engine = Engine.PE2) -> CommandWork:
    """Return the work of a command that reads rows at rates, in ports by their parts."""
    return CommandWork(
        engine,
        100,
        7,
        20,
        reads=tuple(PortRows(rate, tuple(ports.items())) for rate, ports in rows),
    )


def product(engine: Engine, levels: tuple[Level, ...], **fields) -> CommandWork:
    operation = {Engine.PE1: Operation.PE4, Engine.PE2: Operation.PE3}[engine]
    given = {"x": 0, "g": 4096, "z": 8192, "last_rows": 8, "x_row_stride": 1, "g_row_stride": 1,
             "z_row_stride": 1, "reduce_levels": 1} | fields  # fmt: skip
    return work_of(Compute(operation=operation, levels=levels, **given), P)


ONE_BANK = {0: 1.0}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([(1.0, ONE_BANK)], [(1.0, {1: 1.0})], (1, 1)),
        ([(1.0, ONE_BANK)], [(1.0, ONE_BANK)], (1 / 2, 1 / 2)),
        # what one does not need is the other's
        ([(1.0, ONE_BANK)], [(0.25, ONE_BANK)], (3 / 4, 1)),
        # both operands of the first come from the bank: it asks for 1.5 rows at the second's one
        ([(1.0, ONE_BANK), (0.5, ONE_BANK)], [(1.0, ONE_BANK)], (2 / 5, 2 / 5)),
        # an operand that is in the bank for half of the time meets the other one then
        ([(1.0, {0: 0.5, 1: 0.5})], [(0.5, ONE_BANK)], (2 / 3, 1)),
    ],
    ids=["apart", "equal", "less", "both", "half"],
)
def test_speeds_of_arrays_in_one_bank_divide_its_rows(first, second, expected):
    shares = speeds((work(*first), work(*second)), MEMORY)
    assert shares == pytest.approx(expected, abs=0.01)


def test_speeds_write_back_takes_a_row_a_cycle_of_both_arrays():
    """PE1 with tiles of a step writes 8 rows in 16 cycles, and leaves half of the slots to PE2."""
    first = product(Engine.PE1, (Level(4, x=8, z=8), Level(1)))
    second = product(Engine.PE2, (Level(4, z=8), Level(8, x=1, g=2)), x=12288, z=14000)
    assert [rows.rate for rows in (first.writes[1], second.writes[1])] == [0.5, 1.0]
    assert first.writes[1].ports == ((RESULTS, 1.0),)
    assert speeds((first, second), MEMORY) == pytest.approx((1, 0.5), abs=0.01)


def test_speeds_arrays_of_short_sums_hardly_meet_in_a_bank():
    """PE2 reads 2 rows in the 8 cycles of a tile: PE1, which reads a row a cycle, keeps 3/4."""
    short = product(Engine.PE2, (Level(4, z=8), Level(2, x=1, g=2)), x=4200, g=0)
    assert [rows.rate for rows in short.reads] == [0.25, 0.25]
    entries = product(Engine.PE1, (Level(4, z=8), Level(16, x=1, g=16)), x=12288, z=0)
    # PE2 writes a row a cycle, of which PE1 needs 8 for the 256 cycles of its tile.
    assert speeds((short, entries), MEMORY) == pytest.approx((1 - 0.75 / 32, 0.75), abs=0.01)


def test_speeds_load_and_store_share_the_memory_and_load_writes_to_one_bank():
    load, store = (
        work_of(Transfer(operation=operation, element_bytes=2, address=0, local=local, beats=64), P)
        for operation, local in ((Operation.LOAD, 0), (Operation.STORE, 4096))
    )
    assert speeds((load,), MEMORY) == (0.8,)
    assert speeds((load, store), MEMORY) == pytest.approx((0.4, 0.4), abs=0.01)


def test_speeds_of_pe1_count_rows_that_its_last_tile_fetches_for_nothing():
    """Find two rows of a tile in bank 0, and of six more, which nothing uses, two in bank 1."""
    entries = product(Engine.PE1, (Level(1), Level(1)), x=4090, last_rows=2)
    assert dict(entries.reads[0].ports) == pytest.approx({0: 0.25 + 0.75 * 4 / 6, 1: 0.25})
    back = product(Engine.PE1, (Level(1), Level(1)), x=4097, last_rows=2, x_row_stride=-1)
    assert dict(back.reads[0].ports) == pytest.approx({1: 0.25, 0: 0.75})
    # PE1 fetches rows beyond the scratchpad from its first ones.
    end = product(Engine.PE1, (Level(1), Level(1)), x=16382, last_rows=2)
    assert dict(end.reads[0].ports) == pytest.approx({3: 0.25, 0: 0.75})


@pytest.mark.parametrize(("beats", "expected"), [(1, 32 / 42), (2, 0.8)])
def test_speeds_load_of_short_bursts_waits_for_answers(beats, expected):
    """Keep 32 bursts in flight, each of them for 40 cycles and 2 of handshakes."""
    load = work_of(
        Transfer(
            operation=Operation.LOAD, element_bytes=1, address=0, local=0, beats=beats,
            levels=(TransferLevel(100, address=64, local=beats),),
        ),
        P,
    )  # fmt: skip
    assert speeds((load,), MEMORY) == pytest.approx([expected])


@pytest.mark.parametrize(
    ("name", "value"),
    [("bandwidth", 0), ("bandwidth", math.nan), ("read_latency", -1), ("write_latency", -1)],
)
def test_memory_that_never_answers_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be .*, not {value}"):
        MemoryTiming(**{name: value})
    MemoryTiming(read_latency=0, write_latency=0, bandwidth=2)


@pytest.mark.parametrize("seed", range(40))
def test_speeds_use_no_port_beyond_a_row_and_slow_nothing_without_need(seed):
    random = Random(seed)
    works = [
        work(*((random.choice((0.25, 0.5, 1.0)), {random.randrange(3): 1.0}) for _ in range(2)))
        for _ in range(random.randint(2, 4))
    ]
    shares = speeds(works, MEMORY)
    used = dict.fromkeys(range(3), 0.0)
    for speed, command in zip(shares, works, strict=True):
        for rows in command.reads:
            used[rows.ports[0][0]] += speed * rows.rate
    assert max(used.values()) < 1.02
    for speed, command in zip(shares, works, strict=True):
        full = max(used[rows.ports[0][0]] for rows in command.reads) > 0.97
        assert 0 < speed <= 1 and (speed == 1 or full)
