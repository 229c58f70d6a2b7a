"""Host's access to the accelerator's memory."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.link.protocol import WORD_BYTES


class HostPort(wiring.Signature):
    """Port of 32-bit words, one access at a time, addressed by word number.

    Members: ``request`` is high, with ``write``, ``address`` and ``write_data`` held, until a cycle
    of ``done``, in which ``read_data`` is valid; it is then low for at least a cycle.
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
