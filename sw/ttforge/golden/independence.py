"""Which loops the golden model may execute for all iterations at once."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ttforge.parameters import AcceleratorParameters
from ttforge.program.descriptors import Compute, Descriptor, Transfer
from ttforge.program.fields import Operation, Target
from ttforge.program.footprint import PAD, Touch, footprint


def _moving(
    d: Compute | Transfer, p: AcceleratorParameters, steps: Mapping[int, int], n: int
) -> list[Touch]:
    """What ``d`` touches in the scratchpad over ``n`` iterations, registers from zero on."""
    registers = (d.x_register, d.g_register) if isinstance(d, Compute) else (d.local_register,)
    reach = [steps.get(register, 0) * (n - 1) for register in registers]
    low, high = min(*reach, 0), max(*reach, 0)
    return [
        touch if touch.write else replace(touch, start=touch.start + low, stop=touch.stop + high)
        for touch in footprint(d, p)
        if touch.space == PAD
    ]


def _covered(touch: Touch, written: Sequence[Touch]) -> bool:
    """Whether every row of ``touch`` is among those ``written``."""
    reached = touch.start
    for other in sorted(written, key=lambda other: other.start):
        if other.start > reached:
            break
        reached = max(reached, other.stop)
    return reached >= touch.stop


def independent(
    body: Sequence[Descriptor], steps: Mapping[int, int], n: int, p: AcceleratorParameters
) -> bool:
    """Whether no iteration of a loop without inner loops reads what another one wrote.

    In the scratchpad by rows: what an iteration reads and the body writes, it must have written
    before. In external memory by tensors: none is both loaded and stored. Registers may move
    operands, but not results, and factor stores are not loaded inside.
    """
    if not all(isinstance(d, Compute | Transfer) for d in body):
        return False
    moved = [d for d in body if isinstance(d, Compute | Transfer)]
    stored = {d.tensor for d in moved if d.operation is Operation.STORE}
    everything = [touch for d in moved for touch in _moving(d, p, steps, n) if touch.write]
    written: list[Touch] = []
    for d in moved:
        if isinstance(d, Compute):
            if steps.get(d.z_register):
                return False
        elif d.operation is Operation.LOAD:
            if steps.get(d.local_register) or d.target is not Target.SCRATCHPAD:
                return False
            if d.tensor in stored:
                return False
        touches = _moving(d, p, steps, n)
        for touch in touches:
            carried = any(touch.overlaps(other) for other in everything)
            if not touch.write and carried and not _covered(touch, written):
                return False
        written += [touch for touch in touches if touch.write]
    return True
