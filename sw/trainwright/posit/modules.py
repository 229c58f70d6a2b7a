"""Modules of posits: parameters become posit tensors; layers may have their own formats."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn
from torch.nn.utils import parametrize

from trainwright.posit.format import PositError, PositFormat, check_format
from trainwright.posit.tensor import PositTensor


@dataclass(frozen=True)
class Mixed:
    """Weights kept in one format and rounded to another at every forward pass.

    Gradients arrive in ``compute`` and are converted to ``weights``, where the optimiser works.
    """

    weights: PositFormat
    compute: PositFormat

    def __post_init__(self) -> None:
        check_format(self.weights)
        check_format(self.compute)

    def __str__(self) -> str:
        return f"{self.compute} on weights of {self.weights}"


Precision = PositFormat | Mixed


class FormatConversion(nn.Module):
    """Module that converts a posit tensor; parametrises weights that are ``Mixed``."""

    def __init__(self, fmt: PositFormat) -> None:
        super().__init__()
        self.fmt = fmt

    def forward(self, x: PositTensor) -> PositTensor:
        """Convert ``x`` to the format, with a gradient."""
        return x.to(self.fmt)

    def extra_repr(self) -> str:
        """Return the format, shown in the module's ``repr``."""
        return str(self.fmt)


class _Entry:
    """Forward pre-hook that converts the posits entering a layer."""

    def __init__(self, fmt: PositFormat) -> None:
        self.fmt = fmt

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def entering(x: Any) -> Any:
            return x.to(self.fmt) if isinstance(x, PositTensor) else x

        return tuple(map(entering, args)), {key: entering(x) for key, x in kwargs.items()}


def convert_module(module: nn.Module, formats: Precision | Mapping[str, Precision]) -> nn.Module:
    """Convert float parameters and buffers into posits, in place; return the module.

    ``formats`` is one format for all layers, or a mapping of layer names to formats, ``""`` being
    the module itself. A layer named in a mapping converts the posits that enter it; with one format
    for all nothing is converted on entry, and other formats are an error. Call this before making
    the optimiser, because the parameters are replaced. Raises ``PositError`` for a name that is no
    layer and for a parameter without a format, and ``TypeError`` for a value that is no format.
    """
    plan = dict(formats) if isinstance(formats, Mapping) else {"": formats}
    _check(module, plan)
    for part in module.modules():
        _undo(part)
    parameters: dict[int, nn.Parameter] = {}  # tied parameters stay tied
    for name, part in list(module.named_modules(remove_duplicate=True)):
        precision = _precision(name, plan)
        if "parametrizations" in name.split("."):  # computes in the format of its weight
            precision = precision and _storage(precision)
        for key, parameter in part.named_parameters(recurse=False):
            if parameter.is_floating_point():
                part._parameters[key] = _posit_parameter(parameter, _storage(precision), parameters)
        for key, buffer in part.named_buffers(recurse=False):
            if buffer.is_floating_point():
                part._buffers[key] = PositTensor(buffer.detach(), _computing(precision))
        if isinstance(precision, Mixed):
            keys = [key for key, _ in part.named_parameters(recurse=False)]
            if parametrize.is_parametrized(part):
                keys += cast(nn.ModuleDict, part.parametrizations)
            for key in keys:
                rounding = FormatConversion(precision.compute)
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
    """Return the precision of the longest prefix of ``name`` in the plan; ``None`` if none."""
    while name and name not in plan:
        name = name.rpartition(".")[0]
    return plan.get(name)


def _storage(precision: Precision) -> PositFormat:
    return precision.weights if isinstance(precision, Mixed) else precision


def _computing(precision: Precision) -> PositFormat:
    return precision.compute if isinstance(precision, Mixed) else precision


def _posit_parameter(
    parameter: Tensor, fmt: PositFormat, parameters: dict[int, nn.Parameter]
) -> nn.Parameter:
    key = id(parameter)
    if key not in parameters:
        parameters[key] = nn.Parameter(
            PositTensor(parameter.detach(), fmt), parameter.requires_grad
        )
    return parameters[key]


def _undo(part: nn.Module) -> None:
    """Remove hooks and conversions of weights that an earlier call of ``convert`` added."""
    for number, hook in list(part._forward_pre_hooks.items()):
        if isinstance(hook, _Entry):
            del part._forward_pre_hooks[number]
            part._forward_pre_hooks_with_kwargs.pop(number, None)
    if parametrize.is_parametrized(part):
        lists: Any = part.parametrizations
        for key, steps in list(lists.items()):
            if not isinstance(steps[-1], FormatConversion):
                continue
            if len(steps) == 1:
                parametrize.remove_parametrizations(part, key, leave_parametrized=False)
            else:
                del steps[-1]
