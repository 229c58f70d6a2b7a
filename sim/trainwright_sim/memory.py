"""Parameters of the simulated external memory: latency, bandwidth, pauses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CHANNELS = ("aw", "w", "b", "ar", "r")
"""Channels of an AXI4 port, in the order of the native memory model."""
MOST_OUTSTANDING = 256
MOST_STALL = 0.95


@dataclass(frozen=True, kw_only=True)
class MemoryModel:
    """Timing of the memory behind the accelerator's AXI4 port, in cycles of its clock.

    Answers come in order. A read burst returns the memory as it was when its address was taken; a
    write burst is in the memory when its response is given: the weakest ordering that AXI4 allows.
    Everything is deterministic; ``seed`` matters only with ``stall``.

    Raises ``ValueError`` naming the offending value when a setting is out of its range.
    """

    read_latency: int = 40
    """Cycles from an accepted read address to its first beat; 1 to 10000."""
    write_latency: int = 10
    """Cycles from the last accepted beat of a burst to its response; 1 to 10000."""
    bandwidth: float = 0.8
    """Most beats a cycle, reads and writes together, on average; above 0, at most 2."""
    outstanding: int = 32
    """Bursts of each direction taken before the first of them is answered; 1 to 256."""
    stall: float | Mapping[str, float] = 0.0
    """Probability that a channel pauses in a cycle, for all or by name (``CHANNELS``); to 0.95."""
    seed: int = 1
    """Seed of the random pauses; 0 to 2^64 - 1."""

    def __post_init__(self) -> None:
        for name in ("read_latency", "write_latency"):
            self._check(name, 1 <= getattr(self, name) <= 10000, "from 1 to 10000")
        self._check("bandwidth", 0 < self.bandwidth <= 2, "above 0 and at most 2")
        self._check(
            "outstanding", 1 <= self.outstanding <= MOST_OUTSTANDING, f"1 to {MOST_OUTSTANDING}"
        )
        self._check("seed", 0 <= self.seed < 1 << 64, "from 0 to 2^64 - 1")
        if isinstance(self.stall, Mapping):
            self._check("stall", set(self.stall) <= set(CHANNELS), f"keyed by {CHANNELS}")
        stalls = self.stall.values() if isinstance(self.stall, Mapping) else (self.stall,)
        self._check("stall", all(0 <= s <= MOST_STALL for s in stalls), f"from 0 to {MOST_STALL}")

    def _check(self, name: str, condition: bool, must: str) -> None:
        if not condition:
            raise ValueError(f"{name} must be {must}, not {getattr(self, name)!r}")

    def channel_stalls(self) -> list[float]:
        """Return the probability of a pause for each of ``CHANNELS``."""
        if isinstance(self.stall, Mapping):
            return [self.stall.get(channel, 0.0) for channel in CHANNELS]
        return [self.stall] * len(CHANNELS)

    @classmethod
    def ideal(cls, **changes: Any) -> "MemoryModel":
        """Return a model with one cycle of latency and a beat a cycle in each direction."""
        return cls(**{"read_latency": 1, "write_latency": 1, "bandwidth": 2.0} | changes)
