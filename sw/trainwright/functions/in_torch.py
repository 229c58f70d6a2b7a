"""Evaluate kernels in torch, with the accelerator's integers: ``autograd.Function`` and module.

Values are rounded to words at the finest exponent that saturates nothing, like the inputs of a
layer; gradients are rounded to 16 bits. The kernel then gives the bits of the accelerator.
"""

from collections.abc import Callable, Sequence
from math import frexp, prod
from typing import Any

import numpy as np
import torch

from trainwright.fixed.quantise import dequantise, quantise
from trainwright.functions.record import Function, FunctionKernel
from trainwright.functions.saturation import warn_in_torch
from trainwright.kernels import evaluate
from trainwright.kernels.trace import LANES
from trainwright.support.arguments import is_size, plain_sizes

OPERAND_BITS = 8
"""Bits of activations of a network by default."""
REAL_BITS = 16
"""Bits of a kernel's integers where a function in real numbers is wanted, but not defined."""
GRADIENT_BITS = 16


def evaluated(function: Function, x: torch.Tensor, bits: int = OPERAND_BITS) -> torch.Tensor:
    """Compute a function in integers of ``bits`` bits; groups lie along the function's axes.

    The axes of images (n, C, H, W) are channels, rows and columns. In all other tensors the last
    axis is features, and the axis before it is tokens.
    """
    _require_numbers(function, x)
    if not function.over:
        return _Evaluated.apply(x, function, bits)

    def apply(rows: torch.Tensor) -> torch.Tensor:
        return _Evaluated.apply(rows, function.sized(rows.shape[1]), bits)

    return over_groups(x, _places(function, x), apply, reduces=function.reduces)


def _require_numbers(function: Function, x: object) -> None:
    """Raise ``TypeError`` unless ``x`` is a dense tensor of real numbers.

    Raises ``RuntimeError`` where torch hides the numbers that exponents are chosen by.
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError(
            f"{function.text} takes a torch.Tensor, not {type(x).__name__}: convert it, "
            "torch.as_tensor(x)"
        )
    if x.is_nested or x.layout is not torch.strided:
        remedy = "torch.nested.to_padded_tensor(x, 0.0)" if x.is_nested else "x.to_dense()"
        raise TypeError(f"{function.text} takes dense tensors: convert it, {remedy}")
    if not x.is_floating_point():
        raise TypeError(
            f"{function.text} takes floating point, not {x.dtype}: convert it, x.float()"
        )
    torch_c: Any = torch._C
    if torch_c._are_functorch_transforms_active() or torch.compiler.is_exporting():
        raise RuntimeError(
            f"{function.text} computes integers whose exponent follows the data, which torch.func "
            "and torch.export hide: call it outside of them, or define the kernel with real="
        )


def over_groups(
    x: torch.Tensor, places: Sequence[int], apply: Callable[[torch.Tensor], torch.Tensor], *,
    reduces: bool,
) -> torch.Tensor:  # fmt: skip
    """Apply a function of rows to groups that lie along the dimensions ``places`` of a tensor.

    A function that ``reduces`` leaves one value of each group: these dimensions become 1.
    """
    order = [n for n in range(x.dim()) if n not in places] + list(places)
    moved = x.permute(order)
    group = prod(x.shape[n] for n in places)
    if not group and not reduces:
        return x.clone()
    rows = apply(moved.reshape(-1, group))
    if reduces:
        return rows[:, 0].reshape([1 if n in places else x.shape[n] for n in range(x.dim())])
    return rows.reshape(moved.shape).permute([order.index(n) for n in range(x.dim())])


def sides_of(function: Function, window: object) -> tuple[int, int] | None:
    """Return rows and columns of the windows of a call; None for a function over no window.

    Raises ``ValueError`` for what is no window, and where the function takes none or lacks one.
    """
    if window is None and function.over != ("window",):
        return None
    given = plain_sizes(window)
    sides = given if isinstance(given, Sequence) else (given, given)
    if len(sides) != 2 or not all(map(is_size, sides)):
        raise ValueError(
            f"{function.text}: window must be one or two integers of at least 1, not {window!r}"
        )
    if function.over != ("window",):
        raise ValueError(f"{function.text} is over no window: call it without one")
    return sides[0], sides[1]


def pooled(
    function: Function, x: torch.Tensor, sides: tuple[int, int], bits: int = OPERAND_BITS
) -> torch.Tensor:
    """Compute a function of windows that divide images (n, C, H, W) without overlap."""
    _require_numbers(function, x)
    if x.dim() != 4 or any(n % side for n, side in zip(x.shape[2:], sides, strict=True)):
        raise ValueError(
            f"{function.text} takes images (n, C, H, W) that windows of {sides[0]} x {sides[1]} "
            f"divide, not the shape {tuple(x.shape)}"
        )
    n, channels, rows, columns = x.shape
    shape = n, channels, rows // sides[0], sides[0], columns // sides[1], sides[1]
    parts = x.reshape(shape).permute(0, 1, 2, 4, 3, 5)
    group = sides[0] * sides[1]
    value = _Evaluated.apply(parts.reshape(-1, group), function.sized(group), bits)
    return value[:, 0].reshape(parts.shape[:4])


def _places(function: Function, x: torch.Tensor) -> tuple[int, ...]:
    """Return the dimensions of a tensor that form a group of the function."""
    image = {"channels": (1,), "rows": (2,), "columns": (3,), "features": (1, 2, 3)}
    known = image if x.dim() == 4 else {"features": (x.dim() - 1,), "tokens": (x.dim() - 2,)}
    for axis in function.over:
        if axis not in known or min(known[axis]) < 0:
            raise ValueError(
                f"{function.definition.place}: {function.text} is over {axis}, which a tensor of "
                f"the shape {tuple(x.shape)} does not have"
            )
    return tuple(dict.fromkeys(n for axis in function.over for n in known[axis]))


def fitting(values: torch.Tensor, bits: int) -> int:
    """Return the finest exponent at which words of ``bits`` bits hold all values."""
    greatest = float(values.detach().abs().max()) if values.numel() else 0.0
    if not greatest < float("inf"):
        raise ValueError(
            f"a kernel takes finite values, not {greatest}: check the data with torch.isfinite(x)"
        )
    most, exponent = (1 << (bits - 1)) - 1, frexp(greatest)[1] + 1 - bits
    return exponent + (round(greatest * 2.0**-exponent) > most)


def applied(
    kernel: FunctionKernel, operands: list[Any], bits: list[int], width: int,
    exponents: list[int], wanted: int | None = None,
) -> tuple[Any, int]:  # fmt: skip
    """Evaluate a kernel on words, groups along the last axis; return words and their exponent."""
    operands, bits = operands[: kernel.operands], bits[: kernel.operands]
    shape, size = operands[0].shape, operands[0].size
    scaling = kernel.bound(exponents[: kernel.operands], width, wanted)
    row = kernel.group or LANES
    padding = 0 if kernel.group else -size % LANES
    rows = {
        f"x{n}": np.pad(words.ravel(), (0, padding)).reshape(-1, row)
        for n, words in enumerate(operands)
    }
    if not size:
        return operands[0].copy(), scaling.exponent
    result = evaluate(kernel.traced(bits, width), rows, constants=scaling.constants).rows["z"]
    if not kernel.primed or not (kernel.automatic or kernel.keeps_exponent):
        warn_in_torch(kernel, list(rows.values()), bits, width, exponents, result, size)
    return result.ravel()[:size].reshape(shape), scaling.exponent


class _Evaluated(torch.autograd.Function):
    """Kernel on words at the finest exponent that holds the largest value."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, function: Function, bits: int) -> torch.Tensor:
        ctx.shape = x.shape
        if x.is_meta:
            return x[:, :1].clone() if function.reduces else x.clone()
        at = fitting(x, bits)
        words = quantise(x.cpu(), at, bits).numpy()
        result, exponent = applied(function.forward, [words], [bits], bits, [at])
        ctx.function, ctx.bits = function, bits
        second, ctx.exponent = (result, exponent) if function.reads == "result" else (words, at)
        # In the graph, as torch frees it after a backward pass and refuses a second one.
        ctx.save_for_backward(torch.from_numpy(np.ascontiguousarray(second)))
        return _real(result[:, :1] if function.reduces else result, exponent, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (upper,) = gradients
        if upper.is_meta:
            return upper.new_empty(ctx.shape), None, None
        function: Function = ctx.function
        kernel, exponent, (second,) = function.backward, ctx.exponent, ctx.saved_tensors
        if kernel is None:
            if function.definition.gradient is None:
                raise RuntimeError(
                    f"{function.definition.place}: {function.text} has no gradient: give its "
                    'kernel one, or gradient="straight-through"'
                )
            return upper, None, None
        if torch.is_grad_enabled():  # torch would take the result for a constant, and say nothing
            raise RuntimeError(
                f"{function.text} has no gradients of gradients: call backward or grad without "
                "create_graph=True, or define the kernel with real="
            )
        if not bool(torch.isfinite(upper).all()):  # a scaler of losses finds it and skips the step
            return upper.new_full(ctx.shape, torch.nan), None, None
        at, bits, wanted = fitting(upper, GRADIENT_BITS), [GRADIENT_BITS, ctx.bits], None
        most = (1 << (GRADIENT_BITS - 1)) - 1
        while True:
            words = quantise(upper.cpu(), at, GRADIENT_BITS).numpy()
            given = [np.broadcast_to(words, second.shape), second.numpy()]
            result, place = applied(kernel, given, bits, GRADIENT_BITS, [at, exponent], wanted)
            # Start at the least exponent, and raise it until no value saturates: that of the
            # result, or that of the upper gradient where the result has the same.
            if kernel.automatic and np.abs(result).max(initial=0) >= most:
                wanted = place + 1
            elif kernel.keeps_exponent and words.any() and _full(result, most) > _full(words, most):
                at += 1
            else:
                return _real(result, place, upper), None, None


def _full(words: Any, most: int) -> int:
    """Return the number of words that are as large as words can be."""
    return int((np.abs(words) >= most).sum())


def _real(words: Any, exponent: int, like: torch.Tensor) -> torch.Tensor:
    # numpy makes a row of a single number.
    rows = torch.from_numpy(np.ascontiguousarray(words)).reshape(words.shape)
    # Rounding up to a power of two may leave the range of the type: 65504 of float16.
    most = torch.finfo(like.dtype).max
    return dequantise(rows, exponent).to(torch.float64).clamp(-most, most).to(like)


def real_of(kernel: FunctionKernel) -> Callable[..., torch.Tensor]:
    """Return a kernel's function of real numbers; without a definition, its integers in 16 bits."""
    function = kernel.function
    own, given = function.definition, function.given
    if not kernel.primed:
        real = own.real
        if real is not None:
            return lambda *operands: real(*operands, *given)
        return lambda x: _Evaluated.apply(x, function, REAL_BITS)
    gradient = own.real_gradient
    if gradient is not None:
        return lambda *operands: gradient(*operands, *given)
    assert function.reads != "result", f"{function.text} needs a real_gradient"

    def differentiated(upper: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(function.forward.real(leaf), leaf, upper)
        return slope

    return differentiated


class KernelModule(torch.nn.Module):
    """Module that computes a kernel in integers."""

    def __init__(self, function: Function, window: int | tuple[int, int] | None = None) -> None:
        super().__init__()
        self.function, self.window = function, window

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the kernel; ``trainwright.compile`` puts it on the accelerator."""
        return self.function.definition(x, *self.function.given, window=self.window)

    def extra_repr(self) -> str:
        return self.function.text + (f", window={self.window}" if self.window else "")
