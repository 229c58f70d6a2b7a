"""Requests to an SDRAM, a beat at a time."""

from amaranth.lib import data
from amaranth.utils import exact_log2

from trainwright_hw.external.sdram.timing import SdramTiming

BURSTS = (2, 4, 8)
"""Words per burst that a chip can be set to, except one."""
TAG = data.StructLayout({"host": 1, "wrong": 1, "last": 1})
"""Tag returned with a beat that is read.

Whether the host requested it, whether it is outside of the memory, whether it ends a burst.
"""


def request_layout(timing: SdramTiming, beat_width: int) -> data.StructLayout:
    """Lay out an access: a beat of ``beat_width`` bits, by its number.

    Consecutive beats are in a row of a bank, then in the next bank. ``enable`` has a bit per byte
    that is written. Raises ``ValueError`` for a beat that is no burst of the chip.
    """
    words = beat_width // timing.data_width
    if words not in BURSTS:
        raise ValueError(
            f"a beat must be 2, 4 or 8 words of {timing.data_width} bits, not {beat_width} bits"
        )
    return data.StructLayout(
        {
            "column": timing.column_bits - exact_log2(words),
            "bank": timing.bank_bits,
            "row": timing.row_bits,
            "write": 1,
            "tag": TAG,
            "enable": beat_width // 8,
            "data": beat_width,
        }
    )
