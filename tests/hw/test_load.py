from random import Random

import pytest
from amaranth.hdl import Value
from kept import simulated
from stalled import stalled_cases

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Transfer, TransferLevel
from trainwright.program.fields import Operation, Target
from trainwright_hw.dma.load import LoadEngine
from trainwright_sim.amaranth_peers import AxiMemory, execute

MEMORY_BYTES = 1 << 16

TARGETS = {Target.SCRATCHPAD: "scratchpad", Target.PROGRAM: "program"}
"""Member of each target's write port."""
PARAMETERS = {
    "4": AcceleratorParameters(lanes=4, pe1_rows=2, pe2_rows=2),
    "4-short": AcceleratorParameters(
        lanes=4, pe1_rows=4, pe2_rows=4, burst_beats=1, outstanding_bursts=1
    ),
    "8": AcceleratorParameters(lanes=8, burst_beats=4),
    "8-bytes": AcceleratorParameters(lanes=8, word_width=8, burst_beats=4),
    "16": AcceleratorParameters(),
    "16-long": AcceleratorParameters(burst_beats=256),
}


def items(p: AcceleratorParameters, d: Transfer, memory: bytes, start: int) -> list[int]:
    """Return as integers what a run starting at byte ``start`` writes."""
    run = memory[start : start + d.beats * p.beat_bytes]
    if d.target == Target.PROGRAM:
        return [
            int.from_bytes(run[n : n + p.beat_bytes], "little")
            for n in range(0, len(run), p.beat_bytes)
        ]
    width = p.word_width
    words = [
        int.from_bytes(run[n : n + d.element_bytes], "little", signed=True)
        for n in range(0, len(run), d.element_bytes)
    ]
    return [
        sum((words[first + n] & ((1 << width) - 1)) << (n * width) for n in range(p.lanes))
        for first in range(0, len(words), p.lanes)
    ]


def expected(p: AcceleratorParameters, d: Transfer, memory: bytes) -> list[tuple[str, int, int]]:
    writes, bases = [], [(d.address, d.local)]
    for level in d.levels:
        bases = [
            (address + n * level.address, local + n * level.local)
            for address, local in bases
            for n in range(level.count)
        ]
    for address, local in bases:
        for n, item in enumerate(items(p, d, memory, address)):
            writes.append((TARGETS[d.target], (local + n) % (1 << 20), item))
    return writes


def random_load(p: AcceleratorParameters, random: Random) -> Transfer:
    counts = [random.randint(1, 4) for _ in range(random.randint(0, 3))]
    return Transfer(
        operation=Operation.LOAD,
        address=p.beat_bytes * random.randrange(MEMORY_BYTES // p.beat_bytes // 2),
        local=random.randrange(1 << 12),
        beats=2 * random.choice((1, 1, 2, 3, 9, 20)),
        levels=tuple(
            TransferLevel(count, p.beat_bytes * random.randint(0, 300), random.randint(-50, 50))
            for count in counts
        ),
        target=random.choice(list(Target)),
        element_bytes=random.choice((1, 2)[: p.word_width // 8]),
    )


def simulate(p, commands, memory, *, latency=4, stall=0.0, seed=0):
    """Run the loads; return the writes, the cycles and the memory's record."""
    top = simulated(LoadEngine, p)
    dut = top.design
    bus = AxiMemory(dut.axi, bytearray(memory), latency=latency, stall=stall, seed=seed)
    random = Random(seed)
    writes, cycles = [], 0

    async def sink(ctx):
        ports = [getattr(dut, name).request for name in TARGETS.values()]
        taken = [port.valid & port.ready for port in ports]
        data = [Value.cast(port.payload) for port in ports]
        place = None  # of the row that comes a cycle after its request
        while True:
            ctx.set(dut.scratchpad.request.ready, random.random() >= stall)
            request = dut.scratchpad.request
            bank = ctx.get(request.payload) // p.bank_rows % p.scratchpad_banks
            assert ctx.get(dut.scratchpad.banks) == ctx.get(request.valid) << bank
            _, _, row, *seen = await ctx.tick().sample(dut.scratchpad.row.as_value(), *taken, *data)
            if place is not None:
                writes.append((TARGETS[Target.SCRATCHPAD], place, row))
            place = None
            for name, take, value in zip(TARGETS.values(), seen[:2], seen[2:], strict=True):
                if take and name == TARGETS[Target.SCRATCHPAD]:
                    place = value
                elif take:
                    writes.append((name, value & 0xFFFFF, value >> 20))

    async def bench(ctx):
        nonlocal cycles
        cycles = await execute(ctx, dut, commands)

    top.run(bench, bus.read_side, sink)
    return writes, cycles, bus


@pytest.mark.parametrize("seed, name, stall", stalled_cases(PARAMETERS))
def test_load_matches_model_on_random_commands(name, stall, seed):
    p = PARAMETERS[name]
    random = Random(f"load {name} {stall} {seed}")
    memory = random.randbytes(MEMORY_BYTES)
    commands = []
    while len(commands) < 12:
        command = random_load(p, random)
        top = command.address + sum((x.count - 1) * x.address for x in command.levels)
        if top + command.beats * p.beat_bytes <= MEMORY_BYTES and command.runs <= 16:
            commands.append(command)
    writes, _, bus = simulate(p, commands, memory, stall=stall, seed=seed)
    assert writes == [write for d in commands for write in expected(p, d, memory)]
    assert max(beats for _, beats in bus.read_bursts) <= p.burst_beats


@pytest.mark.parametrize(
    "beats, runs, outstanding, most",
    ((256, 1, 8, 256 + 60), (16, 16, 8, 256 + 60), (2, 128, 32, 256 + 60), (2, 64, 8, 64 * 6 + 60)),
)
def test_throughput_against_latency(beats, runs, outstanding, most):
    """A beat a cycle against 40 cycles; short runs as far as bursts in flight allow."""
    p = AcceleratorParameters(outstanding_bursts=outstanding)
    level = TransferLevel(runs, 64 * p.beat_bytes, beats // 2)
    command = Transfer(
        operation=Operation.LOAD, address=0, local=0, beats=beats, levels=(level,) * (runs > 1)
    )
    memory = bytes(1 << 18)
    _, cycles, _ = simulate(p, [command], memory, latency=40)
    assert cycles <= most
