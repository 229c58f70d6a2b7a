"""The numbers of a finished run, as the screen, the JSON and the report show them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from trainwright.check.comparison import mismatch_text
from trainwright.program.fields import EIGHTH
from trainwright.support.text import amount
from trainwright.train.evaluate import Evaluation
from trainwright.train.state import TrainingState

STATED_CLOCK_HZ = 60_000_000
"""Clock of times on the accelerator: what the ULX3S design is built for (its ``design_hz``)."""
MOST_LOST = 0.1
"""Accuracy or R2 lost since the best epoch above which a run that cut ranks names a remedy: runs
that keep theirs lose at most 0.06 on splits of 35 samples."""
COUNTED, PREDICTED = "counted", "predicted"


@dataclass(frozen=True)
class StepCost:
    """Cycles of a training step on the accelerator, and where they are from."""

    cycles: int
    source: str
    """``COUNTED`` by the back end, or ``PREDICTED`` by the cycle model."""
    is_whole: bool
    """Whether loss and update are among the cycles, not only forward and backward pass.

    Steps with both are not all alike: ``cycles`` is then the mean of several steps.
    """


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Numbers of one run; fractions are 0..1, sizes bits, times seconds of wall time."""

    network: str
    dataset: str
    backend: str
    steps: int
    epochs: float
    seconds: float
    """Seconds from start to end, without the time between an interruption and --resume."""
    accelerator_seconds: float
    """Seconds of the forward and backward passes of all steps."""
    test_accuracy: float
    """Fraction classified correctly; R2 for a regression, as in every accuracy of this class."""
    test_f1: float | None
    """F1 score of the spans of words, where words are classified; else None."""
    test_line_accuracy: float | None
    """Fraction of lines classified correctly, where lines and their words are classified."""
    test_r2: float | None
    test_mae: float | None
    test_rmse: float | None
    """Root mean square error of a regression, like `test_mae` in the units of its targets; else
    None."""
    test_samples: int
    predicts_one_class: bool
    """Whether the test samples have several classes and all got the same: accuracy is the share
    of that class alone."""
    best_test_accuracy: float
    """Accuracy of the best epoch by the test samples; ``test_accuracy`` is of the last epoch."""
    best_epoch: int
    train_accuracy: float | None
    """Accuracy on the batches of the last epoch, each before its update; None for a regression."""
    final_loss: float
    """Mean of the last epoch's batches: cross-entropy, or half the squared error of a regression's
    standardised targets."""
    ranks: tuple[tuple[int, ...], ...]
    initial_ranks: tuple[tuple[int, ...], ...]
    model_bits: int
    initial_model_bits: int
    dense_bits: int
    reduction: float
    initial_reduction: float
    used_model_bits: int
    """Bits without the rows of the last layer that no class uses."""
    used_reduction: float
    cycles: int
    """Cycles of all training steps; 0 where the back end counts none."""
    cycles_per_step: float
    cycles_first_step: int
    cycles_last_step: int
    step_cost: StepCost | None
    """None in float32, which has no accelerator."""
    steps_an_epoch: int
    test_cycles: int
    """Cycles of the classification of the test samples."""
    verified_steps: int
    tensors_compared: int
    values_compared: int
    mismatches: int
    first_mismatch: dict[str, Any] | None
    """First value that differed from the golden model, and the step it was in."""
    seed: int
    digest: str
    """SHA-256 over the quantised factors (``Model.digest``)."""

    @property
    def cycles_per_second(self) -> float:
        """Simulated cycles a second of wall time; 0 where the back end counts none."""
        return self.cycles / self.accelerator_seconds if self.accelerator_seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


def summarise(
    state: TrainingState,
    evaluation: Evaluation,
    *,
    dataset: str,
    backend: str,
    steps_an_epoch: int,
    seconds: float,
    step_cost: StepCost | None,
) -> Summary:
    """Summarise a trained state."""
    history, now, then = state.history, state.model.network, state.network
    _, loss, accuracy = list(history.epochs())[-1]
    fit = evaluation.regression
    best = max(history.evaluations, key=lambda r: (r.accuracy, -r.step))
    return Summary(
        network=then.name,
        dataset=dataset,
        backend=backend,
        steps=state.step,
        epochs=round(state.step / steps_an_epoch, 3),
        seconds=round(seconds, 3),
        accelerator_seconds=round(history.accelerator_seconds, 3),
        test_accuracy=evaluation.accuracy,
        test_r2=fit and fit.r2,
        test_mae=fit and fit.mae,
        test_rmse=fit and fit.rmse,
        test_f1=evaluation.words and evaluation.words.f1,
        test_line_accuracy=evaluation.lines and evaluation.lines.accuracy,
        test_samples=len(evaluation.labels),
        predicts_one_class=evaluation.predicts_one_class,
        best_test_accuracy=best.accuracy,
        best_epoch=best.epoch,
        train_accuracy=None if fit else accuracy,
        final_loss=loss,
        ranks=now.ranks,
        initial_ranks=then.ranks,
        model_bits=now.model_bits,
        initial_model_bits=then.model_bits,
        dense_bits=now.dense_bits,
        reduction=round(now.reduction, 3),
        initial_reduction=round(then.reduction, 3),
        used_model_bits=now.used_model_bits,
        used_reduction=round(now.used_reduction, 3),
        cycles=history.cycles,
        cycles_per_step=round(history.cycles / state.step, 1),
        cycles_first_step=history.cycles_of_ends[0],
        cycles_last_step=history.cycles_of_ends[1],
        step_cost=step_cost,
        steps_an_epoch=steps_an_epoch,
        test_cycles=evaluation.counters.cycles,
        verified_steps=state.verification.steps,
        tensors_compared=state.verification.tensors,
        values_compared=state.verification.values,
        mismatches=state.verification.mismatches,
        first_mismatch=state.verification.first,
        seed=state.settings.seed,
        digest=state.model.digest(),
    )


def summary_rows(s: Summary) -> list[tuple[str, str]]:
    """Return (name, value) of every line of the summary, in order."""
    rows = [
        *_score_rows(s),
        ("steps", f"{s.steps:,} ({amount(s.epochs, 'epoch')}) in {s.seconds:.1f} s"),
        ("ranks", spell_ranks(s.ranks)),
        ("model", f"{_sizes(s.model_bits, s.reduction)} smaller than dense float32"),
    ]
    if s.used_model_bits != s.model_bits:
        rows += [("without unused rows", _sizes(s.used_model_bits, s.used_reduction))]
    if s.ranks != s.initial_ranks:
        start = _sizes(s.initial_model_bits, s.initial_reduction)
        rows += [("at the start", f"ranks {spell_ranks(s.initial_ranks)}, {start} smaller")]
    if s.cycles:
        ends = f"{s.cycles_first_step:,} at first, {s.cycles_last_step:,} at last"
        rows += [("cycles", f"{s.cycles:,}; a step {ends}")]
        rows += [("simulation", f"{s.cycles_per_second:,.0f} cycles a second")]
    if s.step_cost:
        rows += _cost_rows(s.step_cost, s.steps_an_epoch)
    if s.verified_steps:
        compared = f"{amount(s.verified_steps, 'step')}, {amount(s.tensors_compared, 'tensor')}, "
        compared += f"{amount(s.values_compared, 'value')}: {amount(s.mismatches, 'mismatch')}"
        rows += [("compared with golden", compared)]
    if s.first_mismatch:
        step, text = s.first_mismatch["step"], mismatch_text(s.first_mismatch)
        rows.append(("first mismatch", f"step {step}: {text}"))
    rows.append(("factors", f"sha256 {s.digest[:16]}"))
    return rows


def _sizes(bits: int, reduction: float) -> str:
    return f"{amount(bits, 'bit')}, {reduction:.1f} times"


def _score_rows(s: Summary) -> list[tuple[str, str]]:
    if s.train_accuracy is None:
        return [
            ("test R2", f"{s.test_accuracy:.4f} of {amount(s.test_samples, 'sample')}"),
            ("test errors", f"mean absolute {s.test_mae:.4g}, root mean square {s.test_rmse:.4g}"),
            ("best epoch", f"R2 {s.best_test_accuracy:.4f} after epoch {s.best_epoch}, by the "
             "test samples"),
            *_loss_rows(s, "{:.4f} of R2"),
        ]  # fmt: skip
    counted = amount(s.test_samples, "sample" if s.test_f1 is None else "word")
    best = f"{s.best_test_accuracy:.2%} after epoch {s.best_epoch}, by the test samples"
    lines = [] if s.test_line_accuracy is None else [f"{s.test_line_accuracy:.2%} of lines"]
    warning = [("predictions", "one class for all: the accuracy is the share of that class")]
    return [
        ("test accuracy", ", ".join([f"{s.test_accuracy:.2%} of {counted}", *lines])),
        *(warning if s.predicts_one_class else []),
        *([("test F1", f"{s.test_f1:.2%} of spans of words")] if s.test_f1 is not None else []),
        ("best epoch", best),
        *_loss_rows(s, "{:.1%} of the samples"),
        ("training accuracy", f"{s.train_accuracy:.2%} in the last epoch"),
    ]


def _loss_rows(s: Summary, shown: str) -> list[tuple[str, str]]:
    lost = s.best_test_accuracy - s.test_accuracy
    if lost <= MOST_LOST or s.ranks == s.initial_ranks:
        return []
    remedy = "try a smaller --prior-weight, or --no-prior"
    return [("lost since then", f"{shown.format(lost)}, in a run that cut ranks: {remedy}")]


def _cost_rows(cost: StepCost, steps_an_epoch: int) -> list[tuple[str, str]]:
    covered = "with loss and update" if cost.is_whole else "forward and backward pass alone"
    if cost.is_whole and cost.source == PREDICTED:
        covered += f", mean of {EIGHTH} steps"
    step = cost.cycles / STATED_CLOCK_HZ
    return [
        ("cycles a step", f"{cost.cycles:,} {cost.source}, {covered}"),
        (
            "on the accelerator",
            f"{_time(step)} a step, {_time(step * steps_an_epoch)} an epoch of "
            f"{amount(steps_an_epoch, 'step')}, at {STATED_CLOCK_HZ / 1e6:g} MHz (clock of the "
            "ULX3S)",
        ),
    ]


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def spell_ranks(ranks: Iterable[Iterable[int]]) -> str:
    """Return the ranks of each layer as ``16 16 16 | 16``."""
    return " | ".join(" ".join(map(str, layer)) or "dense" for layer in ranks)
