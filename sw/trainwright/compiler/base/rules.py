"""What a program makes, and which exponents give its descriptors their shifts."""

from dataclasses import dataclass

from trainwright.fixed.scale import TensorClass
from trainwright.formats import Format
from trainwright.functions import ElementKernel


@dataclass(frozen=True)
class Written:
    """A tensor that compute descriptors write: what its statistics and its exponent need."""

    name: str
    kind: TensorClass
    format: Format
    count: int
    """Values a step, padding not counted."""
    counted: bool = True
    """Whether its statistics say anything: those of copies do not."""
    per_sample: bool = False
    """Whether each sample of the batch has values of its own, as activations have."""

    @property
    def width(self) -> int:
        """Bits of a word."""
        return self.format.width


@dataclass(frozen=True)
class Rule:
    """Which tensors' exponents give the shifts of one descriptor.

    Without a ``g``, ``x`` is its one operand, and the other a constant.
    """

    x: str
    g: str | None
    z: Written
    exact: bool = False
    """Nothing is rounded: z's exponent is its floor."""
    kernel: ElementKernel | None = None
    """Kernel of a pass, which gives z's exponent and the constants of the pass."""
