"""Conventions outside: AXI4 towards memory, AXI4-Lite towards the host."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters

BURST_INCR = 1
"""Code of the only burst type used: the address grows with the beats."""
BURST_BOUNDARY_BYTES = 4096
"""Alignment in bytes that no AXI burst may cross."""
LITE_ADDRESS_WIDTH = 16
LITE_DATA_WIDTH = 32


def _address_members(channel: str, address_width: int) -> dict:
    fields = {"id": 1, "addr": address_width, "len": 8, "size": 3, "burst": 2}
    return {
        **{f"{channel}{name}": Out(width) for name, width in fields.items()},
        f"{channel}valid": Out(1),
        f"{channel}ready": In(1),
    }


class Axi4Write(wiring.Signature):
    """Write channels of ``Axi4``."""

    def __init__(self, *, data_width: int, address_width: int):
        super().__init__(
            {
                **_address_members("aw", address_width),
                "wdata": Out(data_width),
                "wstrb": Out(data_width // 8),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bid": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
            }
        )


class Axi4Read(wiring.Signature):
    """Read channels of ``Axi4``."""

    def __init__(self, *, data_width: int, address_width: int):
        super().__init__(
            {
                **_address_members("ar", address_width),
                "rid": In(1),
                "rdata": In(data_width),
                "rresp": In(2),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


class Axi4(wiring.Signature):
    """AXI4 manager: INCR bursts of whole beats, identifier 0, responses in order.

    Members: the signals of the five channels under their AXI names, in lower case.
    """

    def __init__(self, *, data_width: int, address_width: int):
        widths = {"data_width": data_width, "address_width": address_width}
        super().__init__({**Axi4Write(**widths).members, **Axi4Read(**widths).members})


def bus_widths(parameters: AcceleratorParameters) -> dict[str, int]:
    """Return the widths of an accelerator's memory port as keyword arguments of ``Axi4``."""
    return {"data_width": parameters.data_width, "address_width": parameters.address_width}


class Axi4Lite(wiring.Signature):
    """AXI4-Lite manager: ``LITE_DATA_WIDTH`` bits of data, ``LITE_ADDRESS_WIDTH`` of address.

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
