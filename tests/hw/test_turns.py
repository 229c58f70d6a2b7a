"""A port of the write-back unit that arrays of a kind share, one at a time."""

from types import SimpleNamespace

import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream
from amaranth.sim import Simulator

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.control.engine_ports import EngineStatus
from trainwright_hw.writeback.ports import ColumnPort, RowPort
from trainwright_hw.writeback.turns import share_port

P = AcceleratorParameters(lanes=4, pe1_rows=4, pe2_rows=4)


def array(port) -> SimpleNamespace:
    """Return what the port sees of an array."""
    return SimpleNamespace(
        results=port.create(), status=EngineStatus().create(), command=stream.Signature(1).create()
    )


def simulate(m: Module, testbench) -> None:
    simulator = Simulator(m)
    simulator.add_testbench(testbench)
    simulator.run()


def owning(arrays, port) -> tuple[Module, Signal]:
    """Return a module in which arrays share a port, and the bits of the owners."""
    m, owns = Module(), Signal(len(arrays))
    m.d.comb += owns.eq(Cat(share_port(m, port, arrays)))
    return m, owns


@pytest.mark.parametrize("owner", (0, 1, None))
@pytest.mark.parametrize("state", ("busy", "offered"))
def test_shared_port_of_columns_is_that_of_array_at_work(owner, state):
    """Values of the shorter array are followed by zeros, and an idle array sees no event."""
    arrays = [array(ColumnPort(P, rows=rows)) for rows in (2, 4)]
    port = ColumnPort(P, rows=4).flip().create()
    m, owns = owning(arrays, port)

    async def testbench(ctx):
        for number, each in enumerate(arrays):
            ctx.set(each.status.busy, owner == number and state == "busy")
            ctx.set(each.command.valid, owner == number and state == "offered")
            ctx.set(each.results.start, 1)
            ctx.set(each.results.tile.z, 100 + number)
            for row, value in enumerate(each.results.value):
                ctx.set(value, -10 * number - row - 1)
        events = ("credit", "final_row", "item", "back_pressured")
        for name in events:
            ctx.set(getattr(port, name), 1)
        assert ctx.get(owns) == (0 if owner is None else 1 << owner)
        assert ctx.get(port.start) == (owner is not None)
        assert ctx.get(port.tile.z) == (0 if owner is None else 100 + owner)
        expected = {0: [-1, -2, 0, 0], 1: [-11, -12, -13, -14], None: [0] * 4}
        assert [ctx.get(value) for value in port.value] == expected[owner]
        for number, each in enumerate(arrays):
            seen = {ctx.get(getattr(each.results, name)) for name in events}
            assert seen == {int(owner == number)}

    simulate(m, testbench)


def test_shared_port_of_rows_asks_array_at_work_for_its_rows():
    arrays = [array(RowPort(P)) for _ in range(3)]
    port = RowPort(P).flip().create()
    m, _ = owning(arrays, port)

    async def testbench(ctx):
        ctx.set(arrays[1].status.busy, 1)
        ctx.set(port.next_due, 1)
        ctx.set(port.next_row, 3)
        assert [ctx.get(each.results.next_due) for each in arrays] == [0, 1, 0]
        assert [ctx.get(each.results.next_row) for each in arrays] == [0, 3, 0]

    simulate(m, testbench)


def test_port_of_one_array_is_its_own_while_idle():
    only, port = array(RowPort(P)), RowPort(P).flip().create()
    m, owns = owning([only], port)

    async def testbench(ctx):
        ctx.set(only.results.start, 1)
        assert (ctx.get(port.start), ctx.get(owns)) == (1, 1)

    simulate(m, testbench)
