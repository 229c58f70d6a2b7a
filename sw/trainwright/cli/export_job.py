"""``trainwright export-job``: a training run as files, for a driver in any language."""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trainwright.cli.backend import MEMORY_BYTES
from trainwright.cli.command import CommandBody
from trainwright.cli.declare import add_options, describe, read_options
from trainwright.cli.errors import OptionError
from trainwright.cli.options import ALONE, JsonOptions, check_chip_plan, update_place
from trainwright.cli.output import check_results, tell
from trainwright.cli.train import options as train_options
from trainwright.data.own import OwnOptions
from trainwright.network import BUILT_IN
from trainwright.support.errors import file_errors
from trainwright.support.settings import Meta, Option, settings_of

if TYPE_CHECKING:
    from trainwright.job.files import RecordedJob


class JobOptions(JsonOptions):
    """Train a network with --update chip on the golden model, and write what its host does.

    The folder gets job.json (buffers, programs, actions, rules), contents.bin (bytes that the host
    writes), C headers with the same tables and the registers, and a reference driver in C99 that
    trains the network on an accelerator and compares the loss of each start.

    Examples
    --------
      trainwright export-job digits --epochs 1 --out jobs/digits
      trainwright export-job digits --epochs 3 --preset ecp5-85f --memory-bytes 1048576
    """

    network: Annotated[
        str | None, Option(metavar="NETWORK", positional=True, note=f" {', '.join(BUILT_IN)}")
    ] = None
    """a TOML file (default: digits), or one of"""
    out: Annotated[Path | None, Option(metavar="FOLDER")] = None
    """folder of the files (default: jobs/NETWORK)"""
    memory_bytes: Annotated[int, Meta(ge=1, lt=1 << 32), Option(metavar="N")] = MEMORY_BYTES
    """external memory of the accelerator"""


_SESSION = ("initial", "download", "prior", "formats", "ranks")
"""Options of a training session that a job has too."""
_RUN = ("dataset", "data", "plan", "test_samples", *(s.name for s in settings_of(OwnOptions)))


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    describe(parser, JobOptions)
    add_options(parser, JobOptions)
    add_options(parser, train_options.SessionOptions, only=_SESSION)
    add_options(parser, train_options.RunOptions, given=True, only=_RUN)
    train_options.add_settings(parser)


def _run(args: argparse.Namespace) -> int:
    from trainwright.job.files import write_job

    options = read_options(JobOptions, args)
    # Options that only a training session has keep their defaults.
    whole = argparse.ArgumentParser()
    train_options.add_arguments(whole)
    args.update = "chip"
    whole.parse_args([], args)
    if options.out is not None:
        check_results(options.out)
    job = _recorded(args, options.memory_bytes)
    folder = options.out or Path("jobs") / job.driver.network.name
    with file_errors(f"cannot write to {folder}"):
        files = [str(path) for path in write_job(job, folder)]
    print(json.dumps({**job.figures, "files": files}) if options.json
          else "\n".join([*files, job.summary]))  # fmt: skip
    return 0


def _recorded(args: argparse.Namespace, memory_bytes: int) -> "RecordedJob":
    """Train on the golden model, and return the job."""
    from trainwright.cli.train.job import asked, fresh_state, load_data
    from trainwright.golden.backend import GoldenAccelerator
    from trainwright.job.files import recorded_job, require_job
    from trainwright.train.batches import data_notes

    load = partial(load_data, fetch=args.download)
    new = asked(args, load)
    check_chip_plan(new.options.plan)
    require_job(new.settings)
    parameters = new.accelerator
    assert parameters is not None  # a job has no --numbers
    if update_place(parameters) != "alone":
        needs = " ".join(f"--accelerator {name}={value}" for name, value in ALONE.items())
        raise OptionError(f"a job is for an accelerator that trains alone: add {needs}")
    state, data = fresh_state(args, new, load)
    tell(data_notes(state.network, data))
    tell(new.settings.length_notes(len(data.train), asked=args.epochs is not None))
    with GoldenAccelerator(parameters, memory_bytes=memory_bytes) as golden:
        return recorded_job(
            golden, state, data, plan=new.options.plan, test_samples=new.options.test_samples
        )


command = CommandBody(_add_arguments, _run)
