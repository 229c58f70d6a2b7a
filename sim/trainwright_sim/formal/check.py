"""Proofs, run: what came out of each, and how long it took."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from trainwright_sim.formal.proof import LinearProof, Proof


@dataclass(frozen=True)
class Result:
    """``status``: "proven" or "failed"; of a mutant "killed" or "survived"."""

    proof: Proof | LinearProof
    status: str
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether the block does as claimed, or its mutant was found."""
        return self.status in ("proven", "killed")

    def row(self) -> dict[str, object]:
        """Return the figures for JSON and for the table."""
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


def prove(proof: Proof | LinearProof) -> Result:
    """Prove the property of the unchanged block."""
    return _timed(proof, proof.is_proven, "proven", "failed")


def kill(proof: Proof | LinearProof) -> Result:
    """Check whether the proof's property fails in the block's mutant, as it should."""
    return _timed(proof, proof.mutant_survives, "survived", "killed")


def _timed(proof: Proof | LinearProof, holds: Callable[[], bool], yes: str, no: str) -> Result:
    start = perf_counter()
    status = yes if holds() else no
    return Result(proof, status, perf_counter() - start)
