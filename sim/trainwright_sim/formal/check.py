"""Proofs, run: what came out of each, and how long it took."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from trainwright_sim.formal.proof import Proof
from trainwright_sim.formal.solve import Model


@dataclass(frozen=True)
class Result:
    """``status``: "proven" or "failed"; of a mutant "killed" or "survived"."""

    proof: Proof
    status: str
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether the block does as claimed, or its mutant was found."""
        return self.status in ("proven", "killed")

    def row(self) -> dict[str, object]:
        """The figures, for JSON and for the table."""
        proof = self.proof
        return {
            "name": proof.name,
            "property": proof.claim,
            "block": f"{proof.block.__module__}.{proof.block.__name__}",
            "method": proof.method,
            "depth": proof.depth,
            "status": self.status,
            "seconds": round(self.seconds, 1),
        }


def prove(proof: Proof) -> Result:
    """By induction from the states after reset, or for the first cycles."""

    def holds() -> bool:
        with Model(proof.rtlil()) as model:
            if not proof.unbounded:
                return model.holds(proof.depth)
            return model.holds(proof.depth + 1) and model.is_inductive(proof.depth)

    return _timed(proof, holds, "proven", "failed")


def kill(proof: Proof) -> Result:
    """The block's mutant: whether the goals fail within ``mutant_depth`` cycles of a reset."""

    def holds() -> bool:
        with Model(proof.rtlil(mutated=True)) as model:
            return model.holds(proof.mutant_depth)

    return _timed(proof, holds, "survived", "killed")


def _timed(proof: Proof, holds: Callable[[], bool], yes: str, no: str) -> Result:
    start = perf_counter()
    status = yes if holds() else no
    return Result(proof, status, perf_counter() - start)
