"""How fast the arrays of the default accelerator are: steps a cycle, gaps, both at once."""

from collections.abc import Iterator

import pytest

from trainwright.accelerator import Counters
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Halt, Level, Program
from trainwright.program.fields import Engine, Operation
from trainwright_sim.backend import RtlAccelerator

P = AcceleratorParameters()
BANK = P.bank_rows
ENDS_PE1, ENDS_PE2 = 60, 45
"""Cycles from the first command to the first step, and from the last step to the end."""


@pytest.fixture(scope="module")
def rtl() -> Iterator[RtlAccelerator]:
    with RtlAccelerator(P, memory_bytes=1 << 20) as accelerator:
        yield accelerator


def pe3(x: int, g: int, z: int, tiles: int, reduction: int, **waits: Engine) -> Compute:
    """Make tiles of one row each; operands have as many rows as a tile has steps."""
    levels = (Level(tiles, z=8), Level(reduction, x=1, g=2))
    return Compute(
        operation=Operation.PE3, levels=levels, x=x, g=2 * g, z=z, reduce_levels=1, last_rows=8,
        z_row_stride=1, **waits,
    )  # fmt: skip


def pe4(x: int, g: int, z: int, tiles: int, reduction: int, **waits: Engine) -> Compute:
    """Make tiles of 8 rows with 16 entries a step."""
    levels = (Level(tiles, x=8, z=8), Level(reduction, x=256, g=16))
    return Compute(
        operation=Operation.PE4, levels=levels, x=x, g=g, z=z, reduce_levels=1, last_rows=8,
        x_row_stride=1, z_row_stride=1, g_row_stride=1, **waits,
    )  # fmt: skip


def counted(rtl: RtlAccelerator, *commands: Compute) -> Counters:
    return rtl.run(Program((*commands, Halt()), P.fingerprint), 0).counters


@pytest.mark.parametrize(("tiles", "reduction"), [(64, 8), (64, 16), (32, 32), (16, 64), (2, 896)])
def test_outer_product_takes_one_cycle_per_step(rtl, tiles, reduction):
    """Operands in different banks; tiles leave under the next one's steps."""
    d = pe3(0, BANK, 2 * BANK, tiles, reduction)
    assert counted(rtl, d).busy_pe2 <= d.steps + ENDS_PE2


@pytest.mark.parametrize(("tiles", "reduction"), [(64, 1), (16, 4), (2, 16)])
def test_contraction_takes_lanes_cycles_per_step(rtl, tiles, reduction):
    d = pe4(0, BANK, 2 * BANK, tiles, reduction)
    assert counted(rtl, d).busy_pe1 <= P.lanes * d.steps + ENDS_PE1


def test_commands_follow_without_a_gap(rtl):
    """Successive commands of one engine read no rows of their predecessors."""
    outer, contraction = pe3(0, BANK, 2 * BANK, 4, 32), pe4(0, BANK, 2 * BANK, 2, 4)
    assert counted(rtl, *[outer] * 16).busy_pe2 <= 16 * (outer.steps + 3) + ENDS_PE2
    assert counted(rtl, *[contraction] * 16).busy_pe1 <= 16 * 16 * contraction.steps + ENDS_PE1


def test_both_arrays_at_full_rate(rtl):
    """Four operands in four banks."""
    outer = pe3(2 * BANK, 3 * BANK, 2 * BANK + 2048, 32, 64)
    contraction = pe4(0, BANK, 2048, 16, 8)
    assert outer.steps == P.lanes * contraction.steps
    counters = counted(rtl, *[outer, contraction] * 8)
    assert counters.busy_pe1 <= 8 * outer.steps + ENDS_PE1 + 8 * 4
    assert counters.busy_pe2 <= 8 * outer.steps + ENDS_PE2 + 8 * 4
    assert counters.stall_pe1_operand + counters.stall_pe2_operand <= 100


def test_arrays_overlap_on_double_buffer(rtl):
    """PE2 makes tile n + 1 in one half of a buffer while PE1 reads tile n from the other."""
    commands = []
    for n in range(16):
        place = 2 * BANK + 1024 * (n % 2)
        contraction = pe4(place, 0, BANK, 4, 4, wait=Engine.PE2)
        commands += [
            # writes over what PE1 read in the command before its last
            pe3(3 * BANK, BANK + 2048, place, 8, 16, wait_older=Engine.PE1),
            contraction,
        ]
    counters = counted(rtl, *commands)
    # PE1 is never out of work: the outer product is done under the contraction before it
    assert counters.busy_pe1 <= 16 * P.lanes * contraction.steps + ENDS_PE1
