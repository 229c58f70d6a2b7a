"""Gradients that are not finite: passed on as torch does, and kept from the parameters.

``torch.amp.GradScaler`` scales a loss until gradients overflow, finds them in the parameters'
gradients and skips the step: an error in the backward pass would end its run. Without a scaler the
step of the optimiser is the error, before it changes anything.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

_overflowed: Any = WeakIdKeyDictionary()
"""Messages, by the parameters whose gradients are not finite."""


def note_overflow(owner: str, parameters: Iterable[torch.Tensor], greatest: float) -> None:
    """Let the next step of an optimiser that has some of the ``parameters`` raise ``ValueError``.

    ``greatest`` is the largest gradient of the outputs of ``owner``. The step is one of an
    optimiser whose gradients are still not finite then.
    """
    _watch_steps()
    message = (
        f"gradients of the outputs of {owner} had NaN or infinite values (the largest value is "
        f"{greatest}): look at the loss, and call optimizer.zero_grad(); torch.amp.GradScaler "
        "skips such steps"
    )
    for parameter in parameters:
        _overflowed[parameter] = message


@cache
def _watch_steps() -> None:
    register_optimizer_step_pre_hook(_refuse_step)


def _refuse_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
    if getattr(optimizer, "found_inf", None) is not None:  # fused: a scaler lets it look itself
        return
    for group in optimizer.param_groups if _overflowed else ():
        for parameter in group["params"]:
            message: str | None = _overflowed.pop(parameter, None)
            gradient = parameter.grad
            if message and gradient is not None and not bool(torch.isfinite(gradient).all()):
                _overflowed[parameter] = message
                raise ValueError(message)
