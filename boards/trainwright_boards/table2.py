"""Table 2 of the paper beside what was built and estimated here."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwright.parameters import AcceleratorParameters, without_gone
from trainwright.timing import MemoryTiming
from trainwright_boards.board import BLOCK, SDRAM
from trainwright_boards.build import REPORT
from trainwright_boards.estimate import ESTIMATE
from trainwright_boards.tools import BuildError

RESOURCES = {"luts": "LUT", "flip_flops": "FF", "multipliers": "DSP", "block_rams": "BRAM"}
"""Resources that are counted, with the column heads of the paper."""
NETWORKS = ("digits", "fashion")
BATCH = 64
SDRAM_BYTES = 1.96
"""Bytes a cycle, of the 2 that the chip's pins carry, that the controller moves in long bursts of
one direction, refreshes and changes of row included (docs/results/boards.md)."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A design on a part; ``None`` stands for unknown or impossible."""

    design: str
    part: str
    array_multipliers: int
    used: Mapping[str, float]
    available: Mapping[str, float]
    block_ram_kbit: int
    """Size of the block RAMs that are counted here."""
    clock_mhz: float | None
    cycles: Mapping[str, int | None]
    """Predicted for a training step of ``BATCH`` samples, by network, with the build's memory."""

    @property
    def milliseconds(self) -> dict[str, float | None]:
        """Time of each network's step at the design's clock."""
        mhz = self.clock_mhz
        return {name: n / (mhz * 1e3) if n and mhz else None for name, n in self.cycles.items()}


PAPER = Row(
    design="paper",
    part="ZU3EG",
    array_multipliers=272,
    used={"luts": 56131, "flip_flops": 30155, "multipliers": 278, "block_rams": 77},
    available={"luts": 70560, "flip_flops": 141120, "multipliers": 360, "block_rams": 432},
    block_ram_kbit=18,
    clock_mhz=100.0,
    cycles={"digits": None, "fashion": 9_000_000},
)
"""The paper's design, as printed in Table 2 and section 5.

Forward and backward of a batch of 64 of Fashion-MNIST take 0.09 s at 100 MHz, with 1.2 W. It has
two arrays of 128 multipliers each, and 16 multipliers in PE3.
"""


def finished(folder: Path) -> list[Path]:
    """Return the folders of finished builds and estimates in ``folder``, sorted by name."""
    if not folder.is_dir():
        return []
    return sorted(
        build
        for build in folder.iterdir()
        if any((build / name).is_file() for name in (REPORT, ESTIMATE))
    )


def row(folder: Path, *, mhz: float | None = None) -> Row:
    """Return the row for a folder of ``trainwright build`` or ``trainwright export --estimate``.

    ``mhz`` replaces the clock that the build reached. Raises ``BuildError``.
    """
    built = (folder / REPORT).is_file()
    path = folder / (REPORT if built else ESTIMATE)
    try:
        figures = json.loads(path.read_text())
        counted = {name: figures["resources"][name] for name in RESOURCES}
        return Row(
            design=folder.name,
            part=figures["part"],
            array_multipliers=figures["multipliers"],
            used={name: counts["used"] for name, counts in counted.items()},
            available={name: counts["available"] for name, counts in counted.items()},
            block_ram_kbit=18 if built else 36,
            clock_mhz=mhz or (figures["fmax_mhz"] if built else None),
            cycles=_cycles(figures),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BuildError(f"no report of a finished build in {path}: {error}") from error


def memory_timing(memory: str, parameters: AcceleratorParameters) -> MemoryTiming:
    """Return a board's memory timing for the cycle model.

    Block RAM is faster than the model's default, so the default is used for it.
    """
    if memory == SDRAM:
        return MemoryTiming(bandwidth=SDRAM_BYTES / parameters.beat_bytes)
    return MemoryTiming()


def _cycles(figures: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the predicted cycles of a step of each network; ``None`` if it needs more memory."""
    from trainwright.compiler import CompileError, compile_step
    from trainwright.network import load_network

    parameters = AcceleratorParameters(**without_gone(figures["parameters"]))
    memory_bytes = figures.get("memory_bytes")
    timing = memory_timing(figures.get("memory", BLOCK), parameters)
    cycles: dict[str, int | None] = {}
    for name in NETWORKS:
        try:
            step = compile_step(load_network(name), BATCH, parameters)
        except CompileError:
            cycles[name] = None
            continue
        fits = memory_bytes is None or step.memory_bytes <= memory_bytes
        cycles[name] = step.cycles_with(timing) if fits else None
    return cycles


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return the rows with their times."""
    return [asdict(design) | {"milliseconds": design.milliseconds} for design in rows]


def table(rows: Iterable[Row]) -> str:
    """Return the rows as Markdown, with used / available resources."""
    from trainwright.support.tables import markdown

    head = ["design", "part", "multipliers", *RESOURCES.values(), "MHz"]
    head += [f"{name}: {what}" for name in NETWORKS for what in ("cycles", "ms")]
    body = []
    for design in rows:
        counts = [f"{design.used[name]:,g} / {design.available[name]:,g}" for name in RESOURCES]
        counts[-1] += f" of {design.block_ram_kbit} Kbit"
        times = [
            value for name in NETWORKS for value in (design.cycles[name], design.milliseconds[name])
        ]
        body.append(
            [
                design.design,
                design.part,
                design.array_multipliers,
                *counts,
                design.clock_mhz,
                *times,
            ]
        )
    return markdown(head, body)
