"""The sequencer's stack of loops."""

from itertools import pairwise

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import COUNT_WIDTH


class LoopStack(wiring.Component):
    """Stack of ``loop_depth`` nested loops.

    Members: ``clear`` forgets all loops; ``push`` enters a loop of ``iterations`` whose body begins
    at ``number``; ``end`` ends an iteration of the innermost loop, which repeats from ``body`` if
    ``again``, and is left otherwise. In a ``full`` stack ``push`` is an error, in an ``empty`` one
    ``end``. ``first`` is where the outermost loop's body begins.
    """

    def __init__(self, parameters: AcceleratorParameters, *, number_width: int):
        self.parameters = parameters
        self.number_width = number_width
        super().__init__(
            {
                "clear": In(1),
                "push": In(1),
                "number": In(number_width),
                "iterations": In(COUNT_WIDTH),
                "end": In(1),
                "again": Out(1),
                "body": Out(number_width),
                "first": Out(number_width),
                "full": Out(1),
                "empty": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        layout = data.StructLayout({"used": 1, "body": self.number_width, "left": COUNT_WIDTH})
        loops = [Signal(layout, name=f"loop{n}") for n in range(self.parameters.loop_depth)]
        top = loops[0]
        m.d.comb += [
            self.again.eq(top.left > 1),
            self.body.eq(top.body),
            self.full.eq(loops[-1].used),
            self.empty.eq(~top.used),
        ]
        with m.If(self.push & self.empty):
            m.d.sync += self.first.eq(self.number)
        with m.If(self.clear):
            m.d.sync += [loop.used.eq(0) for loop in loops]
        with m.Elif(self.push):
            m.d.sync += [loop.eq(above) for above, loop in pairwise(loops)]
            m.d.sync += [
                top.used.eq(1),
                top.body.eq(self.number),
                top.left.eq(self.iterations),
            ]
        with m.Elif(self.end & self.again):
            m.d.sync += top.left.eq(top.left - 1)
        with m.Elif(self.end):
            m.d.sync += [loop.eq(below) for loop, below in pairwise(loops)]
            m.d.sync += loops[-1].used.eq(0)
        return m
