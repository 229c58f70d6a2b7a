"""RTLIL text from Amaranth, without megabytes of zeros.

The only place that reaches behind Amaranth's public names: one method of its back end. What that
must still do is held in ``tests/hw/test_convert.py``.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from amaranth.back import rtlil
from amaranth.hdl import Elaboratable, IOPort, Signal

from trainwright_hw.arith.multiplier import DevicePlatform


def rtlil_text(
    design: Elaboratable,
    *,
    name: str,
    ports: Sequence[Signal | IOPort] | None = None,
    platform: DevicePlatform | None = None,
    sources: bool = False,
) -> str:
    """What ``amaranth.back.rtlil.convert`` gives for a top module ``name``, but for initial
    contents of memories that are all zero: these are left out.

    Amaranth would make an object of each of their millions of bits, a third of a conversion.
    ``ports``: default: those of the design's signature. ``sources``: with the file and line that
    each cell and wire comes from.
    """
    with _uncollected(), _without_zeros():
        return rtlil.convert(design, name=name, ports=ports, platform=platform, emit_src=sources)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Conversion makes millions of objects that stay; looking for garbage takes half its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _without_zeros() -> Iterator[None]:
    emit = rtlil.ModuleEmitter.emit_memory

    def emit_contents(self, cell_idx, cell):
        if any(cell.init):
            emit(self, cell_idx, cell)

    rtlil.ModuleEmitter.emit_memory = emit_contents
    try:
        yield
    finally:
        rtlil.ModuleEmitter.emit_memory = emit
