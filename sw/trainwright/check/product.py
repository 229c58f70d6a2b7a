"""Compare products of floats computed by 8-bit multipliers with those of wide multipliers.

The host converts elements to integers, and the integers to residues modulo coprime numbers
(``trainwright.ape.residues``). The accelerator multiplies the residues in passes, one for each
modulus and each part of the terms: a pass has only as many terms as 16 bits can sum, so no sum is
rounded. The host adds the parts of each modulus and restores numbers by the Chinese remainder
theorem.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainwright.accelerator import Accelerator, AcceleratorError, Counters, Run
from trainwright.ape.residues import TYPES, Exponents, ResidueType, exponents
from trainwright.check.comparison import Comparison, RunProgram, closing_lines, compare_runs
from trainwright.check.step import HARDWARE, KERNEL, MOST_SEED, compare_buffers, is_kernel
from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.step.products import ProductPrograms, compile_products
from trainwright.golden.backend import GoldenAccelerator
from trainwright.mcf.exact import components_from
from trainwright.parameters import AcceleratorParameters
from trainwright.precision import residues
from trainwright.support.arguments import require_seed
from trainwright.support.text import amount

SUM_BITS = 16
"""Bits of the sums that the accelerator writes, its widest result."""
_LARGEST_SUM = 2 ** (SUM_BITS - 1) - 1


@dataclass(frozen=True)
class ResiduePasses:
    """Division of a product into passes: the moduli, and the terms that a pass sums."""

    moduli: residues.Moduli
    terms: int
    parts: int
    """Passes of each modulus."""

    @property
    def count(self) -> int:
        """Passes of all moduli."""
        return len(self.moduli) * self.parts


def passes_for(form: ResidueType, terms: int) -> ResiduePasses:
    """Return the division into the fewest passes that rounds no sum.

    Smaller moduli hold fewer bits each, but allow more terms in a sum. Fewest passes are best,
    because results cost more time than terms: storing 64 x 64 sums of 16 bits takes as long as
    multiplying 80 terms.
    """
    choices: list[ResiduePasses] = []
    for largest in range(256, 1, -1):
        most = min(terms, _LARGEST_SUM // (largest // 2) ** 2)
        if not most:
            continue
        try:
            moduli = form.moduli(terms, largest)
        except ValueError:  # moduli up to `largest` hold too few bits; so do smaller ones
            break
        choices.append(ResiduePasses(moduli, most, -(-terms // most)))
    return min(choices, key=lambda passes: (passes.count, len(passes.moduli)))


@dataclass(frozen=True)
class ResidueOperands:
    """Random operands of a product and their residues."""

    form: ResidueType
    a: Tensor
    """Components (m, k, components)."""
    b: Tensor
    exponents: Exponents
    passes: ResiduePasses

    @classmethod
    def drawn(cls, form: ResidueType, sizes: tuple[int, int, int], seed: int) -> "ResidueOperands":
        """Draw operands of a normal distribution."""
        random = torch.Generator().manual_seed(seed)
        m, k, n = sizes
        a, b = (_drawn(form, shape, random) for shape in ((m, k), (k, n)))
        return cls(form, a, b, exponents(a, b), passes_for(form, k))

    def stacked(self) -> tuple[Tensor, Tensor]:
        """Return the residues of each pass, int8: (passes, m, terms) and (passes, terms, n)."""
        rows, terms, columns = self.exponents
        bits, moduli = self.form.bits, self.passes.moduli
        left = residues.encode(self.a, rows, terms, bits, moduli)
        right = residues.encode(self.b, -terms, columns, bits, moduli)
        # Zeros fill up the last part of the terms.
        missing = self.passes.parts * self.passes.terms - left.shape[2]
        left = torch.nn.functional.pad(left, (0, missing))
        right = torch.nn.functional.pad(right, (0, 0, 0, missing))
        parts = self.passes.parts, self.passes.terms
        left = left.unflatten(2, parts).transpose(1, 2)
        return left.flatten(0, 1), right.unflatten(1, parts).flatten(0, 1)

    def joined(self, sums: Tensor) -> Tensor:
        """Combine the sums of passes, int64 (passes, m, n), to the product (m, n, components)."""
        moduli, (rows, _, columns) = self.passes.moduli, self.exponents
        sums = sums.unflatten(0, (len(moduli), -1)).sum(1)
        weighed = torch.empty(sums.shape, dtype=torch.int8)
        for part, out, modulus in zip(sums, weighed, moduli, strict=True):
            residues.weigh(torch.remainder(part, modulus).to(torch.int32), modulus, moduli, out)
        return residues.decode(
            weighed, rows, columns, 2 * self.form.bits, moduli, self.form.dtype,
            self.form.components, passes=3,
        )  # fmt: skip

    def wide(self) -> Tensor:
        """Return the product (m, n, components), computed in Python's integers and rounded once."""
        rows, _, columns = (each.tolist() for each in self.exponents)
        left = _integers(self.a, [self.form.bits - e for e in rows])
        right = _integers(self.b.transpose(0, 1), [self.form.bits - f for f in columns])
        values = [
            [
                Fraction(value) * _power(e + f - 2 * self.form.bits)
                for value, f in zip(row, columns, strict=True)
            ]
            for row, e in zip((left @ right.T).tolist(), rows, strict=True)
        ]
        return components_from(values, self.form.dtype, self.form.components, None)

    def errors(self, product: Tensor) -> tuple[float, float]:
        """Return the largest error of ``product``, and of torch's product in the same type.

        Both errors are relative to an element's sum of magnitudes |a b|.
        """
        # Every float64 of the operands is a multiple of 2^-400: integers hold them without error.
        left, right = (_integers(x, [400] * len(x)) for x in (self.a, self.b.transpose(0, 1)))
        exact, sizes = left @ right.T, abs(left) @ abs(right).T
        native = (self.a[..., 0] @ self.b[..., 0]).unsqueeze(-1)
        return _largest_share(product, exact, sizes), _largest_share(native, exact, sizes)


def _power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def _drawn(form: ResidueType, shape: tuple[int, int], random: torch.Generator) -> Tensor:
    leading = torch.randn(shape, generator=random, dtype=torch.float64)
    if form.components == 1:
        return leading.to(form.dtype).unsqueeze(-1)
    rest = torch.rand(shape, generator=random, dtype=torch.float64) - 0.5
    return torch.stack([leading, leading * rest * 2.0**-53], -1)


def _integers(x: Tensor, powers: list[int]) -> Any:
    """Return components (m, k, c) times 2^power of each row, rounded, as Python's integers."""
    return np.array(
        [
            [sum(round(Fraction(part) * _power(up)) for part in parts) for parts in row]
            for row, up in zip(x.tolist(), powers, strict=True)
        ],
        dtype=object,
    )


def _largest_share(product: Tensor, exact: Any, sizes: Any) -> float:
    """Return the largest error as a share of ``sizes``; ``exact`` and ``sizes`` are in 2^-800."""
    return max(
        float(abs(sum(map(Fraction, parts)) * _power(800) - wanted) / size)
        for rows in zip(product.tolist(), exact.tolist(), sizes.tolist(), strict=True)
        for parts, wanted, size in zip(*rows, strict=True)
        if size
    )


@dataclass(frozen=True)
class ProductCheck:
    """Outcome of a check of a product."""

    operands: ResidueOperands
    programs: ProductPrograms
    comparison: Comparison
    counters: Counters
    error: float
    """Largest error of an element, relative to its sum of |a b|."""
    native_error: float
    """Largest error of torch's product in the same type, relative to the same sum."""
    compared: str
    """Text that names the two sides of the comparison."""

    @property
    def differing(self) -> int:
        """Values that differ."""
        return self.comparison.differing

    def to_dict(self) -> dict[str, Any]:
        """Return the figures that ``trainwright check --product --json`` prints."""
        form, passes, p = self.operands.form, self.operands.passes, self.programs.parameters
        first = self.comparison.first_mismatch
        cycles, macs = self.counters.cycles, self.programs.lowered.macs
        return {
            "product": [*self.operands.a.shape[:2], self.operands.b.shape[1]],
            "dtype": form.name,
            "bits": form.bits,
            "moduli": list(passes.moduli),
            "passes": passes.count,
            "terms": passes.terms,
            "multipliers": p.multipliers,
            "multiplier_bits": p.word_width,
            "tensors": len(self.comparison.tensors),
            "values": self.comparison.values,
            "mismatches": self.differing,
            "first_mismatch": first.to_dict() if first else None,
            "error": self.error,
            "native_error": self.native_error,
            "macs": macs,
            "cycles": cycles or None,
            "mac_utilisation": macs / (cycles * p.multipliers) if cycles else None,
            "bytes_read": self.counters.bytes_read,
            "bytes_written": self.counters.bytes_written,
        }


def check_product(
    dtype: str, sizes: tuple[int, int, int], accelerator: Accelerator, *, seed: int = 0
) -> ProductCheck:
    """Multiply (m, k) by (k, n) on golden model and ``accelerator``, and by wide multipliers.

    Compare golden model and accelerator in every row that an engine writes, in memory and in
    statistics, and the product, bit by bit, with exact integers rounded once. If ``accelerator`` is
    the golden model, its C kernel is compared with the interpreter. Raises ``CompileError`` if the
    results of the accelerator have too few bits, ``AcceleratorError`` if its memory is too small.
    """
    p, is_golden = accelerator.parameters, is_kernel(accelerator)
    seed = require_seed(seed, MOST_SEED)
    require_exact_sums(p)
    m, k, n = sizes
    passes = passes_for(TYPES[dtype], k)
    # Check the room for the sums first: for a product that cannot fit, the search takes minutes.
    _require_room(passes.count * m * n * SUM_BITS // 8, accelerator)
    programs = compile_products(passes.count, (m, passes.terms, n), SUM_BITS, p)
    size = programs.memory_bytes
    _require_room(size, accelerator)
    operands = ResidueOperands.drawn(TYPES[dtype], sizes, seed)
    accelerator.write(0, np.zeros(size, np.uint8))
    with GoldenAccelerator(p, memory_bytes=size, interpreted=is_golden) as golden:
        ours, theirs = _run(programs, operands, golden), _run(programs, operands, accelerator)
        named = RunProgram("product", programs.program.descriptors, p)
        comparison = compare_runs(ours, theirs, programs.program.slots, named)
        comparison.merge(compare_buffers(programs.buffers, golden, accelerator, p.lanes))
    product = operands.joined(torch.from_numpy(programs.read(accelerator)))
    wanted, actual = (
        x.contiguous().numpy().view(f"i{x.itemsize}") for x in (operands.wide(), product)
    )
    comparison.add_arrays("product", wanted, actual, n * operands.form.components)
    saturated = int(theirs.saturations.sum())
    comparison.add("saturated sums", m * n * passes.count, saturated)
    error, native = operands.errors(product)
    compared = KERNEL if is_golden else HARDWARE
    return ProductCheck(operands, programs, comparison, theirs.counters, error, native, compared)


def require_exact_sums(p: AcceleratorParameters) -> None:
    """Raise ``CompileError`` if results have fewer bits than sums of residues."""
    if p.result_width < SUM_BITS:
        raise CompileError(
            f"sums of residues have {SUM_BITS} bits, results {p.result_width}: use an accelerator "
            "with wide_tensors=1"
        )


def _require_room(size: int, accelerator: Accelerator) -> None:
    if size > accelerator.memory_bytes:
        raise AcceleratorError(
            f"the product needs {size:,} bytes of external memory or more, the accelerator has "
            f"{accelerator.memory_bytes:,}: choose a smaller product"
        )


def _run(programs: ProductPrograms, operands: ResidueOperands, accelerator: Accelerator) -> Run:
    left, right = operands.stacked()
    programs.write(accelerator, left.numpy(), right.numpy())
    return accelerator.run(programs.program, programs.address, trace=True)


def summary(figures: Mapping[str, Any], compared: str = HARDWARE) -> str:
    """Write the figures of a check as text, one per line; ``compared`` names the two sides."""
    sizes, moduli = figures["product"], figures["moduli"]
    lines = [
        f"product {' x '.join(map(str, sizes))} in {figures['dtype']}: integers of "
        f"{figures['bits']} bits, {len(moduli)} moduli from {moduli[-1]} to {moduli[0]}",
        f"{amount(figures['passes'], 'pass')} of {amount(figures['terms'], 'term')} on "
        f"{figures['multipliers']} "
        f"multipliers of {figures['multiplier_bits']} bits",
        f"compared {amount(figures['tensors'], 'tensor')}, "
        f"{amount(figures['values'], 'value')}, {compared}, and the "
        f"product against a wide multiplier: {amount(figures['mismatches'], 'mismatch')}",
        f"largest error {figures['error']:.2g} of an element's sum of |a b|; "
        f"that of the type's own product {figures['native_error']:.2g}",
    ]
    return "\n".join([*lines, *closing_lines(figures)])
