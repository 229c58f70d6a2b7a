"""Number formats of a network: bits, and formats other than fixed point, by class of tensor."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from trainwright.formats import (
    CLASSES,
    Fixed,
    Format,
    FormatError,
    format_pairs,
    parse_formats,
)
from trainwright.network.errors import NetworkError, require
from trainwright.support.errors import errors_as
from trainwright.support.text import shown

UNDERFLOW_RULES = ("gradients", "never", "zero")
"""Coded tensors whose values may become 0 where they underflow: gradients, none, or all."""


MARK = "#"
"""Begin of the digest behind the name of a format."""


@dataclass(frozen=True)
class Widths:
    """Bits of each class of quantity. All are signed integers times a power of two.

    ``FLOAT32``, 32 bits throughout, stands for float32 numbers instead: such a network is trained
    for comparison and does not run on the accelerator. Raises ``NetworkError`` for widths that the
    accelerator has not.

    >>> Widths(factor=8).is_float
    False
    """

    factor: int = 4
    bias: int = 8
    activation: int = 8
    gradient: int = 16
    intermediate: int = 16

    def __post_init__(self) -> None:
        if self.is_float:
            return
        for name, width in vars(self).items():
            least = 2 if name == "factor" else 4
            require(
                isinstance(width, int) and least <= width <= 16,
                f"{name} width must be from {least} to 16 bits, not {shown(width)}",
            )

    @property
    def is_float(self) -> bool:
        """Whether the numbers are float32."""
        return all(width == 32 for width in vars(self).values())


FIXED = Widths()
"""Widths of the paper."""
FLOAT32 = Widths(factor=32, bias=32, activation=32, gradient=32, intermediate=32)


class Formatted:
    """Base of dataclasses with number formats: fields ``widths``, ``coded``, ``underflow``.

    One whose tensors have names may give some of them formats of their own: ``singles``.
    """

    widths: Widths
    coded: tuple[tuple[str, Format], ...]
    underflow: str
    singles: tuple[tuple[str, Format], ...] = ()

    @cached_property
    def nameable(self) -> dict[str, str]:
        """The class of each tensor that can have a format of its own, by name."""
        return {}

    def check_formats(self) -> None:
        """Raise ``NetworkError`` unless the three fields go together."""
        require(
            self.underflow in UNDERFLOW_RULES,
            f"underflow must be one of {', '.join(UNDERFLOW_RULES)}, not {self.underflow!r}",
        )
        for name, fmt in self.coded:
            width = getattr(self.widths, name)
            require(
                name in CLASSES and width == fmt.width,
                f"{name}s of {fmt} have {fmt.width} bits, not {width}",
            )

    def format(self, kind: str) -> Format:
        """Return the format of a class of tensors, one of ``trainwright.formats.CLASSES``."""
        return dict(self.coded).get(kind) or Fixed(getattr(self.widths, kind))

    def underflow_zero(self, kind: str) -> bool:
        """Return whether coded values of a class may become 0 where they underflow."""
        return self.underflow == "zero" or (self.underflow, kind) == ("gradients", "gradient")

    @property
    def host_underflow(self) -> str:
        """The host's rule for values below the smallest number: to the nearest word, 0 included."""
        return "never" if self.underflow == "never" else "zero"

    def with_formats(self, given: str | Mapping[str, object]) -> Self:
        """Return a copy with the formats of ``trainwright.formats.parse_formats``.

        A format, such as ``fixed(8)``, is that of a class of tensors or of a tensor that is named.
        A table may also have ``underflow``. Raises ``NetworkError`` for a format that is unknown.
        """
        underflow: object = self.underflow
        singles = dict(self.singles)
        require(
            not self.widths.is_float,
            "formats are of integers and coded numbers, not of float32",
        )
        with errors_as("formats", NetworkError, FormatError):
            pairs = list(_flat(given)) if isinstance(given, Mapping) else format_pairs(given)
            underflow = dict(pairs).get("underflow", underflow)
            known = (*CLASSES, *self.nameable)
            formats = parse_formats([pair for pair in pairs if pair[0] != "underflow"], known)
        coded = dict(self.coded)
        singles |= {name: formats.pop(name) for name in list(formats) if name not in CLASSES}
        for name, fmt in formats.items():
            coded.pop(name, None)
            if fmt.coded:
                coded[name] = fmt
        widths = replace(self.widths, **{name: fmt.width for name, fmt in formats.items()})
        named = {"singles": tuple(sorted(singles.items()))} if self.nameable else {}
        chosen = replace(
            self,  # type: ignore[type-var]  a dataclass
            widths=widths,
            coded=tuple((name, coded[name]) for name in CLASSES if name in coded),
            underflow=str(underflow),
            **named,
        )
        # A table may be that of a stored run, whose rule is kept whatever the formats are.
        require(
            isinstance(given, Mapping)
            or underflow in (self.underflow, "gradients")
            or bool(chosen.coded_used),
            "formats: underflow is for posits, and nothing has such a format: omit it",
        )
        return chosen

    @property
    def formats(self) -> dict[str, str]:
        """The format of every class of tensors, and of every tensor that has its own, by name."""
        classes = {name: str(self.format(name)) for name in CLASSES}
        return classes | {name: str(fmt) for name, fmt in self.singles}

    @property
    def stored_formats(self) -> dict[str, str]:
        """``formats`` for files: a format of the user's own has a part of its digest behind it."""
        own = {str(fmt): fmt.own_digest[:16] for _, fmt in (*self.coded, *self.singles)}
        formats = self.formats.items()
        return {n: f"{fmt} {MARK}{own[fmt]}" if own.get(fmt) else fmt for n, fmt in formats}

    @property
    def coded_used(self) -> tuple[tuple[str, Format], ...]:
        """Classes and tensors in other formats than fixed point, and which."""
        return (*self.coded, *((name, fmt) for name, fmt in self.singles if fmt.coded))


def _flat(given: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """List the entries of ``[formats]``; in TOML ``l1.G1 = ..`` is an entry of a table ``l1``."""
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", fmt) for inner, fmt in value.items())
        else:
            yield name, value


@dataclass(frozen=True)
class NumberFormats(Formatted):
    """Formats of all classes of tensors, without a network that has them.

    >>> NumberFormats().with_formats("activation=posit(8,0)").formats["activation"]
    'posit(8,0)'
    """

    widths: Widths = FIXED
    coded: tuple[tuple[str, Format], ...] = ()
    """Formats of classes (``trainwright.formats.CLASSES``) other than fixed point, of ``widths``
    bits."""
    underflow: str = "gradients"
    """Which coded tensors may become 0 where they underflow, one of ``UNDERFLOW_RULES``."""

    def __post_init__(self) -> None:
        self.check_formats()
