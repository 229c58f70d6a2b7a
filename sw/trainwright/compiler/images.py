"""Factor images: a factor as one contraction streams it, permuted, padded and packed.

The host writes one image for each use of a factor; the accelerator only ever reads them in
sequence. Model size counts a factor once; the images are copies, of a few bits for each parameter.
"""

from dataclasses import dataclass
from enum import Enum
from math import prod

import numpy as np
import numpy.typing as npt
import torch

from trainwright.compiler.digits import cut
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import digit_count
from trainwright.program.fields import Target
from trainwright.program.packing import pack


class Use(Enum):
    """How a contraction uses a factor G(r, j, i, s): the free index d, and the summed ones.

    The value is (engine, free dimensions, summed dimensions) over (r, j, i, s) = (0, 1, 2, 3).
    """

    FORWARD_LAST = (Target.PE1_STORE, (0, 1), (2, 3))  # equation 8
    FORWARD = (Target.PE2_STORE, (0, 1), (2, 3))  # equations 9, 10
    BACKWARD = (Target.PE2_STORE, (2, 3), (0, 1))  # equations 11, 12
    BACKWARD_LAST = (Target.PE1_STORE, (2, 3), (0, 1))  # equation 13
    RIGHT = (Target.PE1_STORE, (0,), (1, 2, 3))  # equations 14 to 16
    LEFT = (Target.PE2_STORE, (3,), (0, 1, 2))  # equations 17 to 19


@dataclass(frozen=True)
class Image:
    """One image: of factor ``index`` of layer ``layer`` (from 0), or of ones (``use`` None)."""

    layer: int
    index: int
    use: Use | None
    free: int
    """Elements of the free index d."""
    summed: int
    """Terms of the sum, padding not counted."""
    steps: int
    """Steps of the reduction: rows of ``lanes`` terms in PE1, terms in PE2."""
    tiles: int
    """Tiles along d: of ``lanes`` in PE1, of ``pe2_rows`` in PE2."""
    step_entries: int
    """Store entries of a step: one for each d of the tile in PE1, one in PE2."""
    target: Target
    name: str
    digits: int = 1
    """Digits that its elements are cut into, an image of each after the other, the highest first
    (``trainwright.program.descriptors.digit_count``)."""

    @property
    def digit_entries(self) -> int:
        """Store entries of one digit."""
        return self.tiles * self.steps * self.step_entries

    @property
    def entries(self) -> int:
        """Store entries used."""
        return self.digits * self.digit_entries

    def packed(self, factor: torch.Tensor, p: AcceleratorParameters) -> npt.NDArray[np.uint8]:
        """The bytes of the image of int64 ``factor`` (R_{n-1}, J_n, I_n, R_n)."""
        arrange = self._pe1 if self.target is Target.PE1_STORE else self._pe2
        values = torch.cat([arrange(digit, p) for digit in cut(factor, self.digits)])
        data = pack(values.numpy(), p.factor_width, p.factor_storage_width).ravel()
        size = -(-data.size // p.beat_bytes) * p.beat_bytes
        return np.pad(data, (0, size - data.size))

    def _arranged(self, factor: torch.Tensor) -> torch.Tensor:
        assert self.use is not None
        _, free, summed = self.use.value
        return factor.permute(*free, *summed)

    def _pe1(self, factor: torch.Tensor, p: AcceleratorParameters) -> torch.Tensor:
        """Order: tile, step, d in the tile, lane."""
        g = self._arranged(factor)
        if self.steps * p.lanes != self.summed:  # summed over a padded rank
            g = torch.nn.functional.pad(g, (0, -g.shape[-1] % p.lanes))
        g = g.reshape(self.free, self.steps, p.lanes)
        g = torch.nn.functional.pad(g, (0, 0, 0, 0, 0, -self.free % p.lanes))
        g = g.reshape(self.tiles, p.lanes, self.steps, p.lanes)
        return g.transpose(1, 2).reshape(-1, p.lanes)

    def _pe2(self, factor: torch.Tensor, p: AcceleratorParameters) -> torch.Tensor:
        """Order: tile, step, d in the tile."""
        if self.use is None:
            g = torch.ones(self.summed, 1, dtype=torch.int64)
        else:
            g = self._arranged(factor).reshape(self.free, self.summed).T
        g = torch.nn.functional.pad(g, (0, -self.free % p.pe2_rows))
        return (
            g.reshape(self.summed, self.tiles, p.pe2_rows).transpose(0, 1).reshape(-1, p.pe2_rows)
        )


def factor_digits(network: Network, number: int, index: int, p: AcceleratorParameters) -> int:
    """Digits that a factor is cut into: 1 where the accelerator takes it whole."""
    width = network.factor_format(number, index).width
    return 1 if width <= p.factor_width else digit_count(width)


def image(network: Network, number: int, index: int, use: Use, p: AcceleratorParameters) -> Image:
    """The image of factor ``index`` (from 0) of layer ``number`` (from 0) for a use."""
    layer = network.layers[number]
    shape = layer.factor_shapes[index]
    target, free, summed = use.value
    rows = p.lanes if target is Target.PE1_STORE else p.pe2_rows
    count = prod(shape[axis] for axis in free)
    terms = prod(shape[axis] for axis in summed)
    steps = terms
    if target is Target.PE1_STORE:
        last = shape[3] if use is Use.RIGHT and index + 1 < layer.order else 0
        padded = -(-last // p.lanes) * p.lanes if last else 0
        stored = terms // last * padded if last else terms
        assert stored % p.lanes == 0
        steps = stored // p.lanes
    return Image(
        layer=number,
        index=index,
        use=use,
        free=count,
        summed=terms,
        steps=steps,
        tiles=-(-count // rows),
        step_entries=rows if target is Target.PE1_STORE else 1,
        target=target,
        name=f"l{number + 1}.G{index + 1}.{use.name.lower()}",
        digits=factor_digits(network, number, index, p),
    )


def ones(terms: int, p: AcceleratorParameters) -> Image:
    """An image of ``terms`` ones: a sum over the first operand, for bias gradients."""
    return Image(
        layer=-1,
        index=-1,
        use=None,
        free=1,
        summed=terms,
        steps=terms,
        tiles=1,
        step_entries=1,
        target=Target.PE2_STORE,
        name="ones",
    )
