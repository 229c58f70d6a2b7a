"""Arrays whose multipliers make two products each, beside arrays whose multipliers make one."""

from random import Random

import pytest
from amaranth.hdl import Elaboratable, Fragment, Module, Mux, Signal, Value, signed
from amaranth.sim import Simulator

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import Operation
from trainwright_hw.arith.multiplier import DevicePlatform
from trainwright_hw.compute.pe1.dot_array import DotProductArray
from trainwright_hw.compute.pe2.outer_array import OuterProductArray
from trainwright_hw.compute.pe2.vector import VectorUnit
from trainwright_hw.vendor import xilinx

PARAMETERS = AcceleratorParameters(lanes=4, pe1_rows=4, pe2_rows=4, word_width=8)
CYCLES, SETTLED = 500, 50


class Dsp48e2(Elaboratable):
    """The primitive, with the registers and the operation that are asked for."""

    instances = 0
    """Primitives that the design under test has."""

    def __init__(self, kind: str, **ports):
        assert kind == "DSP48E2"
        assert (ports["i_OPMODE"].value, ports["i_ALUMODE"].value) == (0b00_011_01_01, 0)
        registers = [f"p_{name}REG" for name in ("A", "B", "D", "P", "M", "AD", "C")]
        assert [ports[name] for name in registers] == [1, 1, 1, 1, 0, 0, 0]
        assert ports["p_AMULTSEL"] == "AD"
        self._ports = ports
        Dsp48e2.instances += 1

    def elaborate(self, platform) -> Module:
        m, port = Module(), self._ports
        a, d = Signal(signed(27)), Signal(signed(27))
        b, p = Signal(signed(18)), Signal(signed(48))
        for register, name, enable in ((a, "A", "CEA2"), (d, "D", "CED"), (b, "B", "CEB2")):
            with m.If(port[f"i_{enable}"]):
                m.d.sync += register.eq(port[f"i_{name}"])
        mode = port["i_INMODE"]
        joined = Signal(signed(27))
        gate = Mux(mode[2], d, 0)
        m.d.comb += joined.eq(Mux(mode[3], gate - a, gate + a))
        with m.If(port["i_CEP"]):
            m.d.sync += p.eq(joined * b + port["i_C"])
        m.d.comb += port["o_P"].eq(p)
        return m


def settings(block, random: Random, cycle: int) -> dict[str, int]:
    """Return inputs that a command fixes; VectorUnit switches contexts between rows."""
    if not isinstance(block, VectorUnit):
        return {}
    kinds = (Operation.BIAS, Operation.MASK)
    return {
        "configure": cycle % 20 == 0,
        "configure_context": cycle // 20 % 2,
        "context": (cycle // 20 + 1) % 2 if cycle % 20 < 10 else cycle // 20 % 2,
        "operation": random.choice(kinds),
        "relu": random.getrandbits(1),
        "x_shift": random.randrange(8),
        "g_shift": random.randrange(8),
    }


def ports(block) -> tuple[dict[str, Value], list[Value]]:
    """Return inputs and outputs by name."""
    inputs, outputs = {}, []
    for path, member, value in block.signature.flatten(block):
        if member.flow.name == "Out":
            outputs.append(value)
        elif path[0] == "command":
            command = block.command
            inputs |= {name: command[name] for name in ("operation", "relu", "x_shift", "g_shift")}
        else:
            inputs["_".join(map(str, path))] = Value.cast(value)
    return inputs, outputs


@pytest.mark.parametrize("kind", (DotProductArray, OuterProductArray, VectorUnit))
def test_paired_products_are_those_of_single_ones(monkeypatch, kind):
    monkeypatch.setattr(xilinx, "Instance", Dsp48e2)
    monkeypatch.setattr(Dsp48e2, "instances", 0)
    blocks = [kind(PARAMETERS) for _ in range(2)]
    m = Module()
    for name, block, platform in zip("ab", blocks, (DevicePlatform("xcup"), None), strict=True):
        m.submodules[name] = Fragment.get(block, platform)
    multipliers = {DotProductArray: 16, OuterProductArray: 16, VectorUnit: 8}
    assert Dsp48e2.instances == multipliers[kind] // 2
    random = Random(f"pairs {kind.__name__}")
    (first, wanted), (second, given) = (ports(block) for block in blocks)
    products = set()

    async def testbench(ctx):
        for cycle in range(CYCLES):
            fixed = settings(blocks[0], random, cycle)
            for name, port in first.items():
                value = fixed.get(name, random.getrandbits(len(port)))
                if len(port) > 1 and random.random() < 0.2:  # the least of every word
                    value = fixed.get(name, sum(128 << n for n in range(0, len(port), 8)))
                for operand in (port, second[name]):
                    ctx.set(operand, value & ((1 << len(operand)) - 1))
            await ctx.tick()
            left, right = (
                [ctx.get(Value.cast(port)) for port in halves] for halves in (wanted, given)
            )
            # the first products are of registers that no reset clears
            assert left == right or cycle < SETTLED, cycle
            products.update(left)

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()
    assert len(products) > 100
