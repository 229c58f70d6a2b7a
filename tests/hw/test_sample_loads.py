"""LOAD's SAMPLES against the golden model: rows, targets and order, under stalls and latency."""

from collections import deque
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from amaranth.hdl import Elaboratable, Module, ResetInserter, Signal, Value
from kept import simulated

from trainwright.golden.samples import samples
from trainwright.golden.state import MachineState
from trainwright.golden.transfer import transfer
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Transfer
from trainwright.program.encoding import encode_descriptor
from trainwright.program.fields import COUNT_WIDTH, LOCAL_WIDTH, ORDER_WIDTH, Operation
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


class Resettable(Elaboratable):
    """The engine with a reset of its own."""

    def __init__(self, p: AcceleratorParameters):
        self.dut, self.reset = LoadEngine(p), Signal()

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.dut = ResetInserter(self.reset)(self.dut)
        return m


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
    """Return rows as (address, row) and the place of the order.

    With ``cut``, reset after that many cycles and start again.
    """
    top = simulated(Resettable, p)
    dut, rst = top.design.dut, top.design.reset
    bus = AxiMemory(
        dut.axi,
        bytearray(memory),
        latency=latency,
        stall=stall,
        seed=seed,
        faults=frozenset(faults),
    )
    random, writes = Random(seed), []
    final = SampleOrder()

    async def sink(ctx):
        port, place, over = dut.scratchpad, None, True
        given = dut.command.valid & dut.command.ready
        while True:
            ctx.set(port.request.ready, random.random() >= stall)
            taken = port.request.valid & port.request.ready
            _, _, row, take, address, error, busy, more = await ctx.tick().sample(
                Value.cast(port.row), taken, port.request.payload, dut.error, dut.status.busy, given
            )
            over |= not busy
            assert not (take and over)  # busy until the last row
            over &= not more
            if error and errors is not None:
                errors.append(address)
            if place is not None:
                writes.append((place, row))
            place = address if take else None

    async def give(ctx, most):
        await set_order(ctx, dut, order)
        cycles = 0
        for d in commands:
            set_command(ctx, dut, d)
            ready = False
            while not ready and (not most or cycles < most):
                _, _, ready = await ctx.tick().sample(dut.command.ready)
                cycles += 1
            ctx.set(dut.command.valid, 0)
        while ctx.get(dut.status.busy) and (not most or cycles < most):
            await ctx.tick()
            cycles += 1

    async def bench(ctx):
        nonlocal final
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
        final = order_of(ctx, dut)

    top.run(bench, bus.read_side, sink)
    return writes, final, bus


def expected(p, commands, memory, order):
    state = MachineState.fresh(np.frombuffer(memory, np.uint8), p)
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
def test_sample_loads_match_model_on_random_commands(name, stall):
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
    writes, final, bus = simulate(p, commands, memory, order, stall=stall, latency=latency)
    assert (writes, final) == expected(p, commands, memory, order)
    assert max(beats for _, beats in bus.read_bursts) <= p.burst_beats


@pytest.mark.parametrize("name", PARAMETERS)
def test_it_is_busy_until_a_row_alone_is_written(name):
    p, order = PARAMETERS[name], SampleOrder(0, 0, 1)
    memory = Random(name).randbytes(MEMORY_BYTES)
    row = Transfer(operation=Operation.LOAD, address=64, local=5, beats=1, element_bytes=1)
    written, _, _ = simulate(p, [row], memory, order)
    assert written == expected(p, [row], memory, order)[0] and len(written) == 1


async def set_order(ctx, dut, order: SampleOrder) -> None:
    """Write the order by two bytes at a time and once by none, with inverted bytes offered."""
    for bit, value in enumerate((order.next, order.increment, order.left)):
        ctx.set(dut.order.write, 1 << bit)
        for keep in (0x00FF00FF, 0xFF00FF00, 0xFFFFFFFF):
            ctx.set(dut.order.keep, keep)
            ctx.set(dut.order.value, value ^ keep)
            await ctx.tick()
    ctx.set(dut.order.write, 0)
    ctx.set(dut.order.keep, 0)


def order_of(ctx, dut) -> SampleOrder:
    return SampleOrder(*(ctx.get(getattr(dut.order, n)) for n in ("next", "increment", "left")))


def set_command(ctx, dut, d: Samples) -> None:
    word = int.from_bytes(encode_descriptor(d), "little")
    ctx.set(Value.cast(dut.command.payload), word & ((1 << TRANSFER_LAYOUT.size) - 1))
    ctx.set(dut.command.valid, 1)


async def asked_for(ctx, dut, d: Samples, most: int = 0) -> tuple[list[int], list[int]]:
    """Return where a command begins its bursts, and the rows that it writes.

    Each beat read is 0. Run to the end, or until ``most`` rows are written.
    """
    asked, rows, due = [], [], deque()
    request = dut.scratchpad.request
    set_command(ctx, dut, d)
    begun = False
    while not begun or (ctx.get(dut.status.busy) and not 0 < most <= len(rows)):
        ctx.set(dut.axi.rvalid, bool(due))
        ctx.set(dut.axi.rlast, due[0] if due else 0)
        *_, taken, address, beats, got, begins, row, written = await ctx.tick().sample(
            dut.axi.arvalid, dut.axi.araddr, dut.axi.arlen, dut.axi.rready, dut.command.ready,
            request.payload, request.valid,
        )  # fmt: skip
        if due and got:
            due.popleft()
        if taken:
            asked.append(address)
            due.extend(n == beats for n in range(beats + 1))
        if written:
            rows.append(row)
        if begins and not begun:
            begun = True
            ctx.set(dut.command.valid, 0)
    ctx.set(dut.axi.rvalid, 0)
    return asked, rows


def asking(bench) -> None:
    """Run a bench of an engine whose memory takes every address, and whose scratchpad is ready."""
    top = simulated(Resettable, PARAMETERS["16"])
    dut = top.design.dut

    async def whole(ctx):
        ctx.set(dut.axi.arready, 1)
        ctx.set(dut.scratchpad.request.ready, 1)
        await bench(ctx, dut)

    top.run(whole)


def test_addresses_of_all_bits():
    """Cover addresses of records and registers of the order; epochs end after powers of two."""
    random = Random("addresses")

    async def bench(ctx, dut):
        for left in range(ORDER_WIDTH):
            total = random.getrandbits(24) | 1 << 23 >> left % 5
            draw = random.randrange
            d = Samples(
                address=32 * draw(1 << 27), local=0, targets=9, samples=2, beats=1,
                stride=32 * draw(1 << 27), local_step=1, total=total, drawn=True,
                order_first=draw(total), order_length=1 + draw(total),
            )  # fmt: skip
            after = SampleOrder(draw(1 << 24), draw(1 << 32), (1 << left) + 1)
            await set_order(ctx, dut, after)
            starts = []
            for _ in range(d.samples):
                number, after = after.draw(d.total, d.order_first, d.order_length)
                starts.append((d.address + number * d.stride) % (1 << 32))
            assert (await asked_for(ctx, dut, d))[0] == starts
            assert order_of(ctx, dut) == after

    asking(bench)


def test_addresses_beside_the_total():
    """Numbers one below a total, equal to it, and off by a bit: only the first is an index."""
    random = Random("total")

    async def bench(ctx, dut):
        for bit in range(ORDER_WIDTH):
            total = random.getrandbits(24) | 1 << 23
            d = Samples(
                address=0, local=0, targets=9, samples=1, beats=1, stride=64, local_step=1,
                total=total, drawn=True, order_first=1, order_length=2,
            )  # fmt: skip
            for number in (total - 1, total, total ^ 1 << bit):
                order = SampleOrder(number, random.getrandbits(32), 3)
                await set_order(ctx, dut, order)
                index, after = order.draw(total, d.order_first, d.order_length)
                assert (await asked_for(ctx, dut, d))[0] == [64 * index]
                assert order_of(ctx, dut) == after

    asking(bench)


def test_addresses_of_rows_of_all_bits():
    """Cover first row of samples, distance between samples, and rows of targets."""
    p, random = PARAMETERS["16"], Random("rows")
    commands, places = [], []
    for _ in range(LOCAL_WIDTH):
        first, last, targets = (random.randrange((1 << LOCAL_WIDTH) - 8) for _ in range(3))
        step = (last - first) // 2
        d = random_samples(p, random)
        d = replace(d, local=first, local_step=step, targets=targets, beats=1, samples=3)
        commands.append(replace(d, drawn=True, pixels=8))
        for n in range(d.samples):
            places += [first + n * step, targets + n]
    writes, _, _ = simulate(p, commands, random.randbytes(MEMORY_BYTES), random_order(random))
    assert [place for place, _ in writes] == places


@pytest.mark.parametrize("many, pixels", (("beats", 4), ("beats", 8), ("samples", 8)))
def test_counts_of_every_bit(many, pixels):
    """Three more than each power of two; more than three rows are written first.

    By then the power of two has gone from the count.
    """
    most = 9
    for bit in range(4, COUNT_WIDTH):
        counts = {"samples": 2, "beats": 1, many: (1 << bit) + 3}
        d = Samples(
            address=0, local=7, targets=1000, stride=1 << 20, local_step=9, total=1 << 16,
            pixels=pixels, **counts,
        )  # fmt: skip
        places = [7 + row for row in range(most)]
        if many == "samples":
            places = [place for n in range(most) for place in (7 + 9 * n, 1000 + n)][:most]

        async def bench(ctx, dut, d=d, places=places):
            _, rows = await asked_for(ctx, dut, d, most)
            assert rows == places

        asking(bench)


MANY = {
    "samples": ((4097, 4), (2046, 4), (1067, 4)),
    "beats": ((4097, 4), (4095, 4), (2047, 8)),
}
"""Counts, and bits of the pixels."""


@pytest.mark.slow
@pytest.mark.parametrize("many", MANY)
def test_counts_of_many_bits(many):
    """Count samples and rows: 4,097, and odd and even numbers with most lower bits set.

    So each bit that a count inverts is inverted an odd number of times.
    """
    p = PARAMETERS["16"]
    memory = Random(many).randbytes(1 << 18)
    for count, pixels in MANY[many]:
        counts = {"samples": 2, "beats": 1, many: count}
        d = Samples(address=0, local=0, targets=10_000, stride=(counts["beats"] + 1) * 16,
                    local_step=2, total=count, pixels=pixels, **counts)  # fmt: skip
        d = replace(d, stride=32 if many == "samples" else d.stride)
        writes, _, _ = simulate(p, [d], memory[: d.stride * d.samples + 32], SampleOrder())
        assert writes == expected(p, [d], memory[: d.stride * d.samples + 32], SampleOrder())[0]


@pytest.mark.parametrize("cut", (5, 23, 60, 117))
def test_reset_in_the_middle(cut):
    """The engine is idle, its order that of a fresh one, and all can be repeated."""
    p, random = PARAMETERS["16"], Random(f"cut {cut}")
    memory, order = random.randbytes(MEMORY_BYTES), random_order(random)
    d = random_samples(p, random)
    writes, final, _ = simulate(p, [d, d], memory, order, cut=cut)
    assert (writes, final) == expected(p, [d, d], memory, order)


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
