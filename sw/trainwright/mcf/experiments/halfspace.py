"""The half-space model of hyperbolic space, on plain tensors and on ``MCTensor`` alike.

Points (..., d) have a last coordinate above 0; the metric is the Euclidean metric divided by the
square of this coordinate.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from trainwright.mcf.tensor import MCTensor
from trainwright.support.optimizer import ClosureOptimizer


def _plain(x: Any) -> Tensor:
    return x.fc if isinstance(x, MCTensor) else x


def distance(u: Any, v: Any) -> Tensor:
    """Return arcosh(1 + t), t = |u - v|^2 / (2 u_d v_d), as a plain tensor (...).

    Computed as log1p(t + root(t (t + 2))). t is computed in the points' own numbers, where
    differences cancel; from t on, the leading component is as good as the result can be. The
    gradient at u = v is 0. Where the square or the gradient of a large t could leave the range,
    log(2 t) is computed from separate logarithms.
    """
    squares, heights = torch.square(u - v).sum(-1), u[..., -1] * v[..., -1] * 2
    apart, low = _plain(squares), _plain(heights)
    far = apart.detach() / low.detach() > torch.finfo(apart.dtype).max ** 0.25
    any_far = bool(far.any())
    if any_far:
        heights = torch.where(far, torch.ones_like(low), heights)
    t = _plain(squares / heights).clamp_min(torch.finfo(apart.dtype).tiny)
    near = torch.log1p(t + torch.sqrt(t * (t + 2)))
    if not any_far:
        return near
    apart = torch.where(far, apart, torch.ones_like(apart))
    logs = torch.log(apart) - torch.log(_plain(u[..., -1])) - torch.log(_plain(v[..., -1]))
    return torch.where(far, logs, near)


def moved(points: Any, step: Tensor) -> Any:
    """Apply the exponential map: move ``points`` along ``step``, both (n, d), by s = |step|.

    ``step`` is a tangent vector divided by the point's last coordinate, a plain tensor. With c =
    cosh s and h = sinh(s) / s, the last coordinate is divided by c - h step_d, which for step_d > 0
    is computed as (1 + h^2 |sideways|^2) / (c + h step_d) to avoid cancellation. Heights stay above
    0.
    """
    up, sideways = step[..., -1], step[..., :-1]
    s = torch.linalg.vector_norm(step, dim=-1)
    c = torch.cosh(s)
    h = torch.where(s > 0, torch.sinh(s) / s, torch.ones_like(s))
    rising = (c + h * up) / (1 + (h * h) * torch.square(sideways).sum(-1))
    grown = torch.where(up > 0, rising, 1 / (c - h * up))
    height = points[..., -1]
    new = (height * grown).clamp(min=torch.finfo(step.dtype).tiny)
    aside = points[..., :-1] + height.unsqueeze(-1) * ((grown * h).unsqueeze(-1) * sideways)
    return torch.cat([aside, new.unsqueeze(-1)], -1)


class RiemannianSGD(ClosureOptimizer):
    """Steps along the exponential map against the Riemannian gradient (u_d^2 times the plain one).

    Parameters (n, d) are plain or ``MCTensor``. Steps are cut to a length of ``longest``, beyond
    which their exponential would leave the range.
    """

    def __init__(self, params: Iterable[Any], lr: float, longest: float = 20.0):
        super().__init__(params, {"lr": lr, "longest": longest})

    def update(self, parameter: Any, group: dict[str, Any]) -> None:
        """Move a parameter along the exponential map of its scaled gradient."""
        points, lr, longest = parameter, group["lr"], group["longest"]
        held = points.detach()
        step = -lr * points.grad * _plain(held)[..., -1:]
        size = torch.linalg.vector_norm(step, dim=-1, keepdim=True)
        points.copy_(moved(held, step * (longest / size.clamp_min(longest))))
