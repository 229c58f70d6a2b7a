"""The rank priors of the trainer as terms of any loss, and the cutting of parameters."""

from collections.abc import Iterator, Sequence
from functools import cache, wraps
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.optim.swa_utils import AveragedModel

from trainwright.nn.untyped import node, traced
from trainwright.support.caution import warn_user
from trainwright.support.text import amount
from trainwright.train.choices import PRIOR_FORMS
from trainwright.train.prior import prior_loss
from trainwright.train.ranks import prior_gradients
from trainwright.train.storage_prior import storage_loss


class _Prior(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, form: str, *factors: torch.Tensor) -> torch.Tensor:
        ctx.form = form
        ctx.save_for_backward(*factors)
        value = storage_loss(factors) if form == "storage" else prior_loss(factors)
        return factors[0].new_tensor(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        factors = ctx.saved_tensors
        pulls = prior_gradients(factors, 1.0, ctx.form)
        scaled = [
            None if pull is None else (pull * gradients[0]).to(factor)
            for factor, pull in zip(factors, pulls, strict=True)
        ]
        return None, *scaled


def prior(factors: Sequence[torch.Tensor], form: str) -> torch.Tensor:
    """Return the rank prior of a layer's factors, differentiable.

    ``ValueError`` for another form.
    """
    if form not in PRIOR_FORMS:
        raise ValueError(f"prior form must be one of {', '.join(PRIOR_FORMS)}, not {form!r}")
    return node(_Prior, form, *factors)


def refuse_cut_graph(result: torch.Tensor, factors: Sequence[torch.nn.Parameter]) -> torch.Tensor:
    """Return ``result``; its backward pass raises ``RuntimeError`` if ``factors`` change ranks.

    autograd itself complains about sizes of tensors that users never see.
    """
    if traced():  # dynamo cannot look at the graph
        return result
    graph: Any = result.grad_fn
    if graph is None:
        return result
    before = [factor.shape for factor in factors]

    def check(_gradients: Any) -> None:
        for factor, shape in zip(factors, before, strict=True):
            if factor.shape != shape:
                raise RuntimeError(
                    f"a factor had shape {tuple(shape)} in the forward pass and has "
                    f"{tuple(factor.shape)} at the backward pass: ranks were changed in between; "
                    "call cut_ranks after optimizer.step(), or run forward again"
                )

    graph.register_prehook(check)
    return result


def replace_data(parameter: torch.Tensor, values: torch.Tensor) -> None:
    """Give a parameter values, of another shape or of its own.

    Values of its own shape are copied, as other processes and buffers may hold the same memory.
    The node that accumulates its gradient remembers the old shape while a graph of an earlier
    step is alive (a loss that was not deleted); torch makes a new one where the type changes.
    A gradient of another shape is dropped, as the next backward pass could not add to it.
    Warns if the parameter was in memory that processes share: the others keep the old values.
    """
    if parameter.shape == values.shape:
        parameter.data.copy_(values)
        return
    _watch_optimisers()
    _watch_averages()
    if parameter.device.type == "cpu" and parameter.is_shared():
        values.share_memory_()
        warn_user(
            "ranks of factors in shared memory have changed, and other processes keep the factors "
            "of before: start these processes after the change"
        )
    other = torch.float64 if values.dtype is not torch.float64 else torch.float32
    parameter.grad = None
    parameter.data = values.to(other)
    parameter.data = values


@cache
def _watch_optimisers() -> None:
    register_optimizer_step_pre_hook(_check_moments)


@cache
def _watch_averages() -> None:
    """Make ``AveragedModel`` compare shapes, for which torch has no hook.

    torch stretches a column of rank 1 over all columns of the average, without a word.
    """
    update = AveragedModel.update_parameters

    @wraps(update)
    def checked(self: AveragedModel, model: torch.nn.Module) -> None:
        for own, other in zip(self.module.parameters(), model.parameters(), strict=False):
            if own.shape != other.shape:
                raise ValueError(
                    f"a factor has shape {tuple(other.shape)}, its average {tuple(own.shape)}: "
                    "ranks were changed without the averaged model; call "
                    "cut_ranks(..., averaged=averaged_model), or make a new one"
                )
        update(self, model)

    AveragedModel.update_parameters = checked


def _check_moments(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Raise ``ValueError`` where a factor has another shape than its moments."""
    if isinstance(optimizer, torch.optim.LBFGS):
        _check_history(optimizer)
        return
    for parameter, state in optimizer.state.items():
        for name, value in state.items() if parameter.dim() == 4 else ():
            if not isinstance(value, torch.Tensor) or value.dim() != 4:
                continue
            if any(n != size and not _is_summed(name, n) for n, size in _sizes(value, parameter)):
                raise ValueError(
                    f"a factor has shape {tuple(parameter.shape)}, its moments have "
                    f"{tuple(value.shape)}: {_REMEDY}"
                )


_REMEDY = (
    "ranks were changed without this optimiser; call cut_ranks(..., optimizer=optimizer), or make "
    "a new one"
)


def _is_summed(name: str, size: int) -> bool:
    """Return whether an axis of a moment is one that Adafactor sums over."""
    return size == 1 and name in ("row_var", "col_var")


def _sizes(value: torch.Tensor, parameter: torch.Tensor) -> Iterator[tuple[int, int]]:
    return zip(value.shape, parameter.shape, strict=True)


def _check_history(optimizer: torch.optim.LBFGS) -> None:
    """Raise ``ValueError`` where L-BFGS has gradients of another number of values."""
    values = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    for state in optimizer.state.values():
        before = state.get("prev_flat_grad")
        if before is not None and before.numel() != values:
            raise ValueError(
                f"the parameters have {amount(values, 'value')}, the history of LBFGS "
                f"{before.numel()}: {_REMEDY}"
            )


def cut_state(
    parameter: torch.nn.Parameter,
    dimension: int,
    kept: torch.Tensor,
    optimizer: torch.optim.Optimizer | None,
) -> None:
    """Keep the indices ``kept`` of a parameter, of its gradient and of its moments.

    L-BFGS begins anew: its history is that of all parameters in a row.
    """
    shape = parameter.shape

    def cut(values: torch.Tensor) -> torch.Tensor:
        return values.index_select(dimension, kept.to(values.device)).contiguous()

    gradient = parameter.grad
    replace_data(parameter, cut(parameter.data))
    parameter.grad = None if gradient is None else cut(gradient)
    if isinstance(optimizer, torch.optim.LBFGS):
        optimizer.state.clear()
        optimizer.__dict__["_numel_cache"] = None
        return
    state: dict[str, Any] = {} if optimizer is None else optimizer.state.get(parameter, {})
    for name, value in state.items():
        is_moment = isinstance(value, torch.Tensor) and value.dim() == len(shape)
        if is_moment and value.shape[dimension] == shape[dimension]:
            state[name] = cut(value)
