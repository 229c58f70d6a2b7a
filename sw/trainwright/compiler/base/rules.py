"""Tensors that a program writes, and the exponents that give its descriptors their shifts."""

from dataclasses import dataclass, field

from trainwright.fixed.scale import TensorClass
from trainwright.formats import Format
from trainwright.formats.exponents import ExponentRule
from trainwright.functions import FunctionKernel

COPIES = "copies"
"""Name under which copies and parts of sums are counted."""


@dataclass(frozen=True)
class Written:
    """Tensor that compute descriptors write, with what its statistics and its exponent need."""

    name: str
    kind: TensorClass
    format: Format
    count: int
    """Values a step, padding not counted."""
    counted: bool = True
    """Whether its statistics say anything: those of copies do not."""
    per_sample: bool = False
    """Whether each sample of the batch has values of its own, as activations have."""
    axes: tuple[str, ...] = ()
    """Axes of its values, by the names of the graph."""

    @property
    def width(self) -> int:
        """Bits of a word."""
        return self.format.width


@dataclass(frozen=True)
class Rule:
    """Names of the tensors whose exponents give the shifts of one descriptor.

    Without a ``g``, ``x`` is its one operand, and the other a constant: of a sum, zeros, which have
    the exponent of ``x``.
    """

    x: str
    g: str | None
    z: Written
    exponents: ExponentRule = field(default_factory=ExponentRule)
    kernel: FunctionKernel | None = None
    """Kernel of a pass, which gives z's exponent and the constants of the pass."""

    @property
    def other(self) -> str | None:
        """Tensor whose exponent the second operand has."""
        return self.x if self.g is None and self.exponents.adds else self.g

    @property
    def keeps_exponent(self) -> bool:
        """Whether the result always has the exponent of x."""
        if self.kernel is not None:
            return self.kernel.keeps_exponent
        return self.g is None and self.exponents.exact
