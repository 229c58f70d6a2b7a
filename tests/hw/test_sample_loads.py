"""LOAD's SAMPLES against the golden model: rows, targets and order, under stalls and latency."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from amaranth.hdl import ResetInserter, Signal, Value
from amaranth.sim import Simulator

from trainwright.golden.samples import samples
from trainwright.golden.state import State
from trainwright.golden.transfer import transfer
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Transfer
from trainwright.program.encoding import encode_descriptor
from trainwright.program.fields import Operation
from trainwright.program.sample_order import SampleOrder
from trainwright.program.samples import Samples
from trainwright_hw.control.engine_ports import TRANSFER_LAYOUT
from trainwright_hw.dma.load import LoadEngine
from trainwright_sim.amaranth_peers import AxiMemory

PARAMETERS = {
    "16": AcceleratorParameters(sample_loads=1),
    "8-short": AcceleratorParameters(lanes=8, pe2_rows=4, burst_beats=2, sample_loads=1),
    "8-bytes": AcceleratorParameters(lanes=8, pe2_rows=2, word_width=8, sample_loads=1),
}
MEMORY_BYTES = 1 << 13


def random_samples(p: AcceleratorParameters, random: Random) -> Samples:
    total, beats = random.randint(1, 40), random.randint(1, 5)
    stride = (beats + 1 + random.choice((0, 0, 2))) * p.beat_bytes
    room = MEMORY_BYTES - total * stride
    drawn = random.random() < 0.7
    return Samples(
        address=random.randrange(room // p.beat_bytes) * p.beat_bytes, local=random.randrange(500),
        targets=2000 + random.randrange(99), beats=beats, stride=stride, total=total, drawn=drawn,
        samples=random.randint(1, 12) if drawn else random.randint(1, min(total, 12)),
        local_step=random.choice((-1, 0, 10, 12)), pixels=random.choice((4, 8)),
        input_bits=random.randint(1, p.word_width - 1), order_first=random.getrandbits(24),
        order_length=random.randint(1, total),
    )  # fmt: skip


def simulate(
    p, commands, memory, order, *, latency=4, stall=0.0, seed=0, cut=0, faults=(), errors=None
):
    """Rows as (address, row) and where the order is; with ``cut`` reset after so many cycles, and
    then all of it from the begin."""
    dut, rst = LoadEngine(p), Signal()
    bus = AxiMemory(
        dut.axi,
        bytearray(memory),
        latency=latency,
        stall=stall,
        seed=seed,
        faults=frozenset(faults),
    )
    random, writes = Random(seed), []
    found = SampleOrder()

    async def sink(ctx):
        port, place = dut.scratchpad, None
        while True:
            ctx.set(port.request.ready, random.random() >= stall)
            taken = port.request.valid & port.request.ready
            _, _, row, take, address, error = await ctx.tick().sample(
                Value.cast(port.row), taken, port.request.payload, dut.error
            )
            if error and errors is not None:
                errors.append(address)
            if place is not None:
                writes.append((place, row))
            place = address if take else None

    async def give(ctx, most):
        for bit, value in enumerate((order.next, order.increment, order.left)):
            ctx.set(dut.order.write, 1 << bit)
            ctx.set(dut.order.value, value)
            await ctx.tick()
        ctx.set(dut.order.write, 0)
        cycles = 0
        for d in commands:
            word = int.from_bytes(encode_descriptor(d), "little")
            ctx.set(Value.cast(dut.command.payload), word & ((1 << TRANSFER_LAYOUT.size) - 1))
            ctx.set(dut.command.valid, 1)
            ready = False
            while not ready and (not most or cycles < most):
                _, _, ready = await ctx.tick().sample(dut.command.ready)
                cycles += 1
            ctx.set(dut.command.valid, 0)
        while ctx.get(dut.status.busy) and (not most or cycles < most):
            await ctx.tick()
            cycles += 1

    async def bench(ctx):
        nonlocal found
        if cut:
            await give(ctx, cut)
            ctx.set(rst, 1)
            await ctx.tick().repeat(300)  # until the memory has answered what was under way
            ctx.set(rst, 0)
            assert not ctx.get(dut.status.busy)
            assert not ctx.get(dut.order.next)
            writes.clear()
        await give(ctx, 0)
        await ctx.tick()
        found = SampleOrder(
            *(ctx.get(getattr(dut.order, n)) for n in ("next", "increment", "left"))
        )

    simulator = Simulator(ResetInserter(rst)(dut) if cut else dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bus.read_side, background=True)
    simulator.add_testbench(sink, background=True)
    simulator.add_testbench(bench)
    simulator.run()
    return writes, found, bus


def expected(p, commands, memory, order):
    state = State.fresh(np.frombuffer(memory, np.uint8), p)
    state.order = order
    writes = []
    for d in commands:
        done = samples(d, state, p) if isinstance(d, Samples) else transfer(d, state, p)
        assert done is not None
        for address, words in zip(*done, strict=True):
            bits = [int(w) % (1 << p.word_width) << p.word_width * n for n, w in enumerate(words)]
            writes.append((int(address), sum(bits)))
    return writes, state.order


def random_order(random: Random) -> SampleOrder:
    left = random.choice((1, 2, random.randint(1, 30)))
    return SampleOrder(random.getrandbits(24), random.getrandbits(32), left)


@pytest.mark.parametrize("stall", (0, 0.4), ids=lambda stall: f"stall{stall}")
@pytest.mark.parametrize("name", PARAMETERS)
def test_random_samples(name, stall):
    """Back to back, with other loads between them."""
    p, random = PARAMETERS[name], Random(f"samples {name} {stall}")
    memory, order = random.randbytes(MEMORY_BYTES), random_order(random)
    commands: list = []
    for _ in range(10):
        commands.append(random_samples(p, random))
        if random.random() < 0.4:
            size = random.choice((1, 2)[: p.word_width // 8])
            other = Transfer(
                operation=Operation.LOAD, address=0, local=5, beats=6, element_bytes=size
            )
            commands.append(other)
    latency = random.choice((1, 4, 30))
    writes, found, bus = simulate(p, commands, memory, order, stall=stall, latency=latency)
    assert (writes, found) == expected(p, commands, memory, order)
    assert max(beats for _, beats in bus.read_bursts) <= p.burst_beats


def test_addresses_of_all_bits():
    """A stride and numbers beyond 16 bits; only what is asked for is looked at."""
    p = PARAMETERS["16"]
    d = Samples(address=1 << 31, local=0, targets=9, samples=5, beats=1, stride=0x1230,
                local_step=1, total=700_000, drawn=True, order_first=3,
                order_length=700_000)  # fmt: skip
    order = SampleOrder(0x0ABCDE, 0xFEDCBA98, 2)
    starts, after = [], order
    for _ in range(d.samples):
        number, after = after.draw(d.total, d.order_first, d.order_length)
        starts.append((d.address + number * d.stride) % (1 << 32))

    dut = LoadEngine(p)
    asked = []

    async def bench(ctx):
        for bit, value in enumerate((order.next, order.increment, order.left)):
            ctx.set(dut.order.write, 1 << bit)
            ctx.set(dut.order.value, value)
            await ctx.tick()
        ctx.set(dut.order.write, 0)
        word = int.from_bytes(encode_descriptor(d), "little")
        ctx.set(Value.cast(dut.command.payload), word & ((1 << TRANSFER_LAYOUT.size) - 1))
        ctx.set(dut.command.valid, 1)
        ctx.set(dut.axi.arready, 1)
        for cycle in range(900):
            *_, taken, address = await ctx.tick().sample(dut.axi.arvalid, dut.axi.araddr)
            if taken:
                asked.append(address)
            if cycle == 2:
                ctx.set(dut.command.valid, 0)
        assert ctx.get(dut.order.next) == after.next

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    assert asked == starts


@pytest.mark.parametrize("cut", (5, 23, 60, 117))
def test_reset_in_the_middle(cut):
    """The engine is idle, its order that of a fresh one, and all can be repeated."""
    p, random = PARAMETERS["16"], Random(f"cut {cut}")
    memory, order = random.randbytes(MEMORY_BYTES), random_order(random)
    d = random_samples(p, random)
    writes, found, _ = simulate(p, [d, d], memory, order, cut=cut)
    assert (writes, found) == expected(p, [d, d], memory, order)


@pytest.mark.parametrize("stall", (0, 0.4))
def test_errors_of_the_memory(stall):
    """A cycle of ``error`` for each beat with an error response; all else goes on to its end."""
    p, random = PARAMETERS["16"], Random(f"errors {stall}")
    memory, order = random.randbytes(MEMORY_BYTES), random_order(random)
    d = random_samples(p, random)
    d = replace(d, drawn=False, samples=min(d.total, 8))
    of_record = range(0, d.record_beats * p.beat_bytes, p.beat_bytes)
    starts = [d.address + n * d.stride for n in range(d.samples)]
    faults = {start + random.choice(of_record) for start in starts[1::2]}
    elsewhere = {start + d.stride - p.beat_bytes for start in starts} - {
        start + at for start in starts for at in of_record
    }
    errors: list[int] = []
    writes, _, _ = simulate(
        p, [d], memory, order, stall=stall, faults=faults | elsewhere, errors=errors
    )
    assert len(errors) == len(faults)
    assert len(writes) == d.samples * (d.rows + 1)
