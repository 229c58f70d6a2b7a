"""Bind update programs to a step: most steps change constants, shifts and seed alone.

``UpdatePrograms`` keeps compiled programs by the shape of their instructions, and replaces only
what a step changes. ``driver.chip`` is the user.
"""

from collections.abc import Sequence
from dataclasses import replace

from trainwright.compiler.chip.memory import ChipMemory
from trainwright.compiler.chip.update import pass_name, update_program
from trainwright.onchip.update_pass import PartUpdate
from trainwright.program.descriptors import Descriptor, Program, Set
from trainwright.program.vector import Code, Instruction, Vector

KEPT = 16
"""Update programs that are cached, each with other instructions."""


class UpdatePrograms:
    """Cache of ``update_program``, by the shape of the instructions of its passes."""

    def __init__(self, memory: ChipMemory) -> None:
        self._memory = memory
        self._names = {pass_name(part): n for n, part in enumerate(memory.layout.parts)}
        self._kept: dict[tuple, tuple[Program, tuple[PartUpdate, ...]]] = {}

    def get(self, parts: Sequence[PartUpdate], seed: int) -> Program:
        """Return the program that updates these ``parts``."""
        passes = [part.lowered() for part in parts]
        codes = [lowered.instructions for lowered in passes]
        # The layout of the program depends on which parts share instructions, and on how many
        # instructions there are. Its waits depend on the registers that they read and write.
        key = tuple(
            (codes.index(own.instructions), len(own.instructions), own.reads, own.writes,
             part.moved != 0)
            for own, part in zip(passes, parts, strict=True)
        )  # fmt: skip
        if key not in self._kept:
            if len(self._kept) == KEPT:
                # Drop the oldest entry: shifts change slowly, so old ones seldom return.
                del self._kept[next(iter(self._kept))]
            self._kept[key] = update_program(self._memory, parts, seed), tuple(parts)
        program, compiled_for = self._kept[key]
        blocks = {
            before.lowered().instructions: code
            for before, code in zip(compiled_for, codes, strict=True)
        }
        descriptors = tuple(self._bound(d, parts, blocks, seed) for d in program.descriptors)
        return replace(program, descriptors=descriptors)

    def _bound(
        self,
        d: Descriptor,
        parts: Sequence[PartUpdate],
        blocks: dict[tuple[Instruction, ...], tuple[Instruction, ...]],
        seed: int,
    ) -> Descriptor:
        if isinstance(d, Set) and d.seed is not None:
            return d if d.seed == seed else replace(d, seed=seed)
        if isinstance(d, Vector):
            # A pass is named after its part: look up the part's constants of this step.
            constants = parts[self._names[d.tensor]].lowered().constants
            return d if d.constants == constants else replace(d, constants=constants)
        if isinstance(d, Code):
            instructions = blocks[d.instructions]
            return d if d.instructions == instructions else replace(d, instructions=instructions)
        return d
