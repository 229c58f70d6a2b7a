"""Values from PE2 to the write-back unit: rows of complete tiles, and element-wise values."""

from amaranth.hdl import Module, Mux, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.stream.delay_line import delay_line


class Drain(wiring.Component):
    """Selection of values: the array's ``sum[n]`` where a row is ``due``, else ``elementwise[n]``.

    ``elementwise[n]`` is 0 where the vector unit has no value. ``due`` is lane 0's; lane n follows
    n cycles later. Combinational otherwise.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        lanes = parameters.lanes
        accumulator = lane_format(parameters).accumulator
        super().__init__(
            {
                "due": In(1),
                "sum": In(accumulator).array(lanes),
                "elementwise": In(signed(parameters.elementwise_width)).array(lanes),
                "value": Out(signed(parameters.vector_width)).array(lanes),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        drained = delay_line(m, self.due, self._parameters.lanes, "drained", reset_less=False)
        for lane, to in enumerate(self.value):
            value = Mux(drained[lane], self.sum[lane], 0)
            m.d.comb += to.eq(value | self.elementwise[lane])
        return m
