"""LeNet-5 as the paper's Listing 1 has it, and the arithmetics in which it is trained."""

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
    """Images (B, 1, 32, 32) to logits (B, 10): 61,706 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.feature_extractor = nn.Sequential(
            nn.Conv2d(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
            nn.Conv2d(16, 120, 5), nn.Tanh(),
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.classifier(torch.flatten(self.feature_extractor(x), 1))


@dataclass(frozen=True)
class Arithmetic:
    """What a network computes in; floats where ``formats`` is ``None``."""

    name: str
    formats: Precision | Mapping[str, Precision] | None
    mode: Mode

    def network(self, seed: int) -> LeNet5:
        """The same initial weights for every arithmetic, rounded to its formats."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = LeNet5()
        return network if self.formats is None else convert(network, self.formats)

    def entering(self, images: Tensor) -> Tensor:
        """Images as the network takes them."""
        fmt = self.formats
        if fmt is None:
            return images
        return PositTensor(images, fmt if isinstance(fmt, PositFormat) else PositFormat(16, 2))


_P16, _P8 = PositFormat(16, 2), PositFormat(8, 2)
_MIXED: Mapping[str, Precision] = {
    "feature_extractor": Mixed(weights=_P16, compute=_P8),
    "classifier": _P16,
}
"""Convolutions in 8 bits on weights of 16; the classifier, the loss and Adam in 16."""

RUNS = (
    "float32",
    "posit(16,2)-sequential",
    "posit(16,2)-quire",
    "posit(8,2)-quire",
    "mixed-quire",
)
"""What is compared, as the names of arithmetics."""


def arithmetic(name: str) -> Arithmetic:
    """``float32``, ``posit(n,es)-MODE`` or ``mixed-MODE``; MODE: sequential, or quire if left out.

    Raises ``PositError``.
    """
    found = re.fullmatch(r"(.*?)(?:-(sequential|quire))?", name)
    assert found is not None
    base, mode = found[1], found[2] or "quire"
    if name == "float32":
        return Arithmetic(name, None, "quire")
    if base != "mixed" and not re.fullmatch(r"posit\(\d+,\d+\)", base):
        raise PositError(
            f"arithmetics are float32, mixed-MODE and posit(16,2)-MODE with MODE sequential or "
            f"quire, not {name!r}"
        )
    formats = _MIXED if base == "mixed" else PositFormat.parse(base)
    return Arithmetic(f"{base}-{mode}", formats, "sequential" if mode == "sequential" else "quire")
