"""Base of the library's optimisers for torch."""

from collections.abc import Callable
from typing import Any

import torch


class ClosureOptimizer(torch.optim.Optimizer):
    """Optimiser with torch's ``step``.

    A subclass defines ``update``, or ``update_all`` if parameters are not updated one by one.
    """

    @torch.no_grad()
    # torch declares two overloads of ``step``, with and without a closure.
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Update every parameter that has a gradient; return the result of ``closure``."""
        loss = None
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
