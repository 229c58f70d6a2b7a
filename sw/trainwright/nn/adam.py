"""The trainer's Adam as a torch optimiser: the same bits on every machine."""

from math import inf
from numbers import Real
from typing import Any

import torch

from trainwright.support.optimizer import ClosureOptimizer
from trainwright.train.adam import Parameter


class Adam(ClosureOptimizer):
    """Adam (0.9, 0.999, 1e-8) with one rounding to float32 an operation, as the trainer has it.

    ``torch.optim.Adam`` does as well, but for bits that depend on the machine's vector
    instructions. ``lr`` must be over 0, and is the only option of a group. Parameters of float64
    move in float64, those of 16 bits by float32 moments; complex ones are refused. Schedulers of
    torch work on it.

    >>> layer = torch.nn.Linear(2, 1)
    >>> optimizer = Adam(layer.parameters(), lr=4e-3)
    >>> layer(torch.ones(1, 2)).sum().backward()
    >>> optimizer.step()
    """

    def __init__(self, params: Any, lr: float = 1e-3) -> None:
        if isinstance(lr, bool) or not isinstance(lr, Real | torch.Tensor) or not 0 < lr < inf:
            raise ValueError(f"lr must be a finite number over 0, not {lr!r}")
        super().__init__(params, {"lr": lr})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set gradients to None, or to 0; torch's own method takes 7 times longer."""
        if not set_to_none:
            return super().zero_grad(set_to_none=False)
        for group in self.param_groups:
            for value in group["params"]:
                value.grad = None

    def update_all(self) -> None:
        """Update every parameter that has a gradient; ``TypeError`` before the first update."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        for p in parameters:
            if p.grad is not None and (p.is_complex() or p.grad.layout is not torch.strided):
                what = "complex" if p.is_complex() else "with a sparse gradient"
                raise TypeError(
                    f"Adam updates dense real parameters, not one of {tuple(p.shape)} {what}: "
                    "choose an optimizer of torch.optim for it"
                )
        super().update_all()

    def update(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        """Update a parameter by a step of Adam."""
        assert parameter.grad is not None
        state = self.state[parameter]
        if not state:
            state |= {"step": 0, "first": torch.zeros_like(parameter)}
            state["second"] = torch.zeros_like(parameter)
        state["step"] += 1
        own = Parameter(parameter, state["first"], state["second"])
        parameter.sub_(own.move(parameter.grad, group["lr"], state["step"]))
        state["first"], state["second"] = own.first, own.second
