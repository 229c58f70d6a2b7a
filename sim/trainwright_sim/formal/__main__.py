"""``scripts/formal``: runs the proofs."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from trainwright_sim.formal.check import Result, kill, prove
from trainwright_sim.formal.registry import PROOFS
from trainwright_sim.formal.solve import FormalError
from trainwright_sim.formal.table import line, write

DESCRIPTION = "Prove properties of the hardware's blocks, or see the proofs fail on mutants."


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    options = argparse.ArgumentParser("formal", description=DESCRIPTION, allow_abbrev=False)
    options.add_argument(
        "names", nargs="*", metavar="NAME", help="proofs whose name begins so (default: all)"
    )
    options.add_argument(
        "--mutants", action="store_true", help="run each proof on its block with one fault instead"
    )
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument("--list", action="store_true", help="print names and properties alone")
    options.add_argument(
        "--write",
        type=Path,
        metavar="PAGE",
        help="put the table into docs/results/verification.md",
    )
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    The status is 0 if everything is proven (with ``--mutants``: every mutant killed), 1 if not, and
    2 for bad usage or a missing tool.
    """
    args = parser().parse_args(arguments)
    chosen = [p for p in PROOFS.values() if not args.names or p.name.startswith(tuple(args.names))]
    if unknown := [name for name in args.names if not any(p.startswith(name) for p in PROOFS)]:
        print(f"formal: no proof begins with {unknown[0]!r}: see --list", file=sys.stderr)
        return 2
    if args.write and (args.mutants or args.names):
        print("formal: --write is of all proofs: leave out names and --mutants", file=sys.stderr)
        return 2
    if args.list:
        print("\n".join(f"{proof.name}: {proof.claim}" for proof in chosen))
        return 0
    results: list[Result] = []
    try:
        for proof in chosen:
            results.append((kill if args.mutants else prove)(proof))
            if not args.json:
                print(line(results[-1]), flush=True)
        if args.write:
            write(args.write, results)
    except (FormalError, OSError) as error:
        print(f"formal: {error}", file=sys.stderr)
        return 2
    seconds, good = sum(r.seconds for r in results), sum(r.is_good for r in results)
    if args.json:
        rows = [result.row() for result in results]
        print(json.dumps({"proofs": rows, "good": good, "seconds": round(seconds, 1)}))
    else:
        kind = "mutants killed" if args.mutants else "properties proven"
        print(f"{good} of {len(results)} {kind}, {seconds:.0f} s")
    return 0 if good == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
