"""Quantum circuits on a state vector, as products of real matrices.

Gates on a few qubits are fused into one unitary; a state of n qubits is then a matrix that the
unitary multiplies from the left. Complex numbers are pairs: [[Re, -Im], [Im, Re]] [[re], [im]].
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

Gate = tuple[Tensor, tuple[int, ...]]
"""Unitary complex128 (2^q, 2^q) and the q qubits that it acts on, most significant first."""

_X = torch.tensor([[0, 1], [1, 0]], dtype=torch.complex128)
_Z = torch.tensor([[1, 0], [0, -1]], dtype=torch.complex128)
_H = (_X + _Z) / math.sqrt(2)


def qft(qubits: int) -> list[Gate]:
    """Build the quantum Fourier transform of a product state that is not uniform."""
    gates: list[Gate] = [
        (torch.matrix_exp(-0.5j * (0.4 + 0.3 * n) * _X), (n,)) for n in range(qubits)
    ]
    for n in range(qubits):
        gates.append((_H, (n,)))
        for m in range(n + 1, qubits):
            phase = torch.exp(1j * math.pi / 2 ** (m - n) * torch.tensor([0.0, 0, 0, 1]).double())
            gates.append((torch.diag(phase), (m, n)))
    return gates


def ising(qubits: int, steps: int = 20, field: float = 0.9, time: float = 0.1) -> list[Gate]:
    """Build a transverse-field Ising chain evolved in ``steps`` Trotter steps."""
    pair = torch.matrix_exp(1j * time * torch.kron(_Z, _Z))
    rotation = torch.matrix_exp(1j * time * field * _X)
    gates: list[Gate] = []
    for _ in range(steps):
        gates += [(pair, (n, n + 1)) for n in range(qubits - 1)]
        gates += [(rotation, (n,)) for n in range(qubits)]
    return gates


def random_circuit(qubits: int, layers: int = 12, seed: int = 0) -> list[Gate]:
    """Build layers of random two-qubit unitaries, offset like bricks."""
    random = torch.Generator().manual_seed(seed)
    gates: list[Gate] = []
    for layer in range(layers):
        for n in range(layer % 2, qubits - 1, 2):
            noise = torch.randn(4, 4, generator=random, dtype=torch.complex128)
            gates.append((torch.linalg.qr(noise)[0], (n, n + 1)))
    return gates


def apply(gate: Tensor, state: Tensor, on: tuple[int, ...], multiply: Callable) -> Tensor:
    """Multiply ``state`` (2, 2, ..., 2), first axis re and im, by real ``gate`` (2 d, 2 d)."""
    axes = (0, *(1 + n for n in on))
    untouched = tuple(n for n in range(state.ndim) if n not in axes)
    turned = state.permute(*axes, *untouched)
    shape = turned.shape
    result = multiply(gate, turned.reshape(len(gate), -1)).reshape(shape)
    back = sorted(range(state.ndim), key=lambda n: (*axes, *untouched)[n])
    return result.permute(*back)


def as_real(gate: Tensor) -> Tensor:
    """Convert complex (d, d) to real float64 (2 d, 2 d)."""
    return torch.cat([torch.cat([gate.real, -gate.imag], 1), torch.cat([gate.imag, gate.real], 1)])


def fused(gates: Iterable[Gate], most: int = 5) -> list[Gate]:
    """Fuse runs of gates on at most ``most`` qubits in total into one unitary each."""
    result: list[Gate] = []
    for gate, on in gates:
        if result and len(set(result[-1][1]) | set(on)) <= most:
            earlier, before = result.pop()
            both = tuple(sorted({*before, *on}))
            result.append((_widened(gate, on, both) @ _widened(earlier, before, both), both))
        else:
            result.append((gate, on))
    return result


def _widened(gate: Tensor, on: tuple[int, ...], wider: tuple[int, ...]) -> Tensor:
    """Extend a gate to a unitary on the qubits ``wider``."""
    count, idle = len(wider), tuple(n for n in wider if n not in on)
    whole = torch.kron(gate.contiguous(), torch.eye(2 ** len(idle), dtype=gate.dtype))
    order = (*on, *idle)  # axes of ``whole``, to be reordered to ``wider``
    axes = [order.index(n) for n in wider]
    whole = whole.reshape([2] * (2 * count)).permute(*axes, *(count + n for n in axes))
    return whole.reshape(2**count, 2**count)


def simulate(
    gates: Iterable[Gate],
    qubits: int,
    dtype: torch.dtype = torch.float32,
    multiply: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
) -> Tensor:
    """Apply the gates to |0...0> in ``dtype`` arithmetic: the state, complex128 (2^qubits)."""
    state = torch.zeros([2] * (qubits + 1), dtype=dtype)
    state[(0,) * (qubits + 1)] = 1
    for gate, on in gates:
        state = apply(as_real(gate).to(dtype), state, on, multiply)
    flat = state.reshape(2, -1).to(torch.float64)
    return torch.complex(flat[0], flat[1])


def simulate_complex(gates: Iterable[Gate], qubits: int) -> Tensor:
    """Compute the reference state in complex128 arithmetic, gate by gate."""
    state = torch.zeros([2] * qubits, dtype=torch.complex128)
    state[(0,) * qubits] = 1
    for gate, on in gates:
        count = len(on)
        cube = gate.reshape([2] * (2 * count))
        axes: Any = (list(range(count, 2 * count)), list(on))
        state = torch.tensordot(cube, state, dims=axes)
        state = state.movedim(list(range(count)), list(on))
    return state.flatten()
