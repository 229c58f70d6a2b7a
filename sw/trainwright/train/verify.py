"""Verification while training: a step run again with traces, and on the golden model."""

from collections.abc import Iterator

import numpy as np
import torch

from trainwright.accelerator import Accelerator
from trainwright.check.comparison import Comparison
from trainwright.check.step import Results, compare_memory, compare_results
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.train.interfaces import StepCase, Verification, Verifier
from trainwright.train.state import copy_scales


def make_verifier(accelerator: Accelerator, *, batch: int, plan: str = "auto") -> Verifier:
    """Return a verifier of the steps that ``accelerator`` runs.

    A step is run once more on it and once on the golden model, both traced, from memories of
    zeros, and compared as ``trainwright.check`` does: every row that any engine wrote to the
    scratchpad, every buffer of the external memory, every statistics slot. The logits and
    gradients that training went on with are compared too.
    """

    def verify(case: StepCase) -> Verification:
        network = case.model.network
        # New drivers with traces: the trainer's own have none, as tracing slows every step.
        driver = Driver(accelerator, network, batch, plan=plan, trace=True)
        size = driver.step.memory_bytes
        # Both memories start from zeros, so that padding the programs never write compares equal.
        accelerator.write(0, np.zeros(size, np.uint8))
        with GoldenAccelerator(accelerator.parameters, memory_bytes=size) as golden:
            twin = Driver(golden, network, batch, plan=plan, trace=True)
            ours, theirs = _run(twin, case), _run(driver, case)
            comparison = compare_results(driver.step, ours, theirs)
            comparison.merge(compare_memory(driver.step, golden, accelerator, theirs))
        # The step that training continued with ran without traces, perhaps on another worker's
        # drivers: its results are compared, too.
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


def _run(driver: Driver, case: StepCase) -> Results:
    # Both runs start from the exponents asked for and choose their own repeats; a copy each.
    scales = copy_scales(case.scales)
    forward = driver.forward(case.inputs, case.model, scales, seed=case.seeds[0], masks=case.masks)
    return forward, driver.backward(
        case.gradient, scales, seed=case.seeds[1], exponent=case.gradient_exponent
    )


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
