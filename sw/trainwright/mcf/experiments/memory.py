"""Peak memory of the batched product, counted by torch's profiler."""

from dataclasses import dataclass

import torch

from trainwright import mcf
from trainwright.mcf.experiments.peer import Published
from trainwright.mcf.experiments.speed import drawn
from trainwright.support.memory import peak_bytes


@dataclass(frozen=True)
class Peak:
    """Peak memory of one implementation."""

    way: str
    mebibytes: float
    """Maximum allocated at once in addition to the operands, the result included."""


def run(peer: Published | None = None) -> list[Peak]:
    """Measure bmm of (16, 500, 200) by (16, 200, 50) at nc = 2, the size in the paper's table."""
    generator = torch.Generator().manual_seed(0)
    x = mcf.MCTensor.from_components(drawn((16, 500, 200), 2, generator))
    v = torch.randn(16, 200, 50, generator=generator)
    peaks = [Peak("mcf nc=2", peak_bytes(lambda: torch.bmm(x, v)) / 2**20)]
    if peer is not None:
        call = peer.calls("bmm", (peer.tensor(x.components), v))
        assert call is not None
        peaks.append(Peak(peer.name, peak_bytes(call) / 2**20))
    return peaks
