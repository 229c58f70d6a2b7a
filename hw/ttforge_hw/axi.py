"""The outside conventions: AXI4 towards memory, AXI4-Lite towards the host."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ttforge.parameters import AcceleratorParameters

BURST_INCR = 1
"""The one burst type used: the address grows with the beats."""
BURST_BOUNDARY_BYTES = 4096
"""No AXI burst may cross a multiple of this."""
LITE_ADDRESS_WIDTH = 16
LITE_DATA_WIDTH = 32


class Axi4(wiring.Signature):
    """An AXI4 manager: INCR bursts of whole beats, identifier 0, responses in order.

    Members: the signals of the five channels under their AXI names, in lower case.
    """

    def __init__(self, *, data_width: int, address_width: int):
        address = {"id": 1, "addr": address_width, "len": 8, "size": 3, "burst": 2}
        super().__init__(
            {
                **{f"aw{name}": Out(width) for name, width in address.items()},
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(data_width),
                "wstrb": Out(data_width // 8),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bid": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                **{f"ar{name}": Out(width) for name, width in address.items()},
                "arvalid": Out(1),
                "arready": In(1),
                "rid": In(1),
                "rdata": In(data_width),
                "rresp": In(2),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )

    @classmethod
    def of(cls, parameters: AcceleratorParameters) -> "Axi4":
        """The memory port of one accelerator."""
        return cls(data_width=parameters.data_width, address_width=parameters.address_width)


class Axi4Lite(wiring.Signature):
    """An AXI4-Lite manager: ``LITE_DATA_WIDTH`` bits of data, ``LITE_ADDRESS_WIDTH`` of address.

    Members: the signals of the five channels under their AXI names, in lower case.
    """

    def __init__(self):
        super().__init__(
            {
                "awaddr": Out(LITE_ADDRESS_WIDTH),
                "awprot": Out(3),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(LITE_DATA_WIDTH),
                "wstrb": Out(LITE_DATA_WIDTH // 8),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(LITE_ADDRESS_WIDTH),
                "arprot": Out(3),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(LITE_DATA_WIDTH),
                "rresp": In(2),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )
