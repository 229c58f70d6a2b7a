"""Verification while training: a step run again with traces, and on the golden model."""

from collections.abc import Iterator

import torch

from trainwright.accelerator import Accelerator
from trainwright.check.comparison import Comparison
from trainwright.check.step import compare_step, twins
from trainwright.driver import Results
from trainwright.train.interfaces import StepCase, Verification, Verifier


def make_verifier(accelerator: Accelerator, *, batch: int, plan: str = "auto") -> Verifier:
    """Return a verifier of the steps that ``accelerator`` runs.

    The verifier runs a step again on ``accelerator`` and on the golden model, both traced and from
    memories of zeros. As ``trainwright.check`` does, it compares every row that any engine wrote to
    the scratchpad, every buffer of the external memory and every statistics slot. It also compares
    the logits and gradients with which training went on.
    """

    def verify(case: StepCase) -> Verification:
        network = case.inputs.model.network
        # New drivers with traces: the trainer's own have none, as tracing slows every step.
        with twins(accelerator, network, batch, plan) as (golden, driver):
            comparison, ours, _ = compare_step(golden, driver, case.inputs)
        # The step that training continued with ran without traces, perhaps on another worker's
        # drivers, so its results may differ from those of the step that was run again.
        _compare_results(comparison, ours, (case.forward, case.backward))
        first = comparison.first_mismatch
        return Verification(
            steps=1,
            tensors=len(comparison.tensors),
            values=comparison.values,
            mismatches=comparison.differing,
            first=first and {"step": case.number, **first.to_dict()},
        )

    return verify


def _compare_results(comparison: Comparison, golden: Results, used: Results) -> None:
    for (name, ours), (_, theirs) in zip(_values(golden), _values(used), strict=True):
        label, wanted = f"{name} as trained on", ours.numpy()
        comparison.add_arrays(label, wanted, theirs.numpy(), wanted.shape[-1])


def _values(results: Results) -> Iterator[tuple[str, torch.Tensor]]:
    forward, backward = results
    yield "logits", forward.logits
    for n, (factors, bias) in enumerate(zip(backward.factors, backward.biases, strict=True), 1):
        for k, factor in enumerate(factors, 1):
            yield f"l{n}.dG{k}", factor
        if bias is not None:
            yield f"l{n}.db", bias
