"""APE: float32 and int16 arithmetic on narrow multipliers, bit by bit (docs/reference/ape.md)."""

from trainwright.ape.accumulate import NEAREST, TENSOR_CORE, Accumulation
from trainwright.ape.adapter import Adapter
from trainwright.ape.conv import conv2d
from trainwright.ape.enabled import enabled
from trainwright.ape.gemm import gemm
from trainwright.ape.parts import join, split
from trainwright.ape.performance import PerformanceModel
from trainwright.ape.schemes import precision, value_range

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
