"""Update programs of one step after another: most differ in constants, shifts and seed alone."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from trainwright.compiler.chip.memory import ChipMemory
from trainwright.compiler.chip.update import update_program
from trainwright.onchip.update_pass import PartUpdate, update_code
from trainwright.program.descriptors import Descriptor, Program, Set
from trainwright.program.vector import Code, Instruction, Vector

KEPT = 16
"""Programs of other instructions that are kept."""

_code = lru_cache(256)(update_code)


class UpdatePrograms:
    """Gives what ``update_program`` gives, without compiling what is only bound anew."""

    def __init__(self, memory: ChipMemory) -> None:
        self._memory = memory
        self._names = {part.name: n for n, part in enumerate(memory.layout.parts)}
        self._kept: dict[tuple, tuple[Program, tuple[PartUpdate, ...]]] = {}

    def get(self, parts: Sequence[PartUpdate], seed: int) -> Program:
        """The program of an update of these ``parts``."""
        codes = [_code(part) for part in parts]
        key = tuple(
            (codes.index(code), len(code), part.reads, part.writes, part.moved != 0)
            for code, part in zip(codes, parts, strict=True)
        )
        if key not in self._kept:
            if len(self._kept) == KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = update_program(self._memory, parts, seed), tuple(parts)
        program, made_for = self._kept[key]
        blocks = {_code(was): code for was, code in zip(made_for, codes, strict=True)}
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
            constants = parts[self._names[d.tensor]].constants
            return d if d.constants == constants else replace(d, constants=constants)
        if isinstance(d, Code):
            instructions = blocks[d.instructions]
            return d if d.instructions == instructions else replace(d, instructions=instructions)
        return d
