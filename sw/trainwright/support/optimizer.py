"""Base of the library's optimisers for torch."""

from collections.abc import Callable
from itertools import chain
from math import inf
from numbers import Real
from typing import Any

import torch

from trainwright.support.text import shown

_OF_TORCH = (
    "alpha", "amsgrad", "betas", "centered", "dampening", "decoupled_weight_decay", "eps",
    "maximize", "momentum", "nesterov", "weight_decay",
)  # fmt: skip
"""Options of torch's optimisers that change updates. Groups may have tags of any other name."""


def _is_finer(held: torch.dtype, of_parameter: torch.dtype) -> bool:
    """Return whether state has digits that a parameter of 16 bits lacks, or is of integers."""
    return not held.is_floating_point or (held is torch.float32 and of_parameter.itemsize < 4)


class ClosureOptimizer(torch.optim.Optimizer):
    """Optimiser with torch's ``step``.

    A subclass defines ``update``, or ``update_all`` if parameters are not updated one by one.
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own. ``ValueError`` for options of torch alone."""
        self._refuse_options(param_group)
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of the same class. ``ValueError`` for options of torch alone."""
        for group in state_dict["param_groups"]:
            self._refuse_options(group)
        super().load_state_dict(state_dict)
        # torch converts state to the parameter's type, which has fewer digits where it is of 16
        # bits: a resumed run would end with other bits.
        numbers = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        parameters = chain.from_iterable(group["params"] for group in self.param_groups)
        for number, parameter in zip(numbers, parameters, strict=True):
            for name, value in state_dict["state"].get(number, {}).items():
                if isinstance(value, torch.Tensor) and _is_finer(value.dtype, parameter.dtype):
                    own = value.to(device=parameter.device, copy=True)
                    self.state[parameter][name] = own

    def _refuse_options(self, group: Any) -> None:
        """Raise ``ValueError`` for an option that updates would ignore."""
        for name in _OF_TORCH if isinstance(group, dict) else ():  # torch refuses other groups
            if name in group and name not in self.defaults:
                raise ValueError(
                    f"{type(self).__name__} has no option {name}={shown(group[name])} of a group, "
                    f"only {', '.join(self.defaults)}: choose an optimizer of torch.optim for it"
                )

    def _check_groups(self) -> None:
        """Raise ``ValueError`` for a rate of a group that is out of range."""
        for group in self.param_groups:
            rate = group.get("lr", 0.0)
            if not isinstance(rate, Real | torch.Tensor) or not 0 <= float(rate) < inf:
                raise ValueError(
                    f"lr of a group must be a finite number of at least 0, not {shown(rate)}"
                )

    @torch.no_grad()
    # torch declares two overloads of ``step``, with and without a closure.
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Update every parameter that has a gradient; return the result of ``closure``."""
        loss = None
        for group in self.param_groups:  # schedulers write into groups
            self._refuse_options(group)
        self._check_groups()
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.update_all()
        return loss

    def update_all(self) -> None:
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, group)

    def update(self, parameter: Any, group: dict[str, Any]) -> None:
        """Change ``parameter``, which has a gradient, in place by the options of its group."""
        raise NotImplementedError
