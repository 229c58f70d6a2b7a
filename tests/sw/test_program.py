"""Programs: the binary encoding, its errors, and the documentation of its fields."""

import random
import re
import struct
import zlib
from dataclasses import replace
from typing import Any

import pytest
from cases import random_case, without_names
from field_tables import CELL, DOCUMENT, LINE, PICTURES, pictures, tables
from slowly import mostly_slow
from vector_cases import random_instruction

from trainwright.compiler import compile_step
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    LAYOUTS,
    Compute,
    Descriptor,
    End,
    Halt,
    Level,
    Loop,
    Program,
    Set,
    Transfer,
    TransferLevel,
    layout_width,
)
from trainwright.program.encoding import (
    MAGIC,
    VERSION,
    ProgramError,
    decode,
    decode_descriptor,
    encode,
    encode_descriptor,
    encode_descriptors,
)
from trainwright.program.exponents import (
    ENTRIES,
    SCALARS,
    MoveScales,
    Scalar,
    ScalarKind,
    ScaleEntry,
)
from trainwright.program.fields import (
    DESCRIPTOR_BYTES,
    INSTRUCTION_WIDTH,
    LOCAL_WIDTH,
    ORDER_WIDTH,
    Engine,
    Operation,
    Target,
)
from trainwright.program.listing import listing
from trainwright.program.samples import Samples
from trainwright.program.table import encoded_fields
from trainwright.program.vector import (
    CODE_WORDS,
    CONSTANTS,
    FACTOR_WIDTH,
    STREAMS,
    Code,
    Instruction,
    Stream,
    Vector,
)

P = AcceleratorParameters()
LOCAL = 1 << LOCAL_WIDTH


def random_stride(rng: random.Random, width: int = LOCAL_WIDTH) -> int:
    """Draw a stride, often from the ends of its range."""
    most = 1 << (width - 1)
    return rng.choice([0, 1, rng.randrange(200), rng.randrange(-200, 0), -most, most - 1])


def random_levels(rng: random.Random, most: int) -> tuple[Level, ...]:
    return tuple(
        Level(rng.randint(2, 9), *(random_stride(rng) for _ in range(3)))
        for _ in range(rng.randint(1, most))
    )


def random_wait(rng: random.Random) -> dict[str, Any]:
    return {"wait": Engine(rng.randrange(16)), "wait_older": Engine(rng.randrange(16))}


def random_compute(rng: random.Random) -> Compute:
    levels = random_levels(rng, 10)
    reduce_levels = rng.randrange(len(levels))
    digits = rng.randrange(3)
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
        stochastic=rng.random() < 0.5,
        x_format=rng.randrange(8),
        g_format=rng.randrange(8),
        z_format=rng.randrange(8),
        underflow_zero=not digits and rng.random() < 0.5,
        digits=digits,
        x_exponent=rng.randrange(256),
        g_exponent=rng.randrange(256),
        z_exponent=rng.randrange(256),
        exact=rng.random() < 0.5,
        grows=rng.random() < 0.5,
        **random_wait(rng),
    )


def random_transfer(rng: random.Random) -> Transfer:
    return Transfer(
        operation=rng.choice([Operation.LOAD, Operation.STORE]),
        address=rng.randrange(1 << 32),
        local=rng.randrange(LOCAL),
        beats=rng.randrange(1, 1 << 16),
        levels=tuple(
            TransferLevel(rng.randint(2, 999), random_stride(rng, 32), random_stride(rng))
            for _ in range(rng.randrange(4))
        ),
        target=rng.choice(list(Target)),
        element_bytes=rng.randint(1, 2),
        address_register=rng.randrange(8),
        local_register=rng.randrange(8),
        eighth=rng.randrange(16),
        **random_wait(rng),
    )


def random_samples(rng: random.Random) -> Samples:
    return Samples(
        address=rng.randrange(1 << 32),
        local=rng.randrange(LOCAL),
        targets=rng.randrange(LOCAL),
        samples=rng.randrange(1, 1 << 16),
        beats=rng.randrange(1, (1 << 16) - 1),
        stride=rng.randrange(1 << 32),
        local_step=random_stride(rng),
        total=rng.randrange(1, 1 << ORDER_WIDTH),
        pixels=rng.choice((4, 8)),
        input_bits=rng.randint(1, 15),
        drawn=rng.random() < 0.5,
        order_first=rng.randrange(1 << ORDER_WIDTH),
        order_length=rng.randrange(1, 1 << ORDER_WIDTH),
        address_register=rng.randrange(8),
        local_register=rng.randrange(8),
        **random_wait(rng),
    )


def random_code(rng: random.Random) -> Code:
    count = rng.choice((1, CODE_WORDS, rng.randint(1, CODE_WORDS)))
    instructions = tuple(random_instruction(rng, stochastic=True) for _ in range(count))
    return Code(first=rng.randrange(64), instructions=instructions, **random_wait(rng))


def random_scalar(rng: random.Random) -> Scalar:
    kind = rng.choice([kind for kind in ScalarKind if kind is not ScalarKind.NONE])
    slots, offset = (
        (rng.randrange(256), rng.randrange(256)),
        rng.choice((-64, 63, rng.randint(-64, 63))),
    )
    return Scalar(kind, rng.randrange(8), *slots, offset, rng.random() < 0.5)


def random_vector(rng: random.Random) -> Vector:
    """Draw a vector pass with as many streams as it uses, and no 0 as last constant."""
    reads, writes = rng.randrange(1 << STREAMS), rng.randrange(1 << STREAMS)
    ends = (-(1 << (FACTOR_WIDTH - 1)), -1, 1, (1 << (FACTOR_WIDTH - 1)) - 1)
    return Vector(
        entry=rng.randrange(64),
        length=rng.randrange(1, 64),
        outer=rng.randint(1, 99),
        inner=rng.randint(1, 99),
        streams=tuple(
            Stream(rng.randrange(LOCAL), random_stride(rng), random_stride(rng))
            for _ in range((reads | writes).bit_length())
        ),
        reads=reads,
        writes=writes,
        constants=tuple(rng.choice(ends) for _ in range(rng.randint(0, CONSTANTS))),
        scalars=tuple(random_scalar(rng) for _ in range(rng.randint(0, SCALARS))),
        key=rng.randrange(LOCAL),
        slot=rng.randrange(256),
        eighth=rng.randrange(16),
        **random_wait(rng),
    )


def random_scales(rng: random.Random) -> MoveScales:
    entries = tuple(
        ScaleEntry(
            rng.randrange(256), rng.randrange(256), rng.randrange(1 << 48),
            rng.randrange(1 << INSTRUCTION_WIDTH), rng.randrange(256),
        )
        for _ in range(rng.randint(1, ENTRIES))
    )  # fmt: skip
    return MoveScales(entries=entries, **random_wait(rng))


def random_updates(rng: random.Random) -> tuple[tuple[int, int], ...]:
    registers = sorted(rng.sample(range(1, 8), rng.randrange(8)))
    return tuple((register, random_stride(rng, 32)) for register in registers)


def random_set(rng: random.Random) -> Set:
    seed = rng.choice((None, 0, rng.randrange(1 << 32)))
    by_step = seed is not None and rng.random() < 0.5
    return Set(values=random_updates(rng), seed=seed, by_step=by_step, **random_wait(rng))


def random_descriptor(rng: random.Random):
    wait = random_wait(rng)
    return rng.choice(
        [
            random_compute,
            random_compute,
            random_transfer,
            random_samples,
            random_code,
            random_vector,
            random_scales,
            lambda r: Loop(iterations=r.randrange(1, 1 << 16), **wait),
            lambda r: End(steps=random_updates(r), **wait),
            random_set,
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
    """Bind both programs of a step, with some shifts."""
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


@pytest.mark.usefixtures("first_program")
@mostly_slow("seed", range(20), quick=range(6))
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
    """Return addresses as the hardware makes them: a running address plus deltas."""
    counts = [fields[f"count{i}"] for i in range(levels)]
    index, address, addresses = [0] * levels, base, []
    while True:
        addresses.append(address)
        advanced = next((i for i in reversed(range(levels)) if index[i] + 1 < counts[i]), None)
        if advanced is None:
            return addresses
        index[advanced] += 1
        index[advanced + 1 :] = [0] * (levels - advanced - 1)
        address = (address + fields[f"{name}_delta{advanced}"]) % (1 << width)


@pytest.mark.parametrize("seed", range(10))
def test_deltas_walk_through_the_strides(seed):
    rng = random.Random(seed)
    d = replace(random_compute(rng), levels=random_levels(rng, 5), tile_level=0, reduce_levels=0)
    fields = encoded_fields(d)
    for name in ("x", "g", "z"):
        base, wanted = getattr(d, name), [getattr(d, name)]
        for level in d.levels:
            step = getattr(level, name)
            wanted = [a + i * step for a in wanted for i in range(level.count)]
        addresses = walked(fields, base, f"{name}", 10, LOCAL_WIDTH)
        assert addresses == [address % LOCAL for address in wanted]


def test_fields_are_packed_from_bit_0():
    d = Loop(iterations=0x1234, wait=Engine.LOAD | Engine.PE2, wait_older=Engine.PE1)
    assert encode_descriptor(d)[:4] == bytes([0x98, 0x44, 0x23, 0x01])
    transfer = Transfer(operation=Operation.LOAD, address=0xABCD, local=0, beats=1)
    assert encode_descriptor(transfer)[:4] == bytes([0x01, 0x80, 0xCD, 0xAB])


def test_field_names_are_those_that_are_encoded():
    rng = random.Random(0)
    for _ in range(200):
        d = random_descriptor(rng)
        assert set(encoded_fields(d)) == {field.name for field in LAYOUTS[d.operation]}


def test_program_descriptors_fit_their_words():
    assert layout_width(Compute.layout) <= 8 * DESCRIPTOR_BYTES


# Errors.


A_BEAT = Transfer(operation=Operation.LOAD, address=0, local=0, beats=1)
CODE = Code(first=0, instructions=(Instruction(),))
PASS = Vector(entry=0, length=1, outer=1, inner=1, streams=(), reads=0, writes=0)
SCALES = MoveScales(entries=(ScaleEntry(0, 0, 0, 0),))


def of_fields(d: Descriptor = A_BEAT, **values: int) -> bytes:
    """Return a descriptor with some of its fields changed."""
    fields, word, position = encoded_fields(d) | values, 0, 0
    for field in LAYOUTS[d.operation]:
        word |= fields[field.name] << position
        position += field.width
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
    assert decode_descriptor(of_fields()) == A_BEAT
    with pytest.raises(ProgramError, match=message):
        decode_descriptor(of_fields(**values))
    with pytest.raises(ProgramError, match=f"descriptor 0: {message}"):
        decode(resealed(of_fields(**values)), P)


@pytest.mark.parametrize(
    ("d", "values", "message"),
    [
        (CODE, {"instructions": 21}, "CODE: 21 instructions, at most 20 fit"),
        (CODE, {"word0": 10}, "CODE: 10 is not a valid Kind"),
        (SCALES, {"entries": 7}, "SCALES: 7 entries, at most 6 fit"),
        (PASS, {"rows": 7, "inner": 2}, "VECTOR: 7 rows are no multiple of inner = 2"),
    ],
)
def test_passes_that_there_are_not(d, values, message):
    assert decode_descriptor(of_fields(d)) == d
    with pytest.raises(ProgramError, match=message):
        decode_descriptor(of_fields(d, **values))


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
        (
            replace(CODE, instructions=(Instruction(),) * 21),
            "CODE: 21 instructions, at most 20 fit",
        ),
        (replace(SCALES, entries=SCALES.entries * 7), "SCALES: 7 entries, at most 6 fit"),
        (
            replace(PASS, scalars=(Scalar(ScalarKind.VALUE, 0),) * 5),
            "VECTOR: 5 scalars, at most 4 fit",
        ),
        (Set(values=((0, 1),)), "address register 0 is not one of R1 to R7"),
        (End(steps=((8, 1),)), "address register 8 is not one of R1 to R7"),
    ],
)
def test_program_rejects_unencodable_descriptor(descriptor, message):
    with pytest.raises(ProgramError, match=message):
        encode_descriptor(descriptor)


def header(data: bytes, **changes: int | bytes) -> bytes:
    """Return a program file with some words of its header changed."""
    names = ("magic", "version", "reserved", "count", "fingerprint", "crc")
    words = dict(zip(names, struct.unpack_from("<4sHHIII", data), strict=True)) | changes
    return struct.pack("<4sHHIII", *words.values()) + data[20:]


def resealed(body: bytes) -> bytes:
    count = len(body) // DESCRIPTOR_BYTES
    return struct.pack("<4sHHIII", MAGIC, VERSION, 0, count, P.fingerprint, zlib.crc32(body)) + body


@pytest.fixture(scope="module")
def digits_file() -> bytes:
    return encode(binds(compile_step(load_network("digits"), 4, P))[0])


def test_program_header_is_checked(digits_file):
    magic, version, reserved, count, fingerprint, crc = struct.unpack_from("<4sHHIII", digits_file)
    assert (magic, version, reserved) == (b"TRWP", 7, 0)
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
            "of version 1, this trainwright reads version 7; write it again",
        ),
        (
            lambda data: header(data, version=6),
            "of version 6, this trainwright reads version 7; write it again",
        ),
        (
            lambda data: header(data, reserved=0x100),
            "corrupt .* bytes 6 and 7 of its header are 0x0100, not 0; write it again",
        ),
        (
            lambda data: data[:-1],
            r"needs \d+ bytes after the header, there are \d+; write",
        ),
        (lambda data: data + b"\0", "truncated or overlong"),
        (lambda data: header(data, count=1), "for 1 descriptor it needs 128 bytes"),
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
        (
            lambda data: resealed(data[20:-1] + b"\x80"),
            "HALT: bits behind its last field",
        ),
    ],
)
def test_program_rejects_undecodable_words(digits_file, change, message):
    decode(digits_file, P)
    with pytest.raises(ProgramError, match=message):
        decode(change(digits_file), P)


def test_every_flipped_bit_is_found(digits_file):
    rng = random.Random(3)
    for _ in range(300):
        bit = rng.randrange(8 * len(digits_file))
        data = bytearray(digits_file)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProgramError):
            decode(bytes(data), P)


def test_programs_of_another_accelerator(digits_file):
    with pytest.raises(ProgramError, match=r"other accelerator parameters .* compile it again"):
        decode(digits_file, replace(P, lanes=8))


# Documentation.


def test_documented_header_has_the_version_of_program_files():
    text = DOCUMENT.read_text()
    assert f"| 4-5 | version: {VERSION} |" in text


@pytest.mark.parametrize("name", list(tables()))
def test_documented_fields_are_the_fields(name):
    """``python tests/sw/field_tables.py`` writes the tables anew."""
    assert tables()[name] in DOCUMENT.read_text()


@pytest.mark.parametrize("name", list(pictures()))
def test_field_picture_in_documents_is_that_of_the_table(name):
    assert (PICTURES / name).read_text() == pictures()[name]
    assert f"(../pictures/{name})" in DOCUMENT.read_text()


def test_field_picture_has_a_box_for_every_bit():
    """Widths of the boxes add up to whole lines, for layouts whose fields cross lines too."""
    for svg in pictures().values():
        widths = [int(width) // CELL for width in re.findall(r'<rect[^>]* width="(\d+)"', svg)]
        assert sum(widths) % LINE == 0 and sum(widths) > 0


def test_documented_version_of_program_files_is_the_one_written():
    assert f"| 4-5 | version: {VERSION} |" in DOCUMENT.read_text()


def test_documented_listing_is_a_listing():
    step = compile_step(load_network("digits"), 64, P)
    programs = [Program(part.descriptors, 0) for part in (step.forward, step.backward)]
    lines = [line for program in programs for line in listing(program).splitlines()]
    page = DOCUMENT.with_name("program.md")
    excerpt = page.read_text().split("```text\n")[1].split("```")[0].splitlines()
    quoted = [line for line in excerpt if line and not line.startswith("#")]
    assert len(quoted) >= 10
    for line in quoted:
        assert line in lines
