"""QR from sketches in low precision: orthogonal to float64 up to condition numbers of 1e16.

A random combination of rows, in low precision, has nearly the R of A. Dividing A by it shrinks the
condition number by about the precision's unit; as soon as the sketch says that it is small,
Cholesky QR finishes, twice. All large operations are matrix products and triangular solves.
Sources: Balabanov and Grigori, *Randomized Gram-Schmidt* (2022); the mixed-precision form of
Melnichenko et al., *CholeskyQR with Randomization and Pivoting* (2024), and shifts as in Fukaya et
al. (2020).
"""

from dataclasses import dataclass

import torch

from trainwright.precision import PrecisionFormat, get_format
from trainwright.precision.rounding import scale_by_power
from trainwright.qr.precision import make_precision
from trainwright.qr.result import QRError, check_real, prepared
from trainwright.support.arguments import require_seed
from trainwright.support.graphs import library_call

_ROWS = 4
"""Rows of a sketch by columns: the sketch of orthonormal columns has a condition number of 3."""
_SMALL = 10.0
"""Condition number of a sketch up to which Cholesky QR is accurate, twice."""
_ROUNDS = 20
"""Sketches after which the factorisation fails: bf16 needs 12 for a condition of 1e16."""


@dataclass(frozen=True, eq=False)
class SketchedQR:
    """A = Q R of a float64 matrix (m, n), m >= n, with positive diagonal of R."""

    Q: torch.Tensor
    R: torch.Tensor
    sketches: int
    """Sketches that were taken."""


@library_call
def sketched_qr(
    A: torch.Tensor, *, low: str | PrecisionFormat = "fp32", seed: int = 0
) -> SketchedQR:
    """Factor ``A`` (m, n), m >= n, in float64, with R found from sketches in the format ``low``.

    Operands of the sketch are rounded to ``low``, columns scaled to about 1, and summed in float32
    (float64 for wider formats). Columns that depend on others leave a diagonal of R at the
    rounding errors' size, as in every QR without pivoting. Raises ``QRError`` for columns of zeros,
    besides the errors of ``block_qr``.

    >>> A = torch.randn(200, 10, dtype=torch.float64) * torch.logspace(0, -12, 10)
    >>> Q = sketched_qr(A, low="bf16").Q
    >>> bool((Q.mT @ Q - torch.eye(10)).norm() < 1e-13)
    True
    """
    check_real(A)
    seed = require_seed(seed)
    if A.dim() != 2:
        raise QRError(f"sketched_qr needs a matrix, not {[*A.shape]}")
    q, exponent = prepared(A.detach().to(torch.float64), make_precision(None, "fp64", "end"))
    norms = torch.linalg.vector_norm(q, dim=0)
    if not bool(norms.all()):
        raise QRError("A has a column of zeros: pivoted_qr factors dependent columns")
    q, r = q / norms, torch.diag(norms)
    format, generator = get_format(low), torch.Generator().manual_seed(seed)
    condition, count = float("inf"), 0
    while condition > _SMALL:
        if count == _ROUNDS:
            raise QRError(
                f"columns of A are not independent after {count} sketches in {format.name}: take a "
                "wider format, or pivoted_qr"
            )
        upper, condition = _sketched_factor(q, format, generator)
        q, r = torch.linalg.solve_triangular(upper, q, upper=True, left=False), upper @ r
        count += 1
    for _ in range(2):
        upper = torch.linalg.cholesky(q.mT @ q, upper=True)
        q, r = torch.linalg.solve_triangular(upper, q, upper=True, left=False), upper @ r
    return SketchedQR(q, scale_by_power(r.triu(), exponent), count)


def _sketched_factor(
    q: torch.Tensor, format: PrecisionFormat, generator: torch.Generator
) -> tuple[torch.Tensor, float]:
    """Return the R of a sketch of q, its small directions held up, and its condition number."""
    (m, n), rows = q.shape, _ROWS * q.shape[1]
    wide = torch.float32 if format.digits <= 24 else torch.float64
    columns = torch.linalg.vector_norm(q, dim=0)
    narrow = format.round(q / columns).to(wide)
    if rows < m:
        mix = torch.randn(rows, m, generator=generator, dtype=torch.float64).to(q.device)
        narrow = format.round(mix / rows**0.5).to(wide) @ narrow
    sketch = narrow.to(torch.float64)
    values = torch.linalg.svdvals(sketch)
    # Directions below the format's unit are noise: a shift of that size keeps R invertible.
    shift = float(values[0]) * n**0.5 * 2.0**-format.digits
    shifted = torch.cat([sketch, shift * torch.eye(n, dtype=q.dtype, device=q.device)])
    condition = float(values[0] / values[-1].clamp(min=1e-300))
    source = sketch if condition <= _SMALL else shifted
    upper = torch.linalg.qr(source, mode="r").R
    upper = upper * torch.where(upper.diagonal() < 0, -1.0, 1.0).unsqueeze(1)
    return upper * columns, condition
