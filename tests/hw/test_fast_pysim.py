"""The rewritten processes of Amaranth's simulator against its own."""

import builtins
from random import Random

import fast_pysim
from amaranth.hdl import Array, Cat, Elaboratable, Module, Mux, Signal, signed
from amaranth.lib.memory import Memory
from amaranth.sim import Simulator, _pyrtl


class _Design(Elaboratable):
    """Signed and unsigned operators, parts of signals, a memory, and registers with a reset."""

    def __init__(self):
        self.a, self.b = Signal(signed(7)), Signal(signed(5))
        self.c, self.d = Signal(6), Signal()
        self.inputs = Cat(self.a, self.b, self.c, self.d)
        self.kept, self.parts = Signal(signed(9), init=-3), Signal(12, init=5)
        self.sum, self.product = Signal(signed(8)), Signal(signed(12))
        self.more = [Signal(signed(6), name=f"more{number}") for number in range(4)]
        self.read = Signal(signed(5))

    def outputs(self, ctx) -> list[int]:
        return [ctx.get(s) for s in (self.kept, self.parts, self.sum, self.product, self.read)] + [
            ctx.get(s) for s in self.more
        ]

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=signed(5), depth=8, init=[1, -1])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += [
            self.sum.eq(self.a + self.b - self.c),
            self.product.eq(Mux(self.d, self.a * self.b, (-self.a) // 3 - (self.c % 5))),
            write.addr.eq(self.c), write.data.eq(self.b), write.en.eq(self.a > self.b),
            read.addr.eq(self.c[1:4]), self.read.eq(read.data),
            Array(self.more)[self.c[:2]].eq(self.a >> self.c[:2]),
        ]  # fmt: skip
        with m.If(self.d):
            m.d.sync += self.kept.eq(self.kept + self.sum)
        with m.Elif(self.c[0]):
            m.d.sync += [self.parts[2:6].eq(self.a), self.kept[8].eq(self.b < -2)]
        with m.Switch(self.c):
            with m.Case("1--0--"):
                m.d.sync += self.parts.word_select(self.c[:2], 3).eq(self.a.as_unsigned() ^ self.b)
        return m


def _run(monkeypatch, function) -> list[list[int]]:
    monkeypatch.setattr(_pyrtl, "compile", function, raising=False)
    design, random, outputs = _Design(), Random(5), []
    simulator = Simulator(design)
    simulator.add_clock(1e-8)

    async def testbench(ctx):
        for _ in range(400):
            ctx.set(design.inputs, random.getrandbits(len(design.inputs)))
            outputs.append(design.outputs(ctx))
            await ctx.tick()

    simulator.add_testbench(testbench)
    simulator.run()
    return outputs


def test_fast_pysim_processes_have_the_values_of_amaranths(monkeypatch):
    codes = []

    def compiled(code, filename, mode):
        codes.append(fast_pysim.faster(code))
        return fast_pysim.compiled(code, filename, mode)

    assert _run(monkeypatch, compiled) == _run(monkeypatch, builtins.compile)
    assert not any(word in "".join(codes) for word in ("sign(", " slots[", "(slots["))


def test_fast_pysim_process_with_text_is_left_unchanged():
    code = "def run():\n    print('sign(1, -2)')\n"
    assert fast_pysim.faster(code) == code
