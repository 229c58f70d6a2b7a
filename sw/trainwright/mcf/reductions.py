"""Sums, matrix products, softmax and layer functions of torch on ``MCTensor``."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trainwright.mcf import carriers, functions, products
from trainwright.mcf.arithmetic import binary, scaled_add, total
from trainwright.mcf.expansion import padded
from trainwright.mcf.graph import result
from trainwright.mcf.operands import components_of, factor_of, model, written
from trainwright.mcf.protocol import handles
from trainwright.mcf.tensor import MCTensor, shape_of, wrap
from trainwright.support.dimensions import reduced
from trainwright.support.text import amount


def _sum(x: MCTensor, dim: Any, keepdim: bool) -> tuple[Tensor, int]:
    """Return the components of the sum and the terms per sum."""
    shape = shape_of(x)
    dims = reduced(dim, shape)
    computed, count = x._components, 1
    for d in reversed(dims):
        count *= shape[d]
        computed = total(computed, d)
    for d in dims if keepdim else ():
        computed = computed.unsqueeze(d)
    return computed.clone() if count == 1 else computed, count  # a sum of one term may be a view


def _reduction(name: str) -> None:
    plain = getattr(torch, name)

    def run(
        input: MCTensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
    ) -> MCTensor:
        no_dtype(dtype, name, input)
        # The sum may leave a half type's range where the mean does not; torch's mean is wider, too.
        wide = name == "mean" and input.dtype in carriers.HALF and input.nc > 1
        x = wrap(carriers.widened(input._components)) if wide else input
        computed, count = _sum(x, dim, keepdim)
        if name == "mean":
            computed = binary("div", computed, factor_of(count, x))
        computed = carriers.narrowed(computed, input.dtype) if wide else computed
        return result(computed, lambda lead: plain(lead(input), dim, keepdim=keepdim), input)

    handles(name)(run)


_reduction("sum")
_reduction("mean")


def no_dtype(dtype: Any, name: str, x: MCTensor) -> None:
    """Raise ``TypeError`` where a result of another type is asked for."""
    if dtype not in (None, x.dtype):
        raise TypeError(f"{name} of MCTensor keeps its type: convert by to({dtype}) first")


def _need(name: str, *pairs: tuple[Tensor, int]) -> None:
    """Raise ``ValueError`` unless components have the given dimensions, apart from nc."""
    for x, dims in pairs:
        if x.dim() - 1 != dims:
            raise ValueError(
                f"{name} needs {amount(dims, 'dimension')}, not shape {tuple(x.shape[:-1])}"
            )


def _product(name: str, dims: tuple[int, int] | None) -> Any:
    plain = getattr(torch, name)

    def run(input: Any, other: Any) -> MCTensor:
        like = model(input, other)
        a, b = components_of(input, like), components_of(other, like)
        if dims is not None:
            _need(name, (a, dims[0]), (b, dims[1]))
        if name == "bmm" and len(a) != len(b):
            raise ValueError(f"batches of {shape_of(input)} and {shape_of(other)} differ in bmm")
        computed = padded(products.matmul(a, b), like.nc)
        return result(computed, lambda lead: plain(lead(input), lead(other)), input, other)

    return run


handles("dot")(_product("dot", (1, 1)))
handles("mv")(_product("mv", (2, 1)))
handles("mm")(_product("mm", (2, 2)))
handles("bmm")(_product("bmm", (3, 3)))
matmul = handles("matmul", "__matmul__")(_product("matmul", None))


handles("__rmatmul__")(lambda self, other: matmul(other, self))


@handles("addmm")
def _addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> MCTensor:
    like = model(input, mat1, mat2)
    y, a, b = (components_of(t, like) for t in (input, mat1, mat2))
    _need("addmm", (a, 2), (b, 2))
    products.check_matmul(a.shape[:-1], b.shape[:-1])
    _need_broadcast(y, (*a.shape[:-2], b.shape[-2]))
    y = torch.zeros_like(y) if beta == 0 else y  # torch does not read it, so that NaN is no matter
    factors = (None if f == 1 else factor_of(f, like) for f in (beta, alpha))
    return result(
        padded(products.addmm(y, a, b, *factors), like.nc),
        lambda lead: torch.addmm(*map(lead, (input, mat1, mat2)), beta=beta, alpha=alpha),
        input, mat1, mat2,
    )  # fmt: skip


def _need_broadcast(added: Tensor, product: Sequence[int]) -> None:
    """Raise ``ValueError`` unless components broadcast to a product's shape, not beyond it."""
    shape, product = tuple(added.shape[:-1]), tuple(product)
    try:
        fits = torch.broadcast_shapes(shape, product) == product
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(f"shape {shape} does not broadcast to the product's {product}")


@handles("linear")
def linear(input: Any, weight: Any, bias: Any = None) -> MCTensor:
    """Compute input weight^T + bias."""
    if shape_of(input)[-1:] != shape_of(weight)[-1:]:
        raise ValueError(f"input {shape_of(input)} does not fit weight {shape_of(weight)}")
    if len(shape_of(weight)) not in (1, 2):
        raise ValueError(f"weight of linear has 1 or 2 dimensions, not shape {shape_of(weight)}")
    like = model(input, weight, bias)
    x, w = components_of(input, like), components_of(weight, like)
    computed = products.matmul(x, w.transpose(-2, -3) if w.dim() > 2 else w)
    if bias is not None:
        added = components_of(bias, like)
        _need_broadcast(added, computed.shape[:-1])
        computed = binary("add", computed, added)
    operands = (input, weight, bias)
    return result(padded(computed, like.nc), lambda lead: F.linear(*map(lead, operands)), *operands)


def _along(name: str, plain: Any, compute: Any) -> Any:
    def run(
        input: MCTensor, dim: int, _stacklevel: int = 3, dtype: torch.dtype | None = None
    ) -> MCTensor:
        no_dtype(dtype, name, input)
        dims = reduced(dim, shape_of(input))
        if dims:
            computed = compute(input._components, dims[0])
        else:  # treat a 0-d tensor as one element
            computed = compute(input._components.unsqueeze(0), 0).squeeze(0)
        return result(computed, lambda lead: plain(lead(input), dim), input)

    return run


handles("softmax")(_along("softmax", torch.softmax, functions.softmax))
handles("log_softmax")(_along("log_softmax", torch.log_softmax, functions.log_softmax))


@handles("mse_loss")
def _mse_loss(input: Any, target: Any, reduction: str = "mean", **options: Any) -> Any:
    if any(value is not None for value in options.values()):
        raise TypeError(f"mse_loss of MCTensor takes reduction only, not {sorted(options)}")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction must be none, mean or sum, not {reduction!r}")
    squares = torch.square(torch.sub(input, target))
    return squares if reduction == "none" else getattr(torch, reduction)(squares)


def _fused(name: str, operation: str) -> None:
    plain = getattr(torch, name)

    def compute(self: Any, first: Any, second: Any, value: Any) -> Tensor:
        like = model(self, first, second)
        x, a, b = (components_of(t, like) for t in (self, first, second))
        a = padded(a, like.nc)  # a plain product or quotient then keeps its error
        if value == 1:
            return padded(binary("add", x, binary(operation, a, b)), like.nc)
        return padded(scaled_add(x, binary(operation, a, b), factor_of(value, like)), like.nc)

    def new(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> MCTensor:
        computed = compute(input, tensor1, tensor2, value)
        operands = (input, tensor1, tensor2)
        return result(computed, lambda lead: plain(*map(lead, operands), value=value), *operands)

    def in_place(self: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> MCTensor:
        return written(self, compute(self, tensor1, tensor2, value), name + "_")

    handles(name)(new)
    handles(name + "_")(in_place)


_fused("addcmul", "mul")
_fused("addcdiv", "div")


@handles("lerp_")
def _lerp_(self: Any, end: Any, weight: Any) -> Any:
    if isinstance(weight, Tensor):
        return self.addcmul_(torch.sub(end, self), weight)
    return self.add_(torch.sub(end, self), alpha=weight)
