"""Check that a Gowin bitstream has the LUTs and the wires of the routed design."""

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
"""A connection in nextpnr's ``ROUTING``: column, row, target wire, source wire."""
LUT_BITS = 16
ZERO = "0"
NAMED = 3
"""Missing LUTs and wires that an error names; it counts the others."""

Place = tuple[int, int]
"""Row and column of a tile, or of a bit in one."""


def luts(module: Mapping[str, Any]) -> Iterator[tuple[Place, int, str]]:
    """Yield tile, number in the tile, and function of each placed LUT of a routed design."""
    for cell in module["cells"].values():
        at = LUT.fullmatch(cell["attributes"].get("NEXTPNR_BEL", ""))
        if at and cell["type"].startswith("LUT") and "INIT" in cell["parameters"]:
            init = cell["parameters"]["INIT"][-LUT_BITS:]
            init *= LUT_BITS // len(init)  # of a LUT with fewer inputs: again for the others
            yield (int(at[2]), int(at[1])), int(at[3]), init


def wires(module: Mapping[str, Any]) -> Iterator[tuple[Place, str, str]]:
    """Yield tile, target and source of each connection between wires of a routed design."""
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
    """Return what a routed design has and a bitstream lacks, and how much was compared.

    ``tiles`` holds the bits that are set in each tile. ``functions`` holds the bits of a LUT that
    are set where its function is 0. ``connections`` holds the bits that connect two wires; wires
    that are not among them are always connected.
    """
    lacking, seen = [], 0
    for tile, number, init in luts(module):
        bits = tiles.get(tile, ())
        wanted = functions[tile, number]
        function = "".join(
            ZERO if all(bit in bits for bit in wanted[n]) else "1" for n in range(LUT_BITS)
        )[::-1]
        seen += 1
        if function != init:
            lacking.append(f"LUT {number} of tile {tile} is {function} instead of {init}")
    for tile, to, source in wires(module):
        wanted = connections.get((tile, to, source))
        if wanted is None:
            continue
        seen += 1
        if not all(bit in tiles.get(tile, ()) for bit in wanted):
            lacking.append(f"wire {source} to {to} in tile {tile} is not connected")
    return lacking, seen


def check_bitstream(steps: Steps, part: str, placed: str, bitstream: str) -> int:
    """Read ``bitstream``, compare it with ``placed``, and return how many tiles it sets.

    Every LUT and wire is looked up. Raises ``BuildError`` that names what is missing.
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
    lacking, seen = missing(module, tiles, functions, connections)
    steps.seconds["unpack"] = time.monotonic() - begin
    if lacking or not seen:
        what = "; ".join(lacking[:NAMED]) or "it has no LUT and no wire"
        raise BuildError(
            f"the bitstream in {steps.folder} is not that of {placed}: {what} "
            f"({len(lacking)} of {seen}): build again"
        )
    return len(tiles)


def _library(name: str) -> Any:
    try:
        return import_module(f"apycula.{name}")
    except ImportError as error:
        raise BuildError(f"reading a bitstream needs apycula: {INSTALL}") from error


def _device(part: str) -> Any:
    """Return Apycula's description of a part; ``device[row, column]`` is a tile."""
    chipdb = _library("chipdb")
    with as_file(files("apycula") / f"{part}.msgpack.xz") as path:
        return chipdb.load_chipdb(path)


def _tiles(device: Any, steps: Steps, bitstream: str) -> dict[Place, set[Place]]:
    """Return the bits that are set in each tile that has any."""
    bitmap = _library("bslib").read_bitstream(str(steps.folder / bitstream))[0]
    bitmaps = _library("chipdb").tile_bitmap(device, bitmap)
    return {
        tile: {
            (row, column) for row, line in enumerate(bits) for column, bit in enumerate(line) if bit
        }
        for tile, bits in bitmaps.items()
    }
