"""``trainwright bench lanes``: what lanes of each number format take of an FPGA."""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from trainwright.cli.command import CommandBody
from trainwright.cli.errors import OptionError
from trainwright.support.tables import markdown

FAMILIES = ("ecp5", "xcup")
PEERS = (
    {"name": "PDPU, posit(8,2), N=4, window 14", "lut": 1838, "mhz": 72.6, "rounding": "truncated"},
    {"name": "PDPU, posit(8,2), N=8, window 14", "lut": 3007, "mhz": 66.9, "rounding": "truncated"},
)
"""Figures quoted from docs/results/posits.md, which says how they were measured."""
HEAD = ("block", "formats", "sites", "LUT", "FF", "DSP", "block RAM", "levels", "MHz")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Synthesise the blocks of a lane by themselves, fixed point and posits side by side: "
        "multiply-accumulator, decoder, encoder and the arrays of 8 x 8 multipliers. ECP5 by the "
        "passes that boards are built with (sites: LUT4 + 2 CCU2C + 4 distributed RAMs), "
        "UltraScale+ (xcup) as an estimate by yosys."
    )
    parser.add_argument(
        "--family", action="append", choices=FAMILIES, help="only this one (repeatable)"
    )
    parser.add_argument(
        "--block", action="append", metavar="TEXT", help="only blocks of such names (repeatable)"
    )
    parser.add_argument(
        "--place",
        action="store_true",
        help="also the clock that nextpnr-ecp5 reaches on an LFE5U-25F-6; minutes in all",
    )
    parser.add_argument("--json", action="store_true", help="print JSON and no tables")


def _run(args: argparse.Namespace) -> int:
    from trainwright_boards.lanes.blocks import BLOCKS
    from trainwright_boards.lanes.measure import measure

    blocks = [
        block
        for block in BLOCKS
        if not args.block or any(text in block.name for text in args.block)
    ]
    if not blocks:
        raise OptionError(
            f"--block: none has {args.block[0]!r} in its name; there are "
            + "; ".join(dict.fromkeys(block.name for block in BLOCKS))
        )
    families = [family for family in FAMILIES if family in (args.family or FAMILIES)]
    if args.place and "ecp5" not in families:
        raise OptionError("--place is of an ECP5: leave --family out or add --family ecp5")

    def progress(message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    rows: list[dict[str, Any]] = []
    for family in families:
        for block in blocks:
            progress(f"{family}: {block.name}, {block.formats}")
            with tempfile.TemporaryDirectory() as folder:
                figures = measure(
                    block, family, Path(folder), place=args.place, progress=lambda _: None
                )
            rows.append(
                {"family": family, "block": block.name, "formats": block.formats, **figures}
            )
    if args.json:
        print(json.dumps({"blocks": rows, "quoted": PEERS}, indent=1))
        return 0
    for family in families:
        print(f"{family}:\n")
        print(markdown(HEAD, [_cells(row) for row in rows if row["family"] == family]))
    print("Quoted, not measured here (docs/results/posits.md); an ECP5:\n")
    head = ("block", "LUT", "MHz", "sums")
    print(markdown(head, [tuple(peer.values()) for peer in PEERS]), end="")
    return 0


def _cells(row: dict[str, Any]) -> list[object]:
    names = ("sites", "lut", "ff", "dsp", "block_ram", "levels", "mhz")
    numbers = (row[name] for name in names)
    return [row["block"], row["formats"], *(n and float(f"{n:.4g}") for n in numbers)]


command = CommandBody(
    _add_arguments, _run, "lanes", "what lanes of each number format take of an FPGA"
)
