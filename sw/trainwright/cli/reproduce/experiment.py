"""Commands that run a paper's experiments and write their findings."""

from argparse import ArgumentParser
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Self

from trainwright.cli.command import CommandBody
from trainwright.cli.declare import command
from trainwright.cli.errors import require_packages
from trainwright.cli.options import JsonOptions, ThreadOptions
from trainwright.cli.output import check_results, show, teller, to_json, write_results
from trainwright.support.settings import Natural, Option, require_effect


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


def command_of(
    library: str, experiments: Sequence[str], kind: type[ExperimentOptions], name: str, help: str,
    *, needs: Mapping[str, Collection[str]] | None = None,
) -> CommandBody:  # fmt: skip
    """Make the command of a paper: it writes the results so far after each experiment.

    ``experiments`` are names in ``EXPERIMENTS`` of the library's ``experiments.findings``, which is
    imported when one runs; ``needs`` are names of those that a package needs.
    """

    def run(options: ExperimentOptions) -> int:
        import torch

        chosen = options.experiment or tuple(experiments)
        require_effect(options, chosen)
        options = options.prepared()
        needed = [package for package, users in (needs or {}).items() if {*users} & {*chosen}]
        require_packages("matplotlib", *needed)
        check_results(Path(options.out))
        torch.set_num_threads(options.threads)
        findings = import_module(f"trainwright.{library}.experiments.findings")
        results: dict[str, Any] = {}
        files: dict[str, bytes | str] = {}
        text = ""
        for name in chosen:
            outcome = findings.EXPERIMENTS[name](options, teller)
            assert {*outcome.pictures} <= {*findings.PICTURES}
            results[name] = outcome.results
            text += outcome.text + "\n"
            files |= {**outcome.pictures, "tables.md": text[:-1]}
            files["results.json"] = to_json(results) + "\n"
            write_results(Path(options.out), files, findings.PICTURES)
        return show(options.json, results, f"{text}pictures and tables: {options.out}")

    def add_arguments(parser: ArgumentParser) -> None:
        body.add_arguments(parser)
        parser.set_defaults(out=f"runs/reproduce-{name}")
        option = next(action for action in parser._actions if action.dest == "experiment")
        option.choices, option.metavar = tuple(experiments), None

    body = command(kind, run, name, help)
    return replace(body, add_arguments=add_arguments)
