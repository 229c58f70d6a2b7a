"""Ports of the scratchpad that two clients share: every row to whom it belongs, in order, once."""

from random import Random

import pytest
from amaranth.sim import Simulator

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.storage.ports import ROW_LATENCY
from trainwright_hw.storage.shared import ReadInTurn, WriteByEither

P = AcceleratorParameters(lanes=4, pe1_rows=2, pe2_rows=2, scratchpad_rows=256, scratchpad_banks=4)

ROW_WIDTH = P.lanes * P.word_width


def row_of(address: int) -> int:
    """Return a row that uses all bits and differs for each address."""
    return address * 0x9E3779B97F4A7C15 % (1 << ROW_WIDTH)


@pytest.mark.parametrize("seed", range(4))
def test_reads_in_turn(seed):
    random = Random(f"reads {seed}")
    part = ReadInTurn(P)
    asked: list[list[int]] = [[], []]
    got: list[list[int]] = [[], []]

    async def testbench(ctx):
        for client in (0, 1, 1, 0, 1, 0):
            ctx.set(part.seconds, client)
            on_way: list[int | None] = [None] * ROW_LATENCY
            wanted = [random.getrandbits(LOCAL_WIDTH) for _ in range(random.randint(1, 12))]
            while wanted or any(place is not None for place in on_way):
                own, other = part.clients[client], part.clients[1 - client]
                ctx.set(own.request.valid, bool(wanted))
                ctx.set(
                    own.request.payload, wanted[0] if wanted else random.getrandbits(LOCAL_WIDTH)
                )
                ctx.set(other.request.payload, random.getrandbits(LOCAL_WIDTH))
                free = random.random() < 0.7
                ctx.set(part.port.request.ready, bool(wanted) and free)
                due = on_way.pop(0)
                ctx.set(part.port.valid, due is not None)
                ctx.set(part.port.row.as_value(), row_of(due or 0))
                assert not ctx.get(other.request.ready) and not ctx.get(other.valid)
                assert ctx.get(own.valid) == (due is not None)
                if due is not None:
                    got[client].append(ctx.get(own.row.as_value()))
                request = part.port.request
                assert ctx.get(request.valid) == bool(wanted)
                taken = ctx.get(own.request.ready)
                assert taken == (bool(wanted) and free)
                on_way.append(ctx.get(request.payload) if taken else None)
                if taken:
                    asked[client].append(row_of(wanted.pop(0)))
                await ctx.delay(1e-8)

    simulator = Simulator(part)  # of no registers
    simulator.add_testbench(testbench)
    simulator.run()
    assert got == asked and all(asked)


@pytest.mark.parametrize("seed", range(4))
def test_writes_by_either(seed):
    """The first client's requests go before; a row is that of its request, a cycle later."""
    random = Random(f"writes {seed}")
    part = WriteByEither(P)
    given: list[list[tuple[int, int, int]]] = [[], []]
    taken: list[list[tuple[int, int, int]]] = [[], []]

    async def testbench(ctx):
        offered: list[tuple[int, int, int] | None] = [None, None]
        rows: list[int | None] = [None, None]
        for cycle in range(400):
            for n, client in enumerate(part.clients):
                if offered[n] is None and cycle < 390 and random.random() < (0.5, 0.8)[n]:
                    row = random.getrandbits(ROW_WIDTH)
                    offered[n] = random.getrandbits(LOCAL_WIDTH), 1 << random.randrange(4), row
                address, banks, _ = offered[n] or (random.getrandbits(LOCAL_WIDTH), 0, 0)
                ctx.set(client.request.valid, offered[n] is not None)
                ctx.set(client.request.payload, address)
                ctx.set(client.banks, banks)
                idle = random.getrandbits(ROW_WIDTH)
                ctx.set(client.row.as_value(), idle if rows[n] is None else rows[n])
            written = ctx.get(part.port.row.as_value())
            assert written in [row for row in rows if row is not None] or rows == [None, None]
            for n in range(2):
                if rows[n] is not None:
                    taken[n][-1] = (*taken[n][-1][:2], written)
            rows = [None, None]
            request = part.port.request
            ctx.set(request.ready, ctx.get(request.valid) and random.random() < 0.7)
            ready = [ctx.get(client.request.ready) for client in part.clients]
            assert ctx.get(request.valid) == any(offered)
            assert sum(ready) == ctx.get(request.ready)
            assert not (ready[1] and offered[0])
            for n in range(2):
                if ready[n]:
                    assert offered[n] is not None
                    given[n].append(offered[n])
                    taken[n].append((ctx.get(request.payload), ctx.get(part.port.banks), -1))
                    rows[n], offered[n] = offered[n][2], None
            await ctx.tick()

    simulator = Simulator(part)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()
    assert taken == given and all(len(requests) > 20 for requests in given)
