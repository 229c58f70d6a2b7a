from dataclasses import replace
from random import Random

import numpy as np
import pytest
from kept import simulated

from trainwright.golden.backend import GoldenAccelerator
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Compute,
    End,
    Halt,
    Level,
    Loop,
    Program,
    Set,
    Transfer,
)
from trainwright.program.encoding import encode_descriptors
from trainwright.program.engines import TRACED
from trainwright.program.fields import DESCRIPTOR_BYTES, Engine, Operation
from trainwright_hw.accelerator import Accelerator
from trainwright_hw.control import csr as registers
from trainwright_hw.control.counters import COUNTERS
from trainwright_sim.amaranth_peers import AxiMemory, LiteHost

MEMORY_BYTES = 1 << 15
PROGRAM = 0x3000

P4 = AcceleratorParameters(
    lanes=4,
    pe1_rows=2,
    pe2_rows=2,
    scratchpad_rows=256,
    program_depth=16,
    statistics_depth=4,
    loop_depth=2,
)


def traced(p: AcceleratorParameters) -> Accelerator:
    return Accelerator(p, trace=True)


class Machine:
    """The accelerator with its memory; runs are separate simulations."""

    def __init__(self, p: AcceleratorParameters, memory: bytes, *, stall=0.0, seed=0, faults=()):
        self.p = p
        self.memory = bytearray(memory)
        self.options = {"stall": stall, "seed": seed, "faults": frozenset(faults)}
        self.traces = {engine: [] for engine in TRACED}
        self.counters = {}
        self.slots = []
        self.status = []
        self.interrupt = 0

    def simulate(self, host_process) -> None:
        """Run ``host_process(ctx, host)`` beside the accelerator."""
        top = simulated(traced, self.p)
        dut = self.dut = top.design
        bus = AxiMemory(dut.m_axi, self.memory, **self.options)
        host = LiteHost(dut.s_axil)

        async def watch(ctx):
            valid = [getattr(dut, f"trace_{e}_valid") for e in TRACED]
            where = [getattr(dut, f"trace_{e}_address") for e in TRACED]
            rows = [getattr(dut, f"trace_{e}_row") for e in TRACED]
            while True:
                _, _, *seen = await ctx.tick().sample(*valid, *where, *rows)
                for n, engine in enumerate(TRACED):
                    if seen[n]:
                        self.traces[engine].append((seen[3 + n], seen[6 + n]))

        async def bench(ctx):
            await host_process(ctx, host)

        top.run(bench, bus.read_side, bus.write_side, watch)

    async def start(self, ctx, host, length: int, address: int = PROGRAM) -> None:
        """Start a program and wait for its end."""
        await host.write(ctx, registers.PROGRAM_ADDRESS, address)
        await host.write(ctx, registers.PROGRAM_LENGTH, length)
        await host.write(ctx, registers.CONTROL, 1)
        status = 1
        while status & 1:
            status = await host.read(ctx, registers.STATUS)
        self.status.append(status)

    async def collect(self, ctx, host) -> None:
        """Read counters and statistics."""
        for at, name in zip(registers.COUNTER_OFFSETS, COUNTERS, strict=True):
            low, high = [await host.read(ctx, at + offset) for offset in (0, 4)]
            self.counters[name] = low | high << 32
        for slot in range(self.p.statistics_depth):
            at = registers.statistics_base(self.p) + 16 * slot
            words = [await host.read(ctx, at + offset) for offset in (0, 4, 8, 12)]
            self.slots.append((words[0] | words[1] << 32, *words[2:]))

    def place(self, descriptors) -> int:
        """Put a program into the memory and return its length."""
        body = encode_descriptors(Program(tuple(descriptors), self.p.fingerprint))
        self.memory[PROGRAM : PROGRAM + len(body)] = body
        return len(descriptors)


def of_bytes(d):
    """Return the descriptor for words of 8 bits."""
    if isinstance(d, Transfer):
        return replace(d, element_bytes=1, beats=d.beats // d.element_bytes)
    if not isinstance(d, Compute):
        return d
    return replace(d, out_width=8, shift=d.shift if d.z_format else d.shift - 8)


def load(address, local, beats, levels=(), **options) -> Transfer:
    return Transfer(
        operation=Operation.LOAD,
        address=address,
        local=local,
        beats=beats,
        levels=levels,
        **options,
    )


def store(address, local, beats, levels=(), **options) -> Transfer:
    return Transfer(
        operation=Operation.STORE,
        address=address,
        local=local,
        beats=beats,
        levels=levels,
        **options,
    )


def every_operation(p: AcceleratorParameters) -> list:
    """Make a program that uses every engine and both loop levels."""
    row = p.row_bytes
    compute = {"x": 0, "z": 0, "wait": Engine.LOAD, "x_register": 1}
    return [
        Set(values=((1, 0), (2, 0x200), (3, 0x2000))),
        Loop(iterations=2),
        Loop(iterations=2),
        load(0, 0, 32, address_register=2, local_register=1, wait=Engine.ALL),
        Compute(
            operation=Operation.PE4,
            levels=(Level(2, x=p.pe1_rows, z=p.pe1_rows), Level(2, x=2 * p.pe1_rows, g=5)),
            g=2,
            reduce_levels=1,
            last_rows=p.pe1_rows,
            x_row_stride=1,
            z_row_stride=1,
            g_row_stride=1,
            g_register=1,
            z_register=1,
            shift=15,
            slot=1,
            **(compute | {"z": 32}),
        ),
        Compute(
            operation=Operation.PE3,
            levels=(Level(2, g=4, z=p.pe2_rows), Level(4, x=1, g=1)),
            g=0,
            reduce_levels=1,
            last_rows=p.pe2_rows,
            z_row_stride=1,
            z_register=1,
            shift=13,
            slot=2,
            **(compute | {"z": 32 + 2 * p.pe1_rows}),
        ),
        store(
            0,
            32,
            4 * (p.pe1_rows + p.pe2_rows),
            address_register=3,
            local_register=1,
            wait=Engine.PE1 | Engine.PE2,
        ),
        End(steps=((1, 64), (2, 16 * row), (3, 0x100))),
        End(steps=((2, -8 * row),)),
        store(0x2800, 0, 8, element_bytes=1, wait=Engine.ALL),
        Halt(),
    ]


def stochastic(d):
    """Return the descriptor with stochastic rounding, or with a seed for it."""
    if isinstance(d, Compute):
        return replace(d, stochastic=True)
    return replace(d, seed=0xDEADBEEF) if isinstance(d, Set) else d


def with_formats(d):
    """Return the descriptor with posit operands and results of another format."""
    if not isinstance(d, Compute):
        return d
    formats = {"x_format": 2, "g_format": 1, "z_format": d.slot, "underflow_zero": d.slot == 1}
    return replace(d, **formats, shift=d.shift + 3)


SIZES = {
    "4": P4,
    "8": AcceleratorParameters(
        lanes=8,
        pe1_rows=4,
        pe2_rows=2,
        scratchpad_banks=1,
        scratchpad_rows=512,
        program_depth=16,
        statistics_depth=4,
        outstanding_bursts=2,
    ),
    "longer than the memory": P4,
    "stochastic": replace(P4, stochastic_rounding=True),
    "posits": replace(P4, formats="posit(8,0),posit(8,1)c"),
    "bytes": replace(P4, word_width=8),
    "byte-posits": replace(P4, word_width=8, formats="posit(8,0),posit(8,1)c"),
}


@pytest.mark.parametrize(
    "size, stall",
    [
        # whole programs of fixed point run on Verilator's simulation in tests/sim
        pytest.param("4", 0.3, marks=pytest.mark.slow),
        pytest.param("longer than the memory", 0.3, marks=pytest.mark.slow),
        pytest.param("8", 0, marks=pytest.mark.slow),
        pytest.param("stochastic", 0.3, marks=pytest.mark.slow),
        pytest.param("posits", 0.3, marks=pytest.mark.slow),
        pytest.param("bytes", 0.3, marks=pytest.mark.slow),
        ("byte-posits", 0.3),
        pytest.param("4", 0, marks=pytest.mark.slow),
        pytest.param("8", 0.3, marks=pytest.mark.slow),
        pytest.param("stochastic", 0, marks=pytest.mark.slow),
        pytest.param("posits", 0, marks=pytest.mark.slow),
    ],
)
def test_program_matches_golden(size, stall):
    p, random = SIZES[size], Random(f"top {stall}")
    data = random.randbytes(MEMORY_BYTES)
    if p.formats:
        size = p.word_width // 8
        data = b"".join(
            (byte % 231 - 115).to_bytes(size, "little", signed=True) for byte in data[::size]
        )
    machine = Machine(p, data, stall=stall)
    descriptors = every_operation(p)
    if size == "longer than the memory":
        descriptors = [*descriptors[:-1] * 4, Halt()]
        assert len(descriptors) > 2 * p.program_depth
    if p.formats:
        descriptors = [with_formats(d) for d in descriptors]
    if p.word_width == 8:
        descriptors = [of_bytes(d) for d in descriptors]
    if p.stochastic_rounding:
        descriptors = [stochastic(d) for d in descriptors]
    length = machine.place(descriptors)
    golden = GoldenAccelerator(p, memory_bytes=MEMORY_BYTES)
    golden.write(0, np.frombuffer(bytes(machine.memory), np.uint8))
    expected = golden.run(Program(tuple(descriptors), p.fingerprint), PROGRAM, trace=True)

    async def host(ctx, host):
        assert await host.read(ctx, registers.IDENTITY) == registers.IDENTITY_VALUE
        assert await host.read(ctx, registers.FINGERPRINT) == p.fingerprint
        await host.write(ctx, registers.INTERRUPT_ENABLE, 1)
        for _ in range(2):
            await machine.start(ctx, host, length)
        machine.interrupt = ctx.get(machine.dut.interrupt)
        await machine.collect(ctx, host)

    machine.simulate(host)
    assert machine.status == [2 | (length - 1) << 16] * 2
    assert machine.interrupt
    for engine, trace in expected.traces.items():
        got = machine.traces[engine][len(machine.traces[engine]) // 2 :]
        assert [address for address, _ in got] == trace.addresses.tolist()
        assert b"".join(row.to_bytes(p.row_bytes, "little") for _, row in got) == (
            trace.rows.astype(f"<i{p.word_width // 8}").tobytes()
        )
    assert bytes(machine.memory) == golden.read(0, MEMORY_BYTES).tobytes()
    counts = (expected.sums, expected.saturations, expected.underflows)
    assert machine.slots == list(zip(*counts, strict=True))
    assert any(expected.underflows) == bool(p.formats)
    assert machine.counters["beats_read"] == (
        expected.counters.bytes_read + length * DESCRIPTOR_BYTES
    )
    assert machine.counters["beats_written"] == expected.counters.bytes_written
    assert 0 < machine.counters["busy_pe1"] < machine.counters["cycles"]


def failing(name: str) -> tuple[list, int, int]:
    """Return descriptors, error code and the number of the descriptor to blame."""
    halt = Halt()
    nop = Set(values=())
    return {
        "operation": ([nop, nop], 1, 2),  # runs past its end
        "too long": ([halt], 2, 0),
        "deep": ([Loop(iterations=1), Loop(iterations=1), Loop(iterations=1), halt], 3, 2),
        "end": ([nop, End(), halt], 3, 1),
        "read": ([load(0x100, 0, 4), nop, halt], 4, 2),
        "write": ([store(0x100, 0, 4), halt], 5, 1),
    }[name]


def test_errors_and_recovery():
    """Follow each failing program by one that ends as it should."""
    machine = Machine(P4, bytes(MEMORY_BYTES), faults={0x104})
    expected = []

    async def host(ctx, host):
        for name in ("operation", "too long", "deep", "end", "read", "write"):
            descriptors, code, blamed = failing(name)
            length = machine.place(descriptors)
            await machine.start(ctx, host, 1 << 16 if name == "too long" else length)
            await host.write(ctx, registers.CONTROL, 2)
            assert await host.read(ctx, registers.STATUS) & 0xFFFF == 0
            machine.place([Halt()])
            await machine.start(ctx, host, 1)
            expected.extend((4 | code << 8 | blamed << 16, 2))

    machine.simulate(host)
    assert machine.status == expected


def test_sequencer_issues_descriptor_every_four_cycles():
    """Four cycles from one descriptor to the next."""
    machine, cycles = Machine(P4, bytes(MEMORY_BYTES)), []

    async def host(ctx, host):
        for extra in (0, 8):
            length = machine.place([Set(values=((1, 1),))] * extra + [Halt()] * (10 - extra))
            await machine.start(ctx, host, length)
            await machine.collect(ctx, host)
            cycles.append(machine.counters["cycles"])

    machine.simulate(host)
    assert cycles[1] - cycles[0] == 8 * 4


def test_smallest_accelerator_halts():
    p = AcceleratorParameters(
        lanes=4,
        pe1_rows=2,
        pe2_rows=2,
        scratchpad_banks=1,
        scratchpad_rows=16,
        program_depth=1,
        statistics_depth=1,
        loop_depth=1,
        burst_beats=1,
        outstanding_bursts=1,
    )
    machine = Machine(p, bytes(MEMORY_BYTES))
    length = machine.place([Halt()])

    async def host(ctx, host):
        await machine.start(ctx, host, length)
        await machine.collect(ctx, host)

    machine.simulate(host)
    assert machine.status == [2]
    assert machine.slots == [(0, 0, 0)]
    assert machine.counters["beats_read"] == DESCRIPTOR_BYTES


def test_unmapped_registers_read_zero_and_ignore_writes():
    machine = Machine(P4, bytes(MEMORY_BYTES))

    async def host(ctx, host):
        await host.write(ctx, registers.PROGRAM_ADDRESS, 0x12345678)
        await host.write(ctx, registers.PROGRAM_ADDRESS, 0xAABBCCDD, strobes=0b0101)
        assert await host.read(ctx, registers.PROGRAM_ADDRESS) == 0x12BB56DD
        await host.write(ctx, registers.IDENTITY, 0)
        assert await host.read(ctx, registers.IDENTITY) == registers.IDENTITY_VALUE
        unmapped = (registers.CONTROL, 0x028, 0x0B0, 0xFFC, 0x1000 + 16 * 4, 0xFFFC)
        for address in unmapped:
            await host.write(ctx, address, 0xFFFFFFFE)
            assert await host.read(ctx, address) == 0

    machine.simulate(host)


@pytest.mark.parametrize("engine", ("pe1", "pe2"))
def test_posit_operand_nar_ends_the_run(engine):
    """NaR as an operand; the next run is as if nothing had been."""
    p = SIZES["posits"]
    memory = bytearray(MEMORY_BYTES)
    memory[0x200:0x202] = (-128).to_bytes(2, "little", signed=True)
    machine = Machine(p, bytes(memory))
    by_rows = {"operation": Operation.BIAS, "levels": (Level(4, x=1, g=1, z=1),)}
    by_columns = {
        "operation": Operation.PE4, "levels": (Level(1),), "x_row_stride": 1, "g_row_stride": 1,
    }  # fmt: skip
    d = Compute(
        **(by_rows if engine == "pe2" else by_columns), x=0, g=8, z=16, z_row_stride=1,
        last_rows=1, x_format=1, z_format=2, wait=Engine.LOAD,
    )  # fmt: skip

    async def host(ctx, host):
        for number in (1, 2, 0, 1):
            length = machine.place([load(0x200, 0, 32), replace(d, x_format=number), Halt()])
            await machine.start(ctx, host, length)

    machine.simulate(host)
    failed = 4 | 7 << 8 | 2 << 16
    done = 2 | 2 << 16
    assert machine.status == [failed, failed, done, failed]
