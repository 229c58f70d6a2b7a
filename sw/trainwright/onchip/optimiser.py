"""The update on the chip as an optimiser of torch, for models that train in torch alone.

    optimiser = IntegerSGD(model.parameters(), lr=0.45, width=4)

A parameter is then the nearest of 2^width values, as the accelerator's factors are (BinaryConnect,
straight through), and 20 bits of state are behind each element. Given the same gradient integers
and exponents, the bits are those of ``trainwright.onchip.state``.
"""

from collections.abc import Iterable
from math import ceil, log2
from typing import Any

import numpy as np
import torch

from trainwright.fixed.quantise import quantise
from trainwright.fixed.scale import ScaleRange, ScaleRanges, sum_limits
from trainwright.formats.exponents import followed
from trainwright.formats.rounding import half_up
from trainwright.onchip import update
from trainwright.onchip.choices import OPTIMISERS
from trainwright.onchip.layout import LANES, WEIGHT_WIDTH, WIDEST, Words
from trainwright.onchip.schedule import GREATEST_SHIFT, RATE_WIDTH, Entry, digits
from trainwright.support.optimizer import ClosureOptimizer

GRADIENT_WIDTH = 16
GRADIENT_RANGE = ScaleRanges().gradient
SPREAD = 2.5
"""Standard deviation of a parameter at the start, in steps at 4 bits."""


class IntegerSGD(ClosureOptimizer):
    """``esgd`` and ``momentum`` of ``trainwright.onchip.update``, without a rank prior.

    ``lr`` (under 8, rounded to 4 bits and a power of two at every step) and ``width`` (2 to 10 bits
    of a parameter) may differ by group. A parameter's exponent is chosen at the first step, that at
    which its standard deviation is ``SPREAD`` steps at 4 bits; a gradient's follows its mean.
    Raises ``ValueError`` for values out of range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.45,
        *,
        width: int = 4,
        optimiser: str = "esgd",
        seed: int = 0,
        scale_range: ScaleRange = GRADIENT_RANGE,
    ) -> None:
        if optimiser not in OPTIMISERS:
            known = ", ".join(OPTIMISERS)
            raise ValueError(f"optimiser must be one of {known}, not {optimiser!r}")
        if not 0 <= seed < 1 << 32:
            raise ValueError(f"seed must be from 0 to 2^32 - 1, not {seed!r}")
        self._optimiser, self._seed, self._range = optimiser, seed, scale_range
        super().__init__(params, {"lr": lr, "width": width})
        self._check_groups()
        self.param_groups[0] |= {"optimiser": optimiser, "seed": seed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of the same ``optimiser``, with its seed. ``ValueError`` for another."""
        stored = state_dict["param_groups"][0].get("optimiser", self._optimiser)
        if stored != self._optimiser:
            raise ValueError(
                f"the state is of optimiser={stored!r}, not of {self._optimiser!r}: make the "
                f"optimiser with optimiser={stored!r}"
            )
        super().load_state_dict(state_dict)
        self._seed = self.param_groups[0].get("seed", self._seed)

    def _check_groups(self) -> None:
        """Raise ``ValueError`` for options out of range, which schedulers and groups may set."""
        for group in self.param_groups:
            if not 0 <= group["lr"] < 8:
                raise ValueError(f"lr must be from 0 to 8, not {group['lr']!r}")
            if not 2 <= group["width"] <= WIDEST:
                raise ValueError(f"width must be from 2 to {WIDEST} bits, not {group['width']!r}")

    def update_all(self) -> None:
        """Update every parameter once; parameters without a gradient stay as they are."""
        parameters = [(p, group) for group in self.param_groups for p in group["params"]]
        rows = [-(-p.numel() // LANES) for p, _ in parameters]
        number = self.param_groups[0].setdefault("steps", 0)
        bits, first = update.random_rows(self._seed, number, range(sum(rows))), 0
        for (p, group), count in zip(parameters, rows, strict=True):
            if p.grad is not None:
                self._update(p, p.grad, group, [stream[first : first + count] for stream in bits])
            first += count
        self.param_groups[0]["steps"] = number + 1

    def _update(
        self, p: torch.Tensor, grad: torch.Tensor, group: dict[str, Any], random: list[Words]
    ) -> None:
        state, hidden = self.state[p], WEIGHT_WIDTH - group["width"]
        if not (grad.isfinite().all() and p.isfinite().all()):
            raise ValueError(
                f"IntegerSGD takes finite numbers, and a parameter of {tuple(p.shape)} or its "
                "gradient has others: check the loss with torch.isfinite(loss)"
            )
        if not state:
            state |= self._begun(p, grad, group["width"])
        before, exponent = state["moment_exponent"], state["gradient_exponent"]
        integers = quantise(grad, exponent, GRADIENT_WIDTH)
        rows = {update.WEIGHT: _rows(state["weights"]), update.MOMENT: _rows(state["moments"])}
        rows[update.GRADIENT] = _rows(integers)
        rate, rate_exponent = digits(group["lr"], RATE_WIDTH)
        shift = -rate_exponent
        if self._optimiser == "momentum":
            shift += state["exponent"] - hidden - exponent - update.DECAY_SHIFT
        entry = Entry(rate, min(max(shift, 0), GREATEST_SHIFT))
        part = update.PartUpdate(hidden, left=False, right=False)
        weights, moments = update.updated_rows(part, rows, random, entry, exponent - before)
        state["weights"], state["moments"] = _like(weights, p), _like(moments, p)
        state["moment_exponent"] = exponent
        lost = not integers.any() and not grad.any()  # true zeros say nothing of the scale
        limits = sum_limits(self._range, integers.numel(), GRADIENT_WIDTH)
        direction = followed(0, int(integers.abs().sum()), limits.low, limits.high, above=True)
        state["gradient_exponent"] = exponent + (0 if lost else direction)
        factors = half_up(weights, hidden)
        p.copy_(_like(factors, p).to(torch.float64) * 2.0 ** state["exponent"])

    def _begun(self, p: torch.Tensor, grad: torch.Tensor, width: int) -> dict[str, Any]:
        deviation = float(p.double().square().mean().sqrt()) or 1.0
        exponent = round(log2(deviation / SPREAD)) + 4 - width
        hidden = WEIGHT_WIDTH - width
        mean = float(grad.double().abs().mean())
        top = self._range.high * (1 << (GRADIENT_WIDTH - 1))
        first = ceil(log2(mean / top)) if mean else 0
        weights = quantise(p, exponent - hidden, WEIGHT_WIDTH)
        return {
            "exponent": exponent,
            "weights": weights.clamp(max=(1 << (WEIGHT_WIDTH - 1)) - (1 << hidden)).to(torch.int16),
            "moments": torch.zeros(p.shape, dtype=torch.int8),
            "moment_exponent": first,
            "gradient_exponent": first,
        }


def _rows(values: torch.Tensor) -> Words:
    """Return a tensor as (rows, LANES) int64, filled up with zeros."""
    flat = values.cpu().to(torch.int64).numpy().ravel()
    return np.pad(flat, (0, -len(flat) % LANES)).reshape(-1, LANES)


def _like(rows: Words, p: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(rows.ravel()[: p.numel()].reshape(p.shape).astype(np.int16))
