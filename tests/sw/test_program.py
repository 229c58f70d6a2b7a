"""Programs: the binary encoding, its errors, and the documentation of its fields."""

import random
import struct
import zlib
from dataclasses import replace

import pytest
from cases import random_case
from field_tables import DOCUMENT, tables

from trainwright.lowering import compile_step
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Compute,
    End,
    Halt,
    Level,
    Loop,
    Program,
    Set,
    Transfer,
    TransferLevel,
)
from trainwright.program.encoding import (
    ProgramError,
    decode,
    decode_descriptor,
    descriptor_fields,
    encode,
    encode_descriptor,
    encode_descriptors,
    without_names,
)
from trainwright.program.fields import (
    COMPUTE,
    DESCRIPTOR_BYTES,
    LAYOUTS,
    LOCAL_WIDTH,
    Engine,
    Operation,
    Target,
    layout_width,
)
from trainwright.program.listing import listing

P = AcceleratorParameters()
LOCAL = 1 << LOCAL_WIDTH


def random_levels(rng: random.Random, most: int) -> tuple[Level, ...]:
    def stride() -> int:
        return rng.choice([0, 1, rng.randrange(200), rng.randrange(-200, 0)])

    return tuple(
        Level(rng.randint(2, 9), stride(), stride(), stride()) for _ in range(rng.randint(1, most))
    )


def random_compute(rng: random.Random) -> Compute:
    levels = random_levels(rng, 10)
    reduce_levels = rng.randrange(len(levels))
    return Compute(
        operation=rng.choice([Operation.PE3, Operation.PE4, Operation.BIAS, Operation.MASK]),
        levels=levels,
        x=rng.randrange(LOCAL),
        g=rng.randrange(LOCAL),
        z=rng.randrange(LOCAL),
        reduce_levels=reduce_levels,
        tile_level=rng.randrange(len(levels) - reduce_levels),
        last_rows=rng.randint(1, 16),
        x_row_stride=rng.randrange(-LOCAL // 2, LOCAL // 2),
        z_row_stride=rng.randrange(-LOCAL // 2, LOCAL // 2),
        g_row_stride=rng.randrange(-LOCAL // 2, LOCAL // 2),
        x_register=rng.randrange(8),
        g_register=rng.randrange(8),
        z_register=rng.randrange(8),
        shift=rng.randrange(64),
        out_width=rng.randint(2, 16),
        slot=rng.randrange(256),
        relu=rng.random() < 0.5,
        x_shift=rng.randrange(16),
        g_shift=rng.randrange(16),
        wait=Engine(rng.randrange(16)),
        wait_older=Engine(rng.randrange(16)),
    )


def random_transfer(rng: random.Random) -> Transfer:
    return Transfer(
        operation=rng.choice([Operation.LOAD, Operation.STORE]),
        address=rng.randrange(1 << 32),
        local=rng.randrange(LOCAL),
        beats=rng.randrange(1, 1 << 16),
        levels=tuple(
            TransferLevel(rng.randint(2, 999), rng.randrange(-9999, 9999), rng.randrange(-99, 99))
            for _ in range(rng.randrange(4))
        ),
        target=rng.choice(list(Target)),
        element_bytes=rng.randint(1, 2),
        address_register=rng.randrange(8),
        local_register=rng.randrange(8),
        wait=Engine(rng.randrange(16)),
        wait_older=Engine(rng.randrange(16)),
    )


def random_updates(rng: random.Random) -> tuple[tuple[int, int], ...]:
    registers = sorted(rng.sample(range(1, 8), rng.randrange(8)))
    return tuple((register, rng.randrange(-(1 << 31), 1 << 31)) for register in registers)


def random_descriptor(rng: random.Random):
    wait = {"wait": Engine(rng.randrange(16)), "wait_older": Engine(rng.randrange(16))}
    return rng.choice(
        [
            random_compute,
            random_compute,
            random_transfer,
            lambda r: Loop(iterations=r.randrange(1, 1 << 16), **wait),
            lambda r: End(steps=random_updates(r), **wait),
            lambda r: Set(values=random_updates(r), **wait),
            lambda r: Halt(**wait),
        ]
    )(rng)


@pytest.mark.parametrize("seed", range(20))
def test_random_descriptors_round_trip(seed):
    rng = random.Random(seed)
    for _ in range(50):
        d = random_descriptor(rng)
        data = encode_descriptor(d)
        assert len(data) == DESCRIPTOR_BYTES
        assert decode_descriptor(data) == d


def binds(step):
    """Both programs of a step, with some shifts."""
    names = [f"l{n}" for n in range(1, len(step.network.layers) + 1)]
    operands = {"x": -7, f"{names[-1]}.dy": -15}
    for name, layer in zip(names, step.network.layers, strict=True):
        operands |= {f"{name}.G{n}": -3 for n in range(1, layer.order + 1)} | {f"{name}.b": -8}
    forward = step.forward.bind({}, operands)
    wanted = {tensor.name: -2 for tensor in step.backward.tensors}
    return forward.program, step.backward.bind(wanted, forward.exponents | operands).program


def compiled(seed: int):
    case = random_case(seed)
    return compile_step(case.network, case.batch, case.parameters)


@pytest.mark.parametrize(
    "seed", (*range(6), *(pytest.param(n, marks=pytest.mark.slow) for n in range(6, 20)))
)
def test_compiled_programs_round_trip(seed):
    step = compiled(seed)
    for program in binds(step):
        assert decode(encode(program), step.parameters) == without_names(program)


@pytest.mark.parametrize("name", ["digits", "fashion"])
def test_built_in_programs_round_trip(name):
    step = compile_step(load_network(name), 64, P)
    for program in binds(step):
        data = encode(program)
        assert decode(data, P) == without_names(program)
        assert data[20:] == encode_descriptors(program)
        assert len(data) == 20 + 128 * len(program.descriptors)


def walked(fields: dict[str, int], base: int, name: str, levels: int, width: int) -> list[int]:
    """Addresses as the hardware makes them: one running address, a delta for each step."""
    counts = [fields[f"count{i}"] for i in range(levels)]
    index, address, found = [0] * levels, base, []
    while True:
        found.append(address)
        advanced = next((i for i in reversed(range(levels)) if index[i] + 1 < counts[i]), None)
        if advanced is None:
            return found
        index[advanced] += 1
        index[advanced + 1 :] = [0] * (levels - advanced - 1)
        address = (address + fields[f"{name}_delta{advanced}"]) % (1 << width)


@pytest.mark.parametrize("seed", range(10))
def test_deltas_walk_through_the_strides(seed):
    rng = random.Random(seed)
    d = replace(random_compute(rng), levels=random_levels(rng, 5), tile_level=0, reduce_levels=0)
    fields = descriptor_fields(d)
    for name in ("x", "g", "z"):
        base, wanted = getattr(d, name), [getattr(d, name)]
        for level in d.levels:
            step = getattr(level, name)
            wanted = [a + i * step for a in wanted for i in range(level.count)]
        found = walked(fields, base, f"{name}", 10, LOCAL_WIDTH)
        assert found == [address % LOCAL for address in wanted]


def test_fields_are_packed_from_bit_0():
    d = Loop(iterations=0x1234, wait=Engine.LOAD | Engine.PE2, wait_older=Engine.PE1)
    assert encode_descriptor(d)[:4] == bytes([0x98, 0x44, 0x23, 0x01])
    transfer = Transfer(operation=Operation.LOAD, address=0xABCD, local=0, beats=1)
    assert encode_descriptor(transfer)[:4] == bytes([0x01, 0x80, 0xCD, 0xAB])


def test_field_names_are_those_that_are_encoded():
    rng = random.Random(0)
    for _ in range(200):
        d = random_descriptor(rng)
        assert set(descriptor_fields(d)) == {name for name, _ in LAYOUTS[d.operation]}


def test_descriptors_fit():
    assert layout_width(COMPUTE) <= 8 * DESCRIPTOR_BYTES


# Errors.


def of_fields(**values: int) -> bytes:
    """A LOAD of a beat, with some of its fields changed."""
    d = Transfer(operation=Operation.LOAD, address=0, local=0, beats=1)
    fields, word, position = descriptor_fields(d) | values, 0, 0
    for name, width in LAYOUTS[Operation.LOAD]:
        word |= fields[name] << position
        position += width
    return word.to_bytes(DESCRIPTOR_BYTES, "little")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"operation": 3}, "operation 3 is unknown"),
        ({"operation": 4}, "operation 4 is unknown"),
        ({"target": 1}, "LOAD: target = 1 is not from 0 to 0"),
        ({"target": 2}, "LOAD: target = 2 is not from 0 to 0"),
    ],
)
def test_descriptors_that_there_are_not(values, message):
    assert decode_descriptor(of_fields()).beats == 1
    with pytest.raises(ProgramError, match=message):
        decode_descriptor(of_fields(**values))
    with pytest.raises(ProgramError, match=f"descriptor 0: {message}"):
        decode(resealed(of_fields(**values)), P)


@pytest.mark.parametrize(
    ("descriptor", "message"),
    [
        (Loop(iterations=0), "LOOP: iterations = 0 is not from 1 to 65535"),
        (Loop(iterations=1 << 16), "LOOP: iterations = 65536 is not from 1 to 65535"),
        (
            Transfer(operation=Operation.LOAD, address=0, local=0, beats=0, tensor="x"),
            "x: beats = 0 is not from 1 to 65535",
        ),
        (
            Transfer(operation=Operation.LOAD, address=1 << 32, local=0, beats=1),
            "LOAD: address = 4294967296 is not from 0",
        ),
        (
            Compute(operation=Operation.PE4, levels=(Level(1 << 16),), x=0, g=0, z=0),
            "PE4: count9 = 65536",
        ),
        (
            Compute(operation=Operation.PE3, levels=(Level(1),), x=-1, g=0, z=0, tensor="z"),
            "z: x_base = -1 is not from 0 to 1048575",
        ),
        (
            Compute(operation=Operation.PE3, levels=(Level(1),), x=0, g=0, z=0, shift=64),
            "PE3: shift = 64 is not from 0 to 63",
        ),
        (
            Compute(operation=Operation.PE3, levels=(Level(2),) * 11, x=0, g=0, z=0),
            "PE3: 11 loop levels, at most 10 fit",
        ),
        (
            Transfer(
                operation=Operation.STORE,
                address=0,
                local=0,
                beats=1,
                levels=(TransferLevel(2),) * 4,
            ),
            "STORE: 4 transfer levels, at most 3 fit",
        ),
        (Set(values=((0, 1),)), "address register 0 is not one of R1 to R7"),
        (End(steps=((8, 1),)), "address register 8 is not one of R1 to R7"),
    ],
)
def test_what_cannot_be_encoded(descriptor, message):
    with pytest.raises(ProgramError, match=message):
        encode_descriptor(descriptor)


def header(data: bytes, **changes: int | bytes) -> bytes:
    """A program file with some words of its header changed."""
    names = ("magic", "version", "reserved", "count", "fingerprint", "crc")
    words = dict(zip(names, struct.unpack_from("<4sHHIII", data), strict=True)) | changes
    return struct.pack("<4sHHIII", *words.values()) + data[20:]


def resealed(body: bytes) -> bytes:
    count = len(body) // DESCRIPTOR_BYTES
    return struct.pack("<4sHHIII", b"TRWP", 5, 0, count, P.fingerprint, zlib.crc32(body)) + body


@pytest.fixture(scope="module")
def digits_file() -> bytes:
    return encode(binds(compile_step(load_network("digits"), 4, P))[0])


def test_header(digits_file):
    magic, version, reserved, count, fingerprint, crc = struct.unpack_from("<4sHHIII", digits_file)
    assert (magic, version, reserved) == (b"TRWP", 5, 0)
    assert 128 * count + 20 == len(digits_file)
    assert (fingerprint, crc) == (P.fingerprint, zlib.crc32(digits_file[20:]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "not a program file: .* write it again with"),
        (lambda data: data[:19], "not a program file: .* write it again with"),
        (lambda data: header(data, magic=b"ELF\x00"), "not a program file: .* write it again with"),
        (
            lambda data: header(data, version=1),
            "of version 1, this trainwright reads version 5; write it again",
        ),
        (lambda data: data[:-1], r"need \d+ bytes after the header, there are \d+; write it again"),
        (lambda data: data + b"\0", "truncated or overlong"),
        (lambda data: header(data, count=1), "1 descriptors need 128 bytes"),
        (
            lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
            r"corrupt .* CRC-32 .* is [0-9a-f]{8}, the header says [0-9a-f]{8};",
        ),
        (
            lambda data: header(data, crc=5),
            r"corrupt .* CRC-32 .* is [0-9a-f]{8}, the header says [0-9a-f]{8};",
        ),
        (
            lambda data: header(data, fingerprint=1),
            r"\(fingerprint 00000001, these have .*--preset",
        ),
        (lambda data: resealed(data[20:-128]), r"HALT: its last descriptor, \d+, is STORE"),
        (lambda data: resealed(b""), "is empty and does not end with HALT"),
    ],
)
def test_what_cannot_be_decoded(digits_file, change, message):
    decode(digits_file, P)
    with pytest.raises(ProgramError, match=message):
        decode(change(digits_file), P)


def test_every_flipped_bit_is_found(digits_file):
    rng = random.Random(3)
    reserved = range(8 * 6, 8 * 8)  # not looked at
    for _ in range(300):
        bit = rng.choice([b for b in range(8 * len(digits_file)) if b not in reserved])
        data = bytearray(digits_file)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProgramError):
            decode(bytes(data), P)


def test_programs_of_another_accelerator(digits_file):
    with pytest.raises(ProgramError, match=r"other accelerator parameters .* compile it again"):
        decode(digits_file, replace(P, lanes=8))


# Documentation.


@pytest.mark.parametrize("name", list(tables()))
def test_documented_fields_are_the_fields(name):
    """``python tests/sw/field_tables.py`` writes the tables anew."""
    assert tables()[name] in DOCUMENT.read_text()


def test_documented_listing_is_a_listing():
    step = compile_step(load_network("digits"), 64, P)
    programs = [Program(part.descriptors, 0) for part in (step.forward, step.backward)]
    lines = [line for program in programs for line in listing(program).splitlines()]
    excerpt = DOCUMENT.read_text().split("```text\n")[1].split("```")[0].splitlines()
    quoted = [line for line in excerpt if line and not line.startswith("#")]
    assert len(quoted) >= 10
    for line in quoted:
        assert line in lines
