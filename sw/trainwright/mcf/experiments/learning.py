"""Regression, classification and small networks in float16 components and in torch's types.

All types start with the same weights and see the same data: a float16 number of two components
holds the float32 data to 22 digits, and activations stay multi-component up to the loss. In every
type the mean loss is multiplied before the backward pass, and the rate divided by the same number,
because float16 gradients end at 2^-24, and one over the number of samples, rounded to float16,
would change the rate in the fourth digit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainwright import mcf
from trainwright.mcf.experiments.data import Data
from trainwright.mcf.nn import MCSGD
from trainwright.mcf.tensor import MCTensor
from trainwright.support.finding import Progress, silent, tracked

WIDE = ", float32 gradients"
"""Suffix of a type whose parameters have float32 gradients instead of float16."""
WAYS = (
    "float16", "float32", "float64", "mcf float16 nc=1", "mcf float16 nc=2", "mcf float16 nc=3",
    "mcf float16 nc=2" + WIDE,
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """Layers of ``sizes``, and how SGD trains them."""

    sizes: tuple[int, ...]
    rate: float
    epochs: int
    momentum: float = 0.0
    batch: int | None = None
    """Samples per step; ``None`` for all."""
    bias: bool = False
    dropout: float = 0.0
    """Share of hidden activations that a step drops."""
    loss: str = "mse"
    """``mse``; ``binary`` (one logit); ``classes`` (softmax)."""
    unit: float = 1.0
    """Weight of a sample's loss in the backward pass, a power of two."""
    seed: int = 1234
    """Seed of the initial weights, the order of samples and the dropout."""


@dataclass(frozen=True)
class LearningResult:
    """Result of one type; losses are computed in float64 from its outputs."""

    way: str
    loss: float
    accuracy: float | None
    """Test accuracy in per cent."""
    losses: list[float]
    """Training loss of every epoch, each batch before its update."""
    accuracies: list[float]
    """Test accuracy in per cent after every epoch."""


class TypedNetwork:
    """Linear layers with ReLU between them, in one of the ``WAYS``."""

    def __init__(self, task: Task, way: str):
        torch.manual_seed(task.seed)
        self.wide = way.endswith(WIDE)
        if self.wide and not hasattr(Tensor, "grad_dtype"):
            raise ValueError(
                f"{way!r} needs Tensor.grad_dtype, which torch {torch.__version__} lacks"
            )
        name = way.removesuffix(WIDE)
        self.nc = int(name[-1]) if name.startswith("mcf") else 0
        self.dtype = getattr(torch, name.split()[1] if self.nc else name)
        self._layers: list[list[Any]] = []
        for m, n in zip(task.sizes[:-1], task.sizes[1:], strict=True):
            layer = nn.Linear(m, n, task.bias, dtype=torch.float64)
            pair = [layer.weight.detach(), layer.bias.detach() if task.bias else None]
            self._layers.append([self._parameter(p) for p in pair])

    def number(self, x: Tensor) -> Any:
        """Round float64 values to this type."""
        return mcf.tensor(x, nc=self.nc, dtype=self.dtype) if self.nc else x.to(self.dtype)

    def _parameter(self, value: Tensor | None) -> Any:
        # Round to float32 first: all types then start with the same weights.
        if value is None:
            return None
        parameter = nn.Parameter(self.number(value.float().double()))
        if self.wide:
            parameter.grad_dtype = torch.float32
        return parameter

    def parameters(self) -> list[Any]:
        """List weights and biases."""
        return [p for pair in self._layers for p in pair if p is not None]

    def __call__(self, x: Any, kept: Callable[[tuple[int, ...]], Tensor] | None = None) -> Any:
        """Return logits (samples, outputs).

        ``kept`` returns dropout factors for hidden activations of a shape.
        """
        for n, (weight, bias) in enumerate(self._layers):
            x = F.linear(x, weight, bias)
            if n + 1 < len(self._layers):
                x = F.relu(x)
                x = x if kept is None else x * kept(tuple(x.shape)).to(self.dtype)
        return x


def _loss(kind: str, out: Any, target: Any) -> Any:
    """Return the mean loss in the type of ``out``; ``binary`` has targets 1 and -1."""
    if kind == "mse":
        return torch.square(out - target).mean()
    if kind == "binary":
        return -F.logsigmoid(out * target).mean()
    rows = torch.arange(out.shape[0])
    return -torch.log_softmax(out, -1)[rows, target].mean()


def _in_float64(out: Any) -> Tensor:
    return out.to_float64() if isinstance(out, MCTensor) else out.detach().double()


def _correct(kind: str, out: Tensor, target: Tensor) -> float:
    """Return the accuracy in per cent."""
    hits = out.argmax(-1) == target if kind == "classes" else (out > 0) == (target > 0)
    return 100 * hits.double().mean().item()


def _targets(kind: str, y: Tensor) -> Tensor:
    return (2 * y.double() - 1).unsqueeze(-1) if kind == "binary" else y


def train(task: Task, data: Data, way: str, progress: Progress = silent) -> LearningResult:
    """Train one type from the start."""
    network = TypedNetwork(task, way)
    make: Any = MCSGD if network.nc else torch.optim.SGD
    scale = task.unit * (task.batch or len(data.x))
    optimiser = make(network.parameters(), lr=task.rate / scale, momentum=task.momentum)
    x, test_x = network.number(data.x), network.number(data.test_x)
    exact_y, test_y = (_targets(task.loss, y) for y in (data.y, data.test_y))
    y = exact_y if task.loss == "classes" else network.number(exact_y)
    draw = torch.Generator().manual_seed(task.seed)

    def kept(shape: tuple[int, ...]) -> Tensor:
        return (torch.rand(shape, generator=draw) >= task.dropout) / (1 - task.dropout)

    losses, accuracies = [], []
    for _ in tracked(range(task.epochs), progress):
        total = 0.0
        for rows in _batches(len(data.x), task.batch, draw):
            optimiser.zero_grad()
            out = network(x[rows], kept if task.dropout else None)
            exact = _loss(task.loss, _in_float64(out), exact_y[rows])
            total += exact.item() * len(exact_y[rows]) / len(data.x)
            (_loss(task.loss, out, y[rows]) * scale).backward()
            optimiser.step()
        losses.append(total)
        if len(data.test_x):
            with torch.no_grad():
                accuracies.append(_correct(task.loss, _in_float64(network(test_x)), test_y))
    return LearningResult(
        way, losses[-1], accuracies[-1] if accuracies else None, losses, accuracies
    )


def _batches(count: int, batch: int | None, draw: torch.Generator) -> list[Any]:
    """Return the sample indices of each step."""
    if batch is None:
        return [slice(None)]
    return list(torch.randperm(count, generator=draw).split(batch))
