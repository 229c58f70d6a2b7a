"""RTLIL text from Amaranth, without megabytes of zeros.

This is the only module that uses a private name of Amaranth: one method of its back end.
``tests/hw/test_convert.py`` checks that the method still works as assumed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from amaranth.back import rtlil
from amaranth.hdl import Elaboratable, IOPort, Signal

from trainwright.support.collecting import uncollected
from trainwright_hw.arith.multiplier import DevicePlatform
from trainwright_hw.control.exponent_file import KEEPS_ZEROS


def rtlil_text(
    design: Elaboratable,
    *,
    name: str,
    ports: Sequence[Signal | IOPort] | None = None,
    platform: DevicePlatform | None = None,
    sources: bool = False,
) -> str:
    """Convert like ``amaranth.back.rtlil.convert``, without memory contents that are all zero.

    A memory with the attribute ``KEEPS_ZEROS`` keeps its zeros.

    Amaranth would create an object for each of their millions of bits, a third of a conversion's
    time. ``ports`` default to those of the design's signature. ``sources`` adds the file and line
    of each cell and wire.
    """
    # Conversion makes millions of lasting objects: collecting would take half of its time.
    with uncollected(), _without_zeros():
        return rtlil.convert(design, name=name, ports=ports, platform=platform, emit_src=sources)


@contextmanager
def _without_zeros() -> Iterator[None]:
    emit = rtlil.ModuleEmitter.emit_memory

    def emit_contents(self, cell_idx, cell):
        if any(cell.init) or KEEPS_ZEROS in cell.attributes:
            emit(self, cell_idx, cell)

    rtlil.ModuleEmitter.emit_memory = emit_contents
    try:
        yield
    finally:
        rtlil.ModuleEmitter.emit_memory = emit
