"""A panel factored in machine arithmetic, with as few calls as it takes: the fast path of
``reflectors.factor_panel`` for one matrix in float32 or float64 whose squares stay in range.
"""

import torch

_SAFE = {torch.float32: (2.0**-40, 2.0**50), torch.float64: (2.0**-400, 2.0**450)}
"""Largest element at which no norm overflows, and none that matters underflows."""


def in_safe_range(a: torch.Tensor) -> bool:
    """Whether columns of ``a`` need no scaling before their squares are summed."""
    least, greatest = _SAFE[a.dtype]
    low, high = torch.aminmax(a)
    top = max(-float(low), float(high))
    return top == 0 or least <= top <= greatest


def factor_machine_panel(a: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """Algorithm 3 in place: ``a`` (m, n) becomes R over zeros; ``vectors`` (m, n) is overwritten
    with V. Returns ``beta`` (n,).

    Fast where ``a`` is column-major: the products with the remaining columns are then one
    matrix-vector product and one rank-1 update over contiguous memory.
    """
    rows = a.mT  # (n, m)
    betas: list[float] = []
    sigmas: list[float] = []
    for j in range(a.shape[-1]):
        v = rows[j, j:]
        head, norm = float(v[0]), float(torch.linalg.vector_norm(v))
        sigma = (norm if head < 0 else -norm) if norm else 0.0
        beta = -(head - sigma) / sigma if norm else 0.0
        if norm:
            v.div_(head - sigma)
        v[0] = 1
        sigmas.append(sigma)
        betas.append(beta)
        if beta and j + 1 < a.shape[-1]:
            rest = rows[j + 1 :, j:]
            rest.addr_(torch.mv(rest, v), v, alpha=-beta)
    vectors.copy_(a)
    vectors.tril_()
    a.triu_(1)
    a.diagonal().copy_(torch.tensor(sigmas, dtype=a.dtype))
    return torch.tensor(betas, dtype=a.dtype, device=a.device)
