"""A training step of a network with random operands, to be stepped through."""

from typing import Any

from trainwright.accelerator import open_accelerator
from trainwright.accelerator.stepping import Stepping
from trainwright.check.parts import HOST, PARTS, RandomStep
from trainwright.compiler.base.compiled import AUTO
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.support.arguments import require_kind

BACKENDS = ("golden", "rtl")


def stepper_of(
    network: Network,
    batch: int = 64,
    *,
    part: str = "forward",
    seed: int = 0,
    plan: str = AUTO,
    parameters: AcceleratorParameters | None = None,
    memory_bytes: int = 1 << 26,
    backend: str = "golden",
) -> Stepping:
    """Return the forward or the backward program of a step, before its first descriptor.

    Operands are those of ``trainwright trace`` and ``check`` with the same ``seed``. ``backend`` is
    ``golden`` or ``rtl``; raises ``ValueError`` for one that steps through no program.

    >>> from trainwright.network import load_network
    >>> stepper = stepper_of(load_network("digits"), 16)
    >>> step = stepper.run_to(5)
    >>> step.descriptor.operation.name, len(step.rows) == len(step.addresses)
    ('PE3', True)
    """
    if part not in PARTS[HOST]:
        raise ValueError(f"part must be 'forward' or 'backward', not {part!r}")
    if backend not in BACKENDS:
        raise ValueError(f"back end {backend!r} steps through no program: use golden or rtl")
    require_kind("network", network, Network)
    p = parameters or AcceleratorParameters(factor_width=network.factor_width)
    accelerator: Any = open_accelerator(backend, p, memory_bytes=memory_bytes)
    step = RandomStep(network, batch, accelerator, seed=seed, plan=plan)
    prepared = step.prepared(part)
    return accelerator.stepper(prepared.program, prepared.address)
