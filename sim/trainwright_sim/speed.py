"""``trainwright bench simulation``: simulated cycles a second of the engines, side by side."""

import argparse
import hashlib
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from trainwright.cli.command import CommandBody
from trainwright.cli.declare import natural, positive
from trainwright.cli.options import accelerator_parameters

REFERENCE, FAST = "verilator", "leaves"
"""The engine that simulates nothing but RTL, and the one with models in C++."""
MEMORY_BYTES = 1 << 26


@dataclass
class _Measured:
    """Measurements of an engine, a number a round."""

    rates: list[float] = field(default_factory=list)
    instructions: list[float] = field(default_factory=list)
    results: set[str] = field(default_factory=set)
    cycles: int = 0

    def to_dict(self) -> dict[str, Any]:
        counted = median(self.instructions) if self.instructions else None
        return {"cycles_per_second": median(self.rates), "instructions_per_cycle": counted}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run a training step on the simulated accelerator, each engine in turn, and print the "
        "simulated cycles a second of processor time, the median of all rounds. `ratio` is that of "
        f"{FAST} to {REFERENCE}. Exit status 1 where the engines differ in memory, statistics, "
        "counters or cycles."
    )
    parser.add_argument("--network", default="fashion", metavar="NAME", help="default: fashion")
    parser.add_argument("--batch", type=positive, default=8, metavar="N", help="default: 8")
    parser.add_argument("--rounds", type=positive, default=7, metavar="N", help="default: 7")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of the operands")
    parser.add_argument(
        "--accelerator", metavar="NAME=N", action="append", help="a size (repeatable)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _round(driver: Any, accelerator: Any, operands: Any, into: _Measured) -> None:
    """Execute one step, and add its rates and results to ``into``."""
    before = accelerator.spent
    forward = driver.forward(operands.inputs, operands.model, operands.scales)
    backward = driver.backward(operands.gradient, operands.scales)
    spent = accelerator.spent - before
    into.rates.append(spent.cycles / spent.seconds)
    if spent.instructions is not None:
        into.instructions.append(spent.instructions / spent.cycles)
    into.cycles = forward.counters.cycles + backward.counters.cycles
    digest = hashlib.sha256(accelerator.read(0, driver.step.memory_bytes).tobytes())
    for result in (forward, backward):
        run = result.run
        counts = (run.sums, run.saturations, run.underflows)
        digest.update(repr((result.counters, [count.tolist() for count in counts])).encode())
    into.results.add(digest.hexdigest())


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Measure both engines; return the object that ``--json`` prints."""
    from trainwright.check.step import random_inputs
    from trainwright.driver import Driver
    from trainwright.golden.backend import GoldenAccelerator
    from trainwright.network import load_network
    from trainwright_sim.backend import RtlAccelerator

    network = load_network(args.network)
    parameters = accelerator_parameters(args.accelerator or (), network)
    with GoldenAccelerator(parameters, memory_bytes=MEMORY_BYTES) as golden:
        operands = random_inputs(network, Driver(golden, network, args.batch), args.seed)
    totals = {engine: _Measured() for engine in (REFERENCE, FAST)}
    with ExitStack() as stack:
        drivers = {}
        for engine in totals:
            accelerator = stack.enter_context(
                closing(RtlAccelerator(parameters, memory_bytes=MEMORY_BYTES, engine=engine))
            )
            drivers[engine] = accelerator, Driver(accelerator, network, args.batch)
        for _ in range(args.rounds):  # in turn: others may be using the machine
            for engine, (accelerator, driver) in drivers.items():
                _round(driver, accelerator, operands, totals[engine])
    reference, fast = totals[REFERENCE], totals[FAST]
    return {
        "network": network.name,
        "batch": args.batch,
        "rounds": args.rounds,
        "cycles": reference.cycles,
        "same": len(reference.results | fast.results) == 1,
        "engines": {engine: total.to_dict() for engine, total in totals.items()},
        "ratio": median(fast.rates) / median(reference.rates),
    }


def _run(args: argparse.Namespace) -> int:
    from trainwright.cli.output import to_json

    figures = measured(args)
    if args.json:
        print(to_json(figures))
    else:
        print(f"{figures['network']}, batch {figures['batch']}: {figures['cycles']:,} cycles")
        for engine, engine_figures in figures["engines"].items():
            counted = engine_figures["instructions_per_cycle"]
            more = "" if counted is None else f", {counted:,.0f} instructions each"
            print(f"{engine}: {engine_figures['cycles_per_second']:,.0f} cycles a second{more}")
        same = "the same" if figures["same"] else "DIFFERENT"
        print(f"{figures['ratio']:.2f} times as fast; results are {same}")
    return 0 if figures["same"] else 1


command = CommandBody(
    _add_arguments, _run, "simulation", "simulated cycles a second, with and without models"
)
