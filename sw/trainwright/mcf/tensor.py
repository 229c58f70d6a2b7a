"""``MCTensor``: tensors of multi-component floats that torch's own functions accept."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from trainwright.mcf import exact
from trainwright.mcf.errorfree import PRECISION
from trainwright.mcf.expansion import distilled, finished, padded, terms_of
from trainwright.mcf.protocol import call, call_below, on_lead
from trainwright.support.arguments import flag, is_size, plain, require_dense, require_plain
from trainwright.support.graphs import library_maker, skipped_by_dynamo

_OUTSIDE_GRAPHS = skipped_by_dynamo(
    "numbers of several components have no graph: operators compute all components in Python"
)


class MCTensor(Tensor):
    """Tensor whose every number is the unevaluated sum of nc floats, largest first.

    The object is its own leading component: shape, dtype, device, gradient and place in the graph
    are those of ``fc``. ``components`` (..., nc) holds all of them and shares memory with it.
    df/dx is df/dfc, a plain tensor, as in the paper. Made by ``from_components`` and
    ``trainwright.mcf.tensor``. Torch functions without an implementation for it raise
    ``TypeError``.

    >>> import torch
    >>> from trainwright import mcf
    >>> x = mcf.tensor(["0.1", "0.2"], nc=2, dtype=torch.float64)
    >>> x.shape, x.nc, torch.exp(x).decimals(20)[0]
    (torch.Size([2]), 2, Decimal('1.1051709180756476248'))
    >>> (x[1] - 2 * x[0]).exact_item() == 0
    True
    """

    _components: Tensor
    _twin: Tensor | None = None
    """Whole number in a wider type, recorded in the graph (``trainwright.mcf.graph``)."""

    @staticmethod
    def __new__(cls, data: Any, **options: Any) -> "MCTensor":
        """Make a tensor by ``trainwright.mcf.tensor``."""
        return tensor(data, **options)

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()

    @staticmethod
    def from_components(components: Tensor, *, normalise: bool = True) -> "MCTensor":
        """Make a tensor of components (..., nc), normalised first.

        ``normalise=False`` takes the components unchanged and shares their memory. Raises
        ``ValueError`` unless they are floats with at least one component.
        """
        check_type(components.dtype)
        require_dense("components", components)
        require_plain("components", components, meta=True)
        if components.dim() == 0 or components.shape[-1] == 0:
            raise ValueError(
                f"components need the shape (*shape, nc), nc >= 1, not {tuple(components.shape)}"
            )
        plain = components.detach()
        if not flag("normalise", normalise):
            return wrap(plain)
        nc = plain.shape[-1]
        if nc == 1:
            return wrap(plain.clone())
        ordered = distilled(terms_of(plain), nc, nc)
        return wrap(finished(ordered, plain[..., 0]))

    @classmethod
    @_OUTSIDE_GRAPHS
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})

    @classmethod
    @_OUTSIDE_GRAPHS
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call_below(func, args, kwargs or {})

    @property
    def components(self) -> Tensor:
        """Components (..., nc), a plain tensor outside the graph that shares memory."""
        return self._components

    @property
    def fc(self) -> Tensor:
        """Leading component as a plain tensor in the graph, sharing memory."""
        return on_lead(Tensor.as_subclass, self, Tensor)

    @property
    def nc(self) -> int:
        """Components per number."""
        return self._components.shape[-1]

    def to_nc(self, nc: int) -> "MCTensor":
        """Convert to nc components, rounding to nearest if nc is lower. Records no gradient."""
        nc = check_count(nc)
        if nc >= self.nc:
            parts = padded(self._components, nc)
            return wrap(parts.clone() if nc == self.nc else parts)
        return wrap(exact.converted(self._components, self._components.dtype, nc))

    def to_float64(self) -> Tensor:
        """Round to float64: a plain tensor outside the graph."""
        return exact.converted(self._components, torch.float64, 1)[..., 0]

    def fractions(self) -> Any:
        """Return a ``Fraction`` for each number (a float where not finite) in nested lists."""
        return exact.mapped(self._components, exact.fraction_of)

    def decimals(self, digits: int | None = None) -> Any:
        """Return a ``Decimal`` for each number in nested lists, by default with all its digits."""
        if digits is not None and not is_size(plain(digits)):
            raise ValueError(f"digits must be an integer of at least 1, not {digits!r}")
        most = plain(digits) or exact.decimal_digits(self._components.dtype, self.nc)

        def decimal(parts: list[float]) -> Decimal:
            return exact.decimal_of(parts, most)

        return exact.mapped(self._components, decimal)

    def exact_item(self) -> Fraction | float:
        """Return the exact number of a tensor of one element."""
        if self._components[..., 0].numel() != 1:
            raise ValueError(f"one element is needed, not shape {shape_of(self)}")
        return exact.fraction_of(self._components.reshape(-1).to(torch.float64).tolist())


def wrap(components: Tensor, lead: Tensor | None = None) -> MCTensor:
    """Make an ``MCTensor`` of components; ``lead`` is component 0 as recorded in the graph."""
    with torch._C.DisableTorchFunctionSubclass():
        number = (components.select(-1, 0) if lead is None else lead).as_subclass(MCTensor)
    number._components = components
    return number


def shape_of(x: Tensor) -> tuple[int, ...]:
    """Return the shape of a tensor without the dispatch of an ``MCTensor``'s ``shape``."""
    return tuple(x._components.shape[:-1] if isinstance(x, MCTensor) else x.shape)


@library_maker
def tensor(
    data: Any,
    *,
    nc: int = 2,
    dtype: torch.dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> MCTensor:
    """Round numbers correctly to an ``MCTensor`` of nc components.

    ``data``: a tensor or array of any real type, another ``MCTensor``, a number, or nested
    sequences of numbers, ``Fraction``, ``Decimal`` and text ("0.1"). ``dtype`` is the components'
    type; the default is that of a floating tensor, else torch's default. A tensor that needs a
    gradient gets it through the result, unless ``requires_grad`` asks for a result that begins a
    graph. Raises ``ValueError`` for other data.

    >>> from trainwright import mcf
    >>> third = mcf.tensor(Fraction(1, 3), nc=3)
    >>> abs(third.exact_item() - Fraction(1, 3)) < Fraction(1, 2**73)
    True
    """
    nc = check_count(nc)
    requires_grad = flag("requires_grad", requires_grad)
    if (device is not None and not isinstance(device, int)) or isinstance(device, bool):
        device = torch.device(device)  # Tensor.to would take 0.5 for a type
    if isinstance(data, MCTensor):
        dtype = data._components.dtype if dtype is None else dtype
        check_type(dtype)
        components = exact.converted(data._components, dtype, nc).to(
            data._components.device if device is None else device
        )
    else:
        if isinstance(data, Tensor):
            require_dense("data", data)
            require_plain("data", data, meta=True)
        floating = isinstance(data, Tensor) and data.dtype in PRECISION
        own = data.dtype if floating else torch.get_default_dtype()
        chosen = own if dtype is None else dtype
        check_type(chosen)
        components = exact.components_from(data, chosen, nc, device)
    if isinstance(data, Tensor) and not requires_grad:
        from trainwright.mcf.graph import result  # which imports this module

        return result(components, lambda lead: lead(data).to(components), data)
    number = wrap(components)
    if requires_grad:
        number.requires_grad_()
    return number


def check_count(nc: int) -> int:
    """Return a count of components, also numpy's. Raises ``ValueError`` for what is no count."""
    if not is_size(plain(nc)):
        raise ValueError(f"nc must be an integer of at least 1, not {nc!r}")
    return plain(nc)


def check_type(dtype: torch.dtype) -> None:
    """Raise ``ValueError`` unless components can have that type."""
    if dtype not in PRECISION:
        names = ", ".join(str(t).removeprefix("torch.") for t in PRECISION)
        raise ValueError(f"components must be {names}, not {dtype}")
