"""The instructions that the vector engine holds while a program is emitted."""

from trainwright.program.vector import CODE_DEPTH, CODE_WORDS, Code, Instruction


class CodeStore:
    """Places kernels in the engine's store; a kernel that is still there is not loaded again."""

    def __init__(self) -> None:
        self._held: dict[tuple[Instruction, ...], int] = {}
        self._next = 0

    def place(self, code: tuple[Instruction, ...]) -> tuple[int, list[Code]]:
        """Return the first instruction's place, and the descriptors that load what is missing.

        The store is overwritten from its start where it is full: the engine executes CODE after
        the passes before it, so that no pass loses its instructions.
        """
        if code in self._held:
            return self._held[code], []
        # Starting over is simple, and rare: most programs have fewer kernels than fit.
        if self._next + len(code) > CODE_DEPTH:
            self._held, self._next = {}, 0
        entry = self._held[code] = self._next
        self._next += len(code)
        starts = range(0, len(code), CODE_WORDS)
        return entry, [
            Code(first=entry + start, instructions=code[start : start + CODE_WORDS])
            for start in starts
        ]
