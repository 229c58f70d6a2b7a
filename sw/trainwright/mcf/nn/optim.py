"""SGD and Adam that update ``MCTensor`` parameters and keep state with as many components.

A gradient is a plain tensor of the parameter's type or, where ``grad_dtype`` asks for it, of a
wider type; nothing computed from it is rounded to one component before it reaches the parameter.
Plain parameters in the same group count as one component.
"""

from collections.abc import Iterable
from math import inf, isfinite
from typing import Any

import torch
from torch import Tensor

from trainwright.mcf.expansion import padded
from trainwright.mcf.tensor import MCTensor, tensor, wrap
from trainwright.support.arguments import check_flags
from trainwright.support.optimizer import ClosureOptimizer


def _checked(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < inf:
            raise ValueError(f"{name} must be finite and not negative, not {value!r}")


def _numbers(gradient: Tensor, like: Any) -> Any:
    """Convert a gradient, made dense, to the parameter's components; a wider type fills several."""
    if gradient.is_sparse:
        gradient = gradient.coalesce().to_dense()
    gradient = gradient.detach()
    if gradient.dtype is not like.dtype:
        return tensor(gradient, nc=_nc(like), dtype=like.dtype)
    return wrap(padded(gradient.unsqueeze(-1), _nc(like)))


def _nc(parameter: Any) -> int:
    return parameter.nc if isinstance(parameter, MCTensor) else 1


def _stored(parameter: Any, value: Any) -> None:
    if isinstance(parameter, MCTensor):
        parameter.copy_(value)
    else:
        parameter.copy_(value.components[..., 0])


def _as_numbers(parameter: Any) -> Any:
    if isinstance(parameter, MCTensor):
        return parameter.detach()
    return wrap(parameter.detach().unsqueeze(-1))


class MCSGD(ClosureOptimizer):
    """``torch.optim.SGD``: momentum, dampening, weight decay, Nesterov, maximize.

    >>> from trainwright.mcf.nn import MCLinear
    >>> layer = MCLinear(3, 1, bias=False, nc=2, dtype=torch.float16)
    >>> optimizer = MCSGD(layer.parameters(), lr=1e-5)
    >>> before = layer.weight.to_float64()
    >>> layer(torch.ones(1, 3, dtype=torch.float16)).sum().backward()
    >>> optimizer.step()  # a step that one float16 would round away
    >>> bool((layer.weight.to_float64() < before).all())
    True
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, momentum: float = 0,
                 dampening: float = 0, weight_decay: float = 0, nesterov: bool = False, *,
                 maximize: bool = False):  # fmt: skip
        _checked(lr=lr, momentum=momentum, weight_decay=weight_decay)
        check_flags({"nesterov": nesterov, "maximize": maximize})
        if not isfinite(dampening):
            raise ValueError(f"dampening must be a finite number, not {dampening!r}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(
                f"nesterov needs momentum and no dampening, not {momentum!r} and {dampening!r}"
            )
        options = {
            "lr": lr, "momentum": momentum, "dampening": dampening,
            "weight_decay": weight_decay, "nesterov": nesterov, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, options)

    def update(self, parameter: Any, group: dict[str, Any]) -> None:
        """Apply one SGD update in the parameter's components."""
        held, gradient = _as_numbers(parameter), _numbers(parameter.grad, parameter)
        step = -gradient if group["maximize"] else gradient
        if group["weight_decay"]:
            step = torch.add(step, held, alpha=group["weight_decay"])
        if group["momentum"]:
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = step.clone()
            else:
                buffer = state["momentum_buffer"]
                buffer.mul_(group["momentum"]).add_(step, alpha=1 - group["dampening"])
            buffer = state["momentum_buffer"]
            step = torch.add(step, buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
        _stored(parameter, torch.add(held, step, alpha=-group["lr"]))


class MCAdam(ClosureOptimizer):
    """``torch.optim.Adam``: betas, eps, weight decay, AMSGrad, maximize.

    >>> from trainwright.mcf.nn import MCLinear
    >>> layer = MCLinear(3, 1, nc=2)
    >>> optimizer = MCAdam(layer.parameters(), lr=0.1)
    >>> losses = []
    >>> for _ in range(20):
    ...     loss = (layer(torch.ones(1, 3)) - 1).square().sum()
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()
    ...     losses.append(loss.item())
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, amsgrad: bool = False, *,
                 maximize: bool = False):  # fmt: skip
        _checked(lr=lr, eps=eps, weight_decay=weight_decay)
        check_flags({"amsgrad": amsgrad, "maximize": maximize})
        if len(betas) != 2:
            raise ValueError(f"betas must be two numbers, not {betas!r}")
        for n, beta in enumerate(betas):
            if not 0 <= beta < 1:
                raise ValueError(f"betas[{n}] must be from 0 to below 1, not {beta!r}")
        options = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
                   "amsgrad": amsgrad, "maximize": maximize}  # fmt: skip
        super().__init__(params, options)

    def update(self, parameter: Any, group: dict[str, Any]) -> None:
        """Apply one Adam update in the parameter's components."""
        held, gradient = _as_numbers(parameter), _numbers(parameter.grad, parameter)
        gradient = -gradient if group["maximize"] else gradient
        if group["weight_decay"]:
            gradient = torch.add(gradient, held, alpha=group["weight_decay"])
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(held)
            state["exp_avg_sq"] = torch.zeros_like(held)
            if group["amsgrad"]:
                state["max_exp_avg_sq"] = torch.zeros_like(held)
        state["step"] += 1
        first, second = group["betas"]
        count = int(state["step"])
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.mul_(first).add_(gradient, alpha=1 - first)
        square.mul_(second).add_(torch.square(gradient), alpha=1 - second)
        if group["amsgrad"]:
            square = state["max_exp_avg_sq"].copy_(torch.maximum(state["max_exp_avg_sq"], square))
        root = torch.sqrt(square) / (1 - second**count) ** 0.5 + group["eps"]
        step = torch.div(mean, root) / (1 - first**count)
        _stored(parameter, torch.add(held, step, alpha=-group["lr"]))
