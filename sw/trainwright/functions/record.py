"""Functions of networks: definition in Python, parameters, and the kernels made of it."""

import hashlib
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from inspect import Parameter, signature
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trainwright.program.engines import SPEC_OF, EngineSpec
from trainwright.program.fields import Operation
from trainwright.support.arguments import plain
from trainwright.support.errors import UserError
from trainwright.support.text import shown

if TYPE_CHECKING:
    import torch

    from trainwright.kernels import Body, Value
    from trainwright.kernels.phases import GroupLayout, GroupPass

# Importing kernels takes seconds, and descriptions of networks do not need them: import inside
# functions.
LIBRARY = "trainwright."
"""First part of the names of the library's modules."""
MOST_SHIFT = 63
"""Greatest shift of an instruction."""
_SAMPLED = -40, -12, -5, 0, 24
"""Exponents of operands at which a rule is compared with that of the kernel's first use."""
STRAIGHT_THROUGH = "straight-through"
"""Gradient of a function that passes the gradient of its result on unchanged."""
AXES = ("features", "rows", "columns", "channels", "tokens", "window")
"""Axes of a network's value: rows, columns and channels of an image, else features; tokens of a
sequence; pixels of a window that a pooling reads. A function never mixes samples."""


class FunctionError(UserError, ValueError):
    """Text that names no function of a network; the message lists the known functions."""


class Scaling(NamedTuple):
    """Scale of a kernel's result, with the constants of its passes."""

    exponent: int
    floor: int
    """Least exponent that the result can have."""
    constants: tuple[int, ...]
    """First constants of the passes."""


@dataclass(frozen=True)
class Scale:
    """Rule for the exponent of a kernel's result."""

    bound: Callable[..., Scaling]
    """Called with the operands' exponents, the result's bits, the exponent wanted for the result or
    None, the size of a group and the parameters of the function."""
    automatic: bool = False
    """Whether the result's exponent follows its statistics, which the passes count."""
    coarsest: Callable[..., int] | None = None
    """Called with the parameters of the function: the greatest exponent of the first operand that
    passes take as it is. None where any exponent serves."""


@dataclass(frozen=True, eq=False, repr=False)
class Definition:
    """Function that ``trainwright.kernel`` registered, callable with tensors of torch.

    >>> import torch, trainwright
    >>> @trainwright.kernel(gradient="straight-through")
    ... def coarse(k, x):
    ...     return x & 124
    >>> coarse(torch.tensor([0.5, 0.3]))
    tensor([0.5000, 0.2812])
    """

    name: str
    body: "Callable[..., Value]"
    """Called with a `Body`, a value of each operand, and parameters."""
    gradient: "Callable[..., Value] | str | None"
    """Called with a `Body`, the gradient of the result, perhaps a second operand, and parameters.
    A second operand named ``result`` is the function's result, one named ``mask`` the function's
    second operand; any other name is its first operand."""
    over: tuple[str, ...] = ()
    """Axes of a group, of ``AXES``; none where the function is element-wise."""
    reduces: bool = False
    """Whether the result has one value for each group."""
    whole_bits: int | None = None
    """Bits above the point of the result, whose exponent is then constant; None if the result has
    the exponent of the operand."""
    scale: Scale | None = None
    gradient_scale: Scale | None = None
    real: "Callable[..., torch.Tensor] | None" = None
    """Function in real numbers, of tensors (.., group) and parameters; None if only the integers
    define the function."""
    real_gradient: "Callable[..., torch.Tensor] | None" = None
    gain: float | Callable[..., float] = 1.0
    """Factor of the variance of initial weights before the function, which keeps the size of values
    from layer to layer."""
    torch_class: str | None = None
    """Class in ``torch.nn`` of the same function; None where torch has none."""
    calls: tuple[str, ...] = ()
    """Names of the function in torch, as functions and methods."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Attribute of the module, and argument of torch's function, that gives each parameter."""
    source: str = ""
    """File from which a network's ``kernels`` read the definition."""
    recorded: "dict[tuple[FunctionKernel, tuple[int, ...], int], str]" = field(
        default_factory=dict, init=False
    )
    """Text and rule of each kernel as first used, for these bits of operands and of the result."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "__name__", self.name)
        object.__setattr__(self, "__doc__", self.body.__doc__)

    def __repr__(self) -> str:
        return f"<kernel {self.name}, {self.place}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> "Definition":
        """Return itself: a copy in a copied model would be a kernel that no program has."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Return names for pickle, which cannot store a function that its name does not reach."""
        from trainwright.functions.registry import restored_definition

        return restored_definition, (self.source, self.name)

    @property
    def place(self) -> str:
        """File and line of the function."""
        return place_of(self.body)

    @property
    def is_library(self) -> bool:
        """Whether the function belongs to trainwright, not to a user."""
        return self.body.__module__.startswith(LIBRARY)

    @cached_property
    def defaults(self) -> dict[str, float]:
        """Parameters of the function, with their defaults."""
        return arguments_of(self.body)[1]

    @cached_property
    def reads(self) -> str:
        """Second operand of the gradient: ``operand``, ``result``, ``mask``, or empty for none."""
        if not callable(self.gradient):
            return ""
        second = arguments_of(self.gradient)[0][1:]
        return next((name if name in ("result", "mask") else "operand" for name in second), "")

    def make(self, *given: float, **named: float) -> "Function":
        """Return the function, with defaults for the rest. Raises ``FunctionError``."""
        known = self.defaults
        if len(given) > len(known):
            takes = f"the parameters {', '.join(known)}" if known else "no parameter"
            raise FunctionError(f"{self.name} takes {takes}, not {len(given)}")
        placed = dict(zip(known, given, strict=False))
        if twice := placed.keys() & named.keys():
            raise FunctionError(f"{self.name} is given the parameter {', '.join(twice)} twice")
        values = {**known, **placed, **named}
        if unknown := values.keys() - known.keys():
            raise FunctionError(f"{self.name} has no parameter {', '.join(sorted(unknown))}")
        numbers = {name: plain(value) for name, value in values.items()}
        for name, value in numbers.items():
            if not isinstance(value, int | float):
                raise FunctionError(
                    f"the parameter {name} of {self.name} is a number, not {shown(value)}"
                )
        function = Function(self, tuple(numbers.values()))
        if self.over:
            return function
        # Sums over samples also read the lanes after the last sample, which have to hold 0. If the
        # function of 0 is not 0, use passes over groups, here of one value each: they set these
        # lanes to 0 again.
        return function if _check(function) else function.sized(1)

    def require_recorded(self) -> None:
        """Raise ``KernelError`` if a kernel would compute something else than at its first use.

        Compiled programs keep what a global variable was; integers in torch would follow it.
        """
        newest = {key[0].primed: key for key in self.recorded}
        for kernel, widths, width in newest.values():
            kernel.traced(widths, width)

    def module(
        self, *given: float, window: int | tuple[int, int] | None = None, **named: float
    ) -> "torch.nn.Module":
        """Make a module of torch that computes the function. Raises ``FunctionError``."""
        from trainwright.functions.in_torch import KernelModule

        function = self.make(*given, **named)
        return KernelModule(function, window) if self.torch_class is None else function.module()

    def __call__(
        self, x: "torch.Tensor", *given: float, window: int | tuple[int, int] | None = None,
        **named: float,
    ) -> "torch.Tensor":  # fmt: skip
        """Compute the function in integers; see ``trainwright.functions.in_torch``.

        A function over a window takes the window's size, ``window``: rows and columns.
        """
        from torch.overrides import handle_torch_function, has_torch_function_unary

        from trainwright.functions.in_torch import pooled, sides_of

        function = self.make(*given, **named)
        sides = sides_of(function, window)
        if has_torch_function_unary(x):  # a compiled model, or a trace of one
            self.require_recorded()
            options: Any = {} if sides is None else {"window": sides}
            return handle_torch_function(self, (x,), x, *function.given, **options)
        return function(x) if sides is None else pooled(function, x, sides)


@dataclass(frozen=True)
class Function:
    """Function of a network: a definition with parameters and, over axes, the size of a group."""

    definition: Definition
    given: tuple[float, ...] = ()
    """Parameters, all of them."""
    group: int = 0
    """Values of a group. For an element-wise function: 0 if the function of 0 is 0, else 1. Over
    axes: 0 until the size is known."""

    @property
    def text(self) -> str:
        """Name in a network's description, with the size of a known group, then parameters."""
        numbers = [str(self.group)] if self.group and self.over else []
        numbers += [repr(value) for value in self.given]
        return self.definition.name + (f"({', '.join(numbers)})" if numbers else "")

    @property
    def over(self) -> tuple[str, ...]:
        """Axes of a group, of ``AXES``."""
        return self.definition.over

    @property
    def reduces(self) -> bool:
        """Whether the result has one value for each group."""
        return self.definition.reduces

    @property
    def forward(self) -> "FunctionKernel":
        """Kernel of the operand."""
        return FunctionKernel(self)

    @property
    def backward(self) -> "FunctionKernel | None":
        """Kernel of the gradient; None if the gradient passes straight through or is missing."""
        return FunctionKernel(self, primed=True) if callable(self.definition.gradient) else None

    @property
    def reads(self) -> str:
        """Second operand of ``backward``: ``operand``, ``result``, ``mask``, or empty for none."""
        return self.definition.reads

    @property
    def gain(self) -> float:
        """Factor of the variance of initial weights before the function."""
        gain = self.definition.gain
        return gain(*self.given) if callable(gain) else gain

    def sized(self, group: int) -> "Function":
        """Return the function over groups of ``group`` values. Raises ``KernelError``."""
        function = Function(self.definition, self.given, group)
        _check(function)
        return function

    def __call__(self, x: "torch.Tensor") -> "torch.Tensor":
        """Compute the function for a model in torch: in real numbers if ``real`` is defined."""
        from trainwright.functions.in_torch import evaluated

        real = self.definition.real
        return real(x, *self.given) if real is not None and not self.over else evaluated(self, x)

    def module(self) -> "torch.nn.Module":
        """Make the module that computes the function: torch's own if there is one."""
        import torch

        from trainwright.functions.in_torch import KernelModule

        entry = self.definition
        if entry.torch_class is None:
            return KernelModule(self)
        given = dict(zip(entry.defaults, self.given, strict=True))
        keys = {name: given[ours] for ours, name in entry.attributes.items()}
        return getattr(torch.nn, entry.torch_class)(**keys)

    @property
    def digest(self) -> str:
        """Digest of what the kernels make of sample words, whatever their texts are."""
        import numpy as np

        from trainwright.kernels import evaluate

        results: list[object] = [self.over, self.reduces, self.reads]
        results += [] if self.backward else [self.definition.gradient]
        cases = (self.forward, (8,)), (self.forward, (16,)), (self.backward, (16, 8))
        for kernel, widths in cases:
            if kernel is None:
                continue
            widths, shape = widths[: kernel.operands], (32, self.group or 16)
            drawn = np.random.RandomState(0)  # numpy keeps its numbers the same in all versions
            rows = {
                f"x{n}": drawn.randint(-(1 << (bits - 1)), 1 << (bits - 1), shape)
                for n, bits in enumerate(widths)
            }
            exponents = [4 - bits for bits in widths]  # values from -8 to 8
            scaling = kernel.bound(exponents, widths[0], None)
            body = kernel.traced(widths, widths[0])
            words = evaluate(body, rows, constants=scaling.constants).rows["z"]
            results += [scaling.exponent, words.tolist()]
        return hashlib.sha256(repr(results).encode()).hexdigest()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Function":
        """Return itself: by its name a copy would become a kernel of the same name."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Return names for pickle, which cannot store the code of a kernel."""
        from trainwright.functions.registry import restored

        return restored, (self.definition.source, self.definition.name, self.given, self.group)


@dataclass(frozen=True)
class FunctionKernel:
    """Integer function of values of each operand, or of whole groups of values."""

    function: Function
    primed: bool = False
    """Whether it is the gradient."""

    @property
    def text(self) -> str:
        """Name in listings: that of the function, with a prime for its gradient."""
        return self.function.text + "'" * self.primed

    @property
    def group(self) -> int:
        """Values of a group; 0 if the kernel is element-wise and its value for 0 is 0."""
        return self.function.group

    @property
    def spec(self) -> EngineSpec:
        """Engine that executes the passes."""
        return SPEC_OF[Operation.VECTOR]

    def __repr__(self) -> str:
        return f"<kernel {self.text}>"

    @property
    def _scale(self) -> Scale | None:
        own = self.function.definition
        return own.gradient_scale if self.primed else own.scale

    @property
    def whole_bits(self) -> int | None:
        """Bits above the point of the result; None if its exponent is not constant."""
        return None if self.primed else self.function.definition.whole_bits

    @property
    def automatic(self) -> bool:
        """Whether the result's exponent follows its statistics."""
        return self._scale is not None and self._scale.automatic

    @property
    def keeps_exponent(self) -> bool:
        """Whether the result has the exponent of the first operand."""
        return self._scale is None and self.whole_bits is None

    @property
    def body(self) -> "Callable[..., Value]":
        """Python function of the kernel."""
        own = self.function.definition
        if not self.primed:
            return own.body
        assert callable(own.gradient)
        return own.gradient

    @property
    def given(self) -> dict[str, float]:
        """Parameters of the function that ``body`` takes."""
        values = dict(zip(self.function.definition.defaults, self.function.given, strict=True))
        return {name: values[name] for name in arguments_of(self.body)[1]}

    @property
    def operands(self) -> int:
        """Number of operands."""
        return len(arguments_of(self.body)[0])

    def exponent(self, operand: int, width: int) -> int:
        """Return the exponent of a result of ``width`` bits from that of the first operand."""
        return operand if self.whole_bits is None else self.whole_bits + 1 - width

    def bound(self, exponents: Sequence[int], width: int, wanted: int | None) -> Scaling:
        """Return the scale of the result, given the exponents of the operands."""
        if self._scale is not None:
            asked = self._scale.bound
            return asked(exponents, width, wanted, self.group, *self.function.given)
        exponent = self.exponent(exponents[0], width)
        return Scaling(exponent, exponent, self._constants(exponents))

    @property
    def coarsest(self) -> int | None:
        """Greatest exponent of the first operand that passes take as it is, if there is any."""
        rule = None if self._scale is None else self._scale.coarsest
        return None if rule is None else rule(*self.function.given)

    def _constants(self, exponents: Sequence[int]) -> tuple[int, ...]:
        # A negative shift may become 0: one unit of such an operand is already more than its bits
        # hold.
        return tuple(
            min(max(raised - exponents[int(stream[1:])], 0), MOST_SHIFT)
            for stream, raised in _scales(self)
        )

    def traced(self, widths: Sequence[int], width: int) -> "Body":
        """Record the kernel for operands of ``widths`` bits and a result of ``width`` bits."""
        from trainwright.kernels import KernelError
        from trainwright.kernels.trace import trace, trace_groups

        own = self.function.definition
        options: dict[str, Any] = {"function": self, "widths": tuple(widths), "width": width}
        if self.group:
            body = trace_groups(function_pass, self.group, **options)
        else:
            body = trace(function_pass, **options)
        if own.is_library:
            return body
        text = body.text
        if self._scale is not None:
            given = [(exponent,) * self.operands for exponent in _SAMPLED]
            text += repr([self.bound(each, width, None) for each in given])
        if own.recorded.setdefault((self, tuple(widths), width), text) != text:
            raise KernelError(
                f"{place_of(self.body)}: {self.text} computes something else than when it was "
                "first used, as it reads a value of Python that has changed: make the value a "
                "parameter, such as def own(k, x, slope=0.1), or define the kernel again"
            )
        return body

    def text_of(self, widths: Sequence[int], width: int) -> str:
        """Return what a kernel of the user's records, for caches; "" for one of the library.

        The kernel's own text does not tell: it may read names that change from run to run.
        """
        library = self.function.definition.is_library
        return "" if library else self.traced(widths, width).text

    def passes(
        self, widths: Sequence[int], width: int, layout: "GroupLayout"
    ) -> "tuple[GroupPass, ...]":
        """Lower a kernel for operands of ``widths`` bits in a layout to its passes."""
        from trainwright.kernels.phases import lower_groups

        with located(self.body, self.text):
            return lower_groups(
                function_pass, self.group, layout, function=self, widths=tuple(widths), width=width,
                text=self.text_of(widths, width),
            )  # fmt: skip

    @property
    def real(self) -> "Callable[..., torch.Tensor]":
        """Function of torch tensors that computes in real numbers, of groups (.., group)."""
        from trainwright.functions.in_torch import real_of

        return real_of(self)


@contextmanager
def located(body: Callable[..., Any], text: str) -> Generator[None]:
    """Convert errors of the body to ``KernelError`` with the kernel's file and line."""
    from trainwright.kernels import KernelError
    from trainwright.kernels.trace import misused

    try:
        yield
    except KernelError as error:
        file = Path(body.__code__.co_filename).name
        if str(error).startswith(f"{file}:"):
            raise
        raise KernelError(f"{place_of(body)}: {text}: {error}") from error
    except Exception as error:
        place, file = place_of(body), body.__code__.co_filename
        # Name the innermost line of the user's file: deeper lines belong to the tracer.
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == file:
                place = f"{Path(file).name}:{frame.lineno}"
        if isinstance(error, TypeError) and (wrong := misused(error)):
            raise KernelError(f"{place}: {text}: {wrong}") from error
        if isinstance(error, ValueError):
            raise KernelError(f"{place}: {text}: {error}") from error
        raise KernelError(f"{place}: {text}: {type(error).__name__}: {error}") from error


def arguments_of(body: Callable[..., Any]) -> tuple[list[str], dict[str, Any]]:
    """List a kernel's operands, which follow its `Body`, and its parameters with their defaults."""
    every = signature(body).parameters.values()
    defaults = {p.name: p.default for p in every if p.default is not Parameter.empty}
    return [p.name for p in every if p.name not in defaults][1:], defaults


def place_of(body: Callable[..., Any]) -> str:
    """Return file and line of a function; ``FunctionError`` for what has no lines of Python."""
    code: Any = getattr(body, "__code__", None)
    if code is None:  # functools.partial, a builtin, a kernel that is registered already
        raise FunctionError(
            f"trainwright.kernel takes a function made by def or lambda, not {shown(body)}"
        )
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}"


def result_of(
    k: "Body", function: FunctionKernel, widths: Sequence[int], width: int
) -> "Value":  # fmt: skip
    """Return a kernel's result of streams ``x0``, ``x1``, .. before its cut to ``width`` bits."""
    from trainwright.kernels.trace import KernelError, Value

    k.bits, k.whole_bits = width, function.whole_bits
    operands = [
        k.read(f"x{n}", -(1 << (bits - 1)), (1 << (bits - 1)) - 1) for n, bits in enumerate(widths)
    ]
    k.in_network = True
    result = function.body(k, *operands, **function.given)
    k.in_network = False
    if isinstance(result, int) and not isinstance(result, bool):
        result = k.constant(result)
    if not isinstance(result, Value):
        raise KernelError(
            f"{place_of(function.body)}: {function.text} must return a value of the kernel, "
            f"not {result!r}"
        )
    return result


def function_pass(
    k: "Body", function: FunctionKernel, widths: tuple[int, ...], width: int, text: str = ""
) -> None:
    """Write stream ``z`` from streams ``x0``, ``x1``, .. by a kernel.

    ``text`` tells the records of a kernel apart in caches of passes.
    """
    result = result_of(k, function, widths, width)
    # Omit the clip, which takes an instruction, if the value is clipped already.
    result = result.clip(width) if result.width > width else result
    k.write("z", result, counted=function.automatic)


@lru_cache(512)
def _scales(kernel: FunctionKernel) -> tuple[tuple[str, int], ...]:
    """List the streams that a kernel reads by ``scaled``, with their shifts at exponent 0."""
    return tuple(kernel.traced((16,) * kernel.operands, 16).scales)


@lru_cache(512)
def _check(function: Function) -> bool:
    """Trace both kernels for usual widths; return whether both map 0 to 0.

    Raises ``KernelError`` with the line of the kernel's text.
    """
    from trainwright.kernels import KernelError

    keeps = True
    for kernel, cases in (
        (function.forward, (((8,), 8), ((16,), 16))),
        (function.backward, (((16, 8), 16),)),
    ):
        if kernel is None:
            continue
        for widths, width in cases:
            given = (*widths, 16)[: kernel.operands]
            with located(kernel.body, kernel.text):
                body = kernel.traced(given, width)
                _require_constants(kernel, body)
                if tuple(body.scales) != _scales(kernel):
                    raise KernelError(
                        "k.scaled is called with another number of bits below the point at "
                        f"{width} bits than at 16: call it with constants, whatever k.bits is"
                    )
                if function.reduces and not kernel.primed:
                    _require_reduced(kernel, body)
                _require_stated(kernel, body, given)
                keeps = keeps and (function.group > 0 or _keeps_zero(kernel, body))
    return keeps


def _require_reduced(kernel: FunctionKernel, body: "Body") -> None:
    """Raise ``KernelError`` for a result that differs within a group, which has one result."""
    import numpy as np

    from trainwright.kernels import KernelError, evaluate

    words = np.random.RandomState(0).randint(-(1 << 7), 1 << 7, (4, kernel.group))
    constants = kernel.bound((0,), body.bits, None).constants
    result = evaluate(body, {"x0": words}, constants=constants).rows["z"]
    if (result != result[:, :1]).any():
        raise KernelError(
            "the result differs within a group, which has only one result: return k.sum(v) or "
            "k.greatest(v), or a value computed from these alone"
        )


STATED_EXPONENTS = -15, -7, 0
"""Exponents at which statements of kernels are checked: usual ones of 16 and 8 bits, and 0."""


def _require_stated(kernel: FunctionKernel, body: "Body", widths: Sequence[int]) -> None:
    """Raise ``KernelError`` for a range that a user's kernel states and its operands leave.

    The engine does not check the ranges of `Value.within`, so that a wrong statement gives wrong
    words there. An element-wise kernel of one operand is evaluated at every word, all others at
    the least and greatest words and at random ones.
    """
    import numpy as np

    from trainwright.kernels import evaluate

    stated = any(getattr(step, "stated", False) for step in body.steps)
    if kernel.function.definition.is_library or not stated:
        return
    row, drawn = kernel.group or 16, np.random.RandomState(0)
    limits = [(-(1 << (bits - 1)), 1 << (bits - 1)) for bits in widths]
    if kernel.operands == 1 and not kernel.group:
        words = [np.arange(*limits[0]).reshape(-1, row)]
    else:
        # Rows of random words, and of the corners; groups of equal words reach farthest.
        words = [drawn.randint(low, high, (64, row)) for low, high in limits]
        corners = np.array(list(product(*((low, 0, high - 1) for low, high in limits))))
        mixed = corners[drawn.randint(0, len(corners), (64, row))]
        equal = np.repeat(corners[:, None], row, 1)
        words = [np.concatenate([w, mixed[..., n], equal[..., n]]) for n, w in enumerate(words)]
    second = (
        kernel.function.forward if kernel.primed and kernel.function.reads == "result" else None
    )
    for exponent in STATED_EXPONENTS:
        rows, exponents = {f"x{n}": w for n, w in enumerate(words)}, [exponent] * len(words)
        if second is not None:
            # The gradient gets results of the kernel, and no other words.
            scaling = second.bound([exponent], widths[1], None)
            traced = second.traced(widths[1:], widths[1])
            rows["x1"] = evaluate(traced, {"x0": words[1]}, constants=scaling.constants).rows["z"]
            exponents[1] = scaling.exponent
        constants = kernel.bound(exponents, body.bits, None).constants
        evaluate(body, rows, constants=constants)


def _require_constants(kernel: FunctionKernel, body: "Body") -> None:
    """Raise ``KernelError`` for a constant that neither ``scaled`` nor the rule gives."""
    from trainwright.kernels import KernelError

    constants = kernel.bound((0,) * kernel.operands, body.bits, None).constants
    for number, line in body.asked.items():
        if number >= len(constants):
            raise KernelError(
                f"{line}: k.given({number}, ..) asks for a constant that no rule (scale= or "
                "gradient_scale=) returns: write the number, or k.scaled(x, n) for an operand in "
                "units of 2^-n"
            )


def _keeps_zero(kernel: FunctionKernel, body: "Body") -> bool:
    import numpy as np

    from trainwright.kernels import evaluate

    rows = {f"x{n}": np.zeros((1, 16), np.int64) for n in range(kernel.operands)}
    constants = kernel.bound((0,) * kernel.operands, body.bits, None).constants
    return not evaluate(body, rows, constants=constants).rows["z"].any()
