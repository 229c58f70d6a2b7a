"""Modules of posits: parameters become posit tensors; layers may have formats of their own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize

from trainwright.posit.format import PositError, PositFormat, check_format
from trainwright.posit.tensor import PositTensor


@dataclass(frozen=True)
class Mixed:
    """Weights kept in one format and used in another, to which every forward pass rounds them.

    Gradients come back in ``compute`` and are converted to ``weights``, where the optimiser works.
    """

    weights: PositFormat
    compute: PositFormat

    def __str__(self) -> str:
        return f"{self.compute} on weights of {self.weights}"


Precision = PositFormat | Mixed


class Rounding(nn.Module):
    """Converts a posit tensor; the parametrisation of weights that are ``Mixed``."""

    def __init__(self, fmt: PositFormat) -> None:
        super().__init__()
        self.fmt = fmt

    def forward(self, x: PositTensor) -> PositTensor:
        """``x`` in the format, with a gradient."""
        return x.to(self.fmt)

    def extra_repr(self) -> str:
        """The format."""
        return str(self.fmt)


class _Entry:
    """Before a layer's forward pass: converts the posits that come in."""

    def __init__(self, fmt: PositFormat) -> None:
        self.fmt = fmt

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def entering(x: Any) -> Any:
            return x.to(self.fmt) if isinstance(x, PositTensor) else x

        return tuple(map(entering, args)), {key: entering(x) for key, x in kwargs.items()}


def convert_module(module: nn.Module, formats: Precision | Mapping[str, Precision]) -> nn.Module:
    """Make parameters and buffers of floats into posits, in place; returns the module.

    ``formats`` is that of all, or one for each of several layers by their names in the module,
    ``""`` being the module itself. A layer that is named converts the posits that it is given;
    where one format serves all, nothing is converted and other formats are an error. To be called
    before the optimiser is made, for the parameters are new ones. Raises ``PositError`` for a name
    that is no layer, and for a parameter under none, ``TypeError`` for what is no format.
    """
    plan = dict(formats) if isinstance(formats, Mapping) else {"": formats}
    _check(module, plan)
    made: dict[int, nn.Parameter] = {}  # tied parameters stay tied
    for name, part in module.named_modules(remove_duplicate=True):
        if isinstance(part, parametrize.ParametrizationList | Rounding):
            continue
        _undo(part)
        precision = _precision(name, plan)
        for key, parameter in part.named_parameters(recurse=False):
            if parameter.is_floating_point():
                part._parameters[key] = _made(parameter, _storage(precision), made)
        for key, buffer in part.named_buffers(recurse=False):
            if buffer.is_floating_point():
                part._buffers[key] = PositTensor(buffer, _storage(precision))
        if isinstance(precision, Mixed):
            for key in [key for key, _ in part.named_parameters(recurse=False)]:
                rounding = Rounding(precision.compute)
                parametrize.register_parametrization(part, key, rounding, unsafe=True)
        if isinstance(formats, Mapping) and name in plan:
            part.register_forward_pre_hook(_Entry(_computing(precision)), with_kwargs=True)
    return module


def _check(module: nn.Module, plan: Mapping[str, Precision]) -> None:
    names = [name for name, _ in module.named_modules()]
    for name, precision in plan.items():
        check_format(_storage(precision))
        check_format(_computing(precision))
        if name not in names:
            known = ", ".join(filter(None, names))
            raise PositError(f"no layer is called {name!r}; there are {known}")
    for name, parameter in module.named_parameters():
        if _precision(name, plan) is None and parameter.is_floating_point():
            raise PositError(f"no format for {name}: name its layer, or '' for all that is left")


def _precision(name: str, plan: Mapping[str, Precision]) -> Any:
    """Of a layer or parameter: that of the longest name it lies under; ``None`` under none."""
    while name and name not in plan:
        name = name.rpartition(".")[0]
    return plan.get(name)


def _storage(precision: Precision) -> PositFormat:
    return precision.weights if isinstance(precision, Mixed) else precision


def _computing(precision: Precision) -> PositFormat:
    return precision.compute if isinstance(precision, Mixed) else precision


def _made(parameter: Tensor, fmt: PositFormat, made: dict[int, nn.Parameter]) -> nn.Parameter:
    key = id(parameter)
    if key not in made:
        made[key] = nn.Parameter(PositTensor(parameter, fmt), parameter.requires_grad)
    return made[key]


def _undo(part: nn.Module) -> None:
    """What an earlier conversion left: its entries and roundings."""
    for number, hook in list(part._forward_pre_hooks.items()):
        if isinstance(hook, _Entry):
            del part._forward_pre_hooks[number]
            part._forward_pre_hooks_with_kwargs.pop(number, None)
    if parametrize.is_parametrized(part):
        lists: Any = part.parametrizations
        for key, steps in list(lists.items()):
            if any(isinstance(step, Rounding) for step in steps):
                parametrize.remove_parametrizations(part, key, leave_parametrized=False)
