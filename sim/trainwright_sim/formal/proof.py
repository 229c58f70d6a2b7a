"""A proof: what is claimed of which block, and how it is shown."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainwright_sim.formal.bench import Bench
from trainwright_sim.formal.linear import Gates
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.solve import Model


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

    def is_proven(self) -> bool:
        """By induction from the states after reset, or for the first cycles."""
        with Model(self.rtlil()) as model:
            if not self.unbounded:
                return model.holds(self.depth)
            return model.holds(self.depth + 1) and model.is_inductive(self.depth)

    def mutant_survives(self) -> bool:
        """Whether the goals hold in the mutant, too, for ``mutant_depth`` cycles of a reset."""
        with Model(self.rtlil(mutated=True)) as model:
            return model.holds(self.mutant_depth)


@dataclass(frozen=True, kw_only=True)
class LinearProof:
    """One property of a block that only adds modulo 2, and the fault that breaks it.

    ``block`` (a class or function) gives it, ``holds`` tells the property of its gates, for any
    state of its registers.
    """

    name: str
    claim: str
    block: Any
    holds: Callable[[Gates], bool]
    mutant: Mutant
    depth: None = None
    method: str = "linear"

    def is_proven(self) -> bool:
        """From sums, of any state. Raises ``NotLinear`` where the block does more than add."""
        return self._holds_of(self.block)

    def mutant_survives(self) -> bool:
        """Whether the mutant has the property, too."""
        return self._holds_of(self.mutant.of(self.block))

    def _holds_of(self, block: Any) -> bool:
        bench = Bench()
        bench.add(block())
        return self.holds(Gates(bench.rtlil()))
