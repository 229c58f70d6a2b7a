"""LeNet-5 of the paper's Listing 1, and the arithmetics in which it is trained."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainwright.posit.conversion import convert
from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.modules import Mixed, Precision
from trainwright.posit.products import Mode
from trainwright.posit.tensor import PositTensor


class LeNet5(nn.Module):
    """Network from images (B, 1, 32, 32) to logits (B, 10): 61,706 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.feature_extractor = nn.Sequential(
            nn.Conv2d(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
            nn.Conv2d(16, 120, 5), nn.Tanh(),
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.classifier(torch.flatten(self.feature_extractor(x), 1))


@dataclass(frozen=True)
class TrainingArithmetic:
    """Formats and accumulation mode of a network; floats where ``formats`` is ``None``."""

    name: str
    formats: Precision | Mapping[str, Precision] | None
    mode: Mode

    def network(self, seed: int) -> LeNet5:
        """Initialise LeNet-5 by seed; every arithmetic rounds the same initial weights."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = LeNet5()
        return network if self.formats is None else convert(network, self.formats)

    def entering(self, images: Tensor) -> Tensor:
        """Convert images to the network's input format."""
        fmt = self.formats
        if fmt is None:
            return images
        return PositTensor(images, fmt if isinstance(fmt, PositFormat) else PositFormat(16, 2))


_P16, _P8 = PositFormat(16, 2), PositFormat(8, 2)
_MIXED: Mapping[str, Precision] = {
    "feature_extractor": Mixed(weights=_P16, compute=_P8),
    "classifier": _P16,
}
"""Convolutions in 8 bits on 16-bit weights; the classifier, the loss and Adam in 16 bits."""

RUNS = (
    "float32",
    "posit(16,2)-sequential",
    "posit(16,2)-quire",
    "posit(8,2)-quire",
    "mixed-quire",
)
"""Names of the arithmetics that the experiment compares."""


def arithmetic(name: str) -> TrainingArithmetic:
    """Parse ``float32``, ``posit(n,es)-MODE`` or ``mixed-MODE``.

    MODE is sequential or quire; quire if omitted. Raises ``PositError``.
    """
    match = re.fullmatch(r"(.*?)(?:-(sequential|quire))?", name)
    assert match is not None
    base, mode = match[1], match[2] or "quire"
    if name == "float32":
        return TrainingArithmetic(name, None, "quire")
    if base != "mixed" and not re.fullmatch(r"posit\(\d+,\d+\)", base):
        raise PositError(
            f"arithmetics are float32, mixed-MODE and posit(16,2)-MODE with MODE sequential or "
            f"quire, not {name!r}"
        )
    formats = _MIXED if base == "mixed" else PositFormat.parse(base)
    return TrainingArithmetic(
        f"{base}-{mode}", formats, "sequential" if mode == "sequential" else "quire"
    )
