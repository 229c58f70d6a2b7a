"""``MCTensor``: tensors of multi-component floats that torch's own functions take."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from trainwright.mcf import exact
from trainwright.mcf.errorfree import PRECISION
from trainwright.mcf.expansion import distilled, finished, padded, terms_of
from trainwright.mcf.protocol import call


class MCTensor(Tensor):
    """A tensor whose every number is the unevaluated sum of nc floats, largest first.

    The object is its own leading component: shape, dtype, device, gradient and place in the graph
    are those of ``fc``. ``components`` (*shape, nc) holds all of them and shares memory with it.
    df/dx is df/dfc, as the paper has it: a plain tensor. Made by ``from_components`` and
    ``trainwright.mcf.tensor``. Functions of torch that are not defined for it raise ``TypeError``.
    """

    _components: Tensor
    _twin: Tensor | None = None
    """The number's place in the graph in a wider type (``trainwright.mcf.graph``)."""

    @staticmethod
    def __new__(cls, data: Any, **options: Any) -> "MCTensor":
        """The same as ``trainwright.mcf.tensor``."""
        return tensor(data, **options)

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()

    @staticmethod
    def from_components(components: Tensor, *, normalise: bool = True) -> "MCTensor":
        """Of components (..., nc), brought into order first; ``normalise=False`` takes them as
        they are, and shares their memory.

        Raises ``ValueError`` unless they are floats with at least one component.
        """
        check_type(components.dtype)
        if components.dim() == 0 or components.shape[-1] == 0:
            raise ValueError(
                f"components need the shape (*shape, nc), nc >= 1, not {tuple(components.shape)}"
            )
        plain = components.detach()
        if normalise and plain.shape[-1] > 1:
            nc = plain.shape[-1]
            ordered = distilled(terms_of(plain), nc, nc)
            plain = finished(ordered, plain[..., 0])
        return wrap(plain)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})

    @property
    def components(self) -> Tensor:
        """All components (*shape, nc), a plain tensor outside the graph; memory is shared."""
        return self._components

    @property
    def fc(self) -> Tensor:
        """The leading component as a plain tensor, in the graph; memory is shared."""
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor)

    @property
    def nc(self) -> int:
        """How many components a number has."""
        return self._components.shape[-1]

    def to_nc(self, nc: int) -> "MCTensor":
        """The same numbers in nc components, cut to nearest if these are fewer. No gradient."""
        check_count(nc)
        if nc >= self.nc:
            return wrap(padded(self._components, nc))
        return wrap(exact.converted(self._components, self._components.dtype, nc))

    def to_float64(self) -> Tensor:
        """The numbers rounded to float64, a plain tensor outside the graph."""
        return exact.converted(self._components, torch.float64, 1)[..., 0]

    def fractions(self) -> Any:
        """The numbers as exact ``Fraction``s (floats where not finite), in nested lists."""
        return exact.mapped(self._components, exact.fraction_of)

    def decimals(self, digits: int | None = None) -> Any:
        """The numbers as ``Decimal``s in nested lists; default: as many digits as they hold."""
        most = digits or exact.decimal_digits(self._components.dtype, self.nc)

        def decimal(parts: list[float]) -> Decimal:
            return exact.decimal_of(parts, most)

        return exact.mapped(self._components, decimal)

    def exact_item(self) -> Fraction | float:
        """The exact number of a tensor of one element."""
        if self._components[..., 0].numel() != 1:
            raise ValueError(f"one element is needed, not shape {shape_of(self)}")
        return exact.fraction_of(self._components.reshape(-1).to(torch.float64).tolist())


def wrap(components: Tensor, lead: Tensor | None = None) -> MCTensor:
    """An ``MCTensor`` of components; ``lead``: component 0 with its place in the graph."""
    with torch._C.DisableTorchFunctionSubclass():
        made = (components[..., 0] if lead is None else lead).as_subclass(MCTensor)
    made._components = components
    return made


def shape_of(x: Tensor) -> tuple[int, ...]:
    """The shape of a tensor, without asking torch for that of an ``MCTensor``."""
    return tuple(x._components.shape[:-1] if isinstance(x, MCTensor) else x.shape)


def tensor(
    data: Any,
    *,
    nc: int = 2,
    dtype: torch.dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> MCTensor:
    """An ``MCTensor`` of numbers, each correctly rounded to nc components.

    ``data``: a tensor or array of any real type, another ``MCTensor``, a number or nested sequences
    of them, of ``Fraction``, ``Decimal`` and text ("0.1"). ``dtype``: of the components; default is
    that of a floating tensor, else torch's. Raises ``ValueError`` for what is neither.
    """
    check_count(nc)
    if isinstance(data, MCTensor):
        dtype = dtype or data._components.dtype
        check_type(dtype)
        made = exact.converted(data._components, dtype, nc).to(device or data._components.device)
    else:
        floating = isinstance(data, Tensor) and data.dtype in PRECISION
        chosen = dtype or (data.dtype if floating else torch.get_default_dtype())
        check_type(chosen)
        made = exact.components_from(data, chosen, nc, device)
    result = wrap(made)
    if requires_grad:
        result.requires_grad_()
    return result


def check_count(nc: int) -> None:
    """Raises ``ValueError`` unless nc is a count of components."""
    if not isinstance(nc, int) or isinstance(nc, bool) or nc < 1:
        raise ValueError(f"nc must be an integer of at least 1, not {nc!r}")


def check_type(dtype: torch.dtype) -> None:
    """Raises ``ValueError`` unless components can be of that type."""
    if dtype not in PRECISION:
        names = ", ".join(str(t).removeprefix("torch.") for t in PRECISION)
        raise ValueError(f"components must be {names}, not {dtype}")
