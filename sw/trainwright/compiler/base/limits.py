"""Limits of an accelerator that programs must keep to, and the errors where they do not.

This is the one place of limits. Every limit is a parameter of the accelerator, or fixed by the
encoding of descriptors. None is a number of layers or factors: how many fit follows from these.
"""

from dataclasses import dataclass

from trainwright.compiler.base.errors import CompileError, DoesNotFitError, ResourceError
from trainwright.formats import Format, sum_width
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import (
    COUNT_WIDTH,
    EXPONENT_SLOT_WIDTH,
    MOST_DESCRIPTORS,
    SLOT_WIDTH,
)
from trainwright.support.errors import errors_as

MOST_SAMPLES = 4096
"""Samples of a batch, at most."""
MOST_COUNT = (1 << COUNT_WIDTH) - 1
"""Greatest count that a descriptor can hold."""


@dataclass(frozen=True)
class Limit:
    """Resource that programs need, and the advice where the accelerator has too little of it."""

    what: str
    remedy: str
    """Advice that makes the need smaller."""
    parameter: str = ""
    """Parameter of the accelerator that gives its size, a power of two; empty for none."""
    greatest: int = 0
    """Largest value of that parameter."""
    fixed: int = 0
    """Size where no parameter gives it."""

    def available(self, p: AcceleratorParameters) -> int:
        """Return how much an accelerator has."""
        return getattr(p, self.parameter) if self.parameter else self.fixed

    def advice(self, needed: int) -> str:
        """Return what can be done: need less, or take an accelerator with more."""
        enough = 1 << (needed - 1).bit_length()
        if enough > self.greatest:
            return self.remedy
        return f"{self.remedy}, or an accelerator with {self.parameter}={enough} or more"

    def require(self, needed: int, p: AcceleratorParameters, where: str) -> None:
        """Raise ``ResourceError`` where ``needed`` are more than there are."""
        available = self.available(p)
        if needed > available:
            reason = f"{where} needs {needed} {self.what}, there are {available}"
            raise ResourceError(reason, self.advice(needed))

    def misfit(self, reason: str, needed: int, p: AcceleratorParameters) -> DoesNotFitError:
        """Return the error that pieces do not fit together, of which ``needed`` may be too few."""
        return DoesNotFitError(reason, self.advice(max(needed, self.available(p) + 1)))


STREAMED = Limit("descriptors", "use fewer layers or a smaller batch", fixed=MOST_DESCRIPTORS)
"""Limit of a program without long loops, which is loaded as it goes on."""
SCRATCHPAD = Limit(
    "rows of the scratchpad",
    "use a smaller batch, smaller layers or ranks",
    "scratchpad_rows",
    1 << 17,
)
COUNTS = Limit("iterations of one loop level", "use smaller layers or ranks", fixed=MOST_COUNT)
_HOST = "use exponents=0, which leaves loss and update to the host"
EXPONENTS = Limit("exponents", _HOST, "exponents", 1 << EXPONENT_SLOT_WIDTH)
STATISTICS = Limit("statistics slots", _HOST, "statistics_depth", 1 << SLOT_WIDTH)


def require_accumulator(
    terms: int, operands: tuple[Format, Format], p: AcceleratorParameters, name: str
) -> None:
    """Raise ``ResourceError`` where a sum of ``terms`` products of ``operands`` could overflow."""
    # The bound holds for any operands: hardware does not notice an overflow of an accumulator.
    bits = sum_width(terms, *operands)
    if bits <= p.accumulator_width:
        return
    x, g = operands
    remedy = "use narrower numbers or smaller layers"
    # The widest accumulators that an accelerator can have.
    if bits <= 48:
        remedy += f", or an accelerator with accumulator_width={bits} or more"
    raise ResourceError(
        f"{name}: {terms} products of {x.decoded_width} x {g.decoded_width} bits need "
        f"accumulators of {bits} bits, these have {p.accumulator_width}",
        remedy,
    )


def require_memory(needed: int, p: AcceleratorParameters) -> None:
    """Raise ``ResourceError`` where ``needed`` bytes of external memory cannot be addressed."""
    if needed >= 1 << p.address_width:
        raise ResourceError(
            f"the step needs {needed} bytes of external memory, addresses of {p.address_width} "
            f"bits reach {1 << p.address_width}",
            "use smaller layers",
        )


def require_batch(batch: int) -> None:
    """Raise ``CompileError`` for a batch without samples, or of more than ``MOST_SAMPLES``."""
    if not isinstance(batch, int) or isinstance(batch, bool):
        raise CompileError(f"the batch must be an integer, not {batch!r}")
    if not 1 <= batch <= MOST_SAMPLES:
        raise CompileError(f"the batch must be from 1 to {MOST_SAMPLES} samples, not {batch!r}")


def require_integers(network: Network) -> None:
    """Raise ``CompileError`` for a network in float32."""
    if network.widths.is_float:
        raise CompileError(
            f"network {network.name!r} is in float32, the accelerator computes with integers: "
            "give it [widths]"
        )


def require_words(network: Network, p: AcceleratorParameters) -> None:
    """Raise ``CompileError`` for tensors that the words cannot hold, whole or in digits."""
    _require_factors(network, p)
    _require_widths(network, p)
    for kind, fmt in network.coded_used:
        with errors_as(f"network {network.name!r} has {kind}s of {fmt}", CompileError, ValueError):
            p.format_number(fmt)
    if network.widths.bias > p.result_width:
        remedies = "an accelerator with word_width=16"
        if p.narrow:
            remedies = f"an accelerator with wide_tensors=1, or {remedies}"
        raise CompileError(
            f"network {network.name!r} has biases of {network.widths.bias} bits, the words of this "
            f"accelerator have {p.result_width}: choose bias = {p.result_width}, or {remedies}"
        )


def _require_factors(network: Network, p: AcceleratorParameters) -> None:
    """Raise ``CompileError`` where factors are too wide for the multipliers, whole or in digits."""
    widest = network.factor_width
    needed = min(widest, p.word_width) if p.narrow else widest
    if p.factor_width < needed:
        raise CompileError(
            f"network {network.name!r} has factors of {widest} bits, the "
            f"accelerator takes at most {p.factor_width}: use narrower factors, or an accelerator "
            f"with factor_width={needed}"
        )


def _require_widths(network: Network, p: AcceleratorParameters) -> None:
    """Raise ``CompileError`` where tensors other than factors are wider than can be stored."""
    bits, remedies = p.result_width, "an accelerator with word_width=16"
    # Digits need hardware of their own, which an accelerator may have been built without.
    if p.narrow and not p.wide_tensors:
        remedies = f"an accelerator with wide_tensors=1, or {remedies}"
    # Factors go to the multipliers, biases to the adder: other limits hold for both.
    for name, width in vars(network.widths).items():
        if width > bits and name not in ("factor", "bias"):
            raise CompileError(
                f"network {network.name!r} has {name}s of {width} bits, the words of this "
                f"accelerator have {bits}: choose {name}=fixed({bits}) in [formats], or {remedies}"
            )
    for name, fmt in network.singles:
        if fmt.width > bits and network.nameable[name] != "factor":
            raise CompileError(
                f"network {network.name!r} has {name} in {fmt}, the words of this accelerator have "
                f"{bits} bits: choose {name}=fixed({bits}) in [formats], or {remedies}"
            )
