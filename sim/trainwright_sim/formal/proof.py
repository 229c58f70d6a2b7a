"""A proof: what is claimed of which block, and how it is shown."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.linear import Gates
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.solve import Model


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A property of a block, its proof, and a fault that breaks it.

    ``build`` writes the block and the claims into a bench; it receives ``block`` (a class or a
    function) or its mutant. The proof is a k-induction over ``depth`` cycles (``unbounded``), or it
    covers the first ``depth`` cycles after reset. The mutant must break a goal within
    ``mutant_depth`` cycles.
    """

    name: str
    claim: str
    block: Any
    build: Callable[[ProofBench, Any], None]
    mutant: Mutant
    depth: int = 1
    unbounded: bool = True
    mutant_depth: int = 12

    @property
    def method(self) -> str:
        """How, in the words of the table."""
        return "k-induction" if self.unbounded else "bounded"

    def rtlil(self, *, mutated: bool = False) -> str:
        """Return the design to prove; ``mutated``: the design with the fault, with goals only."""
        bench = ProofBench(lemmas=not mutated)
        self.build(bench, self.mutant.of(self.block) if mutated else self.block)
        return bench.rtlil()

    def is_proven(self) -> bool:
        """Return whether all claims hold, by induction or for the first cycles."""
        with Model(self.rtlil()) as model:
            if not self.unbounded:
                return model.holds(self.depth)
            return model.holds(self.depth + 1) and model.is_inductive(self.depth)

    def mutant_survives(self) -> bool:
        """Return whether the goals also hold in the mutant, for ``mutant_depth`` cycles."""
        with Model(self.rtlil(mutated=True)) as model:
            return model.holds(self.mutant_depth)


@dataclass(frozen=True, kw_only=True)
class LinearProof:
    """A property of a block that only adds modulo 2, and a fault that breaks it.

    ``block`` (a class or a function) builds the block, and ``holds`` decides from its gates whether
    the property holds for any state of its registers.
    """

    name: str
    claim: str
    block: Any
    holds: Callable[[Gates], bool]
    mutant: Mutant
    depth: None = None
    method: str = "linear"

    def is_proven(self) -> bool:
        """Return whether the property holds for every state.

        Raises ``NotLinear`` where the block does more than add.
        """
        return self._holds_of(self.block)

    def mutant_survives(self) -> bool:
        """Return whether the mutant has the property too."""
        return self._holds_of(self.mutant.of(self.block))

    def _holds_of(self, block: Any) -> bool:
        bench = ProofBench()
        bench.add(block())
        return self.holds(Gates(bench.rtlil()))
