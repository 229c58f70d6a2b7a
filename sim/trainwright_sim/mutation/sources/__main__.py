"""``scripts/source-mutants``: the mutation score of the tests of Python and C."""

import argparse
import hashlib
import json
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from time import perf_counter

from trainwright.support.files import append_line
from trainwright.support.native.cache import default_folder
from trainwright.support.native.tools import ToolError
from trainwright.support.text import amount
from trainwright_sim.mutation.sources import trial
from trainwright_sim.mutation.sources.fault import Fault
from trainwright_sim.mutation.sources.targets import ROOT, TARGETS, Target
from trainwright_sim.page import put

COMMAND = "scripts/source-mutants"
DESCRIPTION = "Put faults into Python and C, and see which of them the tests find."
REASONS = Path(__file__).with_name("survivors.toml")
STATUSES = ("invalid", "equivalent", "killed", "survived")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    options = argparse.ArgumentParser("source-mutants", description=DESCRIPTION, allow_abbrev=False)
    options.add_argument("targets", nargs="*", metavar="TARGET", help="default: all; see --list")
    options.add_argument(
        "--sample", type=int, default=50, metavar="N",
        help="faults of each target (default: %(default)s)",
    )  # fmt: skip
    options.add_argument("--seed", type=int, default=1, metavar="S", help="chooses the faults")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument("--list", action="store_true", help="print targets and their faults")
    options.add_argument(
        "--write",
        type=Path,
        metavar="PAGE",
        help="put the table into docs/results/verification.md",
    )
    return options


class Known:
    """Verdicts by what was tried: kept, so that a run goes on where the last one ended."""

    def __init__(self, target: Target):
        self._path = default_folder() / "mutants" / "sources" / f"{target.name}.jsonl"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        texts = [path.read_text() for path in (*target.files, *target.test_files)]
        self._material = [str(path) for path in target.files] + texts
        self._rows: dict[str, list] = {}
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                try:
                    row = json.loads(line)
                except ValueError:  # cut off
                    continue
                self._rows[row["key"]] = row["verdict"]

    def verdict(self, fault: Fault | None, find: Callable[[], tuple[str, str, float]]) -> list:
        """Return the verdict of a fault, and call ``find`` only if it is not known yet."""
        what = None if fault is None else [str(fault.path), fault.start, fault.new]
        key = hashlib.sha256(json.dumps([self._material, what]).encode()).hexdigest()[:32]
        if key not in self._rows:
            self._rows[key] = list(find())
            append_line(self._path, json.dumps({"key": key, "verdict": self._rows[key]}))
        return self._rows[key]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    The status is 0 if every survivor has a reason, 1 if not, and 2 for bad usage or for tests that
    fail on the unchanged sources.
    """
    args = parser().parse_args(arguments)
    for name in args.targets:
        if name not in TARGETS:
            print(f"source-mutants: no target {name!r}: see --list", file=sys.stderr)
            return 2
    if args.sample < 1:
        print(f"source-mutants: --sample must be at least 1, not {args.sample}", file=sys.stderr)
        return 2
    if args.list:
        for target in TARGETS.values():
            print(
                f"{target.name}: {amount(len(target.faults()), 'fault')} in "
                f"{amount(len(target.files), 'file')}"
            )
        return 0
    try:
        results = [_run(TARGETS[name], args) for name in args.targets or TARGETS]
        if args.write:
            put(args.write, COMMAND, markdown(results))
    except (ToolError, OSError, ValueError) as error:
        print(f"source-mutants: {error}", file=sys.stderr)
        return 2
    return _report(results, as_json=args.json)


def _run(target: Target, args: argparse.Namespace) -> dict:
    """Try a sample of the target's faults, and return the figures and the survivors."""
    trial.import_heavy()
    began, known, every = perf_counter(), Known(target), target.faults()
    chosen = Random(args.seed).sample(every, min(args.sample, len(every)))
    chosen.sort(key=lambda fault: (fault.path, fault.start))
    status, by, used = known.verdict(None, lambda: trial.run(target, None, 0.0))
    if status != "survived":
        raise ValueError(f"{target.name}: the sources as they are fail {by}")
    counts, survivors = dict.fromkeys(STATUSES, 0), []
    for fault in chosen:
        status, by, _ = known.verdict(fault, lambda fault=fault: trial.run(target, fault, used))
        counts[status] += 1
        if not args.json:
            print(f"{status:10} {_words(fault)} {by}", flush=True)
        if status == "survived":
            survivors.append(_survivor(fault))
    return {
        "target": target.name,
        "faults": len(every),
        "mutants": len(chosen),
        **counts,
        "score": _score(counts),
        "seconds": round(perf_counter() - began, 1),
        "survivors": survivors,
    }


def _words(fault: Fault) -> str:
    place = f"{fault.path.relative_to(ROOT / 'sw' / 'trainwright')}:{fault.line}"
    return f"{place}: {fault.old!r} as {fault.new!r}"


def _survivor(fault: Fault) -> dict:
    text = fault.text(fault.path.read_bytes())
    return {"fault": _words(fault), "line": text, "reason": reason(_words(fault), text)}


def reason(words: str, text: str) -> str | None:
    """Return why a fault survives, if the file of reasons says so."""
    for row in tomllib.loads(REASONS.read_text()).get("survivor", []):
        file = words.startswith(f"{row['source']}:")
        if file and row["line"] in text and row.get("fault", "") in words:
            return row["why"]
    return None


def _score(counts: dict) -> float:
    """Return the share of killed faults among those that compile to different machine code."""
    faults = counts["killed"] + counts["survived"]
    return round(counts["killed"] / faults, 4) if faults else 1.0


def _total(results: Sequence[dict]) -> dict:
    names = ("faults", "mutants", *STATUSES)
    counts = {name: sum(result[name] for result in results) for name in names}
    seconds = round(sum(result["seconds"] for result in results), 1)
    return {"target": "all", **counts, "score": _score(counts), "seconds": seconds}


def markdown(results: Sequence[dict]) -> str:
    """Return the page's table of scores."""
    lines = ["| sources | faults | tried | same code | killed | survived | score |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|")
    for result in (*results, _total(results)):
        tried = result["mutants"] - result["invalid"]
        lines.append(
            f"| {result['target']} | {result['faults']} | {tried} | {result['equivalent']} "
            f"| {result['killed']} | {result['survived']} | {100 * result['score']:.1f} % |"
        )
    return "\n".join(lines)


def _report(results: Sequence[dict], *, as_json: bool) -> int:
    total = _total(results)
    survivors = [survivor for result in results for survivor in result["survivors"]]
    unexplained = [survivor for survivor in survivors if survivor["reason"] is None]
    if as_json:
        figures = {name: value for name, value in total.items() if name != "target"}
        print(json.dumps({**figures, "targets": results}))
        return int(bool(unexplained))
    for survivor in survivors:
        print("survived: {fault}: {line}: {reason}".format(**survivor))
    for result in results:
        print("{target:14} {killed:4} killed {survived:4} survived {score:7.3f}".format(**result))
    print(f"{100 * total['score']:.1f} % of {total['killed'] + total['survived']} faults killed, "
          f"{len(unexplained)} of {amount(len(survivors), 'survivor')} "
          "without a reason")  # fmt: skip
    return int(bool(unexplained))


if __name__ == "__main__":
    sys.exit(main())
