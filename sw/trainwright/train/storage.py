"""Storage of master weights and Adam's moments between two steps, and its bits.

After each step they are replaced by the nearest values that the storage can hold, so that a run
computes with exactly the values that a device would keep. Master weights:

``float32``    unchanged.
``float16x2``  two components of float16 (``trainwright.mcf``): the nearest float16, and the nearest
               to the rest. As many bits as float32, for hosts that have only half precision.
``float16``    the nearest float16.

Moments:

``float32``   both moments unchanged: 64 bits an element.
``8bit``      both in 8 bits: a sign, four bits of exponent and three of fraction, times a power of
              two for each tensor; the root of the second moment instead of the moment, as that
              halves its range. Rounded stochastically: the second moment moves by a thousandth a
              step, which rounding to nearest would lose.
``factored``  the first moment as in ``8bit``, the second as the product of its means over rows and
              over columns (Shazeer and Stern, Adafactor, 2018), a factor (R_{n-1}, J, I, R_n) being
              taken as a matrix of R_{n-1} J rows and I R_n columns. A bias keeps 8 bits.
"""

import numpy as np
import torch

from trainwright import mcf
from trainwright.train.adam import Parameter

_FRACTION = 4
"""Significant bits of an 8-bit element, the leading one included."""
_EXPONENTS = 16


def master_bits(kind: str) -> int:
    """Return the bits of an element of the master weight."""
    return 16 if kind == "float16" else 32


def store_master(parameter: Parameter, kind: str) -> None:
    """Round the value of ``parameter`` to the storage ``kind``."""
    if kind == "float32":
        return
    components = 2 if kind == "float16x2" else 1
    kept = mcf.tensor(parameter.value, nc=components, dtype=torch.float16).components
    parameter.value = kept.to(torch.float32).sum(-1)


def moment_bits(kind: str, shape: tuple[int, ...]) -> int:
    """Return the bits of both moments of a parameter of ``shape``."""
    elements = int(np.prod(shape))
    if kind == "float32":
        return 64 * elements
    # The power of two that all elements of a tensor share, an int8.
    scale = 8
    # A bias is a vector: its factored form would be as large as the vector.
    if kind == "8bit" or len(shape) == 1:
        return 2 * (8 * elements + scale)
    rows, columns = shape[0] * shape[1], shape[2] * shape[3]
    return 8 * elements + scale + 32 * (rows + columns)


def store_moments(parameter: Parameter, kind: str, random: np.random.RandomState) -> None:
    """Round the moments of ``parameter`` to the storage ``kind``.

    ``random`` gives the numbers of the stochastic rounding: equal states give equal bits.
    """
    if kind == "float32":
        return
    parameter.first = round_8bit(parameter.first, random)
    if kind == "factored" and parameter.second.dim() == 4:
        parameter.second = factored(parameter.second)
    else:
        root = round_8bit(parameter.second.sqrt(), random, floor=True)
        parameter.second = root.square()


def round_8bit(
    values: torch.Tensor, random: np.random.RandomState, *, floor: bool = False
) -> torch.Tensor:
    """Round float32 ``values`` stochastically to 8 bits; with ``floor`` none of them to 0.

    The largest value's exponent is the greatest of the format; below its least exponent the
    spacing stays, as in subnormal numbers. With ``floor``, values that round to 0 become the least
    positive number, as the update divides by the second moment.
    """
    greatest = values.abs().max()
    if not greatest > 0:
        # A tensor of zeros, or of NaN: there is no largest exponent to count from.
        return values
    # A value is m 2^e with 1/2 <= m < 1; the largest may round up to the next power of two.
    _, top = torch.frexp(greatest)
    _, exponents = torch.frexp(values)
    exponents = exponents.clamp_min(int(top) - _EXPONENTS + 1)
    spacing = torch.ldexp(torch.ones_like(values), exponents - _FRACTION)
    uniform = torch.from_numpy(random.random_sample(tuple(values.shape))).to(torch.float64)
    # Adding a uniform number before the floor rounds up with the probability of the fraction. In
    # float64, as float32 would round the sum for values of few steps.
    steps = (values.to(torch.float64) / spacing + uniform).floor()
    if floor:
        steps = steps.clamp_min(1)
    return (steps * spacing).to(torch.float32)


def factored(second: torch.Tensor) -> torch.Tensor:
    """Return the product of the means of rows and columns over the mean of all elements.

    Float32.
    """
    left, outputs, inputs, right = second.shape
    matrix = second.reshape(left * outputs, inputs * right).to(torch.float64)
    rows, columns = matrix.mean(1, keepdim=True), matrix.mean(0, keepdim=True)
    mean = rows.mean()
    # All-zero moments, as at the first step of a frozen factor: 0/0 otherwise.
    if not mean > 0:
        return second
    return (rows * columns / mean).to(torch.float32).reshape(second.shape)
