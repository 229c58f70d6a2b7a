"""Exact products of fixed-point numbers from int8 matrix products (Ozaki's second scheme).

Rows of A and columns of B become integers of as many bits as the result needs. Their product is
formed modulo pairwise coprime numbers of 8 bits, with int8 operands and int32 sums, and put
together by the Chinese remainder theorem: exactly, as the product of the moduli exceeds twice the
largest sum. The cost grows linearly with the bits; that of products of slices grows with their
square. Source: Ozaki, Uchino and Imamura, *Ozaki Scheme II* (2025).

``kernels/residues.c`` does the same as the torch functions here, with the same bits.
"""

import ctypes
import time
from collections.abc import Callable
from functools import cache
from math import gcd, log2, prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainwright.precision.rounding import power_of_two
from trainwright.support.errorfree import two_sum
from trainwright.support.graphs import addresses, cached_constant
from trainwright.support.native import load

Moduli = tuple[int, ...]

_SOURCE = Path(__file__).parent / "kernels" / "residues.c"
_WIDTH = 28
"""Bits of a digit: 7 digits times 8 bits each stay exact in float64."""
_MOST_DIGITS = 7
MOST_BITS = _WIDTH * _MOST_DIGITS
"""Bits of the longest integers."""
_WORD = 38
"""Bits of the words that results are put together from: 64 products with residues are exact."""
_REACH = 2044
"""Largest power of two that two normal factors give."""
_INT32_TERMS = 1 << 16
"""Products of two int8 that an int32 accumulator holds."""
_FLOAT_TERMS = 1 << 10
"""Products of two int8 that float32 sums exactly."""
_TIMED = 192
"""Rows of the product that tells the faster way: large enough for both, a few milliseconds."""
_GPU_ALIGNMENT = 16
"""Rows have a multiple of these elements: cuBLAS needs 16 bytes for its fast kernels."""


_MOST_MODULUS = 256
"""Largest modulus whose residues of least magnitude are int8."""


@cache
def coprime_moduli(largest: int = _MOST_MODULUS) -> Moduli:
    """Choose pairwise coprime numbers up to ``largest``, greatest first."""
    chosen: list[int] = []
    for number in range(largest, 28, -1):  # smaller ones hold too little
        if all(gcd(number, other) == 1 for other in chosen):
            chosen.append(number)
    return tuple(chosen)


def moduli_for(bits: float, largest: int = _MOST_MODULUS) -> Moduli:
    """Return the fewest moduli up to ``largest`` whose product exceeds 2^bits.

    Raises ``ValueError`` where all of them hold too little.
    """
    held, moduli = 0.0, coprime_moduli(largest)
    for count, modulus in enumerate(moduli, 1):
        held += log2(modulus)
        # 2^-20 covers the rounding of the logarithms.
        if held > bits + 2.0**-20:
            return moduli[:count]
    raise ValueError(f"residues up to {largest} hold at most {held:.0f} bits, not {bits:.1f}")


def product(
    a: Tensor,
    b: Tensor,
    exponents: tuple[Tensor, Tensor, Tensor],
    bits: int,
    moduli: Moduli,
    nc: int,
    *,
    passes: int = 1,
) -> Tensor:
    """Multiply expansions (m, k, n) by (k, p, n'), none empty, to (m, p, nc).

    ``exponents`` are int32 (e, d, f) of rows, terms and columns, with |a_ik| <= 2^(e_i + d_k) and
    |b_kj| <= 2^(f_j - d_k). Elements become integers: a_ik 2^(bits - e_i - d_k), rounded. The
    product of these matrices is exact if the product of the ``moduli`` exceeds twice its largest
    element; it is rounded to nc components, after ``passes`` of error-free summation.
    """
    rows, terms, columns = exponents
    left = encode(a, rows, terms, bits, moduli)
    right = encode(b, -terms, columns, bits, moduli)
    return decode(_multiplied(left, right, moduli), rows, columns, 2 * bits, moduli, a.dtype, nc,
                  passes)  # fmt: skip


def _digit_count(bits: int) -> int:
    if not 1 <= bits <= MOST_BITS:
        raise ValueError(f"integers have from 1 to {MOST_BITS} bits, not {bits}")
    return -(-bits // _WIDTH)


@cached_constant
def _digit_weights(bits: int, moduli: Moduli) -> Tensor:
    """Return the digits' values modulo each modulus, of least magnitude, (moduli, digits)."""
    count = _digit_count(bits)
    rows = [[_least(1 << _WIDTH * (count - 1 - place), m) for place in range(count)]
            for m in moduli]  # fmt: skip
    return torch.tensor(rows, dtype=torch.float64)


def _least(value: int, modulus: int) -> int:
    """Return the residue of least magnitude."""
    rest = value % modulus
    return rest - modulus if rest > modulus // 2 else rest


def _scaled(x: Tensor, exponent: Tensor) -> Tensor:
    """Multiply float64 by 2^exponent in two steps that are normal powers."""
    exponent = exponent.to(torch.int64).clamp(-_REACH, _REACH)
    half = exponent >> 1
    return x * power_of_two(half, x.dtype) * power_of_two(exponent - half, x.dtype)


def encode(x: Tensor, rows: Tensor, columns: Tensor, bits: int, moduli: Moduli) -> Tensor:
    """Return x (m, n, nc) 2^(bits - rows - columns), rounded, modulo each modulus: (moduli, m, n).

    Residues are int8 of least magnitude. Each component is rounded to the last digit, so that an
    element errs by at most nc / 2.
    """
    count, first = _digit_count(bits), bits - _WIDTH * (_digit_count(bits) - 1)
    weights = _digit_weights(bits, moduli)
    if (library := _library(x)) is not None:
        parts = x.movedim(-1, 0).contiguous()
        out = torch.empty(len(moduli), *x.shape[:2], dtype=torch.int8)
        numbers = torch.tensor(moduli, dtype=torch.float64)
        _call(library.residues_encode, parts, x[..., 0].numel(), x.shape[-1], *x.shape[:2], rows,
              columns, first, count, weights, numbers, len(moduli), out)  # fmt: skip
        return out
    up = -rows[:, None] - columns[None, :]
    digits = [torch.zeros(x.shape[:2], dtype=torch.float64, device=x.device) for _ in range(count)]
    for part in x.unbind(-1):
        rest = _scaled(part.to(torch.float64), up)
        for place in range(count):
            wide = rest * 2.0 ** (_WIDTH if place else first)
            digit = wide.round()
            digits[place] = digits[place] + digit
            rest = wide - digit
    residues: list[Tensor] = []
    for modulus, row in zip(moduli, weights.tolist(), strict=True):
        total = sum(digit * weight for digit, weight in zip(digits, row, strict=True))
        assert isinstance(total, Tensor)
        residues.append(_wrapped(total, modulus))
    return torch.stack(residues)


def _wrapped(x: Tensor, modulus: int) -> Tensor:
    """Reduce float64 integers to int8; 128 modulo 256 wraps to -128."""
    rest = x - (x * (1 / modulus)).round() * modulus
    return rest.to(torch.int32).to(torch.int8)


def _multiplied(a: Tensor, b: Tensor, moduli: Moduli) -> Tensor:
    """Multiply residues (moduli, m, k) by (moduli, k, n), and by the inverse of M / modulus."""
    out = a.new_empty(len(moduli), a.shape[1], b.shape[2])
    for x, y, to, modulus in zip(a, b, out, moduli, strict=True):
        total: Tensor | None = None
        for begin in range(0, x.shape[1], _INT32_TERMS):
            part = int8_product(x[:, begin : begin + _INT32_TERMS], y[begin : begin + _INT32_TERMS])
            if total is not None:
                part = (torch.remainder(part, modulus) + torch.remainder(total, modulus)).to(
                    torch.int32
                )
            total = part
        assert total is not None, "empty products have no residues"
        weigh(total, modulus, moduli, to)
    return out


def weigh(sums: Tensor, modulus: int, moduli: Moduli, out: Tensor) -> None:
    """Put int32 sums, times the inverse of M / modulus, modulo ``modulus``, into int8 ``out``.

    ``decode`` takes residues of this form: each is multiplied by M / modulus there.
    """
    inverse = _least(pow(prod(moduli) // modulus, -1, modulus), modulus)
    if (library := _library(sums)) is not None:
        sums = sums.contiguous()
        _call(library.residues_reduce, sums, sums.numel(), modulus, inverse, out)
    else:
        out.copy_(_wrapped(sums.to(torch.float64) * inverse, modulus))


@cached_constant
def _words(moduli: Moduli) -> tuple[Tensor, Tensor, Tensor]:
    """Return M / modulus in words, (words, moduli), 1 / modulus, and M in words, greatest first."""
    whole = prod(moduli)
    count = -(-whole.bit_length() // _WORD)
    mask = (1 << _WORD) - 1

    def words(value: int) -> list[int]:
        return [value >> _WORD * place & mask for place in reversed(range(count))]

    weights = torch.tensor([words(whole // m) for m in moduli], dtype=torch.float64)
    shares = torch.tensor([1 / m for m in moduli], dtype=torch.float64)
    return weights.T.contiguous(), shares, torch.tensor(words(whole), dtype=torch.float64)


def decode(
    residues: Tensor,
    rows: Tensor,
    columns: Tensor,
    shift: int,
    moduli: Moduli,
    dtype: torch.dtype,
    nc: int,
    passes: int,
) -> Tensor:
    """Put numbers together, times 2^(rows + columns - shift), to components (m, n, nc).

    A number is the sum of its residues y times M / modulus, less a multiple of M: the sum of
    y / modulus, rounded to an integer. float64 is enough for that integer, as no number comes near
    M / 2.
    """
    weights, shares, whole = _words(moduli)
    like = torch.empty(0, dtype=dtype, device=residues.device)
    shape = residues.shape[1:]
    if (library := _library(like)) is not None:
        out = torch.empty((nc, *shape), dtype=dtype)
        _call(library.residues_decode, residues, len(moduli), *shape, rows, columns, shift,
              weights, shares, whole, len(whole), nc, passes, out)  # fmt: skip
        return out.movedim(0, -1)
    y = residues.to(torch.float64)
    multiple = torch.zeros_like(y[0])
    for part, share in zip(y, shares.tolist(), strict=True):
        multiple = multiple + part * share
    multiple = multiple.round()
    words: list[Tensor] = []
    for row, modulus in zip(weights.tolist(), whole.tolist(), strict=True):
        total = -multiple * modulus
        for part, weight in zip(y, row, strict=True):
            total = total + part * weight
        words.append(total)
    return _expansion(words, rows[:, None] + columns[None, :] - shift, dtype, nc, passes)


def _expansion(
    words: list[Tensor], power: Tensor, dtype: torch.dtype, nc: int, passes: int
) -> Tensor:
    """Round words times 2^power to components."""
    count = len(words)
    for place in range(count - 1, 0, -1):
        carry = (words[place] * 2.0**-_WORD).round()
        words[place] = words[place] - carry * 2.0**_WORD
        words[place - 1] = words[place - 1] + carry
    terms = [word * 2.0 ** (_WORD * (count - 1 - place)) for place, word in enumerate(words)]
    for _ in range(passes - 1):
        _pass(terms)
    parts: list[Tensor] = []
    for _ in range(nc):
        _pass(terms)
        kept = _scaled(terms[0], power).to(dtype)
        terms[0] = terms[0] - _scaled(kept.to(torch.float64), -power)
        parts.append(kept)
    finite = torch.isfinite(parts[0])
    parts[1:] = [torch.where(finite, part, 0) for part in parts[1:]]
    for place in range(nc - 1):  # ties may leave two components out of order
        total = parts[place] + parts[place + 1]
        parts[place + 1] = parts[place + 1] - (total - parts[place])
        parts[place] = total
    lower = [torch.where(finite, part, 0) for part in parts[1:]]
    return torch.stack([part + 0.0 for part in (parts[0], *lower)]).movedim(0, -1)


def _pass(terms: list[Tensor]) -> None:
    """Add terms from the last to the first without error."""
    for place in range(len(terms) - 2, -1, -1):
        terms[place], terms[place + 1] = two_sum(terms[place], terms[place + 1])


def int8_product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply int8 (m, k) by (k, n), k at most 2^16, to int32, exactly."""
    if a.is_cuda:
        return _on_gpu(a, b)
    if _int8_serves():
        return torch.ops.aten._int_mm(a, b)
    return _by_float32(a, b)


def _by_float32(a: Tensor, b: Tensor) -> Tensor:
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.int32, device=a.device)
    for begin in range(0, a.shape[1], _FLOAT_TERMS):
        left, right = a[:, begin : begin + _FLOAT_TERMS], b[begin : begin + _FLOAT_TERMS]
        total += (left.to(torch.float32) @ right.to(torch.float32)).to(torch.int32)
    return total


def _on_gpu(a: Tensor, b: Tensor) -> Tensor:
    """Multiply on the tensor cores, in sizes that they take."""
    (m, k), n = a.shape, b.shape[1]
    filled = -(-k // _GPU_ALIGNMENT) * _GPU_ALIGNMENT
    left = a.new_zeros(max(32, -(-m // 8) * 8), filled)
    left[:m, :k] = a
    right = b.new_zeros(-(-n // 8) * 8, filled)
    right[:n, :k] = b.mT
    return torch.ops.aten._int_mm(left, right.mT)[:m, :n]


@cached_constant
def _int8_serves() -> bool:
    """Return whether the processor's int8 products are exact, and no slower than float32's.

    Without instructions for int8 products (VNNI) torch multiplies in a loop, which takes fifty
    times as long as float32's product. Both give the same integers, so measured times may decide.
    """
    if not _exact_int8():
        return False
    a = torch.ones(_TIMED, _TIMED, dtype=torch.int8)

    def least(multiply: Callable[[Tensor, Tensor], Tensor]) -> int:
        times: list[int] = []
        for _ in range(3):  # the first call prepares
            begin = time.perf_counter_ns()
            multiply(a, a)
            times.append(time.perf_counter_ns() - begin)
        return min(times)

    return least(torch.ops.aten._int_mm) <= least(_by_float32)


def _exact_int8() -> bool:
    """Return whether the processor's int8 products are exact.

    Processors without VNNI may add pairs of products in 16 bits, which saturate.
    """
    for value, other in ((-128, -128), (127, 127), (-128, 127)):
        a = torch.full((33, 130), value, dtype=torch.int8)
        b = torch.full((130, 35), other, dtype=torch.int8)
        try:
            computed = torch.ops.aten._int_mm(a, b)
        except RuntimeError:
            return False
        if not bool((computed == 130 * value * other).all()):
            return False
    return True


def _library(x: Tensor) -> Any:
    """Return the kernels for a tensor's type, or ``None`` where it is not on the CPU."""
    if x.device.type != "cpu":
        return None
    return load(_SOURCE, *(("-DDOUBLE",) if x.dtype is torch.float64 else ()))


def _call(function: Any, *arguments: Tensor | int) -> None:
    function.restype = None
    function.argtypes = [ctypes.c_int64] * len(arguments)
    for each in arguments:
        assert isinstance(each, int) or each.is_contiguous()
    function(*addresses(arguments))
