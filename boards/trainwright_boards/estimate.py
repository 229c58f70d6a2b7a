"""Estimate an accelerator's size on a Zynq with yosys, without place and route."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainwright.parameters import AcceleratorParameters
from trainwright.support.files import write_whole
from trainwright.support.native.tools import Progress
from trainwright_boards.catalogue.zynq import ZynqBoard
from trainwright_boards.job import REPORT_IT, Steps
from trainwright_boards.tools import BuildError
from trainwright_hw.arith.multiplier import DevicePlatform
from trainwright_hw.build.convert import TOP, to_rtlil

ESTIMATE = "estimate.json"
RTLIL, COUNTS = "accelerator.il", "cells.json"
PASSES = (
    f"read_rtlil {RTLIL}; "
    f"synth_xilinx -family {{family}} -flatten -noiopad -noclkbuf -top {TOP}; "
    f"tee -q -o {COUNTS} stat -json"
)
"""The accelerator by itself: its ports go to the processor, not to pins."""

CELLS = {
    "luts": {
        r"LUT[1-6]": 1,
        r"SRL\w+": 1,
        r"RAM(32|64)X1[SD]": 2,
        r"RAM(32|64)M": 4,
        r"RAM(32M16|64M8|32X16DR8|64X8SW)": 8,
    },
    "flip_flops": {r"FD[RSCP]E(_1)?": 1},
    "multipliers": {r"DSP48E[12]": 1},
    "block_rams": {r"RAMB36E[12]": 1, r"RAMB18E[12]": 0.5},
}
"""Cells of 7 series and UltraScale+, and how many LUTs (multipliers, ...) each of them takes."""


def count(cells: Mapping[str, int]) -> dict[str, float]:
    """Count the LUTs, flip-flops, multipliers and block RAMs (36 Kbit) of a netlist.

    Raises ``BuildError`` for an unknown kind of LUT or memory.
    """
    totals = dict.fromkeys(CELLS, 0.0)
    for cell, number in cells.items():
        weights = [
            (name, weight)
            for name, kinds in CELLS.items()
            for kind, weight in kinds.items()
            if re.fullmatch(kind, cell)
        ]
        if not weights and cell.startswith(("LUT", "RAM", "SRL", "DSP", "URAM")):
            raise BuildError(f"cannot tell what {number} cells {cell} take: report it")
        for name, weight in weights:
            totals[name] += number * weight
    return totals


def estimate(
    board: ZynqBoard, parameters: AcceleratorParameters, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Synthesise the accelerator for the board's family; the figures, also in ``estimate.json``.

    Raises ``BuildError``.
    """
    family = board.processor.family
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RTLIL).write_text(to_rtlil(parameters, target=DevicePlatform(family)))
        steps = Steps(folder, progress)
        arguments = ["-q", "-l", "synthesis.log", "-p", PASSES.format(family=family)]
        steps.run("yosys", arguments, remedy=REPORT_IT, told_in="synthesis.log")
        cells = json.loads((folder / COUNTS).read_text())["design"]["num_cells_by_type"]
        used = count(cells)
        figures = {
            "board": board.name,
            "part": board.part,
            "parameters": asdict(parameters),
            "multipliers": parameters.multipliers,
            "resources": {
                name: {"used": used[name], "available": limit}
                for name, limit in board.available.items()
            },
            "cells": cells,
            "seconds": steps.seconds,
        }
        write_whole(folder / ESTIMATE, json.dumps(figures, indent=1) + "\n")
    except OSError as error:
        raise BuildError(f"cannot write to {folder}: {error.strerror}") from error
    return figures
