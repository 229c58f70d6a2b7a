"""How a layer's products are made, forward and backward: the choices of a plan.

``bond`` is the number of factors on the left of the bond at which the layer is split (``Split``).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ForwardRebuild:
    """W is rebuilt strip by strip from Left and Right, and multiplied densely."""

    bond: int
    strip_p: int
    """Values of p in a strip of W; divides its size."""
    strip_q: int
    """Values of q in a strip of W; a multiple of the lanes that divides its size."""
    shared: bool
    """Both arrays take strips; else PE2's alone."""


@dataclass(frozen=True)
class ForwardBidirectional:
    """T = Right X, then Y = Left T."""

    bond: int
    q_per_slice: int
    """Values of q that T is made for at once; a multiple of ``pe2_rows`` that divides its size."""
    sample_rows_per_slice: int
    """Rows of samples (of ``lanes`` each) that T is made for at once; divides their number."""
    pe1_u: int
    """Values of u of T that PE1 makes; PE2 makes the others, and Y."""


@dataclass(frozen=True)
class BackwardFull:
    """The gradient of W slice by slice, contracted with Left and Right while it is on chip.

    The gradient of the input is a product with W, rebuilt for it.
    """

    bond: int
    q_per_slice: int
    """Values of q in a slice of the gradient of W; divides its size."""
    pe1_u: int
    """Values of u of the gradient that PE1 makes; PE2 makes the others."""


@dataclass(frozen=True)
class BackwardBidirectional:
    """U = Left^T Y'; all gradients from it and from T, and no W at all.

    T is that of the forward pass, which must be bi-directional with the same bond.
    """

    bond: int
    u_per_slice: int
    """Values of u that U is made for at once; divides its size."""
    sample_rows_per_slice: int
    """Rows of samples that U is made for at once; divides their number."""


ForwardPlan = ForwardRebuild | ForwardBidirectional
BackwardPlan = BackwardFull | BackwardBidirectional


@dataclass(frozen=True)
class LayerPlan:
    """How one layer is computed."""

    forward: ForwardPlan
    backward: BackwardPlan
