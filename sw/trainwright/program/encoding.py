"""The versioned binary encoding of programs (``docs/reference/encoding.md``)."""

import struct
import zlib

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    CLASSES,
    Descriptor,
    Program,
    layout_width,
)
from trainwright.program.errors import ProgramError
from trainwright.program.fields import COUNT_WIDTH, DESCRIPTOR_BYTES, Operation
from trainwright.program.table import check_codes, decoded, encoded_fields, name_of, unpacked
from trainwright.program.validation import check_program
from trainwright.support.errors import errors_as
from trainwright.support.text import amount

MAGIC = b"TRWP"
VERSION = 7
HEADER = struct.Struct("<4sHHIII")  # magic, version, reserved, descriptors, fingerprint, crc


def encode_descriptor(d: Descriptor) -> bytes:
    """Return the ``DESCRIPTOR_BYTES`` of a descriptor.

    Raises ``ProgramError`` naming the field whose value does not fit.
    """
    fields = encoded_fields(d)
    word, position = 0, 0
    for field in d.layout:
        value = fields[field.name]
        if not field.least <= value < 1 << field.width:
            raise ProgramError(
                f"{name_of(d)}: {field.name} = {value} is not "
                f"from {field.least} to {(1 << field.width) - 1}"
            )
        word |= value << position
        position += field.width
    return word.to_bytes(DESCRIPTOR_BYTES, "little")


def decode_descriptor(data: bytes) -> Descriptor:
    """Return the descriptor of ``data``: the inverse of ``encode_descriptor``, without names."""
    word = int.from_bytes(data, "little")
    try:
        operation = Operation(word & 15)
    except ValueError:
        raise ProgramError(f"operation {word & 15} is unknown") from None
    kind = CLASSES[operation]
    if word >> layout_width(kind.layout):
        raise ProgramError(f"{operation.name}: bits behind its last field are not 0")
    fields = unpacked(kind.layout, word)
    check_codes(kind, fields)
    return decoded(kind, fields)


def encode_descriptors(program: Program) -> bytes:
    """Return the descriptors alone, as they are in the accelerator's memory."""
    return b"".join(encode_descriptor(d) for d in program.descriptors)


def encode(program: Program) -> bytes:
    """Return a program file: header and descriptors.

    The header has magic, version, count, fingerprint and CRC-32.
    """
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
    _, version, reserved, count, fingerprint, crc = HEADER.unpack_from(data)
    if version != VERSION:
        raise ProgramError(
            f"program file of version {version}, this trainwright reads version {VERSION}; {_AGAIN}"
        )
    if reserved:
        raise ProgramError(
            f"corrupt program file: bytes 6 and 7 of its header are {reserved:#06x}, not 0; "
            f"{_AGAIN}"
        )
    body = data[HEADER.size :]
    if len(body) != count * DESCRIPTOR_BYTES:
        raise ProgramError(
            f"truncated or overlong program file: for {amount(count, 'descriptor')} it needs "
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
            "(--accelerator, --preset; --save writes them to accelerator.txt), or compile it again"
        )
    program = Program(tuple(_descriptor(body, number) for number in range(count)), fingerprint)
    check_program(program, parameters)
    return program


def _descriptor(body: bytes, number: int) -> Descriptor:
    """Decode a descriptor of a program file; an error names its number."""
    start = number * DESCRIPTOR_BYTES
    with errors_as(f"descriptor {number}", ProgramError, ProgramError):
        return decode_descriptor(body[start : start + DESCRIPTOR_BYTES])


assert COUNT_WIDTH <= 16  # loop counts are stored as they are, not minus one
