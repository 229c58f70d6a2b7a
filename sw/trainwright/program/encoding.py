"""The versioned binary encoding of programs (``docs/program.md``)."""

import struct
import zlib
from collections.abc import Mapping
from dataclasses import replace

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Compute,
    Descriptor,
    End,
    Halt,
    Loop,
    Program,
    Set,
    Transfer,
)
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import MoveScales
from trainwright.program.fields import (
    COUNT_WIDTH,
    DESCRIPTOR_BYTES,
    LAYOUTS,
    LOOP,
    REGISTER_UPDATE,
    Operation,
)
from trainwright.program.fields_of import (
    compute,
    plain_fields,
    plain_values,
    registers,
    transfer,
    vector,
)
from trainwright.program.samples import Samples
from trainwright.program.validation import check_program
from trainwright.program.vector import Code, Vector

MAGIC = b"TRWP"
VERSION = 5
HEADER = struct.Struct("<4sHHIII")  # magic, version, reserved, descriptors, fingerprint, crc


def descriptor_fields(d: Descriptor) -> dict[str, int]:
    """Return the encoded fields of a descriptor, by the names of ``fields.LAYOUTS``."""
    return plain_fields(d, LAYOUTS[d.operation]) | _other_fields(d)


def _other_fields(d: Descriptor) -> dict[str, int]:
    """Return the fields that are no attributes of the descriptor."""
    match d:
        case Compute():
            return compute.fields_of_compute(d)
        case Transfer():
            return transfer.fields_of_transfer(d)
        case Samples():
            return transfer.fields_of_samples(d)
        case End():
            return registers.fields_of_steps(d.steps)
        case Set():
            return registers.fields_of_set(d)
        case Code():
            return vector.fields_of_code(d)
        case Vector():
            return vector.fields_of_vector(d)
        case MoveScales():
            return vector.fields_of_scales(d)
        case Loop() | Halt():
            return {}


def encode_descriptor(d: Descriptor) -> bytes:
    """The ``DESCRIPTOR_BYTES`` of one descriptor.

    Raises ``ProgramError`` naming the field whose value does not fit.
    """
    fields = descriptor_fields(d)
    word, position = 0, 0
    for field in LAYOUTS[d.operation]:
        value = fields[field.name]
        if not field.least <= value < 1 << field.width:
            raise ProgramError(
                f"{getattr(d, 'tensor', '') or d.operation.name}: {field.name} = {value} is not "
                f"from {field.least} to {(1 << field.width) - 1}"
            )
        word |= value << position
        position += field.width
    return word.to_bytes(DESCRIPTOR_BYTES, "little")


def decode_descriptor(data: bytes) -> Descriptor:
    """Inverse of ``encode_descriptor``, except for names, which are not encoded."""
    word = int.from_bytes(data, "little")
    try:
        operation = Operation(word & 15)
    except ValueError:
        raise ProgramError(f"operation {word & 15} is unknown") from None
    f, position = {}, 0
    for field in LAYOUTS[operation]:
        f[field.name] = word >> position & ((1 << field.width) - 1)
        position += field.width
        if f[field.name] < field.least:
            raise ProgramError(
                f"{operation.name}: {field.name} = {f[field.name]}, it must be at least "
                f"{field.least}"
            )
    return _from_fields(operation, f)


def _from_fields(operation: Operation, f: Mapping[str, int]) -> Descriptor:
    match operation:
        case Operation.LOAD | Operation.STORE:
            return transfer.transfer(operation, f)
        case Operation.SAMPLES:
            return transfer.samples(f)
        case Operation.LOOP:
            return Loop(**plain_values(Loop, LOOP, f))
        case Operation.END:
            return End(steps=registers.pairs_of(f), **plain_values(End, REGISTER_UPDATE, f))
        case Operation.SET:
            return registers.set_(f)
        case Operation.SCALES:
            return vector.scales(f)
        case Operation.HALT:
            return Halt(**plain_values(Halt, LAYOUTS[operation], f))
        case Operation.CODE:
            return vector.code(f)
        case Operation.VECTOR:
            return vector.vector(f)
        case _:
            return compute.compute(operation, f)


def encode_descriptors(program: Program) -> bytes:
    """The descriptors alone, as they lie in the accelerator's memory."""
    return b"".join(encode_descriptor(d) for d in program.descriptors)


def encode(program: Program) -> bytes:
    """A program file: header (magic, version, count, fingerprint, CRC-32) and descriptors."""
    body = encode_descriptors(program)
    header = HEADER.pack(
        MAGIC, VERSION, 0, len(program.descriptors), program.fingerprint, zlib.crc32(body)
    )
    return header + body


_AGAIN = "write it again with `trainwright listing NETWORK --save FOLDER`"


def decode(data: bytes, parameters: AcceleratorParameters) -> Program:
    """Read a program file for an accelerator of these parameters.

    Raises ``ProgramError`` for anything that is not such a file: wrong magic, another version, a
    truncated or corrupt body, a program compiled for other parameters, or one that the accelerator
    cannot execute (``trainwright.program.validation``).
    """
    if len(data) < HEADER.size or data[:4] != MAGIC:
        raise ProgramError(
            "not a program file: it does not start with the header of one, 'TRWP' and 16 bytes; "
            f"{_AGAIN}"
        )
    _, version, _, count, fingerprint, crc = HEADER.unpack_from(data)
    if version != VERSION:
        raise ProgramError(
            f"program file of version {version}, this trainwright reads version {VERSION}; {_AGAIN}"
        )
    body = data[HEADER.size :]
    if len(body) != count * DESCRIPTOR_BYTES:
        raise ProgramError(
            f"truncated or overlong program file: its {count} descriptors need "
            f"{count * DESCRIPTOR_BYTES} bytes after the header, there are {len(body)}; {_AGAIN}"
        )
    if zlib.crc32(body) != crc:
        raise ProgramError(
            f"corrupt program file: the CRC-32 of its descriptors is {zlib.crc32(body):08x}, the "
            f"header says {crc:08x}; {_AGAIN}"
        )
    if fingerprint != parameters.fingerprint:
        raise ProgramError(
            f"program compiled for other accelerator parameters (fingerprint {fingerprint:08x}, "
            f"these have {parameters.fingerprint:08x}); give those it was compiled for "
            "(--accelerator, --preset), or compile it again"
        )
    program = Program(tuple(_descriptor(body, number) for number in range(count)), fingerprint)
    check_program(program, parameters)
    return program


def _descriptor(body: bytes, number: int) -> Descriptor:
    """A descriptor of a program file; an error says which."""
    start = number * DESCRIPTOR_BYTES
    try:
        return decode_descriptor(body[start : start + DESCRIPTOR_BYTES])
    except ProgramError as error:
        raise ProgramError(f"descriptor {number}: {error}") from None


def without_names(program: Program) -> Program:
    """The program as a round trip through its file returns it."""
    return Program(
        tuple(
            replace(d, tensor="") if isinstance(d, Compute | Transfer | Samples | Vector) else d
            for d in program.descriptors
        ),
        program.fingerprint,
    )


assert COUNT_WIDTH <= 16  # loop counts are stored as they are, not minus one
