"""``trainwright bench cycles``: cycles of a training step, predicted and simulated."""

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from trainwright.cli.command import SimpleCommand
from trainwright.cli.errors import OptionError
from trainwright.cli.options import (
    accelerator_parameters,
    add_accelerator_options,
    natural,
    positive,
    ranks,
)

PAPER_CYCLES = 9_000_000
"""A batch of 64 of the paper's network: 0.09 s at 100 MHz (its Table 3)."""
BUILT_IN = (("digits", None), ("fashion", None), ("fashion", ((12, 5, 13), (16,))))


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Cycles of a training step (forward, backward, all gradients) for each plan, network and "
        "set of ranks: by the cycle model and in the simulated accelerator, beside the 9,000,000 "
        "of the paper for its network. Without options: digits, and fashion at rank 16 and at "
        "ranks 12,5,13|16."
    )
    parser.add_argument("--network", metavar="NETWORK", help="only this network")
    parser.add_argument("--ranks", type=ranks, metavar="R", help="its ranks, as '12,5,13|16'")
    parser.add_argument(
        "--plan", action="append", metavar="PLAN", help="default: auto (repeatable)"
    )
    parser.add_argument("--batch", type=positive, default=64, metavar="N", help="default: 64")
    parser.add_argument(
        "--random", type=natural, default=0, metavar="N", help="N random networks instead"
    )
    parser.add_argument("--seed", type=natural, default=0, metavar="S", help="of the random ones")
    parser.add_argument("--predict", action="store_true", help="do not simulate")
    parser.add_argument("--json", action="store_true", help="print JSON and no tables")
    add_accelerator_options(parser)


def _cases(args: argparse.Namespace) -> Iterator[tuple[Any, int]]:
    from trainwright.network import load_network
    from trainwright.timing.random_networks import random_network

    if args.random:
        for number in range(args.random):
            yield random_network(args.seed + number)
        return
    chosen = [(args.network, args.ranks)] if args.network else BUILT_IN
    for name, given in chosen:
        network = load_network(name)
        yield (network.with_ranks(given) if given else network), args.batch


def _simulated(step: Any, accelerator: Any) -> Any:
    """Counters of both programs; the memory holds zeros, which take the same time."""
    from trainwright.program.descriptors import Program

    runs = []
    for compiled in (step.forward, step.backward):
        program = Program(compiled.descriptors, compiled.fingerprint)
        runs.append(accelerator.run(program, compiled.address).counters)
    return runs


def _row(network: Any, batch: int, plan: str, args: argparse.Namespace) -> dict[str, Any]:
    from trainwright.accelerator import open_accelerator
    from trainwright.compiler import CompileError, compile_step

    parameters = accelerator_parameters(args.accelerator, network)
    row: dict[str, Any] = {
        "network": network.name,
        "ranks": "|".join(",".join(map(str, layer.ranks)) for layer in network.layers),
        "batch": batch,
        "plan": plan,
    }
    try:
        step = compile_step(network, batch, parameters, plan=plan)
    except CompileError as error:
        return row | {"error": str(error)}
    predicted = step.predicted_cycles
    row |= {"macs": step.macs, "predicted_cycles": predicted}
    cycles = predicted
    if not args.predict:
        accelerator = open_accelerator("rtl", parameters, memory_bytes=step.memory_bytes)
        try:
            runs = _simulated(step, accelerator)
        finally:
            accelerator.close()
        cycles = sum(run.cycles for run in runs)
        row |= {
            "cycles": cycles,
            "error_of_prediction": predicted / cycles - 1,
            "bytes": sum(run.bytes_read + run.bytes_written for run in runs),
        }
    row["utilisation"] = step.macs / (parameters.multipliers * cycles)
    if network.name == "fashion" and batch == 64:
        row["paper_over_this"] = PAPER_CYCLES / cycles
    return row


def _run(args: argparse.Namespace) -> int:
    from trainwright.cli.output import to_json
    from trainwright.compiler.base.compiled import AUTO
    from trainwright.compiler.plans import require_plan
    from trainwright.report.tables import markdown

    if args.ranks and not args.network:
        raise OptionError("--ranks needs --network: they are those of one network")
    plans = args.plan or (AUTO,)
    for plan in plans:
        require_plan(plan)
    rows = [_row(network, batch, plan, args) for network, batch in _cases(args) for plan in plans]
    parameters = accelerator_parameters(args.accelerator, None)
    if args.json:
        print(
            to_json(
                {"accelerator": asdict(parameters), "paper_cycles": PAPER_CYCLES, "steps": rows}
            )
        )
        return 0
    names = list(dict.fromkeys(name for row in rows for name in row))
    print(markdown(names, [[row.get(name) for name in names] for row in rows]), end="")
    return 0


command = SimpleCommand("cycles", "cycles of a step, predicted and simulated", _add_arguments, _run)
