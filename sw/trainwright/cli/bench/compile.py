"""``trainwright bench compile``: processor time and counted effort of compiling a training step."""

import argparse
import platform
from collections.abc import Iterator
from dataclasses import asdict
from time import process_time
from typing import Any

from trainwright.cli.command import SimpleCommand
from trainwright.cli.options import accelerator_parameters, add_accelerator_options, positive

BUILT_IN = (("digits", 64), ("fashion", 64), ("fashion", 256), ("fashion-conv", 64))
"""Networks and batches that are compiled without options."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compile a training step without the cache of programs: processor seconds of one process, "
        "and the alternatives that were evaluated, which are the same on every machine. Without "
        "options: digits, fashion at batches of 64 and 256, fashion-conv."
    )
    parser.add_argument("--network", metavar="NETWORK", help="only this network")
    parser.add_argument("--batch", type=positive, default=64, metavar="N", help="default: 64")
    parser.add_argument(
        "--effort", type=positive, metavar="N", help="alternatives that may be evaluated"
    )
    parser.add_argument("--json", action="store_true", help="print JSON and no table")
    add_accelerator_options(parser)


def _row(name: str, batch: int, args: argparse.Namespace) -> dict[str, Any]:
    from trainwright.compiler import CompileError
    from trainwright.compiler.base.progress import MOST_EFFORT, followed
    from trainwright.compiler.step.compile import compile_network
    from trainwright.network import load_network

    network = load_network(name)
    parameters = accelerator_parameters(args.accelerator, network)
    row: dict[str, Any] = {"network": network.name, "batch": batch}
    with followed() as progress:
        begun = process_time()
        try:
            step = compile_network(network, batch, parameters, effort=args.effort or MOST_EFFORT)
            row |= {
                "cycles": step.cycles,
                "descriptors": len(step.forward.descriptors) + len(step.backward.descriptors),
            }
        except CompileError as error:
            row["error"] = str(error)
        row["seconds"] = round(process_time() - begun, 2)
    return row | {"effort": progress.effort, **progress.counts}


def _cases(args: argparse.Namespace) -> Iterator[tuple[str, int]]:
    yield from ((args.network, args.batch),) if args.network else BUILT_IN


def _run(args: argparse.Namespace) -> int:
    # Loaded here, as a module that is loaded while a network is compiled counts as compile time.
    import trainwright.compiler  # noqa: F401  imported for its effect alone
    from trainwright.cli.output import to_json
    from trainwright.report.tables import markdown

    rows = [_row(name, batch, args) for name, batch in _cases(args)]
    if args.json:
        conditions = {
            "clock": "processor time of one process",
            "program_cache": False,
            "most_effort": args.effort,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "accelerator": asdict(accelerator_parameters(args.accelerator, None)),
        }
        print(to_json({"conditions": conditions, "steps": rows}))
        return 0
    names = list(dict.fromkeys(name for row in rows for name in row))
    print(markdown(names, [[row.get(name) for name in names] for row in rows]), end="")
    return 0


command = SimpleCommand(
    "compile", "processor time and counted effort of compiling a step", _add_arguments, _run
)
