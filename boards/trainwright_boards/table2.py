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
"""What is counted, and the paper's heads."""
NETWORKS = ("digits", "fashion")
BATCH = 64
SDRAM_BYTES = 1.96
"""A cycle, of the 2 that the chip's pins carry: what the controller moves in long bursts of one
direction, refreshes and rows included (docs/boards.md)."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One design on one part. ``None``: not known, or not possible."""

    design: str
    part: str
    array_multipliers: int
    used: Mapping[str, float]
    available: Mapping[str, float]
    block_ram_kbit: int
    """Of one of the block RAMs as they are counted here."""
    clock_mhz: float | None
    cycles: Mapping[str, int | None]
    """Predicted for a training step of ``BATCH`` samples, by network, with the build's memory."""

    @property
    def milliseconds(self) -> dict[str, float | None]:
        """Of those steps, at the clock."""
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
"""As printed in Table 2 and section 5: 0.09 s for forward and backward of a batch of 64 of
Fashion-MNIST at 100 MHz; 1.2 W. Two arrays of 128 multipliers and 16 of PE3."""


def finished(folder: Path) -> list[Path]:
    """The folders of finished builds and estimates in ``folder``, by name."""
    if not folder.is_dir():
        return []
    return sorted(
        one
        for one in folder.iterdir()
        if any((one / name).is_file() for name in (REPORT, ESTIMATE))
    )


def row(folder: Path, *, mhz: float | None = None) -> Row:
    """Of a folder of ``trainwright build`` or ``trainwright export --estimate``.

    ``mhz``: a clock instead of the one that the build reached. Raises ``BuildError``.
    """
    built = (folder / REPORT).is_file()
    path = folder / (REPORT if built else ESTIMATE)
    try:
        found = json.loads(path.read_text())
        counted = {name: found["resources"][name] for name in RESOURCES}
        return Row(
            design=folder.name,
            part=found["part"],
            array_multipliers=found["multipliers"],
            used={name: one["used"] for name, one in counted.items()},
            available={name: one["available"] for name, one in counted.items()},
            block_ram_kbit=18 if built else 36,
            clock_mhz=mhz or (found["fmax_mhz"] if built else None),
            cycles=_cycles(found),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BuildError(f"no report of a finished build in {path}: {error}") from error


def memory_timing(memory: str, parameters: AcceleratorParameters) -> MemoryTiming:
    """A board's memory for the cycle model: block RAM is faster than what the model assumes."""
    if memory == SDRAM:
        return MemoryTiming(bandwidth=SDRAM_BYTES / parameters.beat_bytes)
    return MemoryTiming()


def _cycles(figures: Mapping[str, Any]) -> dict[str, int | None]:
    """Predicted cycles of a step of each network; ``None`` where it needs more memory."""
    from trainwright.compiler import CompileError
    from trainwright.lowering import compile_step
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
    """The rows, with the times."""
    return [asdict(one) | {"milliseconds": one.milliseconds} for one in rows]


def table(rows: Iterable[Row]) -> str:
    """The rows as Markdown; used / available."""
    from trainwright.report.tables import markdown

    head = ["design", "part", "multipliers", *RESOURCES.values(), "MHz"]
    head += [f"{name}: {what}" for name in NETWORKS for what in ("cycles", "ms")]
    body = []
    for one in rows:
        counts = [f"{one.used[name]:,g} / {one.available[name]:,g}" for name in RESOURCES]
        counts[-1] += f" of {one.block_ram_kbit} Kbit"
        times = [value for name in NETWORKS for value in (one.cycles[name], one.milliseconds[name])]
        body.append([one.design, one.part, one.array_multipliers, *counts, one.clock_mhz, *times])
    return markdown(head, body)
