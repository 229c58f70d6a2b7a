"""Images that the host writes for programs on a state's rows: factors in rows, and constants.

Elements have 1 byte, or 2 where factors have more than 8 bits.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt
import torch

from trainwright.network import Layer
from trainwright.onchip.layout import LANES
from trainwright.parameters import AcceleratorParameters


class Arrangement(Enum):
    """Order of a factor G(r, j, i, s) in rows; the last index lies along the lanes."""

    STATE = "r j i s//"
    """Order of a state on the chip, s filled up to whole rows of 16 words."""
    STATE_LAST = "r j i//"
    """Order of a layer's last factor, whose s is 1: i lies along the lanes."""
    IDENTITY = "identity"
    """Constant: the identity matrix of ``lanes`` rows."""
    ZEROS = "zeros"
    """Constant: ``lanes`` rows of zeros."""


OF_STATE = (Arrangement.STATE, Arrangement.STATE_LAST)


@dataclass(frozen=True)
class RowImage:
    """Factor of layer ``layer``, index ``index`` (both from 0), or a constant (-1, -1)."""

    name: str
    layer: int
    index: int
    arrangement: Arrangement
    rows: int
    element_bytes: int

    @property
    def is_factor(self) -> bool:
        return self.arrangement in OF_STATE

    @property
    def entries(self) -> int:
        """Rows of the scratchpad that the image takes."""
        return self.rows

    def packed(self, factor: torch.Tensor, p: AcceleratorParameters) -> npt.NDArray[np.uint8]:
        """Return the bytes of int64 ``factor`` (R_{n-1}, J_n, I_n, R_n); a constant ignores it."""
        values = _arranged(self.arrangement, factor.numpy(), p)
        kind = np.int8 if self.element_bytes == 1 else np.dtype("<i2")
        return np.ascontiguousarray(values, kind).view(np.uint8).ravel()


def _arranged(
    arrangement: Arrangement, g: npt.NDArray[np.int64], p: AcceleratorParameters
) -> npt.NDArray[np.int64]:
    if arrangement in OF_STATE:
        values = g if arrangement is Arrangement.STATE else g[..., 0]
        return np.pad(values, (*((0, 0),) * (values.ndim - 1), (0, -values.shape[-1] % LANES)))
    return np.eye(p.lanes, dtype=np.int64) * (arrangement is Arrangement.IDENTITY)


def row_image(
    layer: Layer, number: int, index: int, arrangement: Arrangement, p: AcceleratorParameters
) -> RowImage:
    """Return the image of factor ``index`` (from 0) of layer ``number`` (from 0)."""
    r, j, i, s = layer.factor_shapes[index]
    # A row of the state has 16 words, which are two rows of an accelerator with 8 lanes.
    of_row = LANES // p.lanes
    if arrangement is Arrangement.STATE_LAST:
        rows = r * j * -(-i // LANES) * of_row
    else:
        rows = r * j * i * -(-s // LANES) * of_row
    name = f"l{number + 1}.G{index + 1}.{arrangement.name.lower()}"
    size = 1 if p.factor_width <= 8 else 2
    return RowImage(name, number, index, arrangement, rows, size)


def constant(arrangement: Arrangement, p: AcceleratorParameters) -> RowImage:
    """Return the image of a constant."""
    return RowImage(arrangement.value, -1, -1, arrangement, p.lanes, 1)
