"""RTLIL text from Amaranth, without megabytes of zeros, in three quarters of its time.

This is the only module that uses private names of Amaranth: a method of its back end, and the
values and cycle check of its netlist. ``tests/hw/test_convert.py`` checks that the methods still
work as assumed.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from amaranth.back import rtlil
from amaranth.hdl import Elaboratable, IOPort, Signal, _nir

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
    with uncollected(), _faster():
        return rtlil.convert(design, name=name, ports=ports, platform=platform, emit_src=sources)


@contextmanager
def _faster() -> Iterator[None]:
    with (
        patch.object(rtlil.ModuleEmitter, "emit_memory", _emit_contents),
        patch.object(_nir.Value, "__new__", _value),
        patch.object(_nir.Netlist, "check_comb_cycles", _check_cycles),
    ):
        yield


_emit_memory = rtlil.ModuleEmitter.emit_memory
_check_comb_cycles = _nir.Netlist.check_comb_cycles
_BITWISE = ("~", "&", "|", "^", "m")
"""Operators whose results' bits depend on one bit of each operand; ``m`` is a multiplexer."""


def _emit_contents(self, cell_idx, cell) -> None:
    if any(cell.init) or KEEPS_ZEROS in cell.attributes:
        _emit_memory(self, cell_idx, cell)


def _value(cls: type, nets: _nir.Net | Iterable[_nir.Net] = ()) -> _nir.Value:
    """Make a value without asserting that each of its nets is one: a tenth of a conversion."""
    return tuple.__new__(cls, (nets,) if isinstance(nets, _nir.Net) else nets)


def _check_cycles(netlist: _nir.Netlist) -> None:
    """Visit the bits of an arithmetic result together, where Amaranth visits each from all inputs.

    Amaranth's own check, which takes an eighth of a conversion, tells the path of a cycle.
    """
    cells, connections = netlist.cells, netlist.connections
    checked: set[int] = set()
    busy: set[int] = set()

    def is_cyclic(net: int) -> bool:
        busy.add(net)
        together: Iterable[int] = (net,)
        if net < 0:
            sources = [connections[net]]
        elif net < 2:
            sources = []
        else:
            cell = cells[net >> 16]
            sources = [source for source, _ in cell.comb_edges_to(net & 0xFFFF)]
            if isinstance(cell, _nir.Operator) and cell.operator not in _BITWISE:
                together = range(net >> 16 << 16, (net >> 16 << 16) + cell.width)
        for source in sources:  # not any(): no second frame a level, as paths are deep
            if source not in checked and (source in busy or is_cyclic(source)):
                return True
        busy.remove(net)
        checked.update(together)
        return False

    nets = [net for number, cell in enumerate(cells) for net in cell.output_nets(number)]
    nets += [net for value in netlist.signals.values() for net in value]
    if any(net not in checked and is_cyclic(net) for net in nets):
        _check_comb_cycles(netlist)
