"""Simulators of designs that several tests simulate: built once, and reset for each of them."""

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

from amaranth.hdl import Cat, Elaboratable, ValueLike
from amaranth.sim import Simulator

Testbench = Callable[[Any], Awaitable[None]]
MOST_BESIDE = 3


class Inputs:
    """Inputs of a design that a testbench sets at once.

    Amaranth settles the logic after each value that is set: most of the time of a bench that sets
    one input after the other in each cycle.
    """

    def __init__(self, *inputs: ValueLike):
        self._together = Cat(*inputs)
        self._widths = [len(Cat(each)) for each in inputs]

    def set(self, ctx: Any, *values: int) -> None:
        together = 0
        for width, value in zip(self._widths[::-1], values[::-1], strict=True):
            together = together << width | int(value) & (1 << width) - 1
        ctx.set(self._together, together)


class Simulated:
    """A design and its simulator, which runs one testbench after the other."""

    def __init__(self, design: Elaboratable):
        self.design: Any = design
        self._testbenches: tuple[Testbench, ...] = ()
        self._simulator = Simulator(design)
        self._simulator.add_clock(1e-8)
        for number in range(1, 1 + MOST_BESIDE):
            self._simulator.add_testbench(self._numbered(number), background=True)
        self._simulator.add_testbench(self._numbered(0))

    def _numbered(self, number: int) -> Testbench:
        async def testbench(ctx) -> None:
            for process in self._testbenches[number : number + 1]:
                await process(ctx)

        return testbench

    def run(self, testbench: Testbench, *beside: Testbench) -> None:
        """Run from the design's reset to the end of the testbench, with processes ``beside`` it."""
        assert len(beside) <= MOST_BESIDE
        if self._testbenches:
            self._simulator.reset()
        self._testbenches = (testbench, *beside)
        try:
            self._simulator.run()
        except BaseException:
            _kept.cache_clear()  # it is somewhere in the middle
            raise


def simulated(make: Callable[[Any], Elaboratable], parameters: Any) -> Simulated:
    """Simulate ``make(parameters)``, reusing the simulation of equal arguments."""
    return _kept(make, parameters, Simulator.__init__)  # which faults are put into


@lru_cache(4)
def _kept(make: Callable[[Any], Elaboratable], parameters: Any, _simulator: object) -> Simulated:
    return Simulated(make(parameters))
