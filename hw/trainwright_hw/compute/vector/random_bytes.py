"""Random bytes of the lanes, for instructions that round by them."""

from collections.abc import Sequence

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value

from trainwright.fixed.random_bits import ROUNDS, STREAM_STEP, UNITS
from trainwright.parameters import AcceleratorParameters
from trainwright.program.vector import Rounding
from trainwright_hw.arith.random_bits import (
    LANE_WIDTH,
    RANDOM_CYCLES,
    RandomBits,
    RandomState,
    unit_byte,
)
from trainwright_hw.compute.vector.lane import Stages
from trainwright_hw.stream.delay_line import delay_line


def random_bytes(
    m: Module,
    p: AcceleratorParameters,
    key: Value,
    stages: Sequence,
    parts: Sequence[Value],
    stream: Value,
    taken: Value,
) -> list[Value]:
    """Return the random byte of each lane, at ``Stages.rounded``.

    ``key`` is the issued row's; ``stages`` and ``parts`` are instructions and parts of a row by
    cycles after their issue; ``stream`` is the command's in a cycle of ``taken``, after which it
    may change while the pass runs. If a row has parts, its bits are mixed over as many cycles, with
    less logic.
    """
    at = Stages(p.engine_parts).rounded
    keys = delay_line(m, key, at + 1, "key")
    if p.engine_parts == 1:
        m.submodules.random = random = RandomBits(units=UNITS)
        drawn = at - RANDOM_CYCLES
    else:
        cycles = min(p.engine_parts, ROUNDS)
        m.submodules.random = random = RandomState(cycles=cycles)
        drawn = at - cycles
        m.d.comb += random.step.eq(parts[drawn])
    part_width = (UNITS // p.lanes).bit_length() - 1
    streams = [Signal(32, name=f"stream_{n}", reset_less=True) for n in range(2)]
    m.d.sync += streams[1].eq(streams[0] + STREAM_STEP)
    with m.If(taken):
        m.d.sync += streams[0].eq(stream)
    is_next = stages[drawn].rounding == Rounding.RANDOM_NEXT
    m.d.comb += [
        random.stream.eq(Mux(is_next, streams[1], streams[0])),
        random.key.eq(Cat(C(0, LANE_WIDTH), keys[drawn][part_width:])),
    ]
    place = Cat(parts[at], keys[at][:part_width])
    return [unit_byte(random.state, lane, p.engine_width, place) for lane in range(p.engine_width)]
