from random import Random

import pytest
from kept import simulated
from stalled import stalled_cases

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Transfer, TransferLevel
from trainwright.program.fields import Operation
from trainwright_hw.dma.store import StoreEngine
from trainwright_hw.storage.ports import ROW_LATENCY
from trainwright_sim.amaranth_peers import AxiMemory, execute

MEMORY_BYTES = 1 << 16
ROWS = 1024


def starts(d: Transfer) -> list[tuple[int, int]]:
    """Return byte and local address of each run."""
    bases = [(d.address, d.local)]
    for level in d.levels:
        bases = [
            (address + n * level.address, local + n * level.local)
            for address, local in bases
            for n in range(level.count)
        ]
    return bases


def apply(p: AcceleratorParameters, d: Transfer, rows: list[list[int]], memory: bytearray) -> None:
    """Store into a memory as the descriptor says."""
    for address, local in starts(d):
        for n in range(d.beats // d.element_bytes):
            for word in rows[(local + n) % ROWS]:
                kept = word & ((1 << 8 * d.element_bytes) - 1)
                memory[address : address + d.element_bytes] = kept.to_bytes(
                    d.element_bytes, "little"
                )
                address += d.element_bytes


def simulate(p, commands, rows, memory, *, latency=4, stall=0.0, seed=0):
    top = simulated(StoreEngine, p)
    dut = top.design
    bus = AxiMemory(dut.axi, memory, latency=latency, stall=stall, seed=seed)
    random = Random(seed)
    cycles = 0

    async def scratchpad(ctx):
        pipeline = [None] * ROW_LATENCY
        request = dut.scratchpad.request
        while True:
            ready = random.random() >= stall
            ctx.set(request.ready, ready)
            _, _, valid, address = await ctx.tick().sample(request.valid, request.payload)
            pipeline = [address if valid and ready else None, *pipeline[:-1]]
            ctx.set(dut.scratchpad.valid, pipeline[-1] is not None)
            if pipeline[-1] is not None:
                words = rows[pipeline[-1] % ROWS]
                ctx.set(dut.scratchpad.row, [word % (1 << p.word_width) for word in words])

    async def bench(ctx):
        nonlocal cycles
        cycles = await execute(ctx, dut, commands)

    top.run(bench, bus.write_side, scratchpad)
    return cycles, bus


PARAMETERS = {
    "4": AcceleratorParameters(lanes=4, pe1_rows=2, pe2_rows=2),
    "4-single": AcceleratorParameters(
        lanes=4, pe1_rows=2, pe2_rows=2, burst_beats=1, outstanding_bursts=1
    ),
    "8": AcceleratorParameters(lanes=8, burst_beats=4),
    "8-bytes": AcceleratorParameters(lanes=8, burst_beats=4, word_width=8),
    "16": AcceleratorParameters(),
    "16-long": AcceleratorParameters(burst_beats=256),
}


@pytest.mark.parametrize("seed, name, stall", stalled_cases(PARAMETERS))
def test_store_matches_model_on_random_commands(name, stall, seed):
    p = PARAMETERS[name]
    random = Random(f"store {name} {stall} {seed}")
    most = 1 << (p.word_width - 1)
    rows = [[random.randrange(-most, most) for _ in range(p.lanes)] for _ in range(ROWS)]
    memory = bytearray(random.randbytes(MEMORY_BYTES))
    result = bytearray(memory)
    commands = []
    while len(commands) < 12:
        counts = [random.randint(1, 4) for _ in range(random.randint(0, 3))]
        command = Transfer(
            operation=Operation.STORE,
            address=p.beat_bytes * random.randrange(MEMORY_BYTES // p.beat_bytes // 2),
            local=random.randrange(1 << 12),
            beats=2 * random.choice((1, 1, 2, 3, 9, 20)),
            levels=tuple(
                TransferLevel(n, p.beat_bytes * random.randint(0, 300), random.randint(-50, 50))
                for n in counts
            ),
            element_bytes=random.choice((1, 2)[: p.word_width // 8]),
        )
        end = max(address for address, _ in starts(command)) + command.beats * p.beat_bytes
        if end <= MEMORY_BYTES and command.runs <= 16:
            commands.append(command)
    for command in commands:
        apply(p, command, rows, result)
    _, bus = simulate(p, commands, rows, memory, stall=stall, seed=seed)
    assert memory == result
    assert max(beats for _, beats in bus.write_bursts) <= p.burst_beats


@pytest.mark.parametrize(
    "beats, runs, outstanding, most",
    ((256, 1, 8, 256 + 60), (16, 16, 8, 256 + 60), (2, 128, 32, 256 + 60), (2, 64, 8, 64 * 6 + 60)),
)
def test_throughput_against_latency(beats, runs, outstanding, most):
    """A beat a cycle against 40 cycles; short runs as far as bursts in flight allow."""
    p = AcceleratorParameters(outstanding_bursts=outstanding)
    level = TransferLevel(runs, 64 * p.beat_bytes, beats // 2)
    command = Transfer(
        operation=Operation.STORE, address=0, local=0, beats=beats, levels=(level,) * (runs > 1)
    )
    rows = [[0] * p.lanes] * ROWS
    cycles, _ = simulate(p, [command], rows, bytearray(1 << 18), latency=40)
    assert cycles <= most
