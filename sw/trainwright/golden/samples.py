"""SAMPLES in the golden model: records of a data set to the scratchpad."""

import numpy as np

from trainwright.golden.state import Addresses, MachineState, Words
from trainwright.onchip.samples import expanded
from trainwright.parameters import AcceleratorParameters
from trainwright.program.samples import Samples

NIBBLE_BITS = 4


def drawn(d: Samples, state: MachineState) -> Addresses:
    """Return the numbers of the records, (samples,); the order goes on where they are drawn."""
    if not d.drawn:
        return np.arange(d.samples)
    numbers = np.zeros(d.samples, np.int64)
    for place in range(d.samples):
        numbers[place], state.order = state.order.draw(d.total, d.order_first, d.order_length)
    return numbers


def samples(d: Samples, state: MachineState, p: AcceleratorParameters) -> tuple[Addresses, Words]:
    """Execute ``d`` on ``state``; gives the rows that it wrote, in order."""
    base = d.address + state.registers[d.address_register]
    local = d.local + state.registers[d.local_register]
    addresses = []
    rows = []
    for place, number in enumerate(drawn(d, state).tolist()):
        start = base + number * d.stride
        # The last beat of a record is its target row, one byte a lane; pixels come before it.
        record = state.memory[start : start + d.record_beats * p.beat_bytes]
        pixels, targets = record[: -p.beat_bytes], record[-p.beat_bytes :]
        if d.pixels == NIBBLE_BITS:
            # The lower nibble is the first pixel.
            pixels = np.stack([pixels & 15, pixels >> NIBBLE_BITS], 1).ravel().astype(np.uint8)
        inputs = expanded(pixels, d.pixels, d.input_bits + 1).reshape(-1, p.lanes)
        for to, words in (
            (local + place * d.local_step + np.arange(d.rows), inputs.astype(np.int16)),
            (np.array([d.targets + place]), targets.view(np.int8).astype(np.int16)[None]),
        ):
            state.write(to, words)
            # Whole records count, as they cross the memory's port, labels and padding included.
            addresses.append(to)
            rows.append(words)
    state.bytes_read += d.samples * d.record_beats * p.beat_bytes
    return np.concatenate(addresses), np.concatenate(rows)
