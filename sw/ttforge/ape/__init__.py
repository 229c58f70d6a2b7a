"""APE: float32 and int16 arithmetic on narrow multipliers, exact to the last bit (docs/ape.md)."""

from ttforge.ape.accumulate import NEAREST, TENSOR_CORE, Accumulation
from ttforge.ape.adapter import Adapter
from ttforge.ape.conv import conv2d
from ttforge.ape.enabled import enabled
from ttforge.ape.gemm import gemm
from ttforge.ape.parts import join, split
from ttforge.ape.performance import PerformanceModel
from ttforge.ape.schemes import precision, value_range

__all__ = [
    "NEAREST",
    "TENSOR_CORE",
    "Accumulation",
    "Adapter",
    "PerformanceModel",
    "conv2d",
    "enabled",
    "gemm",
    "join",
    "precision",
    "split",
    "value_range",
]
