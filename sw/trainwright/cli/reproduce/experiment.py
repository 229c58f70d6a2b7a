"""An experiment of a paper: what it runs, the rows that come out, their tables and pictures."""

from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from trainwright.cli.command import CommandBody
from trainwright.cli.declare import command
from trainwright.cli.errors import require_packages
from trainwright.cli.options import JsonOptions, ThreadOptions
from trainwright.support.settings import Natural, Option


@dataclass(frozen=True)
class Finding:
    """Results of one experiment: plain data for JSON, Markdown, and pictures by file name."""

    results: Any
    text: str
    pictures: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
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


Options = TypeVar("Options", bound=ExperimentOptions)


@dataclass(frozen=True)
class Experiment:
    """Function that runs an experiment by its options, and packages that it needs."""

    run: Callable[[Any], Finding]
    needs: tuple[str, ...] = ()


def finding(
    title: str,
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    results: Sequence[Any],
    pictures: Mapping[str, bytes] | None = None,
) -> Finding:
    """Make a finding of one table below its title and of dataclasses as the results."""
    from trainwright.cli.output import plain
    from trainwright.report.tables import markdown

    return Finding(plain(results), f"## {title}\n\n{markdown(head, rows)}", pictures or {})


def run_experiments(
    experiments: Mapping[str, Experiment], options: Options, prepared: Options | None = None
) -> int:
    """Run the experiments asked for; after each, write the results so far.

    ``prepared`` are the options that the experiments get, if other than those given.
    """
    import torch

    from trainwright.cli.output import to_json, write_results

    chosen = options.experiment or tuple(experiments)
    require_packages("matplotlib", *(need for name in chosen for need in experiments[name].needs))
    torch.set_num_threads(options.threads)
    results: dict[str, Any] = {}
    files: dict[str, bytes | str] = {}
    tables: list[str] = []
    for name in chosen:
        outcome = experiments[name].run(prepared or options)
        results[name] = outcome.results
        tables.append(outcome.text)
        files |= outcome.pictures
        files |= {"tables.md": "\n".join(tables), "results.json": to_json(results) + "\n"}
        write_results(Path(options.out), files)
    text = "\n".join(tables) + f"\npictures and tables: {options.out}"
    print(to_json(results) if options.json else text)
    return 0


def command_of(
    experiments: Mapping[str, Experiment],
    kind: type[Options],
    name: str,
    help: str,
    prepare: Callable[[Options], Options] = lambda options: options,
) -> CommandBody:
    """Make the command of a paper; ``prepare`` checks the options and makes quick ones small."""

    def add_arguments(parser: ArgumentParser) -> None:
        body.add_arguments(parser)
        parser.set_defaults(out=f"runs/reproduce-{name}")
        option = next(action for action in parser._actions if action.dest == "experiment")
        option.choices, option.metavar = tuple(experiments), None

    body = command(
        kind, lambda options: run_experiments(experiments, options, prepare(options)), name, help
    )
    return replace(body, add_arguments=add_arguments)
