"""Multi-component floats for PyTorch (``docs/reference/mcf.md``).

``mcf.tensor(data, nc=2)`` makes an ``MCTensor``, which torch's own functions accept. The corrected
algorithms of the paper are functions on component tensors (..., nc): ``two_sum`` to ``matmul``.
"""

from trainwright.mcf import (  # noqa: F401  fill the table
    elementwise,
    linalg,
    measures,
    reductions,
    shapes,
    tensors,
)
from trainwright.mcf.expressions import fused
from trainwright.mcf.tensor import MCTensor, tensor

__all__ = ["MCTensor", "fused", "tensor"]
