"""Trials on Ray Tune: on this machine, or on a cluster whose nodes share the output folder."""

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from trainwright.cli.errors import OptionError
from trainwright.cli.sweep.processes import INTERRUPTED, Failures, Progress, Trial, train

MOST_FAILURES = 3
"""Times that Ray begins a trial again whose worker or node was lost."""


def train_all(
    trials: Sequence[Trial],
    jobs: int | None,
    data: str | None,
    progress: Progress,
    *,
    out: Path,
    address: str | None = None,
) -> Failures | None:
    """Train like ``processes.train_all``; ``jobs`` None means as many as the cluster takes.

    Ray only places the trials: each keeps its state in its own folder, so that whatever is lost,
    Ray's own state among it, the next call goes on. ``OptionError`` where no cluster answers.
    """
    ray: Any = import_module("ray")
    tune: Any = import_module("ray.tune")
    plain = [Trial(t.name, t.options, t.folder.absolute(), prepared=t.prepared) for t in trials]
    left = [n for n, trial in enumerate(plain) if not trial.finished]
    if not left:
        return {}
    try:
        ray.init(address=address, include_dashboard=False if address is None else None,
                 log_to_driver=False)  # fmt: skip
    except Exception as error:  # Ray raises that very class where a node is too slow to start
        where = "this machine" if address is None else address
        token = ":" in where and "RAY_AUTH_MODE" not in os.environ
        hint = "set RAY_AUTH_MODE=token if the cluster asks for one, or " if token else ""
        raise OptionError(
            f"--address: Ray on {where} does not answer: {error}; {hint}--engine processes does "
            "without"
        ) from None
    tuner = tune.Tuner(
        tune.with_resources(partial(_one, plain, data, os.getcwd()), {"cpu": 1}),
        param_space={"trial": tune.grid_search(left)},
        tune_config=tune.TuneConfig(max_concurrent_trials=jobs),
        run_config=tune.RunConfig(
            name="ray",
            storage_path=str(out.absolute()),
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=MOST_FAILURES),
            callbacks=[_teller(trials, progress)],
        ),
    )
    try:
        with redirect_stdout(sys.stderr):  # Ray tells of itself, the standard output is ours
            results = tuner.fit()
    finally:
        ray.shutdown()
    return _failures(trials, results)


def _one(trials: Sequence[Trial], data: str | None, where: str, config: dict[str, Any]) -> None:
    """Train a trial in a worker; the result is in the folder of the trial."""
    tune: Any = import_module("ray.tune")
    trial = trials[config["trial"]]

    def tell(_: Trial, done: int, total: int) -> None:
        tune.report({"step": done, "steps": total, "failure": ""})

    try:
        status = train(trial, data, tell, where=Path(where))
        failure = "interrupted" if status == INTERRUPTED else ""
    except OptionError as error:
        failure = str(error)
    tune.report({"step": 1, "steps": 1, "failure": failure})


def _teller(trials: Sequence[Trial], progress: Progress) -> Any:
    """Make a callback of Ray that hands the reports of workers to ``progress``."""
    tune: Any = import_module("ray.tune")

    class Teller(tune.Callback):
        def on_trial_result(self, *, trial: Any, result: dict[str, Any], **_: Any) -> None:
            progress(trials[trial.config["trial"]], result["step"], result["steps"])

    return Teller()


def _failures(trials: Sequence[Trial], results: Any) -> Failures | None:
    """Return the messages of Ray and of workers; None where a trial was left undone."""
    failures: Failures = {}
    for result in results:
        trial = trials[result.config["trial"]]
        failure = str(result.error) if result.error else (result.metrics or {}).get("failure")
        if failure and failure != "interrupted" and not trial.finished:
            failures[trial] = " ".join(failure.split())
    return failures if all(trial.finished or trial in failures for trial in trials) else None
