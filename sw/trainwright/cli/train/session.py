"""Session of ``trainwright train``, from the options to the exit status."""

import argparse
import os
import sys
from contextlib import nullcontext
from typing import Any

import torch

from trainwright.accelerator import AcceleratorError
from trainwright.cli.errors import OptionError, require_packages
from trainwright.cli.output import on_terminal, tell
from trainwright.cli.train import machine, outcome
from trainwright.cli.train.job import FLOAT, Job, fresh_job, resumed_job
from trainwright.cli.train.progress import LiveProgress, PlainProgress, Progress
from trainwright.driver.resident import ResidentDriver
from trainwright.report.memory import resident_memory
from trainwright.report.summary import Summary
from trainwright.support.errors import UserError
from trainwright.train.batches import check_data, data_notes
from trainwright.train.interrupts import Interrupts
from trainwright.train.logs import check_curves, logging, own
from trainwright.train.observers import Observers
from trainwright.train.trainer import Stopped, Trainer
from trainwright.train.workers import Workers, joined

DIFFERENT = 1
"""Exit status where a verified step differs from the golden model."""


def run_training(args: argparse.Namespace) -> int:
    """Run ``trainwright train``; the exit status. Raises ``UserError``."""
    require_packages("safetensors", "matplotlib")
    # Spinning OpenMP threads make two slower than one on contractions this small.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    torch.set_num_threads(args.threads)
    check_curves(args.log)
    with joined() as workers, Interrupts() as interrupts:
        workers.requested = interrupts.requested
        if workers.count == 1:  # a worker that leaves lets the rest wait
            interrupts.on_request = interrupts.abandon
        job = workers.together(lambda: _job(args, workers))
        try:
            workers.agree("run, its options or data", repr(job.fingerprint).encode())
            summary = _train(job, args, interrupts, workers)
        finally:
            job.folder.release()
    if workers.rank:
        return 0 if summary is not None else interrupts.exit_status
    outcome.print_outcome(job, summary, as_json=args.json)
    if summary is None:
        print(f"trainwright: interrupted after step {job.state.step}; go on with", file=sys.stderr)
        print(f"  {job.resume_command}", file=sys.stderr)
        return interrupts.exit_status
    return DIFFERENT if summary.mismatches else 0


def _job(args: argparse.Namespace, workers: Workers) -> Job:
    job = resumed_job(args, claim=workers.rank == 0) if args.resume else fresh_job(args)
    state = job.state
    if workers.rank == 0:
        tell(data_notes(state.network, job.data))
        if args.epochs is not None or not args.resume:
            asked = args.epochs is not None
            tell(state.settings.length_notes(len(job.data.train), asked=asked))
    try:
        for folder in job.options.tt_round_beside:
            # Complain now and not after training.
            outcome.other_run(folder, is_regression=job.data.scale is not None)
        machine.check_parallel(job, workers)
    except BaseException:
        job.folder.release()
        raise
    return job


def _progress(job: Job, workers: Workers) -> Progress:
    if workers.rank:
        return Progress()
    if on_terminal():
        return LiveProgress(f"{job.state.network.name} on {job.options.backend}")
    return PlainProgress()


def _curves(job: Job, args: argparse.Namespace) -> list[str]:
    """Return the sinks of curves, each once: those that the checkpoint holds, and modules."""
    modules = [name for name in args.log or () if name not in own(args.log)]
    return list(dict.fromkeys([*job.options.log, *modules]))


def _facts(job: Job) -> dict[str, Any]:
    """Return the facts of the run that a log gets when it begins."""
    network = job.state.network
    return {
        "network": network.name,
        "dataset": job.options.dataset,
        "backend": job.options.backend,
        "formats": FLOAT if network.widths.is_float else network.formats,
        **job.state.settings.to_dict(),
    }


def _train(
    job: Job, args: argparse.Namespace, interrupts: Interrupts, workers: Workers
) -> Summary | None:
    """Train and write everything; None where it was interrupted, with a checkpoint left.

    Of several workers only the first writes.
    """
    state, options, first = job.state, job.options, workers.rank == 0
    check_data(state.network, job.data, state.settings.batch)  # before a simulator is built
    stop = interrupts.requested if workers.count == 1 else lambda: workers.stopping
    with (
        machine.open_parallel(job, workers) as opened,
        logging(
            job.folder.path, state.history, state.network, _curves(job, args), _facts(job)
        ) if first else nullcontext([]) as logs,
    ):  # fmt: skip
        progress = _progress(job, workers)
        try:
            trainer = Trainer(
                state, job.data, opened.engine, observer=Observers(progress, *logs), stop=stop,
                test_samples=options.test_samples, save_seconds=args.checkpoint_seconds,
                save=(lambda _: outcome.save(job)) if first else None,
            )  # fmt: skip
        except ValueError as error:
            # Settings that the chip's programs do not compute are errors of their options.
            raise error if isinstance(error, UserError) else OptionError(str(error)) from error
        if not args.resume:
            workers.together(lambda: job.folder.begin(force=args.force) if first else None)
        # A step that one worker abandons is lost to all: together they finish it.
        interrupts.abandonable = lambda: trainer.abandonable and workers.count == 1
        interrupts.on_request = progress.stop_requested
        try:
            with progress:
                evaluation = trainer.evaluate_test() if trainer.run() else None
            if evaluation is not None and options.tt_round is not None:
                outcome.round_job(job, opened.open_driver, options.tt_round, stop=stop)
        except (KeyboardInterrupt, Stopped, AcceleratorError):
            if not (interrupts.requested() and workers.count == 1) and not stop():
                raise
            evaluation = None
    job.host_writes = trainer.host_writes
    driver = opened.engine.driver
    if isinstance(driver, ResidentDriver):
        job.resident = resident_memory(driver.memory, driver.resident.program)
        job.resident_cycles = driver.resident.predicted_cycles(driver.memory.step.parameters)
    if evaluation is None:
        if first:
            outcome.save(job)
        return None
    summary = outcome.make_summary(job, evaluation)
    if first:
        outcome.save(job)  # with a full disk, or killed from here on, the run is not lost
        outcome.write_outcome(job, evaluation, summary)
    return summary
