"""What the slices of an ECP5 ask of a placement, held against a design that is placed.

nextpnr holds cells against these rules (``Arch::slices_compatible``) while it places them, and not
when it reads a placed design. So what was moved by ``slices`` is looked at again here, by code that
shares nothing with it but the names of places.
"""

from collections import defaultdict
from collections.abc import Iterator

from trainwright_boards.refinement.placed import Placed
from trainwright_boards.refinement.placed_timing import LUT, REGISTER, WRITER
from trainwright_boards.refinement.slices import SITE, place_of

_KINDS = {"K": LUT, "FF": REGISTER, "RAMW": WRITER}
_Slice = tuple[tuple[int, int], int]
_Sites = dict[tuple[str, int], int]
"""The cells of a slice, by K, FF or RAMW and a number."""


def broken_rules(placed: Placed) -> set[str]:
    """Each breach, as a line that names the tile.

    Of LUTs and registers: one in a place, of the place's kind; a multiplexer with its two LUTs, and
    no register at the input that it needs; a register that takes its LUT's output beside that LUT;
    carry chains by slices; clocks, resets and enables that a tile or a slice has once; distributed
    RAM in slices A and B, its inputs in C.
    """
    found: set[str] = set()
    slices: dict[_Slice, _Sites] = defaultdict(dict)
    for cell, site in enumerate(placed.site):
        if (where := SITE.fullmatch(site)) is None:
            if placed.kinds[cell] in _KINDS.values():
                found.add(f"{placed.tile(cell)}: {placed.kinds[cell]} at {site or 'no place'}")
            continue
        tile, place = placed.tile(cell), place_of(site)
        key = where[2], place % 2
        if placed.kinds[cell] != _KINDS[where[2]]:
            found.add(f"{tile}: {placed.kinds[cell]} at {site}")
        if key in slices[tile, place // 2]:
            found.add(f"{tile}: two cells at {site}")
        slices[tile, place // 2][key] = cell
    tiles: dict[tuple[int, int], set[tuple]] = defaultdict(set)
    rams: dict[tuple[int, int], set[tuple]] = defaultdict(set)
    for (tile, number), sites in slices.items():
        found |= {f"{tile}: {what}" for what in _of_slice(placed, number, sites)}
        for (what, _), cell in sites.items():
            if what == "FF":
                tiles[tile].add(_shared(placed, cell))
            elif what == "K" and placed.parameter(cell, "MODE") == "DPRAM":
                rams[tile].add(_inversions(placed, cell, "WCKMUX", "WREMUX"))
    for tile, shared in tiles.items():
        if len(shared) > 1:
            found.add(f"{tile}: registers of different clocks or resets")
        if tile in rams and rams[tile] != {own[-2:] for own in shared}:
            found.add(f"{tile}: distributed RAM and registers of different clocks or resets")
    return found


def _of_slice(placed: Placed, number: int, sites: _Sites) -> Iterator[str]:
    """What is broken within slice ``number`` of 0 to 3."""
    luts = {n: cell for (what, n), cell in sites.items() if what == "K"}
    registers = {n: cell for (what, n), cell in sites.items() if what == "FF"}
    modes = {placed.parameter(cell, "MODE") for cell in luts.values()}
    if len({mode == "CCU2" for mode in modes}) > 1:
        yield "a LUT beside a carry chain"
    if "DPRAM" in modes and number > 1:
        yield "distributed RAM in slice C or D"
    if ("RAMW", 0) in sites and modes - {"RAMW_BLOCK"}:
        yield "a LUT beside the inputs of distributed RAM"
    if len({_enable(placed, cell) for cell in registers.values()}) > 1:
        yield "registers of different enables in a slice"
    takes_input = set()
    for n, lut in luts.items():
        if (other := placed.net(lut, "F1")) is not None:
            takes_input.add(n)
            if n != 0 or not _drives(placed, luts.get(1), other):
                yield f"{placed.names[lut]} away from the other LUT of its multiplexer"
        if placed.net(lut, "FXA") is not None:
            takes_input.add(n)
            if n != 1:
                yield f"{placed.names[lut]}, a wide multiplexer, in the first place of its slice"
    for n, register in registers.items():
        own = placed.net(register, "DI")
        if own is None and n in takes_input:
            yield f"{placed.names[register]} at the input of a multiplexer"
        if own is not None and not _drives(placed, luts.get(n), own):
            yield f"{placed.names[register]} away from its LUT"


def _drives(placed: Placed, lut: int | None, net: int) -> bool:
    """Whether a net is a LUT's; those of constants have no driver here, and are not looked at."""
    return net not in placed.drivers or placed.drivers[net].cell == lut


def _shared(placed: Placed, register: int) -> tuple:
    nets = (placed.net(register, port) for port in ("CLK", "LSR"))
    mode = placed.parameter(register, "SRMODE") == "ASYNC"
    return (*nets, mode, *_inversions(placed, register, "CLKMUX", "LSRMUX"))


def _inversions(placed: Placed, cell: int, *names: str) -> tuple:
    return tuple(placed.parameter(cell, name) == "INV" for name in names)


def _enable(placed: Placed, register: int) -> tuple:
    return placed.net(register, "CE"), *(placed.parameter(register, p) for p in ("CEMUX", "GSR"))
