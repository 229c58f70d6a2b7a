"""Measurement of what rounding takes of a layer's or a program's outputs."""

from collections.abc import Callable

import torch

from trainwright.fixed.health import LostTensorWarning
from trainwright.network import NumberFormats, Widths
from trainwright.nn.scales import LEAST_NONZERO, in_backward, largest
from trainwright.support.caution import warn_user
from trainwright.support.text import amount

LOST_DEVIATION = 0.25
"""Error of an output, as a share of its deviation over the samples, above which it counts as lost.

Inputs of 8 bits and outputs of 16 leave 0.01 to 0.04; an offset of 1,000 deviations leaves 0.3."""
LOST_IN_PROGRAM = 0.5
"""Error above which an output of a program of several layers is lost: values of 8 bits between
layers leave 0.05 to 0.15."""
WHOLE_DEVIATION = 0.75
"""Share above which a single output is named; up to it more than LOST_OUTPUTS of all have to be."""
LOST_OUTPUTS = 1 / 8
"""Share of outputs that may be lost: some have a small deviation by chance."""
CLIPPED = 0.9
"""Largest output, as a share of the largest without rounding, below which some were clipped."""
MOST_CLIPPED = 2
"""Passes of training in a row whose clipped outputs are left to the exponents, which follow within
two steps. Outputs that stay smaller are lost: LayerNorm makes 0 of differences of few steps."""
LEAST_SPREAD = 4
"""Rounding errors of the type computed in up to which a column is constant: those of a product."""
EARLY = 16
"""Passes of training in which activations of other layers may differ little between samples."""
DRAWN = 256
"""Samples of a pass that are computed again without rounding."""
DRAWN_IMAGES = 8
"""Images of a pass that are computed again without rounding."""


STANDARDISE = (
    "standardise inputs and targets, such as by (y - mean) / deviation of each column, or give "
    "outputs of other scales layers of their own"
)
FOLLOW = "run a pass in training mode, as exponents do not follow parameters or data in evaluation"


class OutputLoss:
    """Measures how much rounding takes of what differs between samples, and warns once.

    An offset far above the deviation takes it: of inputs, a bias, outputs, or values between the
    layers of a program. As parameters drift, passes 1, 2, 4, 8 ... are measured, and in evaluation
    the first one after parameters changed.
    """

    def __init__(self, numbers: NumberFormats) -> None:
        # Narrower words lose small differences by design.
        least, own = Widths(), numbers.widths
        self._ended = (
            own.activation < least.activation
            or own.bias < least.bias
            or own.intermediate < least.intermediate
        )
        self._passes = 0
        self._parameters: float | None = None
        self._clipped = 0
        self._mode = False, False
        self._measured: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Samples of passes of one mode; a probe between training steps may have any values."""
        self._count = 0
        """Samples in ``_measured``, where all tokens of a sequence are one."""

    def is_due(self, *, training: bool, parameters: float) -> bool:
        """Count a pass; return whether to measure it. ``parameters`` is the sum of them."""
        if self._ended or in_backward():
            return False
        mode = training, torch.is_grad_enabled()
        if mode != self._mode:
            self._mode, self._measured, self._count = mode, [], 0
        self._passes += 1
        changed = not training and parameters != self._parameters
        self._parameters = parameters
        return changed or bool(self._measured) or self._passes.bit_count() == 1

    def measure(
        self,
        name: str,
        x: torch.Tensor,
        y: torch.Tensor,
        exact: Callable[[torch.Tensor], torch.Tensor],
        dims: tuple[int, int],
        *,
        most: float = LOST_DEVIATION,
    ) -> None:
        """Compare outputs ``y`` of ``x`` with ``exact(x)``, which rounds nothing but factors.

        ``dims`` are those of one sample of x and of y: 3 of an image (C, H, W), 2 of tokens that
        depend on each other, 1 of features, 0 of an index. An output is lost if its error is over
        ``most`` of its deviation.
        """
        if not y.numel():
            return
        samples, held = _samples(x.detach(), dims[0]), _samples(y.detach(), dims[1])
        step = drawn_every(len(samples), dims[0])
        samples, held = samples[::step], held[::step]
        own = exact(samples)
        training, _ = self._mode
        is_clipped = training and largest(held) < CLIPPED * largest(own)
        self._clipped = self._clipped + 1 if is_clipped else 0
        if 0 < self._clipped <= MOST_CLIPPED:  # exponents will follow
            return
        least = LEAST_SPREAD * torch.finfo(own.dtype).eps
        held, own = (_columns(part, dims[1]) for part in (held, own))
        if any(part.shape[1] != own.shape[1] for _, part in self._measured):  # another output
            self._measured, self._count = [], 0
        self._measured.append((held, own))
        # Tokens of one sequence may be nearly equal, such as its padding.
        self._count += len(x) if x.dim() > dims[0] else 1
        held, own = (torch.cat(parts) for parts in zip(*self._measured, strict=True))
        if self._count < LEAST_NONZERO or len(own) < LEAST_NONZERO:
            return
        self._measured, self._count = [], 0
        message = _describe_loss(held, own, least, most)
        is_early = training and x.requires_grad and self._passes < EARLY
        if message and not is_early:
            self._ended = True
            remedy = STANDARDISE if training else f"{FOLLOW}, or {STANDARDISE}"
            warn_user(f"{name}: {message}: {remedy}", LostTensorWarning)


def drawn_every(samples: int, dims: int) -> int:
    """Return the distance of samples that are measured; ``dims`` are those of a sample."""
    return max(1, -(-samples // (DRAWN_IMAGES if dims == 3 else DRAWN)))


def _describe_loss(held: torch.Tensor, own: torch.Tensor, least: float, most: float) -> str:
    """Describe the columns of ``held`` that lost over ``most`` of what differs in ``own``.

    Columns whose deviation is below ``least`` of their largest value are constant. Empty where few
    columns are lost.
    """
    # Division by the largest keeps the squares of tiny and huge numbers within float64.
    scale = own.abs().amax(0)
    scale = torch.where(scale > 0, scale, 1)
    spread, error = (own / scale).std(0), ((held - own) / scale).square().mean(0).sqrt()
    share = torch.where(spread > least, error / spread, 0)
    count, worst = int((share > most).sum()), float(share.max())
    if count <= LOST_OUTPUTS * len(share) and worst <= WHOLE_DEVIATION:
        return ""
    number = int(share.argmax())
    low, high = map(float, torch.aminmax(own[:, number]))
    return (
        f"rounding changes {count} of {amount(len(share), 'output')} by over {most:.0%} of what "
        f"differs between samples, such as number {number} of values from {low:.6g} to {high:.6g} "
        f"by {worst:,.0%}"
    )


def _samples(values: torch.Tensor, dims: int) -> torch.Tensor:
    return values.reshape(-1, *values.shape[values.dim() - dims :])


def _columns(samples: torch.Tensor, dims: int) -> torch.Tensor:
    """Return samples as (n, J) in float64; each pixel of an image is a sample of channels."""
    axis = -3 if dims == 3 else -1
    columns = samples.movedim(axis, -1).reshape(-1, samples.shape[axis])
    return columns.to(torch.float64, copy=True)  # callers may modify outputs in place
