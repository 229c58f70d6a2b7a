"""The host's way into the accelerator's memory."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.link.protocol import WORD_BYTES


class HostPort(wiring.Signature):
    """Words of 32 bits, one access at a time, by word number.

    Members: ``request`` is high, with ``write``, ``address`` and ``write_data`` held, until a cycle
    of ``done``, in which ``read_data`` holds; it is then low for a cycle at least.
    """

    def __init__(self, address_width: int):
        super().__init__(
            {
                "request": Out(1),
                "write": Out(1),
                "address": Out(address_width),
                "write_data": Out(8 * WORD_BYTES),
                "done": In(1),
                "read_data": In(8 * WORD_BYTES),
            }
        )
