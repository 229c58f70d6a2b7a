"""``with ape.enabled():`` computes the matrix products of unmodified torch code in an APE type.

A dispatch mode sees every operator below autograd, so it catches alike the operators of modules,
``torch.matmul``, ``einsum`` and their backward passes.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from trainwright.ape.accumulate import Accumulation
from trainwright.ape.adapter import Adapter
from trainwright.ape.conv import conv2d, conv2d_backward
from trainwright.ape.gemm import DEFAULT_ADAPTER, check_options, gemm
from trainwright.ape.schemes import AUTO, NAMES, element_type
from trainwright.support.arguments import require_unrecorded

aten = torch.ops.aten


class _Unrecorded(TorchFunctionMode):
    """Refuse functions that jit.trace records: it does so above dispatch, as plain products."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        require_unrecorded()
        return func(*args, **(kwargs or {}))


class _Mode(TorchDispatchMode):
    """Dispatch mode that sends float32 products to ``gemm``; everything else runs unchanged."""

    def __init__(self, options: dict[str, Any], calls: Counter[str]) -> None:
        super().__init__()
        self.options = options
        self.calls = calls
        self.handlers: dict[Any, Callable[..., Any]] = {
            aten.mm.default: self._mm,
            aten.bmm.default: self._mm,
            aten.addmm.default: self._addmm,
            aten.baddbmm.default: self._addmm,
            aten.addbmm.default: self._addbmm,
            aten.mv.default: lambda a, x: self._gemm(a, x[:, None])[:, 0],
            aten.addmv.default: self._addmv,
            aten.dot.default: lambda x, y: self._gemm(x[None], y[:, None])[0, 0],
            aten.convolution.default: self._convolution,
            aten.convolution_backward.default: self._convolution_backward,
        }
        into = (aten.mm, aten.bmm, aten.addmm, aten.baddbmm)
        self.into: dict[Any, Any] = {operator.out: operator.default for operator in into}
        self.in_place: dict[Any, Any] = {
            aten.addmm_.default: aten.addmm.default,
            aten.baddbmm_.default: aten.baddbmm.default,
            aten.addmv_.default: aten.addmv.default,
        }

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        target = kwargs.get("out") if func in self.into else None
        plain = self.into.get(func) or self.in_place.get(func) or func
        handler = self.handlers.get(plain)
        if handler is None:
            with self:  # inference_mode does not decompose linear and matmul
                divided = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if divided is NotImplemented else divided
        tensors = [value for value in args if isinstance(value, Tensor)]
        if not all(x.dtype == torch.float32 and x.layout == torch.strided for x in tensors):
            return func(*args, **kwargs)
        options = {key: value for key, value in kwargs.items() if key != "out"}
        with torch.no_grad():
            result = handler(*args, **options)
            if result is NotImplemented:
                return func(*args, **kwargs)
            self.calls[str(plain)] += 1
            if func in self.in_place:
                return args[0].copy_(result)
            return result if target is None else target.resize_(result.shape).copy_(result)

    def _gemm(self, a: Tensor, b: Tensor, **more: Any) -> Tensor:
        return gemm(a, b, **self.options, **more)

    def _sum(self, c: Tensor, a: Tensor, b: Tensor, alpha: float, beta: float) -> Tensor:
        # torch rounds integers beyond 2^53 to float64, which gemm refuses to do by itself.
        return self._gemm(a, b, c=c, alpha=float(alpha), beta=float(beta))

    def _mm(self, a: Tensor, b: Tensor, *more: Any, **options: Any) -> Tensor:
        return NotImplemented if more or options else self._gemm(a, b)

    def _addmm(
        self, c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1, **options: Any
    ) -> Tensor:
        return NotImplemented if options else self._sum(c, a, b, alpha, beta)

    def _addbmm(
        self, c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
    ) -> Tensor:
        left = a.transpose(0, 1).flatten(1)  # (M, B K)
        return self._sum(c, left, b.flatten(0, 1), alpha, beta)

    def _addmv(
        self, c: Tensor, a: Tensor, x: Tensor, *, beta: float = 1, alpha: float = 1
    ) -> Tensor:
        shape = (a.shape[0], 1)
        whole = c.expand(a.shape[0]).reshape(shape)
        return self._sum(whole, a, x[:, None], alpha, beta)[:, 0]

    def _convolution(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int],
        padding: list[int], dilation: list[int], transposed: bool, _: list[int], groups: int,
    ) -> Tensor:  # fmt: skip
        if transposed or weight.ndim not in (3, 4):
            return NotImplemented
        if weight.ndim == 3:  # conv1d is conv2d with a height of 1
            flat = self._convolution(
                x[:, :, None], weight[:, :, None], bias, [1, *stride], [0, *padding],
                [1, *dilation], transposed, _, groups,
            )  # fmt: skip
            return flat[:, :, 0]
        step, edge, spread = _pair(stride), _pair(padding), _pair(dilation)
        return conv2d(x, weight, bias, step, edge, spread, groups, **self.options)

    def _convolution_backward(
        self, grad: Tensor, x: Tensor, weight: Tensor, _: Any, stride: list[int],
        padding: list[int], dilation: list[int], transposed: bool, __: list[int], groups: int,
        wanted: list[bool],
    ) -> Any:  # fmt: skip
        if transposed or weight.ndim not in (3, 4):
            return NotImplemented
        line = weight.ndim == 3
        if line:
            grad, x, weight = grad[:, :, None], x[:, :, None], weight[:, :, None]
            stride, padding, dilation = [1, *stride], [0, *padding], [1, *dilation]
        gradients = conv2d_backward(
            grad, x, weight, _pair(stride), _pair(padding), _pair(dilation), groups,
            (wanted[0], wanted[1], wanted[2]), **self.options,
        )  # fmt: skip
        if not line:
            return gradients
        return (*(None if g is None else g[:, :, 0] for g in gradients[:2]), gradients[2])


def _pair(sizes: list[int]) -> tuple[int, int]:
    return sizes[0], sizes[-1]


@contextmanager
def enabled(
    dtype: str = AUTO,
    *,
    accumulation: Accumulation | None = None,
    adapter: Adapter = DEFAULT_ADAPTER,
) -> Iterator[Counter[str]]:
    """Compute float32 matrix products and convolutions inside the block by ``gemm`` in ``dtype``.

    Caught, forward and backward: matmul and ``@`` (also of vectors), mm, bmm, mv, dot, addmm,
    baddbmm, addbmm, addmv, their in-place and ``out=`` forms, linear, einsum, tensordot, conv1d,
    conv2d, and attention, whose fused forms are switched off inside the block. Not caught, and
    computed as usual: other element types, sparse tensors, conv3d, transposed convolutions,
    recurrent layers where the library fuses them, cdist. The backward pass is caught if
    ``backward`` is called inside the block. Yields a counter of the replaced operators. Raises
    ``RuntimeError`` where jit.trace, ONNX or make_fx records.

    >>> layer = torch.nn.Linear(4, 2)
    >>> with enabled("fp32-b") as calls:
    ...     outputs = layer(torch.ones(3, 4))
    >>> sum(calls.values())
    1
    """
    if dtype not in NAMES or element_type(dtype) is not torch.float32:
        raise ValueError(f"dtype must be a type for float32, not {dtype!r}")
    check_options(dtype, accumulation, adapter)
    calls: Counter[str] = Counter()
    options = {"dtype": dtype, "accumulation": accumulation, "adapter": adapter}
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), _Mode(options, calls), _Unrecorded():
            yield calls
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
