"""Rounding after training (``--tt-round``): rounded models, their accuracy, and the picture."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainwright.cli.errors import OptionError
from trainwright.cli.output import teller
from trainwright.cli.train.folder import PICTURES
from trainwright.cli.train.job import Job
from trainwright.train.export import save_model
from trainwright.train.interfaces import DriverFactory
from trainwright.train.rounding import TOLERANCES, PriorPoint, Rounded, prior_points, round_trained


def check_tolerance(tolerance: float | None, epochs: int, beside: list[str] | None) -> None:
    """Raise ``OptionError`` where options of rounding do not go together."""
    if tolerance is None:
        if epochs or beside:
            raise OptionError(
                "--tt-round-epochs and --tt-round-beside need --tt-round: add it, or omit them"
            )
    elif not 0 <= tolerance < 1:
        raise OptionError(f"--tt-round must be at least 0 and less than 1, not {tolerance:g}")


def other_run(folder: str) -> tuple[str, list[PriorPoint]]:
    """Read name and last point of a finished run in another folder. Raises ``OptionError``."""
    path = Path(folder)
    try:
        result = json.loads((path / "result.json").read_text())
        point = PriorPoint(result["steps"], result["model_bits"], result["test_accuracy"])
        prior = result["settings"]["prior"]
    except OSError as error:
        raise OptionError(
            f"--tt-round-beside: no finished run in {path}: {error.strerror}"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise OptionError(f"--tt-round-beside: {path}/result.json is damaged: {error}") from None
    kind = "no prior" if prior is None else f"prior weight {prior['weight']:g}"
    return f"{path.name} ({kind})", [point]


def round_job(
    job: Job,
    open_driver: DriverFactory,
    tolerance: float,
    *,
    epochs: int = 0,
    beside: list[str] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Rounded:
    """Round the trained model to ``tolerance`` and to others around it, and write what came out.

    ``rounded.safetensors`` is the model at ``tolerance``, ``rounding.json`` has all of them, the
    picture ``rounding.png`` compares them with the rank prior in this run and others.
    """
    from trainwright.report.rounding_picture import draw_rounding

    references = dict(map(other_run, beside or []))
    tolerances = sorted({*TOLERANCES, tolerance})
    models = round_trained(
        job.state, job.data, open_driver, tolerances, epochs=epochs,
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
        rounded, prior, references, has_prior=job.state.settings.prior is not None, chosen=chosen
    )
    job.folder.write(f"{PICTURES}/rounding.png", picture)
    content: dict[str, Any] = {
        "chosen": asdict(chosen),
        "rounded": list(map(asdict, rounded)),
        "run": list(map(asdict, prior)),
        "beside": {name: list(map(asdict, points)) for name, points in references.items()},
    }
    job.folder.write("rounding.json", json.dumps(content, indent=1) + "\n")
    print(_sentence(chosen), file=sys.stderr)
    return chosen


def _sentence(r: Rounded) -> str:
    ranks = " | ".join(" ".join(map(str, layer)) for layer in r.ranks)
    tuned = "" if r.tuned is None else f", {r.tuned:.2%} after further training"
    return (
        f"rounded to {r.tolerance:g}: {r.accuracy:.2%}{tuned}, {r.model_bits:,} bits, ranks {ranks}"
    )
