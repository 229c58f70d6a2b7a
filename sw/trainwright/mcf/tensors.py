"""Creation, copying, conversion, printing and pickling of ``MCTensor`` by torch's own names."""

import copy
import math
from decimal import Context, Decimal
from typing import Any

import torch
from torch import Tensor

from trainwright.mcf import exact
from trainwright.mcf.expansion import padded
from trainwright.mcf.graph import result
from trainwright.mcf.operands import components_of, written
from trainwright.mcf.protocol import handles, handles_one
from trainwright.mcf.tensor import MCTensor, check_type, shape_of, tensor, wrap
from trainwright.support.graphs import stacked_by_loaders

handles("detach")(lambda input: wrap(input._components))


@handles("detach_")
def _detach_(self: MCTensor) -> MCTensor:
    with torch._C.DisableTorchFunctionSubclass():
        Tensor.detach_(self)
    return self


handles_one(Tensor.data.__get__, lambda x, *_: wrap(x._components))  # type: ignore[attr-defined]


def _set_data(self: MCTensor, value: Any) -> None:
    """Assign ``param.data``, as ``Module.to`` does: the leading component and all others."""
    if not isinstance(value, MCTensor):
        raise TypeError(f"data of an MCTensor must be one, not a {type(value).__name__}")
    with torch._C.DisableTorchFunctionSubclass():
        Tensor.data.__set__(self, value.as_subclass(Tensor))  # type: ignore[attr-defined]
    self._components = value._components


handles_one(Tensor.data.__set__, _set_data)  # type: ignore[attr-defined]


_parsed: Any = getattr(torch._C, "_nn")._parse_to  # noqa: B009  unknown to the stubs


@handles("to")
def _to(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Convert to another component type, keeping nc, or move to a device."""
    if not isinstance(self, MCTensor):  # a plain tensor, to the type and device of a number
        return self.to(*_plain(args), **kwargs)
    flags = [a for a in args if isinstance(a, bool)]  # non_blocking, then copy
    copying = kwargs.pop("copy", flags[1] if len(flags) > 1 else False)
    device, dtype, _, _ = _parsed(*_plain(args[: len(args) - len(flags)]), **kwargs)
    if dtype is not None:
        check_type(dtype)
    components = self._components
    if dtype is not None and dtype is not components.dtype:
        components = exact.converted(components, dtype, self.nc)
    if device is not None:
        components = components.to(device)
    if components is self._components:
        if not copying:
            return self
        components = components.clone()
    return result(components, lambda lead: lead(self).to(components.device, components.dtype), self)


def _plain(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.fc if isinstance(a, MCTensor) else a for a in args)


def _casts() -> None:
    types = {"half": torch.float16, "bfloat16": torch.bfloat16, "float": torch.float32,
             "double": torch.float64}  # fmt: skip
    for name, dtype in types.items():
        handles(name)(lambda self, dtype=dtype, **_: _to(self, dtype))
    handles("cpu")(lambda self, **_: _to(self, torch.device("cpu")))
    handles("cuda")(lambda self, device=None, **_: _to(self, device or torch.device("cuda")))
    handles("type_as")(lambda self, other: _to(self, other.dtype))


_casts()


@handles("copy_")
def _copy_(self: Any, src: Any, non_blocking: bool = False) -> MCTensor:
    if not isinstance(self, MCTensor):
        raise TypeError(
            f"copy_ cannot write multi-component numbers into a plain {shape_of(self)} tensor"
        )
    components = padded(components_of(src, self), self.nc)
    return written(self, components.expand(self._components.shape), "copy_")


handles("zero_")(lambda self: written(self, torch.zeros_like(self._components), "zero_"))
handles("fill_")(lambda self, value: _copy_(self, value))


def _made(place: Any, name: str) -> None:
    """Let a function of torch make numbers of as many components as its first argument has."""
    plain = getattr(place, name)

    def run(input: Any, *size: Any, requires_grad: bool = False, **options: Any) -> Any:
        options.pop("memory_format", None)
        if options.get("dtype") is not None:
            check_type(options["dtype"])
        lead = plain(input.fc, *size, **options)
        number = wrap(padded(lead.detach().unsqueeze(-1), input.nc))
        return number.requires_grad_() if requires_grad else number

    handles(name)(run)


for _name in ("zeros_like", "ones_like", "empty_like", "rand_like", "randn_like"):
    _made(torch, _name)
for _name in ("new_zeros", "new_ones", "new_empty"):
    _made(Tensor, _name)


def _full(zeros: Any, fill_value: Any, requires_grad: bool) -> MCTensor:
    """Fill new zeros with a number, of which all components count."""
    number = _copy_(zeros, fill_value)
    return number.requires_grad_() if requires_grad else number


@handles("full_like")
def _full_like(
    input: Any, fill_value: Any, *, requires_grad: bool = False, **options: Any
) -> MCTensor:
    return _full(torch.zeros_like(input, **options), fill_value, requires_grad)


@handles("new_full")
def _new_full(
    self: Any, size: Any, fill_value: Any, *, requires_grad: bool = False, **options: Any
) -> MCTensor:
    return _full(self.new_zeros(size, **options), fill_value, requires_grad)


@handles("new_tensor")
def _new_tensor(
    self: MCTensor, data: Any, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> MCTensor:  # fmt: skip
    """Make a number of its own of data, outside the graph, with as many components."""
    own, given = self._components, data.detach().clone() if isinstance(data, Tensor) else data
    dtype, device = dtype or own.dtype, own.device if device is None else device
    return tensor(given, nc=self.nc, dtype=dtype, device=device, requires_grad=requires_grad)


@handles("item")
def _item(self: MCTensor) -> float:
    return self.to_float64().item()


handles("tolist")(lambda self: self.to_float64().tolist())
handles("__float__")(lambda self: float(_item(self)))
handles("__bool__")(lambda self: bool(_item(self)))


@handles("equal")
def _equal(input: Any, other: Any) -> bool:
    return shape_of(input) == shape_of(other) and bool(torch.eq(input, other).all())


@handles("__deepcopy__")
def _deepcopy(self: MCTensor, memo: dict[int, Any]) -> Any:
    if id(self) in memo:
        return memo[id(self)]
    copied: Any = wrap(self._components.clone())
    with torch._C.DisableTorchFunctionSubclass():
        wants, parameter = self.requires_grad, getattr(self, "_is_param", False)
    if parameter:
        copied = torch.nn.Parameter(copied, requires_grad=wants)
    elif wants:
        copied.requires_grad_()
    if self.grad is not None:
        copied.grad = copy.deepcopy(self.grad, memo)
    memo[id(self)] = copied
    return copied


def rebuilt(components: Tensor, requires_grad: bool, parameter: bool) -> Any:
    """Rebuild a pickled tensor; ``__reduce_ex__`` names this function."""
    number: Any = wrap(components)
    if parameter:
        return torch.nn.Parameter(number, requires_grad=requires_grad)
    return number.requires_grad_(requires_grad)


@handles("__reduce_ex__")
def _reduce(self: MCTensor, protocol: int) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        wants, parameter = self.requires_grad, getattr(self, "_is_param", False)
    return rebuilt, (self._components, wants, parameter)


# torch.load reads files of state by default, in which other classes than torch's are errors.
torch.serialization.add_safe_globals([rebuilt])
stacked_by_loaders(MCTensor)


# Elements shown at each end of a cut dimension, and elements above which dimensions are cut.
_EDGE, _MOST = 3, 1000


def _spelt(value: Decimal) -> str:
    """Write without trailing zeros, and without an exponent where that is short."""
    # Python's context would round to 28 digits, or to as few as its user sets.
    value = value.normalize(Context(prec=len(value.as_tuple().digits), traps=[]))
    usual = value.is_finite() and -5 <= value.adjusted() < 16
    return format(value, "f") if usual else str(value).lower()


@handles("__repr__")
def _repr(self: MCTensor, *, tensor_contents: Any = None) -> str:
    """Print every number with all digits that its components hold; cut long dimensions."""
    parts = self._components
    digits = exact.decimal_digits(parts.dtype, self.nc)
    cut = parts[..., 0].numel() > _MOST

    def text(x: Tensor, indent: int) -> str:
        if x.is_meta:
            return f"..., size={tuple(x.shape[:-1])}"
        if x.dim() == 1:
            return _spelt(exact.decimal_of(x.to(torch.float64).tolist(), digits))
        long = cut and len(x) > 2 * _EDGE
        rows = [text(row, indent + 1) for row in (x[:_EDGE] if long else x)]
        if long:
            rows += ["...", *(text(row, indent + 1) for row in x[-_EDGE:])]
        between = ", " if x.dim() == 2 else ",\n" + " " * (indent + 1)
        return "[" + between.join(rows) + "]"

    with torch._C.DisableTorchFunctionSubclass():
        wants, graph = self.requires_grad, self.grad_fn
    ends = [f"nc={self.nc}"]
    if parts.dtype is not torch.get_default_dtype():
        ends.append(f"dtype={parts.dtype}")
    if parts.device.type != "cpu":
        ends.append(f"device='{parts.device}'")
    if graph is not None:
        ends.append("grad_fn=<...>")
    elif wants:
        ends.append("requires_grad=True")
    name = "MCTensor("
    return f"{name}{text(parts.detach(), len(name))}, {', '.join(ends)})"


@handles("__format__")
def _format(self: MCTensor, spec: str) -> str:
    if not spec or shape_of(self):
        return repr(self)
    value = self.decimals()
    return format(value if math.isfinite(value) else float(value), spec)
