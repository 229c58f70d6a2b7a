"""Names of the tensors of a training step, as programs, scales and reports use them."""

SAMPLES_INSIDE, SAMPLES_OUTSIDE = "x.i", "x.s"
"""Inputs of a loop on the chip in both orders: samples along the lanes, and in rows of their own.
"""

IDENTITY, ZEROS = "identity", "zeros"
"""Constants in external memory: the identity matrix, and as many rows of zeros."""


def activation_name(layer: int) -> str:
    """Return the name of the output of layer ``layer`` (from 1), or for 0 of the input."""
    return f"l{layer}.a" if layer else "x"


def gradient_name(layer: int) -> str:
    """Return the name of the gradient to the pre-activation of layer ``layer`` (from 1)."""
    return f"l{layer}.dy"
