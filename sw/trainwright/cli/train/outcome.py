"""Results of a finished run: files in its folder, lines on the screen."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainwright.cli.options import update_place
from trainwright.cli.train.folder import PICTURES, RESULT
from trainwright.cli.train.job import Job, accelerator_of
from trainwright.compiler import CompiledStep, compile_step
from trainwright.report.memory import MemoryItem, state_bits_per_parameter, training_memory
from trainwright.report.summary import (
    COUNTED,
    PREDICTED,
    StepCost,
    Summary,
    summarise,
    summary_rows,
)
from trainwright.train.checkpoint import save_checkpoint
from trainwright.train.evaluate import Evaluation
from trainwright.train.export import save_model


def make_summary(job: Job, evaluation: Evaluation) -> Summary:
    """Collect the figures of a run."""
    return summarise(
        job.state,
        evaluation,
        dataset=job.options.dataset,
        backend=job.options.backend,
        steps_an_epoch=len(job.data.train) // job.state.settings.batch,
        seconds=job.seconds,
        step_cost=_step_cost(job),
    )


def write_outcome(job: Job, evaluation: Evaluation, summary: Summary) -> None:
    """Write the model, the report and, last of all, the result.

    Raises ``OptionError`` where a file cannot be written.
    """
    from trainwright.report.page import render_page
    from trainwright.report.pictures import draw_all

    state, folder = job.state, job.folder
    memory = _memory(job)
    pictures = draw_all(state.history, evaluation, state.network, job.data)
    if (drawn := folder.read(f"{PICTURES}/rounding.png")) is not None:
        pictures["rounding.png"] = drawn
    for name, png in pictures.items():
        folder.write(f"{PICTURES}/{name}", png)
    page = render_page(
        summary,
        now=state.model.network,
        then=state.network,
        batch=state.settings.batch,
        settings=_settings(job),
        memory=memory,
        pictures=pictures,
        source=Path(job.options.data).name if job.options.data else "",
        command=job.options.command,
        in_colour=job.data.channels == 3,
    )
    folder.write("report.html", page)
    folder.write("history.jsonl", state.history.to_lines())
    with folder.writing("model.safetensors") as path:
        save_model(path, state.model, state.scales, job.origin)
    result = {
        **summary.to_dict(),
        **_sizes(job),
        "settings": state.settings.to_dict(),
        "memory": list(map(asdict, memory)),
        "confusion": None
        if evaluation.regression
        else evaluation.confusion(state.network.classes).tolist(),
    }
    folder.write(RESULT, json.dumps(result, indent=1) + "\n")
    folder.finish()


def _memory(job: Job) -> list[MemoryItem]:
    state = job.state
    return job.resident or training_memory(
        state.model.network, state.settings, lambda: _compiled(job), initial=state.network
    )


def _update_place(job: Job) -> str:
    """Return where loss and update were computed: alone, engine or host (``update_place``)."""
    settings, network = job.state.settings, job.state.network
    if settings.chip is None:
        return "host"
    return update_place(accelerator_of(job.options, network, settings))


def _sizes(job: Job) -> dict[str, float | str | None]:
    """Return where a run updated and what it kept and moved.

    Bytes that the host wrote in the last epoch, bits that a parameter's update keeps, and bits that
    a step keeps but for the data set.
    """
    return {
        "host_writes": job.writes[-1] if job.writes else None,
        "update_place": _update_place(job),
        "state_bits_per_parameter": state_bits_per_parameter(job.state.settings, job.state.network),
        "training_state_bits": sum(item.bits for item in _memory(job)),
    }


def _compiled(job: Job) -> CompiledStep:
    network, options = job.state.model.network, job.options
    settings = job.state.settings
    parameters = accelerator_of(options, network, settings)
    return compile_step(network, settings.micro_batch, parameters, plan=options.plan)


def save(job: Job) -> None:
    """Write the checkpoint. Raises ``OptionError`` where it cannot be written."""
    with job.folder.writing("checkpoint.safetensors") as path:
        save_checkpoint(path, job.state, job.run)


def _step_cost(job: Job) -> StepCost | None:
    """Return the cycles of the last step: counted where the back end counts, else predicted."""
    network, settings = job.state.model.network, job.state.settings
    if network.widths.is_float:
        return None
    counted = job.state.history.cycles_of_ends[1]
    if counted:
        return StepCost(counted, COUNTED, is_whole=_update_place(job) != "host")
    if job.resident_cycles:
        return StepCost(job.resident_cycles[-1], PREDICTED, is_whole=True)
    # Each part of a batch is a step of the compiled programs.
    cycles = settings.micro_batches * _compiled(job).predicted_cycles
    return StepCost(cycles, PREDICTED, is_whole=False)


def _settings(job: Job) -> dict[str, Any]:
    settings = job.state.settings.to_dict()
    prior = settings.pop("prior")
    settings |= {f"prior {name}": value for name, value in (prior or {"": "none"}).items()}
    options = {
        name: value for name, value in vars(job.options).items() if name not in ("data", "command")
    }
    return {
        name.replace("_", " ").strip(): value
        for name, value in (settings | options).items()
        if value not in (None, (), {})
    }


def print_summary(job: Job, summary: Summary) -> None:
    """Print the summary on the standard output."""
    rows = [*summary_rows(summary), ("report", str(job.folder.path / "report.html"))]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:>{width}}  {value}")


def print_json(job: Job, summary: Summary | None, resume_command: str | None = None) -> None:
    """Print one JSON object; without a summary that of an interrupted run."""
    if summary is not None:
        sizes = _sizes(job)
        content = {"status": "finished", **summary.to_dict(), **sizes, "out": str(job.folder.path)}
    else:
        content = {
            "status": "interrupted",
            "steps": job.state.step,
            "out": str(job.folder.path),
            "resume": resume_command,
        }
    print(json.dumps(content))
