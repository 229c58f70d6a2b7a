"""Records of element-wise functions, and the registry that finds a function by its text."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from trainwright.program.vector import Rounding
from trainwright.support.text import shown, suggestion

if TYPE_CHECKING:
    import torch

    from trainwright.kernels import Body, Value, VectorPass

RAISED = 16
"""Bits by which an operand is shifted left before the right shift that its exponent gives."""
ARGUMENT_WIDTH = 17
"""Bits of an operand in units that do not depend on its exponent."""
MOST_SHIFT = 63

_TEXT = re.compile(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*")


class FunctionError(ValueError):
    """A text that names no element-wise function; the message says which there are."""


class Scaling(NamedTuple):
    """Scale of a kernel's result, and what its passes need for it."""

    exponent: int
    floor: int
    """Least exponent that the result can have."""
    constants: tuple[int, ...]
    """First constants of the passes."""


@dataclass(frozen=True)
class ElementKernel:
    """Integer function of one value of each operand.

    The kernel of 0 must be 0: lanes behind the last sample of a row hold 0, and sums over samples
    read them.
    """

    text: str
    """Name in listings: that of the function, with a prime for its gradient. Kernels of one text
    are equal."""
    body: "Callable[..., Value]" = field(compare=False)
    """Called with a `Body`, a value of each operand, ``width``, the bits of the result, and with
    ``scaled`` where the kernel asks for it."""
    real: "Callable[..., torch.Tensor]" = field(compare=False)
    """Function of torch tensors that computes in real numbers."""
    fraction: int | None = None
    """Bits below the point of ``scaled``, of ARGUMENT_WIDTH bits: an operand in units that do not
    depend on its exponent. None: ``body`` needs words alone."""
    scaled: int = 0
    """Number of the operand that ``scaled`` is."""
    whole_bits: int | None = None
    """Bits above the point of the result, whose exponent is then constant; None: the result has the
    exponent of the first operand."""

    def __reduce__(self) -> "tuple[Callable[[str], ElementKernel], tuple[str]]":
        """Return what pickle keeps, the text: bodies of functions with parameters are closures."""
        return kernel_of, (self.text,)

    automatic: ClassVar[bool] = False
    """Whether the result's exponent follows its statistics."""

    @property
    def keeps_exponent(self) -> bool:
        """Whether the result has the exponent of the first operand."""
        return self.whole_bits is None

    def exponent(self, operand: int, width: int) -> int:
        """Return the exponent of a result of ``width`` bits from that of the first operand."""
        return operand if self.whole_bits is None else self.whole_bits + 1 - width

    def constants(self, exponents: Sequence[int]) -> tuple[int, ...]:
        """Return the constants of a pass, given the exponents of the operands."""
        if self.fraction is None:
            return ()
        # A shift held at 0 is right: one unit of such an operand already exceeds ARGUMENT_WIDTH.
        shift = RAISED - self.fraction - exponents[self.scaled]
        return (min(max(shift, 0), MOST_SHIFT),)

    def bound(self, exponents: Sequence[int], width: int, wanted: int | None) -> Scaling:
        """Return the scale of the result, given the exponents of the operands."""
        exponent = self.exponent(exponents[0], width)
        return Scaling(exponent, exponent, self.constants(exponents))

    def lowered(self, widths: Sequence[int], width: int) -> "VectorPass":
        """Lower the kernel for operands of ``widths`` bits and a result of ``width`` bits."""
        from trainwright.kernels import lower

        return lower(element_pass, function=self, widths=tuple(widths), width=width)


def element_pass(k: "Body", function: ElementKernel, widths: tuple[int, ...], width: int) -> None:
    """Write stream ``z`` from streams ``x0``, ``x1``, .. by an element-wise kernel."""
    operands = [
        k.read(f"x{n}", -(1 << (bits - 1)), (1 << (bits - 1)) - 1) for n, bits in enumerate(widths)
    ]
    scaled = {}
    if function.fraction is not None:
        # The shift comes by a register, as the host knows exponents when it binds a program and
        # the field of an instruction would need other instructions for every exponent.
        shift = k.constant(0) + k.given(0, 0, MOST_SHIFT)
        raised = operands[function.scaled] * (1 << RAISED)
        scaled["scaled"] = raised.rounded(shift, Rounding.EVEN).clip(ARGUMENT_WIDTH)
    k.write("z", function.body(k, *operands, width=width, **scaled).clip(width))


@dataclass(frozen=True)
class Function:
    """Element-wise function of a network."""

    text: str
    """Name in a network's description, with parameters."""
    forward: ElementKernel = field(compare=False)
    """Kernel of x."""
    backward: ElementKernel = field(compare=False)
    """Kernel of the gradient to the result, and of the result or x."""
    reads_result: bool = field(compare=False)
    """Whether ``backward`` reads the result as its second operand; else it reads x."""
    gain: float = field(default=1.0, compare=False)
    """Factor of the variance of initial weights before the function, so that values keep their
    size."""

    def __call__(self, x: "torch.Tensor") -> "torch.Tensor":
        """Compute the function in torch."""
        return self.forward.real(x)

    def module(self) -> "torch.nn.Module":
        """Make the module of torch that computes the function."""
        import torch

        name, given = _parsed(self.text)
        entry = _ENTRIES[name]
        if entry.module is None:
            raise FunctionError(
                f"torch.nn has no module of {self.text}; train the network with trainwright train"
            )
        keys = dict(zip(entry.attributes.values(), given, strict=False))
        return getattr(torch.nn, entry.module)(**keys)

    def __reduce__(self) -> tuple[Callable[[str], "Function"], tuple[str]]:
        """Return what pickle keeps, the text, as kernels do."""
        return function_of, (self.text,)


@dataclass(frozen=True)
class FunctionEntry:
    """A row of the registry."""

    name: str
    make: Callable[..., Function]
    """Called with the parameters, all of them numbers with a default."""
    module: str | None
    """Class in ``torch.nn`` of the same function; None where torch has none."""
    calls: tuple[str, ...]
    """Names of the function in torch, as functions and methods."""
    attributes: Mapping[str, str]
    """Attribute of the module, and argument of torch's function, that gives each parameter."""


_ENTRIES: dict[str, FunctionEntry] = {}


def register(
    module: str | None = None, *aliases: str, **attributes: str
) -> Callable[[Callable[..., Function]], Callable[..., Function]]:
    """Register a function under the name of the Python function that makes its record.

    ``module`` is the class of ``torch.nn`` that computes the function, if there is one; torch's
    function has the registered name, or one of ``aliases``. ``attributes`` name what torch calls
    each parameter.
    """

    def add(make: Callable[..., Function]) -> Callable[..., Function]:
        name = make.__name__
        _ENTRIES[name] = FunctionEntry(name, make, module, (name, *aliases), attributes)
        return make

    return add


def _registered() -> dict[str, FunctionEntry]:
    """Return the registry, with the library's functions in it."""
    # Kernels and torch take seconds to import, which help texts do not need: on the first request.
    from trainwright.functions import library

    assert library
    return _ENTRIES


def entries() -> tuple[FunctionEntry, ...]:
    """Return all rows of the registry."""
    return tuple(_registered().values())


def function_names() -> tuple[str, ...]:
    """Return the names of all functions."""
    return tuple(_registered())


def _parsed(text: str) -> tuple[str, list[float]]:
    """Split the text of a function into its name and the parameters given.

    Raises ``FunctionError`` for an unknown name, and for parameters that are no numbers.
    """
    match = _TEXT.fullmatch(text)
    name, known = match[1] if match else text, _registered()
    if match is None or name not in known:
        raise FunctionError(
            f"{shown(text)} is no function; there are {', '.join(known)}{suggestion(name, known)}"
        )
    parts = [part for part in (match[2] or "").split(",") if part.strip()]
    try:
        return name, list(map(float, parts))
    except ValueError as error:
        raise FunctionError(f"{shown(text)}: {error}") from None


@cache
def function_of(text: str) -> Function:
    """Return the function that ``text`` names: ``tanh``, ``leaky_relu(0.1)``.

    Raises ``FunctionError`` for an unknown name, and for parameters that are wrong.
    """
    name, given = _parsed(text)
    make = _ENTRIES[name].make
    known = list(signature(make).parameters)
    if len(given) > len(known):
        takes = f"the parameters {', '.join(known)}" if known else "no parameter"
        raise FunctionError(f"{shown(text)}: {name} takes {takes}, not {len(given)}")
    try:
        return make(*given)
    except ValueError as error:
        raise FunctionError(f"{shown(text)}: {error}") from None


def kernel_of(text: str) -> ElementKernel:
    """Return the kernel of a text: of a function, or, with a prime behind, of its gradient."""
    return function_of(text[:-1]).backward if text.endswith("'") else function_of(text).forward
