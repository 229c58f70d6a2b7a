"""An experiment of a paper: what it runs, the rows that come out, their tables and pictures."""

from argparse import ArgumentParser
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Self

from trainwright.cli.command import CommandBody
from trainwright.cli.declare import command
from trainwright.cli.errors import require_packages
from trainwright.cli.options import JsonOptions, ThreadOptions
from trainwright.cli.output import show, table, to_json, write_results
from trainwright.support.settings import Natural, Option


@dataclass(frozen=True)
class Finding:
    """Results of one experiment: data for JSON, Markdown, and pictures by file name."""

    results: Any
    text: str
    pictures: Mapping[str, bytes] = field(default_factory=dict)


class ExperimentOptions(JsonOptions, ThreadOptions):
    """Options of every command that runs experiments of a paper."""

    experiment: tuple[str, ...] = ()
    """run only this one"""
    out: Annotated[str, Option(metavar="DIR")] = ""
    """folder of tables, pictures and results"""
    seed: Natural = 0
    """seed of everything random"""
    quick: bool = False
    """everything small, in half a minute"""

    def prepared(self) -> Self:
        """Check the options and make quick ones small. Raises ``OptionError``."""
        return self


def finding(
    title: str,
    head: Sequence[str],
    rows: Iterable[Any],
    results: Any,
    pictures: Mapping[str, bytes] | None = None,
) -> Finding:
    """Make a finding of one table below its title and of the results."""
    return Finding(results, f"## {title}\n\n{table(head, rows)}", pictures or {})


def command_of(
    experiments: Mapping[str, Callable[[Any], Finding]],
    kind: type[ExperimentOptions],
    name: str,
    help: str,
    *,
    needs: Mapping[str, Collection[str]] | None = None,
) -> CommandBody:
    """Make the command of a paper: it writes the results so far after each experiment.

    ``experiments`` are functions of the options; ``needs`` are names of those that a package needs.
    """

    def run(options: ExperimentOptions) -> int:
        import torch

        options = options.prepared()
        chosen = options.experiment or tuple(experiments)
        needed = [package for package, users in (needs or {}).items() if {*users} & {*chosen}]
        require_packages("matplotlib", *needed)
        torch.set_num_threads(options.threads)
        results: dict[str, Any] = {}
        files: dict[str, bytes | str] = {}
        text = ""
        for name in chosen:
            outcome = experiments[name](options)
            results[name] = outcome.results
            text += outcome.text + "\n"
            files |= {**outcome.pictures, "tables.md": text[:-1]}
            files["results.json"] = to_json(results) + "\n"
            write_results(Path(options.out), files)
        return show(options.json, results, f"{text}pictures and tables: {options.out}")

    def add_arguments(parser: ArgumentParser) -> None:
        body.add_arguments(parser)
        parser.set_defaults(out=f"runs/reproduce-{name}")
        option = next(action for action in parser._actions if action.dest == "experiment")
        option.choices, option.metavar = tuple(experiments), None

    body = command(kind, run, name, help)
    return replace(body, add_arguments=add_arguments)
