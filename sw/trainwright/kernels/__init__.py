"""Vector kernels: one Python text that numpy evaluates and the vector engine executes.

A kernel is a function of a `Body`. Called once, it records what it computes with the words of a
row (`trace`). `evaluate` runs the record on numpy rows; `lower` turns the record into instructions
of the vector engine, with registers, streams and constants allocated.
"""

from trainwright.kernels.evaluate import PassResult, evaluate
from trainwright.kernels.library import exp2, mantissa, reciprocal, reciprocal_root
from trainwright.kernels.lower import VectorPass, lower
from trainwright.kernels.trace import Body, Condition, KernelError, Register, Value, trace, where
from trainwright.program.vector import Rounding

__all__ = [
    "Body",
    "Condition",
    "KernelError",
    "PassResult",
    "Register",
    "Rounding",
    "Value",
    "VectorPass",
    "evaluate",
    "exp2",
    "lower",
    "mantissa",
    "reciprocal",
    "reciprocal_root",
    "trace",
    "where",
]
