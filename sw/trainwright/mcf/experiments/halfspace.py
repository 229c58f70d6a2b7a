"""The half-space model of hyperbolic space, on plain tensors and on ``MCTensor`` alike.

Points (..., d) have a last coordinate above 0; the metric is the Euclidean one over its square.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from trainwright.mcf.nn.optim import ClosureOptimizer
from trainwright.mcf.tensor import MCTensor


def _plain(x: Any) -> Tensor:
    return x.fc if isinstance(x, MCTensor) else x


def distance(u: Any, v: Any) -> Tensor:
    """arcosh(1 + t), t = |u - v|^2 / (2 u_d v_d), as log1p(t + root(t (t + 2))): plain (...).

    t is computed in the points' numbers, where differences cancel; from there on its leading
    component is as good as the result can be. The gradient where u = v is 0. Where the square and
    the gradient of a large t could be out of range, log(2 t) is computed in parts.
    """
    squares, heights = torch.square(u - v).sum(-1), u[..., -1] * v[..., -1] * 2
    apart, low = _plain(squares), _plain(heights)
    far = apart.detach() / low.detach() > torch.finfo(apart.dtype).max ** 0.25
    some = bool(far.any())
    if some:
        heights = torch.where(far, torch.ones_like(low), heights)
    t = _plain(squares / heights).clamp_min(torch.finfo(apart.dtype).tiny)
    near = torch.log1p(t + torch.sqrt(t * (t + 2)))
    if not some:
        return near
    apart = torch.where(far, apart, torch.ones_like(apart))
    logs = torch.log(apart) - torch.log(_plain(u[..., -1])) - torch.log(_plain(v[..., -1]))
    return torch.where(far, logs, near)


def moved(points: Any, step: Tensor) -> Any:
    """The exponential map: from ``points`` along ``step``, both (n, d), s = |step| being the
    distance.

    ``step`` is a tangent vector over the point's last coordinate, a plain tensor. With c = cosh s,
    h = sinh(s) / s, the last coordinate is divided by c - h step_d, which for step_d > 0 is
    (1 + h^2 |others|^2) / (c + h step_d): nothing cancels. Heights stay above 0.
    """
    up, others = step[..., -1], step[..., :-1]
    s = torch.linalg.vector_norm(step, dim=-1)
    c = torch.cosh(s)
    h = torch.where(s > 0, torch.sinh(s) / s, torch.ones_like(s))
    rising = (c + h * up) / (1 + (h * h) * torch.square(others).sum(-1))
    grown = torch.where(up > 0, rising, 1 / (c - h * up))
    height = points[..., -1]
    new = (height * grown).clamp(min=torch.finfo(step.dtype).tiny)
    aside = points[..., :-1] + height.unsqueeze(-1) * ((grown * h).unsqueeze(-1) * others)
    return torch.cat([aside, new.unsqueeze(-1)], -1)


class RiemannianSGD(ClosureOptimizer):
    """Steps along the exponential map against the Riemannian gradient, u_d^2 times the plain one.

    Parameters (n, d), plain or ``MCTensor``. Steps are cut to a length of ``longest``: an
    exponential of one more would be out of range.
    """

    def __init__(self, params: Iterable[Any], lr: float, longest: float = 20.0):
        super().__init__(params, {"lr": lr, "longest": longest})

    def update(self, parameter: Any, group: dict[str, Any]) -> None:
        """See ``ClosureOptimizer``."""
        points, lr, longest = parameter, group["lr"], group["longest"]
        held = points.detach()
        step = -lr * points.grad * _plain(held)[..., -1:]
        size = torch.linalg.vector_norm(step, dim=-1, keepdim=True)
        points.copy_(moved(held, step * (longest / size.clamp_min(longest))))
