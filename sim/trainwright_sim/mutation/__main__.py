"""``scripts/mutants``: the mutation score of the blocks' tests."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import perf_counter

from trainwright.support.native.cache import Cache, default_folder
from trainwright.support.text import amount
from trainwright_sim.bench.runner import BenchError, unavailable
from trainwright_sim.mutation import score
from trainwright_sim.mutation.blocks import BLOCKS
from trainwright_sim.mutation.execute import SIMULATOR, Verdict, recorded, verdicts
from trainwright_sim.mutation.netlist import MutationError
from trainwright_sim.mutation.score import Score
from trainwright_sim.page import put

DESCRIPTION = "Put faults into the hardware's blocks, and see which of them the tests find."
MINUTES = 60.0
COMMAND = "scripts/mutants"
LINE = (
    "{block:16}{mutants:5} mutants {equivalent:4} equivalent {killed:5} killed "
    "{survived:4} survived {score:7.3f} {seconds:7} s"
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    options = argparse.ArgumentParser("mutants", description=DESCRIPTION, allow_abbrev=False)
    options.add_argument("blocks", nargs="*", metavar="BLOCK", help="default: all; see --list")
    options.add_argument(
        "--sample", type=int, metavar="N", help="only N mutants, of blocks drawn at random"
    )
    options.add_argument("--seed", type=int, default=1, metavar="S", help="chooses the mutants")
    options.add_argument(
        "--minutes", type=float, default=MINUTES, metavar="M",
        help="begin no block after that time: the next run goes on (default: %(default)s)",
    )  # fmt: skip
    options.add_argument(
        "--known", action="store_true", help="run nothing: tell of blocks whose verdicts are known"
    )
    options.add_argument(
        "--least", type=float, metavar="PERCENT",
        help="status 1 where the score is less, not where a survivor has no reason; name none",
    )  # fmt: skip
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument("--list", action="store_true", help="print blocks and how many mutants")
    options.add_argument(
        "--write", type=Path, metavar="PAGE",
        help="put the table into docs/results/verification.md; of blocks left out its rows stay",
    )  # fmt: skip
    return options


def sample(blocks: Sequence[str], most: int | None, seed: int) -> dict[str, list[int]]:
    """Choose the mutants to test, as a mapping from a block to the numbers of its mutants.

    Without ``most``, every mutant of every block. With it, whole blocks are drawn at random until
    there are ``most`` mutants: few blocks, because each block has to be compiled.
    """
    if most is None:
        return {block: list(range(1, BLOCKS[block].mutants + 1)) for block in blocks}
    random, chosen = Random(seed), {}
    for block in random.sample(blocks, len(blocks)):
        size = min(BLOCKS[block].mutants, most - sum(map(len, chosen.values())))
        if size > 0:
            chosen[block] = sorted(random.sample(range(1, BLOCKS[block].mutants + 1), size))
    return chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    The status is 0 if every survivor has a reason or the score reaches ``--least``, 1 if not, and 2
    for bad usage or a missing tool.
    """
    args = parser().parse_args(arguments)
    if problem := _problem(args):
        print(f"mutants: {problem}", file=sys.stderr)
        return 2
    if args.list:
        print("\n".join(f"{name}: {block.mutants}" for name, block in BLOCKS.items()))
        return 0
    chosen = sample(args.blocks or list(BLOCKS), args.sample, args.seed)
    try:
        outcomes, scores, left = _run(chosen, args)
        if args.write:
            put(args.write, COMMAND, score.markdown(score.with_rows(args.write, scores)))
        return _report(outcomes, scores, left, args)
    except (MutationError, BenchError, OSError, ValueError) as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2


def _problem(args: argparse.Namespace) -> str | None:
    """Return what is wrong with the options or with this machine; ``None`` if nothing is."""
    for name in args.blocks:
        if name not in BLOCKS:
            return f"no block {name!r}: see --list"
    if args.sample is not None and args.sample < 1:
        return f"--sample must be at least 1, not {args.sample}"
    if args.minutes <= 0:
        return f"--minutes must be positive, not {args.minutes}"
    if args.sample and (args.write or args.known):
        return "--write and --known are of whole blocks: leave out --sample"
    return unavailable(SIMULATOR)


Found = dict[str, list[Verdict]]


def _run(chosen: dict[str, list[int]], args: argparse.Namespace) -> tuple[Found, list[Score], int]:
    """Return the verdicts and the scores of each block, and how many blocks the budget left out."""

    def tell(text: str) -> None:
        if not args.json:
            print(text, flush=True)

    count, began = sum(map(len, chosen.values())), perf_counter()
    tell(
        f"{count} mutants of {amount(len(chosen), 'block')}; "
        f"no block is begun after {args.minutes:g} min"
    )
    cache = Cache(default_folder() / "mutants")
    outcomes: Found = {}
    scores: list[Score] = []
    for name, numbers in chosen.items():
        if (start := perf_counter()) - began > 60 * args.minutes:
            break
        if args.known:
            verdicts_of = recorded(BLOCKS[name], args.seed, cache)
        else:
            verdicts_of = verdicts(BLOCKS[name], args.seed, numbers, cache)
        if not verdicts_of:
            continue
        outcomes[name] = verdicts_of
        scores.append(Score.of(name, outcomes[name], perf_counter() - start))
        tell(LINE.format(**scores[-1].row()))
    return outcomes, scores, len(chosen) - len(scores)


def _report(outcomes: Found, scores: Sequence[Score], left: int, args: argparse.Namespace) -> int:
    known = score.reasons()
    rows = [
        {
            "block": block,
            "fault": verdict.mutant.fault,
            "source": verdict.mutant.source,
            "known": verdict.by,
            "reason": score.reason(known, block, verdict),
        }
        for block, all_of_it in outcomes.items()
        for verdict in all_of_it
        if verdict.status == "survived"
    ]
    total, unexplained = Score.total(scores), [row for row in rows if row["reason"] is None]
    status = int(bool(unexplained))
    if args.least is not None:
        status = int(100 * total.score < args.least)
    if args.json:
        figures = {name: value for name, value in total.row().items() if name != "block"}
        blocks = [s.row() for s in scores]
        print(json.dumps({**figures, "blocks": blocks, "survivors": rows, "blocks_left": left}))
        return status
    for row in rows if args.least is None else ():
        print("survived: {block}: {fault} ({source}): {known}; {reason}".format(**row))
    print(f"{100 * total.score:.1f} % of {total.mutants - total.equivalent} faults killed, "
          f"{len(unexplained)} of {amount(total.survived, 'survivor')} without a reason, "
          f"{total.seconds:.0f} s")  # fmt: skip
    if left:
        print(f"left: {amount(left, 'block')}; run it again to go on")
    return status


if __name__ == "__main__":
    sys.exit(main())
