"""A proof: what is claimed of which block, and how it is shown."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainwright_sim.formal.bench import Bench
from trainwright_sim.formal.mutant import Mutant


@dataclass(frozen=True, kw_only=True)
class Proof:
    """One property of a block, its proof, and the fault that breaks it.

    ``build`` writes blocks and claims into a bench; it gets the ``block`` (a class or function) or
    a mutant of it. By k-induction (``unbounded``) with ``depth`` cycles, or for the first ``depth``
    cycles after reset. ``mutant_depth``: cycles in which the mutant shows.
    """

    name: str
    claim: str
    block: Any
    build: Callable[[Bench, Any], None]
    mutant: Mutant
    depth: int = 1
    unbounded: bool = True
    mutant_depth: int = 12

    @property
    def method(self) -> str:
        """How, in the words of the table."""
        return "k-induction" if self.unbounded else "bounded"

    def rtlil(self, *, mutated: bool = False) -> str:
        """The design to be proven; ``mutated``: that of the fault, with goals alone."""
        bench = Bench(lemmas=not mutated)
        self.build(bench, self.mutant.of(self.block) if mutated else self.block)
        return bench.rtlil()
