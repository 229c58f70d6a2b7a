"""Factor images: packing, and the order in which the contractions stream a factor."""

from itertools import product

import numpy as np
import pytest
import torch

from trainwright.compiler.images import Use, image, ones
from trainwright.network import Layer, Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import Target
from trainwright.program.packing import pack, unpack

LAYER = Layer((2, 3, 8), (3, 2, 16), (5, 7))
NETWORK = Network("one", (LAYER,), 2, (1, 96), (1, 96))
P = AcceleratorParameters(lanes=8, pe1_rows=4, pe2_rows=4, factor_width=5)
OCCURRING = {
    Use.FORWARD_LAST: [2],
    Use.FORWARD: [0, 1],
    Use.BACKWARD: [0, 1],
    Use.BACKWARD_LAST: [2],
    Use.RIGHT: [1, 2],
    Use.LEFT: [0, 1],
}


@pytest.mark.parametrize("width", range(2, 17))
def test_packing_round_trips(width):
    storage = next(s for s in (4, 8, 16) if s >= width)
    values = np.arange(-(1 << (width - 1)), 1 << (width - 1), dtype=np.int64)
    for shaped in (values, values.reshape(2, -1), values.reshape(2, -1).T.reshape(-1, 2)):
        data = pack(shaped, width, storage)
        assert data.dtype == np.uint8 and 8 * data.size == storage * values.size
        assert np.array_equal(unpack(data, width, storage), shaped)


@pytest.mark.parametrize("width", [4, 7, 16])
def test_packing_takes_any_layout_of_an_array(width):
    values = np.arange(8, dtype=np.int64).reshape(2, 4)
    storage = {4: 4, 7: 8, 16: 16}[width]
    assert np.array_equal(
        pack(np.asfortranarray(values), width, storage), pack(values, width, storage)
    )


def test_packing_is_little_endian_lowest_first():
    values = np.array([1, -1, 7, -8])
    assert pack(values, 4, 4).tolist() == [0xF1, 0x87]
    assert pack(values, 5, 8).tolist() == [0x01, 0x1F, 0x07, 0x18]
    assert pack(values[:2], 9, 16).tolist() == [0x01, 0x00, 0xFF, 0x01]


def test_unpacking_ignores_the_bits_above_the_width():
    assert unpack(np.array([0xE1, 0x1F, 0xFF, 0x10], np.uint8), 5, 8).tolist() == [1, -1, -1, -16]


def entries_of(spec, factor: torch.Tensor, p: AcceleratorParameters) -> np.ndarray:
    width = p.lanes if spec.target is Target.PE1_STORE else p.pe2_rows
    values = unpack(spec.packed(factor, p), p.factor_width, p.factor_storage_width)
    return values[: spec.entries * width].reshape(spec.entries, width)


def slot_of(spec, free: int, summed: tuple[int, ...], sizes, p) -> tuple[int, int]:
    """Entry and place in it of one element, from the descriptors' formulas."""
    *lead, last = summed
    if spec.target is Target.PE1_STORE:
        stored = [*sizes[:-1], -(-sizes[-1] // p.lanes) * p.lanes]
        if spec.use is not Use.RIGHT or spec.index + 1 == LAYER.order:
            stored[-1] = sizes[-1]
        flat = 0
        for position, size in zip((*lead, last), stored, strict=True):
            flat = flat * size + position
        step, lane = divmod(flat, p.lanes)
        tile, d = divmod(free, p.lanes)
        return (tile * spec.steps + step) * p.lanes + d, lane
    flat = 0
    for position, size in zip(summed, sizes, strict=True):
        flat = flat * size + position
    tile, d = divmod(free, p.pe2_rows)
    return tile * spec.steps + flat, d


@pytest.mark.parametrize(
    ("use", "index"), [(use, n) for use, indices in OCCURRING.items() for n in indices]
)
def test_every_element_is_where_its_contraction_reads_it(use, index):
    shape = LAYER.factor_shapes[index]
    spec = image(NETWORK, 0, index, use, P)
    generator = np.random.default_rng(index)
    factor = torch.from_numpy(generator.integers(-16, 16, shape))
    found = entries_of(spec, factor, P)
    _, free_axes, summed_axes = use.value
    # The last factor's rank R_d = 1 is no index of its own.
    summed_axes = [axis for axis in summed_axes if not (axis == 3 and index + 1 == LAYER.order)]
    sizes = [shape[axis] for axis in summed_axes]
    placed = np.zeros_like(found)
    for position in product(*(range(size) for size in shape)):
        free = 0
        for axis in free_axes:
            free = free * shape[axis] + position[axis]
        summed = tuple(position[axis] for axis in summed_axes)
        entry, place = slot_of(spec, free, summed, sizes, P)
        placed[entry, place] = factor[position]
    assert np.array_equal(found, placed)
    assert spec.name == f"l1.G{index + 1}.{use.name.lower()}"


@pytest.mark.parametrize("width", [4, 8, 16])
def test_images_are_whole_beats(width):
    p = AcceleratorParameters(lanes=8, pe1_rows=4, pe2_rows=2, factor_width=width)
    for use, indices in OCCURRING.items():
        for index in indices:
            factor = torch.ones(LAYER.factor_shapes[index], dtype=torch.int64)
            data = image(NETWORK, 0, index, use, p).packed(factor, p)
            assert data.size % p.beat_bytes == 0


def test_ones_sum_the_batch():
    spec = ones(5, P)
    found = entries_of(spec, torch.zeros(()), P)
    assert found.tolist() == [[1, 0, 0, 0]] * 5
