"""Run tests of Amaranth's simulator on a mutant: a compiled model of the mutated block replaces it.

Only the block is replaced. The circuit that a test puts around the block, and the signals that the
test observes, stay as they are.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator

from trainwright.parameters import AcceleratorParameters
from trainwright_sim.mutation.packed import MutantModel, port_values

SLACK, SPARE_CYCLES = 3, 1000
"""A simulation hangs if it takes over SLACK times its usual cycles plus SPARE_CYCLES."""
DIRTY_CYCLES = 40
"""Cycles with random inputs before the reset with which each simulation begins."""


def _parameters_of(block: wiring.Component) -> Sequence[AcceleratorParameters]:
    """Return the parameters that a block was built with, if it keeps them."""
    kept = vars(block)
    return [kept[name] for name in ("_parameters", "parameters") if name in kept]


@contextmanager
def coupled(
    kind: type[wiring.Component],
    parameters: AcceleratorParameters,
    model: Callable[[wiring.Component], MutantModel],
    usual: Sequence[int] = (),
) -> Iterator[list[int]]:
    """Replace all blocks of one class by mutated models while this context lasts.

    In every simulator created meanwhile, each block of class ``kind`` is empty, and the model that
    ``model`` returns for the block drives its outputs. A test is skipped if such a block has other
    parameters than ``parameters`` (blocks that keep no parameters are not checked). The context
    yields a list that collects the cycles of each simulation. ``usual`` lists the cycles of the
    same simulations with the unchanged block: a simulation that takes much longer is stopped.
    """
    cycles: list[int] = []
    blocks: list[wiring.Component] = []
    elaborate, init = kind.elaborate, Simulator.__init__

    def empty(block: wiring.Component, _platform: object) -> Module:
        if any(other != parameters for other in _parameters_of(block)):
            pytest.skip("of another design")
        blocks.append(block)
        m = Module()
        m.d.sync += Signal(name="clocked").eq(0)  # the block has a clock
        return m

    def begin(simulator: Simulator, toplevel: Any, **options: Any) -> None:
        blocks.clear()
        init(simulator, toplevel, **options)
        for block in blocks:
            _couple(simulator, block, model(block), cycles, usual)

    kind.elaborate, Simulator.__init__ = empty, begin
    try:
        yield cycles
    finally:
        kind.elaborate, Simulator.__init__ = elaborate, init


def _couple(
    simulator: Simulator,
    block: wiring.Component,
    model: MutantModel,
    cycles: list[int],
    usual: Sequence[int],
) -> None:
    sources, sinks = port_values(block)
    inputs, outputs = Cat(*sources), Cat(*sinks)

    async def at_edges(ctx: Any) -> None:
        number, random = len(cycles), Random(len(inputs))
        cycles.append(0)
        most = SLACK * usual[number] + SPARE_CYCLES if number < len(usual) else None
        for _ in range(DIRTY_CYCLES):
            model.clock(random.getrandbits(len(inputs)))
        for _ in range(2):
            model.clock(0, rst=1)
        async for *_, before in ctx.tick().sample(inputs):
            cycles[number] += 1
            assert most is None or cycles[number] <= most, "the block hangs"
            ctx.set(outputs, model.clock(before))

    async def at_once(ctx: Any) -> None:
        async for *_, now in ctx.changed(*sources).sample(inputs):
            ctx.set(outputs, model.eval(now))

    simulator.add_process(at_edges)
    simulator.add_process(at_once)
