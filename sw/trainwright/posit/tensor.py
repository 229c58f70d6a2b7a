"""``PositTensor``: a torch tensor of posits; every operation rounds to the tensor's format."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from trainwright.posit.dispatch import GridTensor, below, same_format
from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.operators.registry import number
from trainwright.posit.rounding import codes_of, decode, round_to
from trainwright.support.arguments import plain, plain_array, require_plain
from trainwright.support.graphs import library_call, library_maker, stacked_by_loaders


class PositTensor(GridTensor):
    """Posits of the format ``fmt``: ``PositTensor(x, fmt)`` rounds real numbers or tensors of them.

    Formats do not mix: ``to(fmt)`` converts, and the gradient is converted back. ``decode()`` gives
    float64 and ``codes()`` the words; these and ``item()`` are the only ways out. Values copied
    into a posit tensor (``copy_``, ``load_state_dict``) are rounded. ``dtype`` is the carrier's,
    float32 or float64 (``trainwright.posit.exactness``). Raises ``PositError``.
    """

    @staticmethod
    @library_maker
    def __new__(cls, data: Any, fmt: PositFormat, *, requires_grad: bool = False) -> "PositTensor":
        """Round ``data``: a tensor of real numbers, or numbers in nested sequences.

        A tensor that needs a gradient gets it through the posits, unless ``requires_grad`` asks
        for posits that begin a graph.
        """
        if isinstance(data, Tensor) and not isinstance(data, PositTensor):
            require_plain("data", data, meta=True)
        in_graph = isinstance(data, Tensor) and data.requires_grad and torch.is_grad_enabled()
        if in_graph and not requires_grad:
            # A copy, as of other tensors: those of one format would share their memory.
            return data.to(fmt).clone() if isinstance(data, PositTensor) else _entered(data, fmt)
        if isinstance(data, PositTensor):
            data = data.values()
        elif isinstance(data, Tensor):
            data = data.detach()
        else:
            data = torch.tensor(_rounded(data, fmt), dtype=torch.float64)
        values = round_to(data, fmt)
        return cls.of_values(values.clone() if values is data else values, fmt).requires_grad_(
            requires_grad
        )

    def __init__(self, data: Any, fmt: PositFormat, *, requires_grad: bool = False) -> None:
        """Accept the arguments of ``__new__``, which does the work."""

    @classmethod
    @library_call
    def from_codes(cls, codes: Tensor, fmt: PositFormat) -> "PositTensor":
        """Make posits of the words ``codes``, integers 0 .. 2^n - 1.

        Raises ``PositError`` for codes outside the format and ``TypeError`` for other types.
        """
        return cls(decode(codes, fmt), fmt)

    @library_call
    def values(self) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the values in the carrier type, sharing memory, without autograd history."""
        with below():
            return self.detach().as_subclass(Tensor)

    @library_call
    def codes(self) -> Tensor:
        """Return the words as int64."""
        return codes_of(self.values(), self.fmt)

    @library_call
    def decode(self) -> Tensor:
        """Return the values in float64, NaN for NaR: a copy.

        The result of an operation gets gradients through its copy; parameters, and other posits
        that begin a graph, give numbers alone.
        """
        if self.grad_fn is not None and torch.is_grad_enabled():
            left: Any = _Exit.apply(self)
            return left
        return self._numbers()

    def _numbers(self) -> Tensor:
        """Return a copy of the values in float64, without autograd history."""
        return self.values().to(torch.float64, copy=True)

    @library_call
    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Convert to a format (``to(PositFormat(8, 2))``), or move to a device like any tensor."""
        if not args or not isinstance(args[0], PositFormat):
            return super().to(*args, **kwargs)
        fmt, *options = args
        converted: Any = self if fmt == self.fmt else _Conversion.apply(self, fmt)
        return converted.to(*options, **kwargs) if options or kwargs else converted

    @property
    def data(self) -> Any:
        """Posits without autograd history. Only posits of the same format can be assigned."""
        return self.detach()

    @data.setter
    def data(self, new: Tensor) -> None:
        same_format(self, new, "data")
        descriptor: Any = vars(torch._C.TensorBase)["data"]
        with below():
            descriptor.__set__(self, new.as_subclass(Tensor))

    @library_call
    def numpy(self, *, force: bool = False) -> Any:
        """Return a copy of the values in float64."""
        return self._numbers().numpy(force=force)

    @library_call
    def tolist(self) -> Any:
        """Return the values as numbers in nested lists."""
        return self._numbers().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self._numbers().__array__(dtype)

    def __array_wrap__(self, array: Any, *context: Any) -> Any:
        """Refuse numbers that numpy has computed of posits: it calls this to make them a tensor."""
        raise PositError(
            f"numpy computes with floats, not with {self.fmt}: PositTensor(array, fmt) makes an "
            "array posits, and x.numpy() makes posits floats"
        )

    def __dlpack__(self, **options: Any) -> Any:
        """Export a copy in float64, as ``numpy`` does: writes into shared memory do not round."""
        return self._numbers().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.values().__dlpack_device__()

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        head = "PositTensor("
        if self.is_meta:
            text = f"..., device='meta', size={tuple(self.shape)}"
        else:
            text = torch._tensor_str._tensor_str(self._numbers(), len(head))  # pyright: ignore[reportAttributeAccessIssue]
        tail = ", requires_grad=True" if self.requires_grad else ""
        if self.grad_fn is not None:
            tail = f", grad_fn=<{self.grad_fn.name()}>"
        return f"{head}{text.replace('nan', 'nar')}, {self.fmt}{tail})"

    def __deepcopy__(self, memo: dict[int, Any]) -> "PositTensor":
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError("only posit tensors without history can be copied deeply")
        copied = _rebuilt(self.values().clone(), *self._state())
        memo[id(self)] = copied
        if self.grad is not None:
            copied.grad = self.grad.__deepcopy__(memo)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuilt, (self.values(), *self._state())

    def _state(self) -> tuple[PositFormat, bool, bool]:
        return self.fmt, self.requires_grad, isinstance(self, torch.nn.Parameter)


def _rounded(data: Any, fmt: PositFormat) -> Any:
    """Round numbers of nested sequences that a float64 may not hold, which would round twice."""
    data = plain_array(plain(data))
    if isinstance(data, list | tuple):
        return [_rounded(x, fmt) for x in data]
    kind = getattr(getattr(data, "dtype", None), "kind", None)
    is_wide = kind == "f" and data.dtype.itemsize > 8  # numpy's longdouble
    if getattr(data, "shape", ()) and (
        is_wide or (kind in ("i", "u") and (abs(data) > 2**53).any())
    ):
        return _rounded(data.tolist(), fmt)
    return number(data, fmt) if is_wide or isinstance(data, int | Fraction | Decimal) else data


def _rebuilt(values: Tensor, fmt: PositFormat, requires_grad: bool, parameter: bool) -> PositTensor:
    tensor: Any = PositTensor.of_values(values, fmt).requires_grad_(requires_grad)
    if parameter:
        tensor._is_param = True  # marks tensor subclasses as parameters
    return tensor


# torch.load reads files of state by default, in which other classes than torch's are errors.
torch.serialization.add_safe_globals([_rebuilt, PositFormat])
stacked_by_loaders(PositTensor)


class _Conversion(torch.autograd.Function):
    """Conversion between formats, rounded once; the gradient is converted back."""

    @staticmethod
    def forward(ctx: Any, x: PositTensor, fmt: PositFormat) -> PositTensor:
        ctx.fmt = x.fmt
        return PositTensor(x, fmt)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[PositTensor, None]:
        return PositTensor(gradients[0], ctx.fmt), None


def _entered(x: Tensor, fmt: PositFormat) -> PositTensor:
    posits: Any = _Entry.apply(x, fmt)
    return posits


class _Entry(torch.autograd.Function):
    """Rounding of floats to posits; the gradient is converted to floats."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, fmt: PositFormat) -> PositTensor:
        ctx.dtype = x.dtype
        return PositTensor(x.detach(), fmt)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        floats: Any = _Exit.apply(gradients[0])
        return floats.to(ctx.dtype), None


class _Exit(torch.autograd.Function):
    """Posits as float64; the gradient is rounded to posits."""

    @staticmethod
    def forward(ctx: Any, x: PositTensor) -> Tensor:
        ctx.fmt = x.fmt
        return x.decode()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> PositTensor:
        return PositTensor(gradients[0], ctx.fmt)
