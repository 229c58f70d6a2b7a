"""Estimate an accelerator's size on a Zynq with yosys, without place and route."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainwright.parameters import AcceleratorParameters
from trainwright.support.files import write_whole
from trainwright.support.native.tools import Progress
from trainwright_boards.catalogue.zynq import ZynqBoard
from trainwright_boards.export import VERILOG, building
from trainwright_boards.job import REPORT_IT, SYNTH, Steps
from trainwright_boards.report import count_cells
from trainwright_hw.arith.multiplier import DevicePlatform
from trainwright_hw.build.convert import TOP, to_rtlil

ESTIMATE = "estimate.json"
COUNTS = "cells.json"
PASSES = (
    f"read_verilog {VERILOG}; "
    f"synth_xilinx -family {{family}} -flatten -noiopad -noclkbuf -top {TOP}; "
    f"tee -q -o {COUNTS} stat -json"
)
"""Read the exported Verilog; its ports go to the processor, not to pins."""


def design_digest(rtlil: str) -> str:
    """Return a digest of a design, by which a recorded run is known to be of this version."""
    return hashlib.sha256(rtlil.encode()).hexdigest()[:8]


def accelerator_digest(board: ZynqBoard, parameters: AcceleratorParameters) -> str:
    """Return the digest of an accelerator for a board with a processor."""
    return design_digest(to_rtlil(parameters, target=DevicePlatform(board.processor.family)))


def count(cells: Mapping[str, int], family: str) -> dict[str, float]:
    """Count LUTs, flip-flops, multipliers and block RAMs (36 Kbit) of a netlist.

    Raises ``BuildError`` for an unknown kind of LUT, memory or multiplier.
    """
    totals = count_cells(cells, family)
    return totals | {"block_rams": totals["block_rams"] / 2}


def estimate(
    board: ZynqBoard, parameters: AcceleratorParameters, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Synthesise what ``export`` wrote to a folder; the figures, also in ``estimate.json``.

    Raises ``BuildError``.
    """
    family = board.processor.family
    with building(folder):
        steps = Steps(folder, progress)
        arguments = ["-q", "-l", "synthesis.log", "-p", PASSES.format(family=family)]
        steps.run("yosys", arguments, remedy=REPORT_IT, told_in="synthesis.log")
        cells = json.loads((folder / COUNTS).read_text())["design"]["num_cells_by_type"]
        used = count(cells, family)
        figures = {
            "board": board.name,
            "part": board.part,
            "parameters": asdict(parameters),
            "stage": SYNTH,
            "fingerprint": parameters.fingerprint,
            "design": accelerator_digest(board, parameters),
            "multipliers": parameters.multipliers,
            "clock_mhz": board.clock_mhz,
            "resources": {
                name: {"used": used[name], "available": limit}
                for name, limit in board.available.items()
            },
            "cells": cells,
            "seconds": steps.seconds,
        }
        write_whole(folder / ESTIMATE, json.dumps(figures, indent=1) + "\n")
    return figures
