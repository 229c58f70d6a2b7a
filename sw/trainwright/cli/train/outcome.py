"""Results of a finished run: files in its folder, lines on the screen, and ``--tt-round``."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainwright.cli.errors import OptionError
from trainwright.cli.options import update_place
from trainwright.cli.output import teller, to_json
from trainwright.cli.train.folder import PICTURES, RESULT
from trainwright.cli.train.job import Job, on_chip
from trainwright.compiler import CompiledStep, compile_step
from trainwright.report import summary as figures
from trainwright.report.memory import MemoryItem, state_bits_per_parameter, training_memory
from trainwright.support.errors import errors_as, file_errors
from trainwright.support.plain import NONSENSE
from trainwright.train.checkpoint import save_checkpoint
from trainwright.train.evaluate import Evaluation
from trainwright.train.export import save_model
from trainwright.train.interfaces import DriverFactory
from trainwright.train.rounding import TOLERANCES, PriorPoint, Rounded, prior_points, round_trained


def make_summary(job: Job, evaluation: Evaluation) -> figures.Summary:
    """Collect the figures of a run."""
    return figures.summarise(
        job.state, evaluation, dataset=job.options.dataset, backend=job.options.backend,
        steps_an_epoch=len(job.data.train) // job.state.settings.batch, seconds=job.seconds,
        step_cost=_step_cost(job),
    )  # fmt: skip


def write_outcome(job: Job, evaluation: Evaluation, summary: figures.Summary) -> None:
    """Write the model, the report and, last of all, the result.

    Raises ``OptionError`` where a file cannot be written.
    """
    from trainwright.report.page import render_page
    from trainwright.report.pictures import draw_all, has_photos

    state, folder = job.state, job.folder
    memory = _memory(job)
    pictures = draw_all(state.history, evaluation, state.network, job.data)
    if (drawn := folder.read(f"{PICTURES}/rounding.png")) is not None:
        pictures["rounding.png"] = drawn
    for name, png in pictures.items():
        folder.write(f"{PICTURES}/{name}", png)
    page = render_page(
        summary, state, settings=_settings(job), memory=memory, pictures=pictures,
        source=Path(job.options.data).name if job.options.data else "",
        command=job.options.command, has_photos=has_photos(job.data),
    )  # fmt: skip
    folder.write("report.html", page)
    folder.write("history.jsonl", state.history.to_lines())
    with folder.writing("model.safetensors") as path:
        save_model(path, state.model, state.scales, job.origin)
    result = {
        **summary.to_dict(),
        **_sizes(job),
        "settings": state.settings.to_dict(),
        "memory": memory,
        "confusion": evaluation.confusion_lists(state.network.classes),
    }
    folder.write(RESULT, to_json(result) + "\n")
    folder.finish()


def _memory(job: Job) -> Sequence[MemoryItem]:
    state = job.state
    return job.resident or training_memory(
        state.model.network, state.settings, lambda: _compiled(job), initial=state.network
    )


def _update_place(job: Job) -> str:
    """Return where loss and update were computed: alone or host (``update_place``)."""
    return update_place(job.accelerator) if on_chip(job.state.settings) else "host"


def _sizes(job: Job) -> dict[str, float | str | None]:
    """Return where a run updated and what it kept and moved.

    Bytes that the host wrote in the last epoch, bits that a parameter's update keeps, and bits that
    a step keeps but for the data set.
    """
    return {
        "host_writes": job.host_writes,
        "update_place": _update_place(job),
        "state_bits_per_parameter": state_bits_per_parameter(job.state.settings, job.state.network),
        "training_state_bits": sum(item.bits for item in _memory(job)),
    }


def _compiled(job: Job) -> CompiledStep:
    network, batch = job.state.model.network, job.state.settings.micro_batch
    return compile_step(network, batch, job.accelerator, plan=job.options.plan)


def save(job: Job) -> None:
    """Write the checkpoint. Raises ``OptionError`` where it cannot be written."""
    with job.folder.writing("checkpoint.safetensors") as path:
        save_checkpoint(path, job.state, job.run)


def _step_cost(job: Job) -> figures.StepCost | None:
    """Return the cycles of the last step: counted where the back end counts, else predicted."""
    network, settings = job.state.model.network, job.state.settings
    if network.widths.is_float:
        return None
    counted = job.state.history.cycles_of_ends[1]
    if counted:
        return figures.StepCost(counted, figures.COUNTED, is_whole=_update_place(job) != "host")
    if job.resident_cycles:
        return figures.StepCost(job.resident_cycles, figures.PREDICTED, is_whole=True)
    # Each part of a batch is a step of the compiled programs.
    cycles = settings.micro_batches * _compiled(job).predicted_cycles
    return figures.StepCost(cycles, figures.PREDICTED, is_whole=False)


def _settings(job: Job) -> dict[str, Any]:
    settings = job.state.settings.to_dict()
    prior = settings.pop("prior")
    settings |= {f"prior {name}": value for name, value in (prior or {"": "none"}).items()}
    return {
        name.replace("_", " ").strip(): value
        for name, value in (settings | vars(job.options)).items()
        if name not in ("data", "command") and value not in (None, (), {})
    }


def print_outcome(job: Job, summary: figures.Summary | None, *, as_json: bool) -> None:
    """Print the summary; as JSON also that of an interrupted run, which has none."""
    content: dict[str, Any] = {"out": str(job.folder.path)}
    if summary is not None:
        content = {"status": "finished", **summary.to_dict(), **_sizes(job), **content}
    else:
        content |= {"status": "interrupted", "steps": job.state.step, "resume": job.resume_command}
    if as_json:
        print(to_json(content, None))
    elif summary is not None:
        rows = [*figures.summary_rows(summary), ("report", str(job.folder.path / "report.html"))]
        width = max(len(name) for name, _ in rows)
        print("\n".join(f"{name:>{width}}  {value}" for name, value in rows))


# -- rounding after training -----------------------------------------------------------------------
def other_run(folder: str, *, is_regression: bool) -> tuple[str, list[PriorPoint]]:
    """Read name and last point of a finished run in another folder. Raises ``OptionError``."""
    path = Path(folder)
    with (
        file_errors(f"--tt-round-beside: no finished run in {path}", OptionError),
        errors_as(f"--tt-round-beside: {path}/result.json is damaged", OptionError, NONSENSE),
    ):
        result = json.loads((path / "result.json").read_text())
        point = PriorPoint(result["steps"], result["model_bits"], result["test_accuracy"])
        prior, r2 = result["settings"]["prior"], result["test_r2"]
    if (r2 is not None) != is_regression:
        raise OptionError(
            f"--tt-round-beside: {path} has {'an accuracy' if r2 is None else 'R2'}, which this "
            "run does not measure: omit it"
        )
    kind = "no prior" if prior is None else f"prior weight {prior['weight']:g}"
    return f"{path} ({kind})", [point]


def round_job(
    job: Job, open_driver: DriverFactory, tolerance: float, *, stop: Callable[[], bool]
) -> None:
    """Round the trained model to ``tolerance`` and to others around it, and write what came out.

    ``rounded.safetensors`` is the model at ``tolerance``, ``rounding.json`` has all of them, the
    picture ``rounding.png`` compares them with the rank prior in this run and others.
    """
    from trainwright.report.rounding_picture import draw_rounding

    is_regression = job.data.scale is not None
    references = dict(
        other_run(folder, is_regression=is_regression) for folder in job.options.tt_round_beside
    )
    tolerances = sorted({*TOLERANCES, tolerance})
    models = round_trained(
        job.state, job.data, open_driver, tolerances, epochs=job.options.tt_round_epochs,
        test_samples=job.options.test_samples, progress=teller("rounding"), stop=stop,
    )  # fmt: skip
    if len(models) < len(tolerances):
        raise KeyboardInterrupt
    chosen, state = models[tolerances.index(tolerance)]
    with job.folder.writing("rounded.safetensors") as path:
        save_model(path, state.model, state.scales, job.origin)
    rounded = [item for item, _ in models]
    prior = prior_points(job.state)
    picture = draw_rounding(
        rounded, prior, references, has_prior=job.state.settings.prior is not None, chosen=chosen,
        is_regression=is_regression,
    )  # fmt: skip
    job.folder.write(f"{PICTURES}/rounding.png", picture)
    content = {"chosen": chosen, "rounded": rounded, "run": prior, "beside": references}
    job.folder.write("rounding.json", to_json(content) + "\n")
    print(_sentence(chosen, "R2 {:.4f}" if is_regression else "{:.2%}"), file=sys.stderr)


def _sentence(r: Rounded, spelled: str) -> str:
    tuned = "" if r.tuned is None else f", {spelled.format(r.tuned)} after further training"
    size = f"{r.model_bits:,} bits, ranks {figures.spell_ranks(r.ranks)}"
    return f"rounded to {r.tolerance:g}: {spelled.format(r.accuracy)}{tuned}, {size}"
