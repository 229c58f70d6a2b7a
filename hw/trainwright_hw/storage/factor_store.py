"""A factor store: packed factor elements beside a multiplier array."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.storage.ports import FactorReadPort, FactorWritePort, outside_member


class FactorStore(wiring.Component):
    """``depth`` entries of ``width`` factor elements, one read and one write a cycle.

    ``ENTRY_LATENCY`` cycles from address to entry, which is held until the next read's. Address
    bits above the depth are ignored. An entry read in the cycle of its write is unspecified.

    Members: ``read``, the engine's port; ``write``, the load engine's; with ``address_checks``,
    ``outside``, high for a cycle after each access beyond the depth.
    """

    def __init__(self, parameters: AcceleratorParameters, *, depth: int, width: int):
        self.parameters = parameters
        self.depth = depth
        self.width = width
        super().__init__(
            {
                "read": In(FactorReadPort(parameters, width)),
                "write": In(FactorWritePort(parameters, width)),
                **outside_member(parameters),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = self.parameters.factor_width * self.width
        m.submodules.memory = memory = Memory(shape=bits, depth=self.depth, init=[])
        address_width = exact_log2(self.depth)
        writer, reader = memory.write_port(), memory.read_port()
        m.d.comb += [
            writer.en.eq(self.write.request.valid),
            writer.addr.eq(self.write.request.payload.address[:address_width]),
            writer.data.eq(self.write.request.payload.entry),
            reader.en.eq(self.read.enable),
            reader.addr.eq(self.read.address[:address_width]),
        ]
        entry = Signal.like(reader.data, reset_less=True)  # may be the block RAM's own
        m.d.sync += entry.eq(reader.data)
        m.d.comb += self.read.entry.eq(entry)
        if self.parameters.address_checks:
            request = self.write.request
            m.d.sync += self.outside.eq(
                (request.valid & request.payload.address[address_width:].any())
                | (self.read.enable & self.read.address[address_width:].any())
            )
        return m
