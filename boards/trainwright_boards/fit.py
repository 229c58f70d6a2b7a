"""Find the largest accelerator that fits a board, and the networks that it trains."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.compiler import CompileError, compile_step
from trainwright.compiler.base.errors import DoesNotFitError
from trainwright.network import load_network
from trainwright.parameters import PRESETS, AcceleratorParameters, preset
from trainwright.support.native.tools import Progress
from trainwright_boards.board import Board, Part
from trainwright_boards.build import build
from trainwright_boards.catalogue import find_board
from trainwright_boards.catalogue.zynq import EXPORTS, ZynqBoard
from trainwright_boards.clocks import running_hz
from trainwright_boards.fits import obstacles, on_chip_bytes, zynq_part
from trainwright_boards.job import SYNTH, Build
from trainwright_boards.report import RoomError, check_room
from trainwright_boards.table2 import memory_timing


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An accelerator that may fit, and its memory."""

    name: str
    """Preset, or the user's own sizes."""
    parameters: AcceleratorParameters
    memory: str

    @property
    def size(self) -> tuple[int, int, int]:
        """Sort key: multipliers, then scratchpad, then program memory."""
        p = self.parameters
        return p.multipliers, p.scratchpad_rows * p.lanes, p.program_depth


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Result of the search."""

    chosen: Candidate | None
    resources: dict[str, dict[str, float]] = field(default_factory=dict)
    """Counts of synthesis; empty where nothing was synthesised."""
    rejected: dict[str, str]
    """Reasons by name."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A board as the search sees it."""

    part: Part
    memories: Mapping[str, int]
    """Bytes of each memory."""
    on_chip: Mapping[str, int]
    """Bytes of each memory that are block RAM."""
    is_unrouted: Callable[[str], bool]
    """Whether no routing is known for arrays as large as those of a preset."""
    count: Callable[[Candidate, Path, Progress], dict[str, Any]]
    """Synthesis; raises ``RoomError`` where the part is too small."""


NETWORK_BITS = 16
"""Bits of the words that networks need without ``--formats``."""
PROCESSOR = "processor"
"""Name of a Zynq's memory, which is the processor's."""
PROCESSOR_BYTES = 1 << 29
"""Bytes of memory of a PYNQ-Z2, which has the least of the Zynq boards."""


def target_of(name: str) -> Target:
    """Return a board by its name. Raises ``BuildError`` for an unknown name."""
    if name in EXPORTS:
        return _zynq(EXPORTS[name])
    board = find_board(name, also=EXPORTS)
    return Target(
        part=board.part,
        memories=board.memories,
        on_chip={memory: on_chip_bytes(board, memory) for memory in board.memories},
        is_unrouted=board.is_unrouted,
        count=lambda candidate, folder, progress: _count(board, candidate, folder, progress),
    )


def _zynq(board: ZynqBoard) -> Target:
    part = zynq_part(board)

    def count(candidate: Candidate, folder: Path, progress: Progress) -> dict[str, Any]:
        from trainwright_boards.estimate import estimate
        from trainwright_boards.export import export

        folder = folder / f"{board.name}-{candidate.name}"
        export(board, candidate.parameters, folder, progress=progress)
        figures = estimate(board, candidate.parameters, folder, progress)
        check_room(figures["cells"], part)
        return figures["resources"]

    return Target(
        part=part,
        memories={PROCESSOR: PROCESSOR_BYTES},
        on_chip={PROCESSOR: 0},
        is_unrouted=lambda _: False,
        count=count,
    )


def _count(board: Board, candidate: Candidate, folder: Path, progress: Progress) -> dict[str, Any]:
    """Synthesise for few LUTs: the search asks for size, not for speed."""
    job = Build(
        board,
        candidate.parameters,
        running_hz(board, board.design_hz, board.baud, candidate.memory),
        folder / f"{board.name}-{candidate.name}-{candidate.memory}",
        memory=candidate.memory,
        relaxed=True,
    )
    return build(job, progress, until=SYNTH)["resources"]


def presets_for(memory: str) -> list[Candidate]:
    """List every preset, the largest first."""
    candidates = [Candidate(name=n, parameters=preset(n), memory=memory) for n in PRESETS]
    return sorted(candidates, key=lambda candidate: candidate.size, reverse=True)


def find(
    target: Target,
    candidates: Sequence[Candidate],
    folder: Path,
    progress: Progress,
    *,
    synthesise: bool = True,
) -> Fit:
    """Return the first candidate that fits a board, by its netlist or by count alone.

    Raises ``BuildError`` where a tool is absent or fails.
    """
    rejected: dict[str, str] = {}
    for candidate in candidates:
        on_chip = target.on_chip[candidate.memory]
        if reasons := obstacles(candidate.parameters, target.part, on_chip):
            rejected[candidate.name] = "needs " + " and ".join(reasons)
            continue
        if candidate.name in PRESETS and candidate.parameters.word_width < NETWORK_BITS:
            rejected[candidate.name] = (
                f"words of {candidate.parameters.word_width} bits, but networks have gradients of "
                f"{NETWORK_BITS} unless --formats narrows them: --accelerator "
                f"preset={candidate.name} tries this preset"
            )
            continue
        if candidate.name in PRESETS and target.is_unrouted(candidate.name):
            rejected[candidate.name] = "fits by count, but no routing was found for arrays as large"
            continue
        if not synthesise:
            return Fit(chosen=candidate, rejected=rejected)
        progress(f"{candidate.name}: counting the cells of its netlist")
        try:
            resources = target.count(candidate, folder, progress)
        except RoomError as error:
            rejected[candidate.name] = str(error)
            continue
        return Fit(chosen=candidate, resources=resources, rejected=rejected)
    return Fit(chosen=None, rejected=rejected)


def largest_step(candidate: Candidate, memory_bytes: int, name: str, batch: int) -> dict[str, Any]:
    """Compile a network for the largest batch, halved from ``batch``, that both memories hold."""
    timing = memory_timing(candidate.memory, candidate.parameters)
    refused: dict[str, Any] = {}
    while True:
        try:
            step = compile_step(load_network(name), batch, candidate.parameters)
        except CompileError as error:
            # The reason of the largest batch says what is scarce; later ones repeat it.
            refused = refused or {"network": name, "batch": None, "reason": str(error)}
            # A smaller batch only helps if rows of the scratchpad are scarce.
            if batch == 1 or not isinstance(error, DoesNotFitError):
                return refused
            batch //= 2
            continue
        figures = {"network": name, "batch": batch, "memory_bytes": step.memory_bytes}
        if step.memory_bytes <= memory_bytes:
            return figures | {"cycles": step.cycles_with(timing)}
        if batch == 1:
            reason = f"a batch of 1 needs {step.memory_bytes} bytes, the memory has {memory_bytes}"
            return {"network": name, "batch": None, "reason": reason}
        batch //= 2
