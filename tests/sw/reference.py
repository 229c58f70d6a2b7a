"""A second interpreter of programs, slow and literal: the docstrings of the descriptors as loops.

Flat arrays, Python integers, one iteration, one tile and one row at a time, and nothing shared
with the golden model but the descriptors. Implements ``trainwright.accelerator.Accelerator``.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product

import numpy as np
from format_kinds import oracle_of

from trainwright.accelerator import Counters, Run, Trace
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, End, Halt, Level, Loop, Program, Set, Transfer
from trainwright.program.fields import Operation

ENGINE_NAMES = {
    Operation.LOAD: "load",
    Operation.PE3: "pe2",
    Operation.BIAS: "pe2",
    Operation.MASK: "pe2",
    Operation.PE4: "pe1",
}


def requantised(value: int, shift: int, width: int) -> tuple[int, bool]:
    """Round ``value / 2^shift`` half to even, and tell whether it saturates."""
    rounded = round(Fraction(value, 1 << shift))
    least, greatest = -(1 << (width - 1)), (1 << (width - 1)) - 1
    q = min(max(rounded, least), greatest)
    return q, q != rounded


def random_byte(stream: int, key: int, unit: int) -> int:
    """Return the random bits of one result (``docs/reference/stochastic-rounding.md``)."""

    def left(word: int, bits: int) -> int:
        return (word << bits | word >> (32 - bits)) & 0xFFFFFFFF

    x = stream ^ key ^ left(key, 11) ^ left(key, 21)
    y = left(stream, 16) ^ 0x9E3779B9 ^ left(key, 5) ^ left(key, 14) ^ left(key, 26)
    for _ in range(8):
        x, y = y ^ (left(x, 1) & left(x, 8)) ^ left(x, 2), x
    state = [(y << 32 | x) >> 8 * place & 255 for place in range(8)]
    return state[unit] if unit < 8 else state[unit - 8] ^ state[(unit - 8 + 3) % 8]


def stochastically(value: int, shift: int, width: int, byte: int) -> tuple[int, bool]:
    """Round down ``value / 2^shift`` plus a random part, and tell whether it saturates."""
    part = Fraction(2 * byte + 1, 512)
    if shift < 9:
        part = Fraction(int(part * 2**shift), 2**shift)  # as many bits as there are below one
    rounded = int((Fraction(value, 1 << shift) + part) // 1)
    least, greatest = -(1 << (width - 1)), (1 << (width - 1)) - 1
    q = min(max(rounded, least), greatest)
    return q, q != rounded


def indices(levels: Sequence[Level]) -> Iterator[tuple[int, ...]]:
    """Return every index of a loop nest, the last level fastest."""
    return product(*(range(level.count) for level in levels))


def offset(levels: Sequence[Level], index: Sequence[int], name: str) -> int:
    """Sum index x stride of one operand."""
    return sum(i * getattr(level, name) for i, level in zip(index, levels, strict=True))


def signed(value: int, width: int) -> int:
    """Return the low ``width`` bits of ``value`` as a signed integer."""
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def unrolled(program: Sequence) -> Iterator[tuple[object, list[int]]]:
    """Return every executed descriptor, with the registers at its issue."""
    registers = [0] * 8
    position, open_loops = 0, []
    while not isinstance(program[position], Halt):
        d = program[position]
        position += 1
        if isinstance(d, Loop):
            open_loops.append([position, d.iterations])
        elif isinstance(d, End):
            for register, step in d.steps:
                registers[register] += step
            open_loops[-1][1] -= 1
            if open_loops[-1][1]:
                position = open_loops[-1][0]
            else:
                open_loops.pop()
        elif isinstance(d, Set):
            for register, value in d.values:
                registers[register] = value
        yield d, list(registers)
    assert not open_loops
    yield program[position], list(registers)


class ReferenceAccelerator:
    """Rows that were never written read as an assertion error."""

    def __init__(self, parameters: AcceleratorParameters, *, memory_bytes: int):
        self.parameters = parameters
        self.memory_bytes = memory_bytes
        self.memory = np.zeros(memory_bytes, np.uint8)
        self.coded = [oracle_of(fmt) for fmt in parameters.coded_formats]

    def write(self, address, data):
        assert 0 <= address <= address + data.size <= self.memory_bytes
        self.memory[address : address + data.size] = data.ravel()

    def read(self, address, size):
        assert 0 <= address <= address + size <= self.memory_bytes
        return self.memory[address : address + size].copy()

    def close(self):
        pass

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        p = self.parameters
        assert program.fingerprint == p.fingerprint
        self.pad = np.zeros((p.scratchpad_rows, p.lanes), np.int64)
        self.known = np.zeros(p.scratchpad_rows, bool)
        self.sums = [0] * p.statistics_depth
        self.saturations = [0] * p.statistics_depth
        self.underflows = [0] * p.statistics_depth
        self.bytes = {Operation.LOAD: 0, Operation.STORE: 0}
        self.trace = {"load": [], "pe1": [], "pe2": []}
        self.stream = 0
        for d, registers in unrolled(program.descriptors):
            if isinstance(d, Transfer):
                self._transfer(d, registers)
            elif isinstance(d, Compute):
                self._compute(d, registers)
                self.stream = (self.stream + 0x9E3779B9) % (1 << 32)
            elif isinstance(d, Set) and d.seed is not None:
                self.stream = d.seed
        traces = None
        if trace:
            traces = {
                engine: Trace(
                    np.array([row for row, _ in rows], np.int64),
                    np.array([words for _, words in rows], np.int16).reshape(-1, p.lanes),
                )
                for engine, rows in self.trace.items()
            }
        return Run(
            sums=np.array(self.sums),
            saturations=np.array(self.saturations),
            underflows=np.array(self.underflows),
            counters=Counters(
                bytes_read=self.bytes[Operation.LOAD], bytes_written=self.bytes[Operation.STORE]
            ),
            traces=traces,
        )

    def _row(self, row: int, number: int) -> np.ndarray:
        """Return the integers of a row whose words have the format of this number."""
        assert self.known[row], f"row {row} is read and was never written"
        return self._integers(self.pad[row], number)

    def _integers(self, words: np.ndarray, number: int) -> np.ndarray:
        if number == 0:
            return words
        return np.array([self.coded[number - 1].integers[int(word)] for word in words])

    def _put(self, engine: str, row: int, words: Sequence[int]) -> None:
        assert 0 <= row < len(self.pad)
        self.pad[row], self.known[row] = words, True
        self.trace[engine].append((row, [int(word) for word in words]))

    # Transfers: a run of beats for every index.

    def _transfer(self, d: Transfer, registers: list[int]) -> None:
        p = self.parameters
        for index in indices(d.levels):
            address = d.address + registers[d.address_register]
            address += offset(d.levels, index, "address")
            local = d.local + registers[d.local_register] + offset(d.levels, index, "local")
            size = d.beats * p.beat_bytes
            assert 0 <= address <= address + size <= self.memory_bytes
            self.bytes[d.operation] += size
            if d.operation is Operation.STORE:
                self._store(d, address, local, size)
            else:
                self._load(d, address, local, size)

    def _load(self, d: Transfer, address: int, local: int, size: int) -> None:
        lanes, width = self.parameters.lanes, d.element_bytes
        row_bytes = lanes * width
        assert size % row_bytes == 0
        for row in range(size // row_bytes):
            start = address + row * row_bytes
            words = [
                int.from_bytes(self.memory[start + k * width :][:width].tobytes(), "little")
                for k in range(lanes)
            ]
            self._put("load", local + row, [signed(word, 8 * width) for word in words])

    def _store(self, d: Transfer, address: int, local: int, size: int) -> None:
        lanes, width = self.parameters.lanes, d.element_bytes
        for row in range(size // (lanes * width)):
            for k, word in enumerate(self._row(local + row, 0)):
                data = (int(word) % (1 << (8 * width))).to_bytes(width, "little")
                start = address + (row * lanes + k) * width
                self.memory[start : start + width] = list(data)

    # Contractions and element-wise operations: one tile for every index of the outer levels.

    def _compute(self, d: Compute, registers: list[int]) -> None:
        p = self.parameters
        count = {Operation.PE3: p.pe2_rows, Operation.PE4: p.pe1_rows}
        for index in indices(d.outer):
            x = d.x + registers[d.x_register] + offset(d.outer, index, "x")
            g = d.g + registers[d.g_register] + offset(d.outer, index, "g")
            z = d.z + registers[d.z_register] + offset(d.outer, index, "z")
            rows = count.get(d.operation, 1)
            if index[d.tile_level] == d.levels[d.tile_level].count - 1:
                rows = d.last_rows
            tile = self._tile(d, x, g, rows)
            for r, sums in enumerate(tile):
                words = []
                for lane, value in enumerate(sums):
                    assert abs(int(value)) < 1 << (p.vector_width - 1)
                    q, saturated, underflow = self._encoded(d, int(value), z, r, lane)
                    self.sums[d.slot] += abs(q)
                    self.saturations[d.slot] += saturated
                    self.underflows[d.slot] += underflow
                    words.append(q)
                self._put_digits(d, z + r * d.z_row_stride, words)

    def _put_digits(self, d: Compute, row: int, words: list[int]) -> None:
        """Write a whole row, or on words of 8 bits its digits, the highest first."""
        digits = -(-(d.out_width - 1) // 7) if self.parameters.wide_tensors else 1
        for n in range(digits):
            scale = 128 ** (digits - 1 - n)
            kept = [word // scale % 128 if n else word // scale for word in words]
            self._put(ENGINE_NAMES[d.operation], row + n, kept)

    def _encoded(self, d: Compute, value: int, z: int, r: int, lane: int) -> tuple[int, bool, bool]:
        if d.z_format:
            return self.coded[d.z_format - 1].encoded(value, d.shift, d.underflow_zero)
        return *self._requantised(d, value, z, r, lane), False

    def _requantised(self, d: Compute, value: int, z: int, r: int, lane: int) -> tuple[int, bool]:
        if not d.stochastic:
            return requantised(value, d.shift, d.out_width)
        if d.operation is Operation.PE4:
            byte = random_byte(self.stream, 16 * z + lane, r)
        else:
            byte = random_byte(self.stream, 16 * (z + r * d.z_row_stride), lane)
        return stochastically(value, d.shift, d.out_width, byte)

    def _tile(self, d: Compute, x: int, g: int, rows: int) -> list[np.ndarray]:
        p = self.parameters
        if d.operation in (Operation.BIAS, Operation.MASK):
            first, second, sign = np.zeros((3, p.lanes), np.int64)
            for step in indices(d.reduction):  # digits, if any
                x_at, g_at = x + offset(d.reduction, step, "x"), g + offset(d.reduction, step, "g")
                first = first * 128 + self._row(x_at, d.x_format)
                digit = self._row(g_at, d.g_format)
                second, sign = second * 128 + digit, np.where(sign, sign, digit)
            if d.operation is Operation.MASK:
                return [np.where(sign > 0, first, 0)]
            total = (first << d.x_shift) + (second << d.g_shift)
            return [np.maximum(total, 0) if d.relu else total]
        sums = [np.zeros(p.lanes, np.int64) for _ in range(rows)]
        for step in indices(d.reduction):
            if d.digits and step[d.digits - 1] and not any(step[d.digits :]):
                sums = [row * 128 for row in sums]
            x_at, g_at = x + offset(d.reduction, step, "x"), g + offset(d.reduction, step, "g")
            for r in range(rows):
                if d.operation is Operation.PE4:
                    first = self._row(x_at + r * d.x_row_stride, d.x_format)
                    entries = [
                        self._row(g_at + k * d.g_row_stride, d.g_format) for k in range(p.lanes)
                    ]
                    sums[r] = sums[r] + np.array([(first * entry).sum() for entry in entries])
                else:
                    sums[r] = sums[r] + self._row(x_at, d.x_format) * self._scalar(d, g_at, r)
        limit = 1 << (p.accumulator_width - 1)
        assert all(-limit <= value < limit for row in sums for value in row), "overflow"
        return sums

    def _scalar(self, d: Compute, g: int, r: int) -> np.int64:
        p = self.parameters
        groups = p.lanes // p.pe2_rows
        at = g % groups * p.pe2_rows + r
        return self._integers(self._row(g // groups, 0)[at : at + 1], d.g_format)[0]
