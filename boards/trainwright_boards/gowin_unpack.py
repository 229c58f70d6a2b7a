"""The way back on a Gowin part: the bitstream has the LUTs and the wires of the routed design."""

import json
import re
import time
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from importlib.resources import as_file, files
from typing import Any

from trainwright_boards.job import TOP, Steps
from trainwright_boards.tools import INSTALL, BuildError

LUT = re.compile(r"X(\d+)Y(\d+)/LUT(\d)")
PIP = re.compile(r"X(\d+)Y(\d+)/([^/;]+)/([^/;]+)")
"""Column, row, where to, where from."""
LUT_BITS = 16
ZERO = "0"
NAMED = 3
"""How many of what is missing an error names."""

Place = tuple[int, int]
"""Row and column of a tile, or of a bit in one."""


def luts(module: Mapping[str, Any]) -> Iterator[tuple[Place, int, str]]:
    """Of a routed design: tile, number in it and function of each LUT that has a place."""
    for cell in module["cells"].values():
        at = LUT.fullmatch(cell["attributes"].get("NEXTPNR_BEL", ""))
        if at and cell["type"].startswith("LUT") and "INIT" in cell["parameters"]:
            init = cell["parameters"]["INIT"][-LUT_BITS:]
            init *= LUT_BITS // len(init)  # of a LUT with fewer inputs: again for the others
            yield (int(at[2]), int(at[1])), int(at[3]), init


def wires(module: Mapping[str, Any]) -> Iterator[tuple[Place, str, str]]:
    """Of a routed design: tile, where to and where from of each connection between wires."""
    for net in module["netnames"].values():
        for part in net["attributes"].get("ROUTING", "").split(";"):
            if at := PIP.fullmatch(part.strip()):
                yield (int(at[2]), int(at[1])), at[3], at[4]


def missing(
    module: Mapping[str, Any],
    tiles: Mapping[Place, Collection[Place]],
    functions: Mapping[tuple[Place, int], Mapping[int, Collection[Place]]],
    connections: Mapping[tuple[Place, str, str], Collection[Place]],
) -> tuple[list[str], int]:
    """What a routed design has and a bitstream has not, and how many LUTs and wires were looked at.

    ``tiles``: which bits are set in each tile. ``functions``: the bits of a LUT that are set where
    its function is 0. ``connections``: the bits that connect two wires. Wires that are not among
    these are always connected.
    """
    found, seen = [], 0
    for tile, number, init in luts(module):
        bits = tiles.get(tile, ())
        wanted = functions[tile, number]
        there = "".join(
            ZERO if all(bit in bits for bit in wanted[n]) else "1" for n in range(LUT_BITS)
        )[::-1]
        seen += 1
        if there != init:
            found.append(f"LUT {number} of tile {tile} is {there} instead of {init}")
    for tile, to, source in wires(module):
        wanted = connections.get((tile, to, source))
        if wanted is None:
            continue
        seen += 1
        if not all(bit in tiles.get(tile, ()) for bit in wanted):
            found.append(f"wire {source} to {to} in tile {tile} is not connected")
    return found, seen


def check_bitstream(steps: Steps, part: str, placed: str, bitstream: str) -> int:
    """Read ``bitstream``, and look for every LUT and every wire of ``placed``; how many tiles it
    sets. Raises ``BuildError`` naming what is not there.
    """
    begin = time.monotonic()
    steps.progress(f"reading {steps.folder / bitstream} again")
    module = json.loads((steps.folder / placed).read_text())["modules"][TOP]
    device = _device(part)
    tiles = _tiles(device, steps, bitstream)
    functions = {
        (tile, number): device[tile].bels[f"LUT{number}"].flags for tile, number, _ in luts(module)
    }
    connections = {}
    for tile, to, source in wires(module):
        bits = device[tile].pips.get(to, {}).get(source)
        if bits is not None:
            connections[tile, to, source] = bits
    found, seen = missing(module, tiles, functions, connections)
    steps.seconds["unpack"] = time.monotonic() - begin
    if found or not seen:
        what = "; ".join(found[:NAMED]) or "it has no LUT and no wire"
        raise BuildError(
            f"the bitstream in {steps.folder} is not that of {placed}: {what} "
            f"({len(found)} of {seen}): build again"
        )
    return len(tiles)


def _library(name: str) -> Any:
    try:
        return import_module(f"apycula.{name}")
    except ImportError as error:
        raise BuildError(f"reading a bitstream needs apycula: {INSTALL}") from error


def _device(part: str) -> Any:
    """Apycula's description of a part; ``device[row, column]`` is a tile."""
    chipdb = _library("chipdb")
    with as_file(files("apycula") / f"{part}.msgpack.xz") as path:
        return chipdb.load_chipdb(path)


def _tiles(device: Any, steps: Steps, bitstream: str) -> dict[Place, set[Place]]:
    """The bits that are set in each tile that has any."""
    bitmap = _library("bslib").read_bitstream(str(steps.folder / bitstream))[0]
    found = _library("chipdb").tile_bitmap(device, bitmap)
    return {
        tile: {
            (row, column) for row, line in enumerate(bits) for column, bit in enumerate(line) if bit
        }
        for tile, bits in found.items()
    }
