"""Parts of every test: clock and reset, agents that act once a cycle, random stalls."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer

from trainwright_sim.bench.catalogue import BENCHES

STALLS = ("none", "some", "most", "bursts", "patient")
"""Ways to be ready: always; 2 cycles of 3; 1 of 5; on and off for long; only after ``valid``.

``late``, which is not among them: not for ``LATE_CYCLES``, then always.
"""
LATE_CYCLES = 400
CLOCK_NS = 10


class Agent(Protocol):
    """Something on a few ports of the design.

    ``cycle`` is called at each rising edge: what it reads is the value before the edge, what it
    writes holds from the edge on.
    """

    def cycle(self) -> None: ...


class Stalls:
    """Decides, cycle by cycle, whether a peer goes on."""

    def __init__(self, kind: str, random: Random):
        if kind not in (*STALLS, "late"):
            raise ValueError(f"kind must be one of {STALLS} or 'late', not {kind!r}")
        self.kind, self._random = kind, random
        self._left, self._on = 0, False

    def go(self, *, wanted: bool = True) -> bool:
        """Return whether to be ready; ``wanted``: the other side was seen to wait."""
        match self.kind:
            case "none":
                return True
            case "some":
                return self._random.random() < 0.67
            case "most":
                return self._random.random() < 0.2
            case "patient":
                return wanted
            case "late":
                self._left += 1
                return self._left > LATE_CYCLES
        if not self._left:
            self._on = not self._on
            self._left = self._random.randint(1, 60)
        self._left -= 1
        return self._on


class TestBench:
    """Test environment: the design, its agents and the source of all random choices.

    Creating an agent adds it; ``start`` resets the design, then ``run`` and ``until`` let cycles
    pass. ``seed`` is any text that distinguishes tests.
    """

    __test__ = False  # not a class of tests for pytest

    def __init__(self, dut, seed: object):
        self.dut = dut
        self.bench = BENCHES[str(cocotb.plusargs["bench"])]
        self.parameters = self.bench.parameters
        self.random = Random(f"{self.bench.name} {seed}")
        self.agents: list[Agent] = []
        self.cycles = 0
        dut.rst.value = 1

    def handle(self, name: str):
        """Return a port by name."""
        return getattr(self.dut, name)

    def set(self, **values: int) -> None:
        """Set inputs by name."""
        for name, value in values.items():
            self.handle(name).value = value

    def get(self, name: str) -> int:
        """Return an output as an unsigned integer; ``ValueError`` where it is not 0 or 1."""
        return int(self.handle(name).value)

    def stalls(self, kind: str) -> Stalls:
        """Make stalls with their own seed."""
        return Stalls(kind, Random(self.random.random()))

    async def start(self) -> None:
        """Start the clock and reset; every input is driven by now."""
        await Timer(1, "ns")
        Clock(self.dut.clk, CLOCK_NS, "ns").start()
        for _ in range(3):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        await RisingEdge(self.dut.clk)

    async def reset(self) -> None:
        """Reset the design in the middle of its work; agents go on."""
        self.dut.rst.value = 1
        await self.run(3)
        self.dut.rst.value = 0
        await self.run(3)  # an accelerator registers its reset

    async def run(self, cycles: int = 1) -> None:
        """Let cycles pass."""
        for _ in range(cycles):
            await RisingEdge(self.dut.clk)
            self.cycles += 1
            for agent in self.agents:
                agent.cycle()

    async def share(self, names: Sequence[str], cycles: int) -> list[int]:
        """Count the cycles, of the next ``cycles``, in which each output is high."""
        counts = [0] * len(names)
        for _ in range(cycles):
            await self.run()
            counts = [count + self.get(name) for count, name in zip(counts, names, strict=True)]
        return counts

    async def until(self, condition: Callable[[], object], *, most: int = 50_000) -> None:
        """Let cycles pass until ``condition`` holds; at most ``most``."""
        limit = self.cycles + most
        while not condition():
            assert self.cycles < limit, f"nothing after {most} cycles"
            await self.run()


def pack(values, width: int) -> int:
    """Pack integers (signed or not) into fields of ``width`` bits, the first lowest."""
    mask = (1 << width) - 1
    return sum((int(value) & mask) << (width * i) for i, value in enumerate(values))


def unpack(bits: int, width: int, count: int) -> list[int]:
    """Return the signed integers in ``count`` fields of ``width`` bits."""
    sign, mask = 1 << (width - 1), (1 << width) - 1
    return [((bits >> (width * i) & mask) ^ sign) - sign for i in range(count)]
