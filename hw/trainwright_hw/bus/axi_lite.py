"""Bridge from AXI4-Lite to a plain register bus."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright_hw.bus.axi import LITE_ADDRESS_WIDTH, LITE_DATA_WIDTH, Axi4Lite

OKAY = 0


class RegisterBus(wiring.Signature):
    """Register bus with one access at a time, in words.

    Members: ``write`` is high for one cycle with ``write_address`` and ``write_data``, of which
    only the bits set in ``write_mask`` count. ``read`` is high with ``read_address`` until
    ``read_done``, in which cycle ``read_data`` is valid.
    """

    def __init__(self):
        word = LITE_ADDRESS_WIDTH - 2
        super().__init__(
            {
                "write": Out(1),
                "write_address": Out(word),
                "write_data": Out(LITE_DATA_WIDTH),
                "write_mask": Out(LITE_DATA_WIDTH),
                "read": Out(1),
                "read_address": Out(word),
                "read_done": In(1),
                "read_data": In(LITE_DATA_WIDTH),
            }
        )


class LiteBridge(wiring.Component):
    """AXI4-Lite subordinate; every response is OKAY. Reads and writes are independent.

    Members: ``lite``, the AXI port; ``bus``, the registers' side.
    """

    def __init__(self):
        super().__init__({"lite": In(Axi4Lite()), "bus": Out(RegisterBus())})

    def elaborate(self, platform):
        m = Module()
        awake = Signal()  # low in reset, where an accepted request would be lost
        m.d.sync += awake.eq(1)
        self._write(m, awake)
        self._read(m, awake)
        return m

    def _write(self, m: Module, awake: Signal) -> None:
        lite, bus = self.lite, self.bus
        addressed, filled = Signal(), Signal()  # address and data have arrived
        strobes = Signal(LITE_DATA_WIDTH // 8)
        m.d.comb += [
            lite.awready.eq(awake & ~addressed),
            lite.wready.eq(awake & ~filled),
            bus.write.eq(addressed & filled & ~lite.bvalid),
            bus.write_mask.eq(Cat(strobe.replicate(8) for strobe in strobes)),
            lite.bresp.eq(OKAY),
        ]
        with m.If(lite.bready):
            m.d.sync += lite.bvalid.eq(0)
        with m.If(bus.write):
            m.d.sync += [addressed.eq(0), filled.eq(0), lite.bvalid.eq(1)]
        with m.If(lite.awvalid & lite.awready):
            m.d.sync += [addressed.eq(1), bus.write_address.eq(lite.awaddr[2:])]
        with m.If(lite.wvalid & lite.wready):
            m.d.sync += [filled.eq(1), bus.write_data.eq(lite.wdata), strobes.eq(lite.wstrb)]

    def _read(self, m: Module, awake: Signal) -> None:
        lite, bus = self.lite, self.bus
        m.d.comb += [lite.arready.eq(awake & ~bus.read & ~lite.rvalid), lite.rresp.eq(OKAY)]
        with m.If(lite.arvalid & lite.arready):
            m.d.sync += [bus.read.eq(1), bus.read_address.eq(lite.araddr[2:])]
        with m.If(bus.read & bus.read_done):
            m.d.sync += [bus.read.eq(0), lite.rvalid.eq(1), lite.rdata.eq(bus.read_data)]
        with m.If(lite.rvalid & lite.rready):
            m.d.sync += lite.rvalid.eq(0)
