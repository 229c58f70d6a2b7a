"""Record what a kernel computes: values in order, each computed once, each of a proved range.

A value is a signed word of at most ``WIDTH`` bits in every lane of a row. Operators build one
elementary step each; `trainwright.kernels.lower` merges steps that one instruction can do. Every
step proves by intervals that no bit is lost by accident: a sum beyond ``WIDTH`` bits or a factor
beyond ``FACTOR_WIDTH`` is an error that names the line of the kernel.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, NoReturn

from trainwright.kernels.slots import Slot, table_of
from trainwright.kernels.tables import FRACTION, REST_WIDTH, SLOPE_SHIFT
from trainwright.program.vector import (
    FACTOR_WIDTH,
    REGISTERS,
    WIDTH,
    Kind,
    Rounding,
    Total,
    When,
)
from trainwright.support.arguments import is_size, plain
from trainwright.support.errors import UserError
from trainwright.support.text import shown, suggestion

LANES = 16
"""Words of a row."""
WORD_WIDTH = 16
"""Bits of a word in memory."""
SHIFT_WIDTH = 6
"""Bits of a register that count where it gives a shift."""
MOST_SHIFT = (1 << SHIFT_WIDTH) - 1
RAISED = 16
"""Bits by which an operand is shifted left before the right shift that its exponent gives."""
ARGUMENT_WIDTH = 17
"""Bits of an operand in units that do not depend on its exponent."""

Range = tuple[int, int]
"""Least and greatest value."""


class KernelError(UserError, ValueError):
    """A kernel that the vector engine cannot execute; the message names its line."""


class Op(Enum):
    """Kinds of steps that are no arithmetic; arithmetic steps have a `Kind`."""

    READ = "read"
    """A word of a stream."""
    HELD = "held"
    """A register as the pass finds it."""
    WHERE = "where"
    """``new`` in the lanes where ``condition`` holds, ``old`` in the others."""
    SUM = "sum"
    """The sum of all values of a group, which spans rows, lanes or both."""
    GREATEST = "greatest"
    """The greatest of all values of a group."""
    STORED = "stored"
    """A word that a stream keeps for later sweeps of a group."""


STORED = "stored"
"""Name of the stream of a value that the rows of the result keep for a later pass."""
REDUCTIONS = (Op.SUM, Op.GREATEST)
"""Steps whose result is one value for a whole group."""


@dataclass(frozen=True)
class Register:
    """A register that passes share: what one pass keeps in it, a later pass holds."""

    number: int
    low: int = -(1 << (WIDTH - 1))
    """Least value that it holds."""
    high: int = (1 << (WIDTH - 1)) - 1
    """Greatest value that it holds."""

    def __post_init__(self) -> None:
        if not is_size(self.number, 0) or self.number >= REGISTERS:
            raise KernelError(
                f"{_line()}: a register is 0 to {REGISTERS - 1}, not {shown(self.number)}"
            )
        _reach(f"register {self.number} holds", self.low, self.high, WIDTH)

    @property
    def width(self) -> int:
        """Bits of a signed number that holds all of its values."""
        return max(self.high, ~self.low).bit_length() + 1


@dataclass(frozen=True)
class Constant:
    """A literal, or what the exponent file gives the pass as its constant ``given``."""

    low: int
    high: int
    given: int | None = None

    @property
    def value(self) -> int:
        """Value of a literal; 0 stands for a constant that is given later."""
        return self.low if self.given is None else 0


@dataclass(frozen=True)
class GivenShift:
    """A shift that the exponent file gives the pass in place ``number``."""

    number: int


@dataclass(frozen=True)
class Condition:
    """Lanes in which a value is positive, negative or zero."""

    value: "Value"
    when: When

    def __bool__(self) -> NoReturn:
        """Refuse a branch of Python, which one recording of the kernel would decide for all."""
        raise self.value.body.error(
            "a condition has no truth in Python, as every lane has its own: choose a value with "
            "where(condition, new, old)"
        )

    def __repr__(self) -> str:
        return f"the condition {self.when.name.lower()} of {self.value!r}"


@dataclass(eq=False, kw_only=True, repr=False)
class Value:
    """A word in every lane of a row, and the step that computes it.

    ``q = fit(round((x + y) / 2^shift))`` as in `trainwright.program.vector`: x is ``kind`` of ``a``
    and ``s``, y is ``sign`` times ``c``, or the constant ``k``.
    """

    body: "Body"
    kind: Kind | Op = Kind.PASS
    a: "Value | None" = None
    s: "Value | Constant | None" = None
    table: int = 0
    c: "Value | None" = None
    sign: int = 1
    k: Constant | None = None
    shift: "int | Value | GivenShift" = 0
    rounding: Rounding = Rounding.FLOOR
    width: int = WIDTH
    wraps: bool = False
    stream: str = ""
    register: Register | None = None
    condition: Condition | None = None
    old: "Value | None" = None
    low: int
    high: int
    line: str = ""
    stated: bool = False
    """Whether `within` narrowed the range."""

    # -- arithmetic ----------------------------------------------------------------------------
    def __add__(self, other: "Value | Constant | int") -> "Value":
        low, high = _range(other)
        reach = self.low + low, self.high + high
        if isinstance(other, Value):
            return self.body.step(reach, a=self, c=other)
        return self.body.step(reach, a=self, k=_constant(other))

    __radd__ = __add__

    def __sub__(self, other: "Value | int") -> "Value":
        low, high = _range(other)
        if isinstance(other, int):
            return self + -other
        reach = self.low - high, self.high - low
        return self.body.step(reach, a=self, c=other, sign=-1)

    def __rsub__(self, other: int) -> "Value":
        _range(other)
        if fits((self.low, self.high), FACTOR_WIDTH):
            # One instruction; a constant in a register would take another one.
            return self * -1 + other if other else self * -1
        return self.body.constant(other) - self

    def __mul__(self, other: "Value | Constant | int") -> "Value":
        for factor in (self, other):
            low, high = _range(factor)
            if not fits((low, high), FACTOR_WIDTH):
                raise self.body.error(
                    f"a factor of a product reaches from {low} to {high}, more than "
                    f"{FACTOR_WIDTH} bits; clip or shift it first, or use times_low"
                )
        return self.times_low(other)

    __rmul__ = __mul__

    def times_low(self, other: "Value | Constant | int") -> "Value":
        """Multiply the lowest ``FACTOR_WIDTH`` bits of both, where higher ones do not matter."""
        (a, b), (c, d) = (_low_bits(_range(v), FACTOR_WIDTH) for v in (self, other))
        corners = [x * y for x in (a, b) for y in (c, d)]
        if other is self:  # a square
            corners = [a * a, b * b, 0 if a <= 0 <= b else a * b]
        s = other if isinstance(other, Value) else _constant(other)
        return self.body.step((min(corners), max(corners)), kind=Kind.PRODUCT, a=self, s=s)

    def __and__(self, mask: int) -> "Value":
        if not is_size(mask, 0):
            raise self.body.error(f"a mask is a whole number of at least 0, not {mask!r}")
        return self.body.step((0, mask), kind=Kind.AND, a=self, s=Constant(mask, mask))

    __rand__ = __and__

    def at_least(self, other: "Value | int") -> "Value":
        """Return the greater of both."""
        low, high = _range(other)
        if high <= self.low:
            return self  # a limit that the range proves takes no instruction
        reach = max(self.low, low), max(self.high, high)
        return self._limited(Kind.MAXIMUM, other, reach)

    def at_most(self, other: "Value | int") -> "Value":
        """Return the less of both."""
        low, high = _range(other)
        reach = min(self.low, low), min(self.high, high)
        return self._limited(Kind.MINIMUM, other, reach)

    def _limited(self, kind: Kind, other: "Value | int", reach: Range) -> "Value":
        s = other if isinstance(other, Value) else _constant(other)
        return self.body.step(reach, kind=kind, a=self, s=s)

    # -- rounding and fitting ------------------------------------------------------------------
    def __rshift__(self, shift: "int | Value | GivenShift") -> "Value":
        return self.rounded(shift, Rounding.FLOOR)

    def rounded(self, shift: "int | Value | GivenShift", rounding: Rounding) -> "Value":
        """Divide by 2^shift, in a rounding such as ``Rounding.EVEN``; ``>>`` rounds down.

        The shift of a register is its lowest SHIFT_WIDTH bits.
        """
        least, most = 0, MOST_SHIFT
        if not isinstance(rounding, Rounding):
            raise self.body.error(f"a rounding is one of {Rounding.__name__}, not {rounding!r}")
        if self.body.in_network and rounding >= Rounding.RANDOM:
            raise self.body.error(
                "a function has no random bits: round by Rounding.EVEN, Rounding.UP or "
                "Rounding.FLOOR"
            )
        if not isinstance(shift, Value | GivenShift):
            if not is_size(shift, 0) or shift > MOST_SHIFT:
                raise self.body.error(f"a shift is 0 to {MOST_SHIFT} or a value, not {shift!r}")
            least = most = shift
        elif isinstance(shift, Value) and 0 <= shift.low <= shift.high <= most:
            least, most = shift.low, shift.high
        low = self.low >> (least if self.low < 0 else most)
        high = self.high >> (least if self.high >= 0 else most)
        up = rounding is not Rounding.FLOOR and most > 0 and fits((low, high + 1), self.body.width)
        return self.body.step((low, high + up), a=self, shift=shift, rounding=rounding)

    def clip(self, width: int) -> "Value":
        """Saturate to ``width`` bits, signed; ``at_least`` and ``at_most`` cut to a range."""
        self.body.check_width(width)
        most = (1 << (width - 1)) - 1
        reach = max(min(self.low, most), -most - 1), min(max(self.high, -most - 1), most)
        return self.body.step(reach, a=self, width=width)

    def wrap(self, width: int) -> "Value":
        """Keep the lowest ``width`` bits as a signed number."""
        self.body.check_width(width)
        reach = _low_bits((self.low, self.high), width)
        return self.body.step(reach, a=self, width=width, wraps=True)

    def within(self, low: int, high: int) -> "Value":
        """State a range that intervals cannot prove; an evaluation checks the statement."""
        low, high = _reach("within states", low, high, self.body.width)
        if max(self.low, low) > min(self.high, high):
            raise self.body.error(
                f"within({low}, {high}) holds for no value from {self.low} to {self.high}"
            )
        self.low, self.high, self.stated = max(self.low, low), min(self.high, high), True
        self.line = _line()  # of the statement, which is what an evaluation finds wrong
        return self

    # -- over the lanes, and tables ------------------------------------------------------------
    def sum_lanes(self) -> "Value":
        """Sum the lanes of a row; every lane has the result."""
        self.body.require_rows("sum_lanes")
        # Where numpy evaluates groups a row is a group, which is more lanes than the engine has.
        lanes = min(self.body.lanes, LANES) if self.body.reduced else self.body.lanes
        return self.body.step((lanes * self.low, lanes * self.high), kind=Kind.SUM, a=self)

    def greatest_lane(self) -> "Value":
        """Find the greatest of all lanes; every lane has the result."""
        self.body.require_rows("greatest_lane")
        return self.body.step((self.low, self.high), kind=Kind.GREATEST, a=self)

    def length(self) -> "Value":
        """Count the bits of the value as an unsigned number of ``WIDTH`` bits."""
        reach = 0, WIDTH
        if self.low >= 0:
            reach = self.low.bit_length(), self.high.bit_length()
        return self.body.step(reach, kind=Kind.LENGTH, a=self)

    def lookup(self, slot: int) -> "Value":
        """Interpolate table ``slot`` at the lowest 16 bits, in units of base / 2^SLOPE_SHIFT."""
        if slot not in list(Slot):
            known = ", ".join(f"{s.name} = {s.value}" for s in Slot)
            raise self.body.error(f"there is no table {slot}; there are {known}")
        return self.body.step(_table_range(slot), kind=Kind.TABLE, a=self, table=slot)

    # -- conditions ----------------------------------------------------------------------------
    def __bool__(self) -> NoReturn:
        """Refuse a branch of Python, which one recording of the kernel would decide for all."""
        raise self.body.error(
            "a value has no truth in Python, as every lane has its own: choose a value with "
            "where(x.zero, new, old), x.negative or x.positive"
        )

    def __eq__(self, other: object) -> bool:
        """Compare by identity. Raises `KernelError` for a number, which is no value of a lane."""
        if isinstance(other, int | float):
            raise self.body.error(
                f"a value has no comparison with {other} in Python: choose a value with "
                f"where({f'(x - {other})' if other else 'x'}.zero, new, old)"
            )
        # Lists of this package compare values by identity; a kernel means the numbers.
        asked = sys._getframe(1).f_globals.get("__name__", "")
        if self is not other and not asked.startswith(_PACKAGE_NAME):
            raise self.body.error(
                "a value has no comparison by == or != in Python: choose a value with "
                "where((x - y).zero, new, old)"
            )
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"a value from {self.low} to {self.high} (of {self.line})"

    def __getattr__(self, name: str) -> NoReturn:
        raise _unknown("a value", Value, name)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: object = None
    ) -> NoReturn:
        """Refuse functions and tensors of torch."""
        raise KernelError(
            f"{_line()}: torch's {getattr(func, '__name__', func)} takes no value of a kernel: use "
            "its operators and methods, and int(c) for a number of torch"
        )

    def __array_ufunc__(self, function: Any, *_: object, **__: object) -> NoReturn:
        """Refuse functions and numbers of numpy."""
        raise self.body.error(
            f"numpy's {function.__name__} takes no value of a kernel: use its operators and "
            "methods, and int(c) for a number of numpy"
        )

    @property
    def is_shifted(self) -> bool:
        """Whether the step shifts its sum."""
        return not (isinstance(self.shift, int) and self.shift == 0)

    @property
    def positive(self) -> Condition:
        """Lanes in which the value is greater than 0."""
        return Condition(self, When.POSITIVE)

    @property
    def negative(self) -> Condition:
        """Lanes in which the value is less than 0."""
        return Condition(self, When.NEGATIVE)

    @property
    def zero(self) -> Condition:
        """Lanes in which the value is 0."""
        return Condition(self, When.ZERO)

    @property
    def operands(self) -> tuple["Value", ...]:
        """Values that the step reads."""
        condition = None if self.condition is None else self.condition.value
        every = (self.a, self.s, self.c, self.shift, condition, self.old)
        return tuple(v for v in every if isinstance(v, Value))


_ORDER = "where((x - y).negative, new, old), x.at_least(y) for max or x.at_most(y) for min"
_QUOTIENT = (
    "x >> n or x.rounded(n, Rounding.EVEN) for a division by 2^n, a product with a rounded inverse "
    "for another number, trainwright.kernels.library.reciprocal for a value"
)
_NO_NUMBER = "x >> n or x.rounded(n, rounding): its numbers are known as a program runs"
_NO_ROW = "k.sum(x) or k.greatest(x) over a group: a value is one word in every lane"
_MASKS = "x & mask, with a mask of at least 0"
_REFUSED = {
    "unary -": ("neg", "0 - x"),
    "unary +": ("pos", "x"),
    "~": ("invert", "-1 - x"),
    "abs()": ("abs", "where(x.negative, 0 - x, x)"),
    "/ or //": ("truediv rtruediv floordiv rfloordiv divmod rdivmod", _QUOTIENT),
    "%": ("mod rmod", "x & 7 for x % 8; other remainders by a quotient, x - q * n"),
    "**": ("pow rpow", "x * x, or trainwright.kernels.library.exp2 for a power of 2"),
    "@": ("matmul rmatmul", "k.sum(x * y) over a group"),
    "<<": ("lshift rlshift", "x * 4 for x << 2"),
    ">> of a number": ("rrshift", "k.constant(number) >> x"),
    "| or ^": ("or ror xor rxor", _MASKS),
    "<, <=, > or >=": ("lt le gt ge", _ORDER),
    "[]": ("getitem", _NO_ROW),
    "iteration": ("iter", _NO_ROW),
    "in": ("contains", _NO_ROW),
    "len()": ("len", _NO_ROW),
    "int(), float() or round()": ("int float complex index round trunc floor ceil", _NO_NUMBER),
}
"""Operations of Python that values lack: methods, and what to write in place of each."""
_AND = "where(a, where(b, new, old), old) for both, where(a, new, where(b, new, old)) for either"
_NO_CONDITION = {
    "~": ("invert", "where(condition, old, new) for where(~condition, new, old)"),
    "()": ("call", "x.negative without parentheses"),
    "&, | or ^": ("and rand or ror xor xor", _AND),
    "==": ("eq ne", _AND),
    "arithmetic": (
        "add radd sub rsub mul rmul truediv neg rshift lshift", "where(condition, 1, k.constant(0))"
    ),
}  # fmt: skip
"""Operations of Python that conditions lack, as ``_REFUSED``."""


def _refuse(owner: type, what: str, table: dict[str, tuple[str, str]]) -> None:
    """Let the operations of a table raise ``KernelError`` with the line and the remedy."""

    def refusing(text: str, remedy: str) -> Callable[..., NoReturn]:
        def refused(self: Any, *_: object) -> NoReturn:
            body: Body = self.value.body if isinstance(self, Condition) else self.body
            raise body.error(f"{what} has no {text} in Python: write {remedy}")

        return refused

    for text, (methods, remedy) in table.items():
        for method in methods.split():
            setattr(owner, f"__{method}__", refusing(text, remedy))


_refuse(Value, "a value", _REFUSED)
_refuse(Condition, "a condition", _NO_CONDITION)


def where(condition: Condition, new: Value | int, old: Value | int) -> Value:
    """Choose ``new`` in the lanes of a condition, ``old`` in the others."""
    if not isinstance(condition, Condition):
        raise KernelError(
            f"{_line()}: where takes a condition such as x.negative, not {condition!r}"
        )
    body = condition.value.body
    value, other = (v if isinstance(v, Value) else body.constant(v) for v in (new, old))
    reach = min(value.low, other.low), max(value.high, other.high)
    return body.step(reach, kind=Op.WHERE, a=value, old=other, condition=condition)


@dataclass(eq=False)
class Effect:
    """Effect of a pass: a row that is written, a register that is kept, or a total."""

    value: Value
    stream: str = ""
    register: Register | None = None
    total: Total = Total.NONE
    counted: bool = False
    """Whether the sizes of what is written are added to the total of the pass."""


@dataclass(eq=False)
class Body:
    """The words of a row, given to a kernel; records what the kernel does with them."""

    lanes: int = LANES
    steps: list[Value | Effect] = field(default_factory=list)
    """Values and effects in the order of the kernel's text."""
    width: int = WIDTH
    """Bits of a value."""
    taken: set[int] = field(default_factory=set)
    """Registers that nothing reads after this pass."""
    preserved: set[int] = field(default_factory=set)
    """Registers that a later pass needs and this one does not."""
    reduced: int = 0
    """Values that a reduction takes; 0: the kernel has no groups."""
    reserved: int = 0
    """Constants that the exponent file gives, from the first one, whether used or not."""
    bits: int = WORD_WIDTH
    """Bits of the result of a network's function."""
    whole_bits: int | None = None
    """Bits of the result above the point; None: the result has the exponent of its operand."""
    in_network: bool = False
    """Whether a function of a network is recorded: its rows hold values of any samples."""
    scales: list[tuple[str, int]] = field(default_factory=list)
    """Streams that are read in units of the kernel, and the right shift of each at exponent 0. The
    exponent file gives them as the first constants."""
    asked: dict[int, str] = field(default_factory=dict)
    """Line that asked for each constant of the exponent file first, by its number."""

    @property
    def text(self) -> str:
        """Everything that was recorded, but for lines: bodies of equal texts compute the same."""
        places = {id(step): n for n, step in enumerate(self.steps)}

        def named(part: object) -> object:
            if isinstance(part, Condition):
                return places[id(part.value)], part.when
            return places[id(part)] if isinstance(part, Value) else part

        return repr(
            [
                [named(getattr(step, f.name)) for f in fields(step) if f.name not in _UNSEEN]
                for step in self.steps
            ]
            + [self.lanes, self.reduced, self.reserved, self.bits, self.whole_bits, self.scales]
        )

    def __getattr__(self, name: str) -> NoReturn:
        raise _unknown("a body", Body, name)

    @property
    def group(self) -> int:
        """Number of values of a group. Raises `KernelError` if the kernel is element-wise."""
        self._require_group("group")
        return self.reduced

    def step(self, reach: Range, **fields) -> Value:
        """Record a step whose result lies in ``reach``."""
        if not fits(reach, self.width):
            raise self.error(
                f"a value reaches from {reach[0]} to {reach[1]}, more than {self.width} bits; "
                "shift or clip an operand first"
            )
        for literal in (fields.get("k"), fields.get("s")):
            if isinstance(literal, Constant) and not fits(_range(literal), FACTOR_WIDTH):
                raise self.error(
                    f"the constant {literal.low} has more than {FACTOR_WIDTH} bits; add a smaller "
                    "one to a shifted value"
                )
        given = (fields.get(name) for name in ("a", "s", "c", "shift", "old"))
        self.check_values(*(v for v in given if isinstance(v, Value)))
        fields.setdefault("width", self.width)
        value = Value(body=self, low=reach[0], high=reach[1], line=_line(), **fields)
        self.steps.append(value)
        return value

    def check_values(self, *values: Value) -> None:
        """Raise ``KernelError`` for what is no value, or one of another recording."""
        for value in values:
            if not isinstance(value, Value):
                is_number = isinstance(value, int) and not isinstance(value, bool)
                remedy = f": write k.constant({value})" if is_number else ""
                raise self.error(f"a value of the kernel is needed, not {shown(value)}{remedy}")
            if value.body is not self:
                raise self.error("a value of another kernel is used: read it in this one")

    def require_rows(self, name: str) -> None:
        """Raise ``KernelError`` for what depends on rows and lanes in a function of a network."""
        if self.in_network:
            raise self.error(
                f"{name} is for vector kernels: lanes and rows of a function hold values of any "
                "samples; use k.sum(v) or k.greatest(v) over a group, and return the result"
            )

    def check_width(self, width: int) -> None:
        """Raise ``KernelError`` for a width that no value has."""
        if not is_size(width) or width > self.width:
            raise self.error(f"a width is 1 to {self.width} bits, not {width!r}")

    def error(self, message: str) -> KernelError:
        """Make an error that names the line of the kernel."""
        return KernelError(f"{_line()}: {message}")

    def read(self, stream: str, low: int = -(1 << (WORD_WIDTH - 1)),
             high: int = (1 << (WORD_WIDTH - 1)) - 1) -> Value:  # fmt: skip
        """Read a stream's word, which lies in ``low`` to ``high``; an evaluation checks so."""
        self.require_rows("read")
        if not isinstance(stream, str):
            raise self.error(f"a stream has a name, not {shown(stream)}")
        low, high = _reach(f"words of {stream!r} reach from", low, high, WORD_WIDTH)
        if any(isinstance(v, Value) and v.stream == stream for v in self.steps):
            raise self.error(f"stream {stream!r} is read twice; keep the value of the first time")
        return self.step((low, high), kind=Op.READ, stream=stream)

    def scaled(self, operand: Value, fraction: int, width: int = ARGUMENT_WIDTH) -> Value:
        """Return an operand of a network's function in units of 2^-fraction, whatever its exponent.

        Values beyond ``width`` bits, at most ARGUMENT_WIDTH, saturate.
        """
        self.check_values(operand)
        self._check_fraction(fraction)
        if width > ARGUMENT_WIDTH:
            raise self.error(f"scaled saturates to at most {ARGUMENT_WIDTH} bits, not {width}")
        if operand.kind is not Op.READ:
            raise self.error("scaled takes an operand of the kernel, before any arithmetic")
        asked = operand.stream, RAISED - fraction
        if asked in self.scales:
            raise self.error(f"scaled(.., {fraction}) is asked for twice; keep the first value")
        # The shift comes by a register, as the host knows exponents when it binds a program and
        # the field of an instruction would need other instructions for every exponent.
        shift = self.constant(0) + self.given(len(self.scales), 0, MOST_SHIFT)
        self.scales.append(asked)
        raised = operand * (1 << RAISED)
        return raised.rounded(shift, Rounding.EVEN).clip(width)

    def _check_fraction(self, fraction: Any) -> None:
        # A shift of 2^40 bits would take the memory of all machines.
        if not is_size(fraction, -MOST_SHIFT) or fraction > MOST_SHIFT:
            raise self.error(
                f"the bits below the point are a whole number from {-MOST_SHIFT} to {MOST_SHIFT}, "
                f"not {shown(fraction)}"
            )

    def fixed(self, value: Value, fraction: int) -> Value:
        """Return a value in units of 2^-fraction in those of the result, rounded half to even.

        The result of the network's function has a constant exponent, by its ``whole_bits``.
        """
        self.check_values(value)
        if self.whole_bits is None:
            raise self.error("fixed is for results with whole_bits, whose exponent is constant")
        self._check_fraction(fraction)
        shift = fraction - (self.bits - 1 - self.whole_bits)
        if shift >= 0:
            return value.rounded(shift, Rounding.EVEN)
        # Factors have 18 bits; a result has at most 16, so it saturates wherever the clip does.
        factor = value if fits((value.low, value.high), FACTOR_WIDTH) else value.clip(FACTOR_WIDTH)
        return factor * (1 << -shift)

    def sum(self, value: Value) -> Value:
        """Sum the value over its group; exact, so that no order of the sum changes a bit."""
        self.check_values(value)
        self._require_group("sum")
        reach = self.group * min(value.low, 0), self.group * max(value.high, 0)
        return self.step(reach, kind=Op.SUM, a=value)

    def greatest(self, value: Value) -> Value:
        """Find the greatest value of the group."""
        self.check_values(value)
        self._require_group("greatest")
        return self.step((value.low, value.high), kind=Op.GREATEST, a=value)

    def stored(self, stream: str, value: Value) -> Value:
        """Keep a value of 16 bits in the rows of a stream, for use behind the next reduction.

        Without it, what is needed before and behind a reduction is computed twice.
        """
        self.check_values(value)
        if self.in_network:
            self._require_group("stored")
            if stream != STORED:
                raise self.error(f"a function keeps values in {STORED!r} alone, not {stream!r}")
        if not fits((value.low, value.high), WORD_WIDTH):
            raise self.error(
                f"a stored value reaches from {value.low} to {value.high}, more than {WORD_WIDTH} "
                "bits; shift or clip it first"
            )
        return self.step((value.low, value.high), kind=Op.STORED, a=value, stream=stream)

    def _require_group(self, name: str) -> None:
        if not self.reduced:
            raise self.error(f"{name} is over a group; this kernel is element-wise")

    def write(self, stream: str, value: Value, *, counted: bool = False) -> None:
        """Write the lowest WORD_WIDTH bits of a value as a stream's word.

        With ``counted`` a kernel with groups adds the word's size to the total of its passes.
        """
        self.require_rows("write")
        self.check_values(value)
        if any(isinstance(v, Effect) and v.stream == stream for v in self.steps):
            raise self.error(f"stream {stream!r} is written twice")
        self.steps.append(Effect(value, stream=stream, counted=counted))

    def held(self, register: Register) -> Value:
        """Read a register as an earlier pass, or an earlier row of the thread, left it."""
        self.require_rows("held")
        for v in self.steps:
            if isinstance(v, Value) and v.register == register:
                return v
        return self.step((register.low, register.high), kind=Op.HELD, register=register)

    def take(self, register: Register) -> Value:
        """Read a register that no later pass needs."""
        self.taken.add(register.number)
        return self.held(register)

    def preserve(self, *registers: Register) -> None:
        """Leave registers as they are: a later pass holds what an earlier one kept."""
        self.require_rows("preserve")
        self.preserved.update(register.number for register in registers)

    def keep(self, register: Register, value: Value) -> None:
        """Leave a value in a register for later rows of the thread and for later passes."""
        self.require_rows("keep")
        self.check_values(value)
        if not register.low <= value.low <= value.high <= register.high:
            raise self.error(
                f"register {register.number} holds {register.low} to {register.high}, the value "
                f"reaches from {value.low} to {value.high}"
            )
        self.steps.append(Effect(value, register=register))

    def lane(self) -> Value:
        """Return the number of the lane."""
        self.require_rows("lane")
        return self.step((0, self.lanes - 1), kind=Kind.LANE)

    def constant(self, value: int) -> Value:
        """Make a value that is the same in all lanes."""
        _range(value)
        zero = self.step((0, 0), kind=Kind.LANE, shift=(1 << SHIFT_WIDTH) - 1)
        return zero + value if value else zero

    def given(self, number: int, low: int, high: int) -> Constant:
        """Name the pass's constant ``number``, which the exponent file gives, from low to high."""
        self.reserved = max(self.reserved, number + 1)
        self.asked.setdefault(number, _line())
        return Constant(low, high, number)

    def given_shift(self, number: int) -> GivenShift:
        """Name the pass's shift ``number``, which the exponent file gives."""
        self.require_rows("given_shift")
        return GivenShift(number)

    def total(self, value: Value) -> None:
        """Add lane 0 of the value to the pass's sum."""
        self.require_rows("total")
        self.check_values(value)
        self.steps.append(Effect(value, total=Total.SUM))

    def count(self, value: Value) -> None:
        """Add lane 0 of the value to the pass's count."""
        self.require_rows("count")
        self.check_values(value)
        self.steps.append(Effect(value, total=Total.COUNT))


def trace(kernel: Callable[..., None], lanes: int = LANES, **options) -> Body:
    """Record a kernel, called with these options.

    Rows of more than LANES lanes, which only numpy evaluates, have values of more bits.

    Raises ``KernelError`` for a value beyond its bits.
    """
    body = Body(lanes, width=WIDTH + max(0, (lanes - 1).bit_length() - LANES.bit_length() + 1))
    kernel(body, **options)
    return body


def trace_groups(kernel: Callable[..., None], group: int, **options) -> Body:
    """Record a kernel over groups of ``group`` values, called with these options.

    numpy evaluates it on rows that hold one group each. Raises ``KernelError`` as `trace`.
    """
    body = Body(lanes=group, reduced=group)
    kernel(body, **options)
    return body


def fits(reach: Range, width: int) -> bool:
    """Return whether a range fits a signed number of ``width`` bits."""
    return -(1 << (width - 1)) <= reach[0] and reach[1] < 1 << (width - 1)


def _range(value: "Value | Constant | int") -> Range:
    if not isinstance(value, int | Value | Constant) or isinstance(value, bool):
        remedy = "scale it, such as (x * round(0.7 * 65536)).rounded(16, Rounding.EVEN) for 0.7 x"
        if not isinstance(value, float):
            remedy = "give a whole number of Python, int(c), or a value of the kernel"
        raise KernelError(
            f"{_line()}: a kernel computes with whole numbers, not with {shown(value)}: {remedy}"
        )
    return (value, value) if isinstance(value, int) else (value.low, value.high)


def _reach(promise: str, low: int, high: int, width: int) -> Range:
    """Return a promised range. Raises ``KernelError`` if it is empty or beyond ``width`` bits."""
    low, high = (_range(plain(end))[0] for end in (low, high))
    if low > high or not fits((low, high), width):
        least, most = -(1 << (width - 1)), (1 << (width - 1)) - 1
        raise KernelError(
            f"{_line()}: {promise} {low} to {high}, no range of {width} bits: give the least value "
            f"first, from {least} to {most}"
        )
    return low, high


def _unknown(what: str, owner: type, name: str) -> AttributeError:
    """Make the error of an attribute that a kernel asks for, such as ``relu``."""
    own = (n for n, v in vars(owner).items() if isinstance(v, property) or callable(v))
    known = [n for n in own if not n.startswith("_")]
    return AttributeError(
        f"{what} has no {name!r}; there are {', '.join(known)}{suggestion(name, known)}"
    )


def misused(error: TypeError) -> str:
    """Describe what a misused method of values takes; return "" for other errors."""
    called = re.match(r"(?:(Value|Body)\.)?(\w+)\(\) ", str(error))
    owners = {"Value": Value, "Body": Body, None: type("", (), {"where": where})}
    method = getattr(owners[called[1]], called[2], None) if called else None
    if not called or method is None:
        return ""
    takes = [
        f"{p.name}={p.default}" if p.default is not p.empty else p.name
        for p in signature(method).parameters.values()
        if p.name != "self"
    ]
    what = (method.__doc__ or "").splitlines()[0].replace("``", "")
    return f"{called[2]} takes ({', '.join(takes)}), not the arguments of this call: {what}"


def _constant(value: Constant | int) -> Constant:
    return Constant(value, value) if isinstance(value, int) else value


def _low_bits(reach: Range, width: int) -> Range:
    """Give the range of the lowest bits: the same where they are all there is."""
    return reach if fits(reach, width) else (-(1 << (width - 1)), (1 << (width - 1)) - 1)


_PACKAGE = str(Path(__file__).parent)
_PACKAGE_NAME = "trainwright."
"""First part of the names of modules that compare values by identity."""
_UNSEEN = "body", "line"
"""Fields of a step that change no value."""


@cache
def _table_range(slot: int) -> Range:
    table = table_of(slot)
    ends = [table.bases << SLOPE_SHIFT]
    ends.append(ends[0] + table.slopes * ((1 << REST_WIDTH) - 1))
    return min(int(e.min()) for e in ends), max(int(e.max()) for e in ends)


def _line() -> str:
    """Name the line of the kernel: the innermost one outside of this package and of torch."""
    frame = sys._getframe(1)
    while frame and (
        frame.f_code.co_filename.startswith(_PACKAGE)
        or frame.f_globals is globals()  # a method that a dataclass makes has no file
        or frame.f_globals.get("__name__", "").startswith("torch.")
    ):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else "kernel"


assert FRACTION == WORD_WIDTH, "a table is asked with the lowest word of a value"
