"""Lanes of the write-back unit: sums of all arrays to words."""

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.arith.random_bits import RANDOM_WIDTH
from trainwright_hw.arith.select import select
from trainwright_hw.control.engine_ports import COMPUTE_LAYOUT
from trainwright_hw.stream.delay_line import delay_line, deskew
from trainwright_hw.writeback.ports import ROWS_WIDTH, tallest_tile


class EncodedLanes(wiring.Component):
    """Encoder of a row of words per cycle; lane n receives its value n cycles after lane 0.

    Where ``of_column``, lane n takes ``column[number]`` of n cycles later, else 0; this value or
    ``row[n]`` (one of the two is 0) passes a register and the encoder of the accelerator's number
    format. The encoder's settings are due in the cycle of ``of_column``. The words, and one flag
    per lane for each of ``flags``, are aligned: ``encode_cycles`` after lane 0's register. With
    stochastic rounding also ``random``, due when the encoder needs it.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        self._arithmetic = arithmetic = lane_format(parameters)
        lanes, width = parameters.lanes, parameters.vector_width
        self.flags = ("saturated", *(["underflow"] if arithmetic.underflows else []))
        random = {"random": In(RANDOM_WIDTH).array(lanes)} if parameters.stochastic_rounding else {}
        super().__init__(
            {
                "of_column": In(1),
                "number": In(ROWS_WIDTH),
                "column": In(signed(width)).array(tallest_tile(parameters, "columns")),
                "row": In(signed(width)).array(lanes),
                **{
                    name: In(COMPUTE_LAYOUT[field].shape)
                    for name, field in arithmetic.settings.items()
                },
                **random,
                "word": Out(signed(parameters.result_width)).array(lanes),
                **{name: Out(1).array(lanes) for name in self.flags},
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        lanes, width = self._parameters.lanes, self._parameters.vector_width
        encoder = self._arithmetic.encoder(lanes=lanes, value_width=width)
        m.submodules.encoder = encoder
        for name in self._arithmetic.settings:
            m.d.comb += getattr(encoder, name).eq(getattr(self, name))
        columns, number = chosen(m, self._parameters, self.of_column, self.number, "of_value")
        for lane, to in enumerate(encoder.value):
            value = Signal.like(to, name=f"value_{lane}", reset_less=True)
            of_tile = Mux(columns[lane], select(self.column, number[lane]), 0)
            m.d.sync += value.eq(of_tile | self.row[lane])
            m.d.comb += to.eq(value)
            if self._parameters.stochastic_rounding:
                m.d.comb += encoder.random[lane].eq(self.random[lane])
        for name in ("word", *self.flags):
            brought = deskew(m, list(getattr(encoder, name)), name)
            for to, value in zip(getattr(self, name), brought, strict=True):
                m.d.comb += to.eq(value)
        return m


def chosen(
    m: Module, parameters: AcceleratorParameters, of_column: Value, number: Value, name: str
) -> tuple[list[Value], list[Value]]:
    """Return for each lane whether a slot is of a tile by columns, and its row."""
    lanes, width = parameters.lanes, (tallest_tile(parameters, "columns") - 1).bit_length()
    return (
        delay_line(m, of_column, lanes, f"{name}_of_column"),
        delay_line(m, number[:width], lanes, f"{name}_number"),
    )
