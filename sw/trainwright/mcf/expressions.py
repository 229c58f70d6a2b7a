"""Element-wise expressions of ``MCTensor`` in one pass over memory.

The function is called with stand-ins for its multi-component arguments, which record the steps; a
kernel then evaluates the steps, a block of elements at a time (``kernels/fused.h``).
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from trainwright.mcf import native
from trainwright.mcf.graph import wants_grad
from trainwright.mcf.operands import components_of, model
from trainwright.mcf.tensor import MCTensor, wrap

_OPERATIONS = ("add", "add_plain", "mul", "mul_plain", "div", "div_plain", "plain_div", "negate")
"""Operations by number, as in ``kernels/fused.h``."""
_MOST_VALUES = 16
"""Limit for operands, and for steps, of an expression: their blocks fit the first-level cache."""


class _RecordsError(Exception):
    """Autograd records a tensor that the function closes over."""


class _Value:
    """Stand-in for a multi-component number: an operand, or the result of a step."""

    __array_ufunc__ = None  # numpy's operators give way to the reflected ones

    def __init__(self, like: MCTensor, components: Tensor | None, *step: Any) -> None:
        self.like, self.components, self.step = like, components, step

    @property
    def count(self) -> int:
        """Components of the number."""
        return self.like.nc if self.components is None else self.components.shape[-1]

    def _operand(self, x: Any, *, negate: bool = False) -> "_Value":
        if isinstance(x, _Value):
            return -x if negate else x
        if isinstance(x, MCTensor):
            raise TypeError("a fused function takes each MCTensor as an argument of its own")
        components = components_of(x, self.like)
        if wants_grad(x):
            raise _RecordsError
        return _Value(self.like, -components if negate else components)

    def _recorded(self, operation: str, x: "_Value", y: "_Value") -> "_Value":
        if y.count < self.like.nc:
            operation = f"{operation}_plain"
        elif x.count < self.like.nc:
            operation = f"plain_{operation}"
        return _Value(self.like, None, operation, x, y)

    def __add__(self, other: Any) -> "_Value":
        return self._recorded("add", self, self._operand(other))

    def __sub__(self, other: Any) -> "_Value":
        return self._recorded("add", self, self._operand(other, negate=True))

    def __rsub__(self, other: Any) -> "_Value":
        return -self + other

    def __mul__(self, other: Any) -> "_Value":
        return self._recorded("mul", self, self._operand(other))

    def __truediv__(self, other: Any) -> "_Value":
        return self._recorded("div", self, self._operand(other))

    def __rtruediv__(self, other: Any) -> "_Value":
        return self._recorded("div", self._operand(other), self)

    def __neg__(self) -> "_Value":
        return _Value(self.like, None, "negate", self, self)

    def __pos__(self) -> "_Value":
        return self

    __radd__, __rmul__ = __add__, __mul__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # protocols of Python and torch ask whether they apply
            raise AttributeError(name)
        raise _refused(name)

    def _other_operator(self, *operands: Any) -> Any:
        raise _refused("other operators or comparisons")

    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __floordiv__ = __mod__ = _other_operator
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _other_operator
    __abs__ = __bool__ = __getitem__ = _other_operator

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let torch try the reflected operator of a plain tensor's operator; refuse functions."""
        if func.__name__.startswith("__"):
            return NotImplemented
        raise _refused(func.__name__)


def _refused(name: str) -> TypeError:
    return TypeError(
        f"a fused function uses + - * / and negation, not {name}: compute that outside of it"
    )


def _in_order(value: _Value) -> list[_Value]:
    """Return a value and all values that it depends on, each after its own operands."""
    order: dict[int, _Value] = {}

    def visit(value: _Value) -> None:
        if id(value) not in order:
            for source in value.step[1:]:
                visit(source)
            order[id(value)] = value

    visit(value)
    return list(order.values())


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of tensors that reads each of them from memory once.

    ``function`` uses ``+ - * /`` and negation on its arguments; some are ``MCTensor``, others may
    be plain tensors and numbers. The result has the bits of ``function``. ``function`` itself is
    called while autograd records (which keeps the values between operations), without a kernel
    (half types, one or five components, a GPU), and for more than 16 operands or operations.

    >>> from trainwright import mcf
    >>> multiply_add = mcf.fused(lambda a, b, c: a * b + c)
    >>> x = mcf.tensor(["0.1", "0.2"], nc=2)
    >>> bool((multiply_add(x, x, 1) == x * x + 1).all())
    True
    """

    @wraps(function)
    def run(*arguments: Any) -> Any:
        numbers = [x for x in arguments if isinstance(x, MCTensor)]
        if not numbers or wants_grad(*arguments):
            return function(*arguments)
        like = model(*numbers)
        if not native.usable(like._components, like.nc):
            return function(*arguments)
        stand_ins = (_Value(like, x._components) if isinstance(x, MCTensor) else x
                     for x in arguments)  # fmt: skip
        try:
            traced = function(*stand_ins)
        except _RecordsError:
            return function(*arguments)
        values = _in_order(traced) if isinstance(traced, _Value) else []
        operands = [value for value in values if value.components is not None]
        steps = [value for value in values if value.components is None]
        if not steps or max(len(operands), len(steps)) > _MOST_VALUES:
            return function(*arguments)
        components = _evaluated(operands, steps)
        return function(*arguments) if components is None else wrap(components)

    return run


def _evaluated(operands: list[_Value], steps: list[_Value]) -> Tensor | None:
    """Return the components of the last step; ``None`` off the CPU, or if shapes differ."""
    given = [value.components for value in operands if value.components is not None]
    if any(x.device.type != "cpu" for x in given):
        return None
    try:
        shape = torch.broadcast_shapes(*(x.shape[:-1] for x in given))
    except RuntimeError:  # the function itself raises the error that names the shapes
        return None
    places = {id(value): place for place, value in enumerate((*operands, *steps))}
    code = [
        number
        for operation, x, y in (value.step for value in steps)
        for number in (_OPERATIONS.index(operation), places[id(x)], places[id(y)])
    ]
    return native.fused(code, given, shape, steps[0].like.nc)
