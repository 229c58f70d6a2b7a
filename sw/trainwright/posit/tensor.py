"""``PositTensor``: a torch tensor of posits, every operation on which is rounded to its format."""

from typing import Any

import torch
from torch import Tensor

from trainwright.posit.dispatch import GridTensor, below, same_format
from trainwright.posit.format import PositFormat
from trainwright.posit.rounding import codes_of, decode, round_to


class PositTensor(GridTensor):
    """Posits of the format ``fmt``: ``PositTensor(x, fmt)`` rounds real numbers or tensors of them.

    Formats do not mix: ``to(fmt)`` converts, with a gradient that is converted back. ``decode()``
    gives float64, ``codes()`` the words; these and ``item()`` are the ways out. What is copied into
    a posit tensor (``copy_``, ``load_state_dict``) is rounded. ``dtype`` is the carrier's, float32
    or float64 (``trainwright.posit.exactness``). Raises ``PositError``.
    """

    @staticmethod
    def __new__(cls, data: Any, fmt: PositFormat, *, requires_grad: bool = False) -> "PositTensor":
        """Values nearest to ``data``: a tensor of real numbers, or numbers in nested sequences."""
        if isinstance(data, PositTensor):
            data = data.values()
        elif isinstance(data, Tensor):
            data = data.detach()
        else:
            data = torch.tensor(data, dtype=torch.float64)
        values = round_to(data, fmt)
        return cls.of_values(values.clone() if values is data else values, fmt).requires_grad_(
            requires_grad
        )

    def __init__(self, data: Any, fmt: PositFormat, *, requires_grad: bool = False) -> None:
        """See ``__new__``."""

    @classmethod
    def from_codes(cls, codes: Tensor, fmt: PositFormat) -> "PositTensor":
        """Of the words ``codes``, integers 0 .. 2^n - 1. Raises ``PositError``, ``TypeError``."""
        return cls(decode(codes, fmt), fmt)

    def values(self) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The values in the carrier type, sharing memory; no history."""
        with below():
            return self.detach().as_subclass(Tensor)

    def codes(self) -> Tensor:
        """The words, int64."""
        return codes_of(self.values(), self.fmt)

    def decode(self) -> Tensor:
        """The values in float64, NaN for NaR; no history, and no memory shared."""
        return self.values().to(torch.float64, copy=True)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """To a format (``to(PositFormat(8, 2))``), or to a device as any tensor."""
        if not args or not isinstance(args[0], PositFormat):
            return super().to(*args, **kwargs)
        fmt, *rest = args
        found: Any = self if fmt == self.fmt else _Conversion.apply(self, fmt)
        return found.to(*rest, **kwargs) if rest or kwargs else found

    @property
    def data(self) -> Any:
        """The same posits without history. What is put there must be posits of the format."""
        return self.detach()

    @data.setter
    def data(self, new: Tensor) -> None:
        same_format(self, new, "data")
        descriptor: Any = vars(torch._C.TensorBase)["data"]
        with below():
            descriptor.__set__(self, new.as_subclass(Tensor))

    def numpy(self, *, force: bool = False) -> Any:
        """A copy of the values in float64."""
        return self.decode().numpy(force=force)

    def tolist(self) -> Any:
        """The values as numbers in nested lists."""
        return self.decode().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.decode().__array__(dtype)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        head = "PositTensor("
        text = torch._tensor_str._tensor_str(self.decode(), len(head))  # pyright: ignore[reportAttributeAccessIssue]
        tail = ", requires_grad=True" if self.requires_grad else ""
        if self.grad_fn is not None:
            tail = f", grad_fn=<{self.grad_fn.name()}>"
        return f"{head}{text.replace('nan', 'nar')}, {self.fmt}{tail})"

    def __deepcopy__(self, memo: dict[int, Any]) -> "PositTensor":
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError("only posit tensors without history can be copied deeply")
        found = _rebuilt(self.values().clone(), *self._state())
        memo[id(self)] = found
        if self.grad is not None:
            found.grad = self.grad.__deepcopy__(memo)
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuilt, (self.values(), *self._state())

    def _state(self) -> tuple[PositFormat, bool, bool]:
        return self.fmt, self.requires_grad, isinstance(self, torch.nn.Parameter)


def _rebuilt(values: Tensor, fmt: PositFormat, requires_grad: bool, parameter: bool) -> PositTensor:
    found: Any = PositTensor.of_values(values, fmt).requires_grad_(requires_grad)
    if parameter:
        found._is_param = True  # what makes a parameter of a tensor of another class
    return found


class _Conversion(torch.autograd.Function):
    """From one format to another, rounded once; the gradient is converted the other way."""

    @staticmethod
    def forward(ctx: Any, x: PositTensor, fmt: PositFormat) -> PositTensor:
        ctx.fmt = x.fmt
        return PositTensor(x, fmt)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[PositTensor, None]:
        return PositTensor(gradients[0], ctx.fmt), None
