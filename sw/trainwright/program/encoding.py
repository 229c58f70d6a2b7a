"""The versioned binary encoding of programs (``docs/program.md``)."""

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
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
)
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import (
    ENTRIES,
    SCALARS,
    MoveScales,
    Scalar,
    ScalarKind,
    ScaleEntry,
)
from trainwright.program.fields import (
    COUNT_WIDTH,
    DESCRIPTOR_BYTES,
    LAYOUTS,
    LOCAL_WIDTH,
    NEST_LEVELS,
    REGISTER_WIDTH,
    REGISTERS,
    TRANSFER_LEVELS,
    Engine,
    Operation,
    Target,
)
from trainwright.program.sample_order import order_mask
from trainwright.program.samples import Samples
from trainwright.program.validation import check_program
from trainwright.program.vector import (
    CODE_WORDS,
    CONSTANTS,
    FACTOR_WIDTH,
    STREAMS,
    Code,
    Stream,
    Vector,
    decode_instruction,
    encode_instruction,
)

MAGIC = b"TRWP"
_OFFSET_WIDTH = 7
VERSION = 5
HEADER = struct.Struct("<4sHHIII")  # magic, version, reserved, descriptors, fingerprint, crc


def _deltas(counts: Sequence[int], strides: Sequence[int], width: int) -> list[int]:
    """Address step when a level advances and all levels inside it return to zero."""
    deltas, span = [], 0
    for count, stride in zip(reversed(counts), reversed(strides), strict=True):
        deltas.append((stride - span) % (1 << width))
        span += (count - 1) * stride
    return deltas[::-1]


def _strides(counts: Sequence[int], deltas: Sequence[int], width: int) -> list[int]:
    """Inverse of ``_deltas``; strides come back signed."""
    strides, span = [], 0
    for count, delta in zip(reversed(counts), reversed(deltas), strict=True):
        stride = (delta + span) % (1 << width)
        if stride >= 1 << (width - 1):
            stride -= 1 << width
        strides.append(stride)
        span += (count - 1) * stride
    return strides[::-1]


def _compute_fields(d: Compute) -> dict[str, int]:
    if len(d.levels) > NEST_LEVELS:
        raise ProgramError(
            f"{d.tensor or d.operation.name}: {len(d.levels)} loop levels, "
            f"at most {NEST_LEVELS} fit a descriptor"
        )
    pad = NEST_LEVELS - len(d.levels)
    levels = (Level(1),) * pad + d.levels
    counts = [level.count for level in levels]
    fields = {
        "x_base": d.x,
        "x_register": d.x_register,
        "g_base": d.g,
        "g_register": d.g_register,
        "z_base": d.z,
        "z_register": d.z_register,
        "x_row_stride": d.x_row_stride % (1 << LOCAL_WIDTH),
        "z_row_stride": d.z_row_stride % (1 << LOCAL_WIDTH),
        "g_row_stride": d.g_row_stride % (1 << LOCAL_WIDTH),
        "reduce_levels": d.reduce_levels,
        "tile_level": d.tile_level + pad,
        "last_rows": d.last_rows,
        "shift": d.shift,
        "out_width": d.out_width,
        "slot": d.slot,
        "relu": int(d.relu),
        "x_shift": d.x_shift,
        "g_shift": d.g_shift,
        "stochastic": int(d.stochastic),
        "x_format": d.x_format,
        "g_format": d.g_format,
        "z_format": d.z_format,
        # words that go by digits are no posits
        "underflow_zero": int(d.underflow_zero or d.digits == 2),
        "digits": int(d.digits > 0),
        "x_exponent": d.x_exponent,
        "g_exponent": d.g_exponent,
        "z_exponent": d.z_exponent,
        "exact": int(d.exact),
        "grows": int(d.grows),
    }
    for name in ("x", "g", "z"):
        deltas = _deltas(counts, [getattr(level, name) for level in levels], LOCAL_WIDTH)
        fields |= {f"{name}_delta{i}": delta for i, delta in enumerate(deltas)}
    return fields | {f"count{i}": count for i, count in enumerate(counts)}


def _compute(operation: Operation, wait: Engine, f: Mapping[str, int]) -> Compute:
    counts = [f[f"count{i}"] for i in range(NEST_LEVELS)]
    if f["tile_level"] + f["reduce_levels"] >= NEST_LEVELS:
        raise ProgramError(
            f"{operation.name}: tile level {f['tile_level']} is not outside the "
            f"{f['reduce_levels']} levels that are summed"
        )
    pad = 0
    while pad < f["tile_level"] and counts[pad] == 1:
        pad += 1
    strides = [
        _strides(counts, [f[f"{name}_delta{i}"] for i in range(NEST_LEVELS)], LOCAL_WIDTH)
        for name in ("x", "g", "z")
    ]
    levels = tuple(Level(*level) for level in zip(counts, *strides, strict=True))[pad:]
    signed = {
        name: f[name] - (1 << LOCAL_WIDTH) * (f[name] >> (LOCAL_WIDTH - 1))
        for name in ("x_row_stride", "z_row_stride", "g_row_stride")
    }
    return Compute(
        operation=operation,
        wait=wait,
        levels=levels,
        x=f["x_base"],
        x_register=f["x_register"],
        g=f["g_base"],
        g_register=f["g_register"],
        z=f["z_base"],
        z_register=f["z_register"],
        x_row_stride=signed["x_row_stride"],
        z_row_stride=signed["z_row_stride"],
        g_row_stride=signed["g_row_stride"],
        reduce_levels=f["reduce_levels"],
        tile_level=f["tile_level"] - pad,
        last_rows=f["last_rows"],
        shift=f["shift"],
        out_width=f["out_width"],
        slot=f["slot"],
        relu=bool(f["relu"]),
        x_shift=f["x_shift"],
        g_shift=f["g_shift"],
        stochastic=bool(f["stochastic"]),
        x_format=f["x_format"],
        g_format=f["g_format"],
        z_format=f["z_format"],
        underflow_zero=bool(f["underflow_zero"]) and not f["digits"],
        digits=f["digits"] + (f["digits"] & f["underflow_zero"]),
        x_exponent=f["x_exponent"],
        g_exponent=f["g_exponent"],
        z_exponent=f["z_exponent"],
        exact=bool(f["exact"]),
        grows=bool(f["grows"]),
    )


def _transfer_fields(d: Transfer) -> dict[str, int]:
    if len(d.levels) > TRANSFER_LEVELS:
        raise ProgramError(
            f"{d.tensor or d.operation.name}: {len(d.levels)} transfer levels, "
            f"at most {TRANSFER_LEVELS} fit a descriptor"
        )
    levels = (TransferLevel(1),) * (TRANSFER_LEVELS - len(d.levels)) + d.levels
    counts = [level.count for level in levels]
    fields = {
        "target": int(d.target),
        "element_bytes": d.element_bytes,
        "address": d.address,
        "address_register": d.address_register,
        "local": d.local,
        "local_register": d.local_register,
        "beats": d.beats,
        "eighth": d.eighth,
    }
    for name, width in (("address", 32), ("local", LOCAL_WIDTH)):
        deltas = _deltas(counts, [getattr(level, name) for level in levels], width)
        fields |= {f"{name}_delta{i}": delta for i, delta in enumerate(deltas)}
    return fields | {f"count{i}": count for i, count in enumerate(counts)}


def _transfer(operation: Operation, wait: Engine, f: Mapping[str, int]) -> Transfer:
    counts = [f[f"count{i}"] for i in range(TRANSFER_LEVELS)]
    strides = [
        _strides(counts, [f[f"{name}_delta{i}"] for i in range(TRANSFER_LEVELS)], width)
        for name, width in (("address", 32), ("local", LOCAL_WIDTH))
    ]
    levels = [TransferLevel(*level) for level in zip(counts, *strides, strict=True)]
    while levels and levels[0].count == 1:
        levels.pop(0)
    return Transfer(
        operation=operation,
        wait=wait,
        levels=tuple(levels),
        target=Target(f["target"]),
        element_bytes=f["element_bytes"],
        address=f["address"],
        address_register=f["address_register"],
        local=f["local"],
        local_register=f["local_register"],
        beats=f["beats"],
        eighth=f["eighth"],
    )


def _samples_fields(d: Samples) -> dict[str, int]:
    same = ("address", "address_register", "local", "local_register", "record_beats", "samples",
            "stride", "targets", "input_bits", "total", "order_first", "order_length")  # fmt: skip
    return {name: getattr(d, name) for name in same} | {
        "target": int(Target.SCRATCHPAD),
        "pixel_bytes": d.pixels // 8,
        "local_step": d.local_step % (1 << LOCAL_WIDTH),
        "drawn": int(d.drawn),
        "order_mask": order_mask(d.total),
    }


def _samples(wait: Engine, f: Mapping[str, int]) -> Samples:
    mask, sign = order_mask(f["total"]), 1 << (LOCAL_WIDTH - 1)
    for name, known in (("target", (0,)), ("pixel_bytes", (0, 1)), ("order_mask", (mask,))):
        if f[name] not in known:
            raise ProgramError(f"SAMPLES: {name} = {f[name]} must be {known[-1]}")
    return Samples(
        address=f["address"],
        address_register=f["address_register"],
        local=f["local"],
        local_register=f["local_register"],
        targets=f["targets"],
        samples=f["samples"],
        beats=f["record_beats"] - 1,
        stride=f["stride"],
        local_step=(f["local_step"] ^ sign) - sign,
        total=f["total"],
        pixels=8 if f["pixel_bytes"] else 4,
        input_bits=f["input_bits"],
        drawn=bool(f["drawn"]),
        order_first=f["order_first"],
        order_length=f["order_length"],
        wait=wait,
    )


def _updates(pairs: tuple[tuple[int, int], ...]) -> dict[str, int]:
    fields = {f"value{register}": 0 for register in range(REGISTERS)}
    mask = 0
    for register, value in pairs:
        if not 1 <= register < REGISTERS:
            raise ProgramError(f"address register {register} is not one of R1 to R{REGISTERS - 1}")
        mask |= 1 << register
        fields[f"value{register}"] = value % (1 << REGISTER_WIDTH)
    return fields | {"mask": mask, "by_step": 0}


def _set(d: Set) -> dict[str, int]:
    """The seed goes where R0 would."""
    fields = _updates(d.values)
    if d.seed is None:
        return fields
    return fields | {"mask": fields["mask"] | 1, "value0": d.seed, "by_step": int(d.by_step)}


def _pairs(f: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    sign = 1 << (REGISTER_WIDTH - 1)
    return tuple(
        (register, (f[f"value{register}"] ^ sign) - sign)
        for register in range(1, REGISTERS)
        if f["mask"] >> register & 1
    )


def _code_fields(d: Code) -> dict[str, int]:
    if len(d.instructions) > CODE_WORDS:
        raise ProgramError(
            f"CODE: {len(d.instructions)} instructions, at most {CODE_WORDS} fit a descriptor"
        )
    words = [encode_instruction(one) for one in d.instructions]
    words += [0] * (CODE_WORDS - len(words))
    numbered = {f"word{number}": word for number, word in enumerate(words)}
    return {"first": d.first, "instructions": len(d.instructions), **numbered}


def _code(wait: Engine, f: Mapping[str, int]) -> Code:
    if f["instructions"] > CODE_WORDS:
        raise ProgramError(f"CODE: {f['instructions']} instructions, at most {CODE_WORDS} fit")
    try:
        words = [decode_instruction(f[f"word{number}"]) for number in range(f["instructions"])]
    except ValueError as error:
        raise ProgramError(f"CODE: {error}") from None
    return Code(first=f["first"], instructions=tuple(words), wait=wait)


def _vector_fields(d: Vector) -> dict[str, int]:
    fields = {
        name: getattr(d, name)
        for name in ("entry", "length", "rows", "inner", "key", "slot", "reads", "writes",
                     "eighth")
    }  # fmt: skip
    constants = (*d.constants, *(0,) * (CONSTANTS - len(d.constants)))
    fields |= {f"constant{n}": k % (1 << FACTOR_WIDTH) for n, k in enumerate(constants)}
    streams = (*d.streams, *(Stream(),) * (STREAMS - len(d.streams)))
    for number, one in enumerate(streams):
        steps = _deltas((d.outer, d.inner), (one.outer, one.inner), LOCAL_WIDTH)
        fields |= {f"base{number}": one.base}
        fields |= {f"outer_delta{number}": steps[0], f"inner_delta{number}": steps[1]}
    return fields | _scalar_fields(d.scalars)


def _scalar_fields(scalars: Sequence[Scalar]) -> dict[str, int]:
    if len(scalars) > SCALARS:
        raise ProgramError(f"VECTOR: {len(scalars)} scalars, at most {SCALARS} fit a descriptor")
    nothing = Scalar(ScalarKind.NONE, 0)
    fields: dict[str, int] = {}
    for n, one in enumerate((*scalars, *(nothing,) * (SCALARS - len(scalars)))):
        fields |= {
            f"scalar{n}": int(one.kind),
            f"strict{n}": int(one.strict),
            f"to{n}": one.to,
            f"plus{n}": one.plus,
            f"minus{n}": one.minus,
            f"offset{n}": one.offset % (1 << _OFFSET_WIDTH),
        }
    return fields


def _scalars(f: Mapping[str, int]) -> tuple[Scalar, ...]:
    sign = 1 << (_OFFSET_WIDTH - 1)
    every = [
        Scalar(
            ScalarKind(f[f"scalar{n}"]), f[f"to{n}"], f[f"plus{n}"], f[f"minus{n}"],
            (f[f"offset{n}"] ^ sign) - sign, bool(f[f"strict{n}"]),
        )
        for n in range(SCALARS)
    ]  # fmt: skip
    return tuple(one for one in every if one.kind is not ScalarKind.NONE)


_ENTRY = ("exponent", "statistics", "low", "high", "copy")


def _scales_fields(d: MoveScales) -> dict[str, int]:
    if len(d.entries) > ENTRIES:
        raise ProgramError(f"SCALES: {len(d.entries)} entries, at most {ENTRIES} fit a descriptor")
    rest = (ScaleEntry(0, 0, 0, 0),) * (ENTRIES - len(d.entries))
    fields = {
        f"{name}{n}": getattr(entry, name)
        for n, entry in enumerate((*d.entries, *rest))
        for name in _ENTRY
    }
    return fields | {"entries": len(d.entries)}


def _scales(wait: Engine, f: Mapping[str, int]) -> MoveScales:
    if f["entries"] > ENTRIES:
        raise ProgramError(f"SCALES: {f['entries']} entries, at most {ENTRIES} fit")
    entries = [ScaleEntry(*(f[f"{name}{n}"] for name in _ENTRY)) for n in range(f["entries"])]
    return MoveScales(entries=tuple(entries), wait=wait)


def _vector(wait: Engine, f: Mapping[str, int]) -> Vector:
    sign = 1 << (FACTOR_WIDTH - 1)
    outer, rest = divmod(f["rows"], f["inner"])
    if rest:
        raise ProgramError(f"VECTOR: {f['rows']} rows are no multiple of inner = {f['inner']}")
    counts = outer, f["inner"]
    streams = []
    for number in range(STREAMS):
        deltas = f[f"outer_delta{number}"], f[f"inner_delta{number}"]
        streams.append(Stream(f[f"base{number}"], *_strides(counts, deltas, LOCAL_WIDTH)))
    constants = [(f[f"constant{n}"] ^ sign) - sign for n in range(CONSTANTS)]
    while constants and not constants[-1]:
        constants.pop()
    used = (f["reads"] | f["writes"]).bit_length()
    return Vector(
        entry=f["entry"],
        length=f["length"],
        outer=outer,
        inner=f["inner"],
        key=f["key"],
        slot=f["slot"],
        reads=f["reads"],
        writes=f["writes"],
        constants=tuple(constants),
        scalars=_scalars(f),
        eighth=f["eighth"],
        streams=tuple(streams[:used]),
        wait=wait,
    )


def descriptor_fields(d: Descriptor) -> dict[str, int]:
    """The encoded fields of a descriptor, by the names of ``fields.LAYOUTS``."""
    fields = {
        "operation": int(d.operation),
        "wait": int(d.wait),
        "wait_older": int(d.wait_older),
    }
    match d:
        case Compute():
            return fields | _compute_fields(d)
        case Transfer():
            return fields | _transfer_fields(d)
        case Samples():
            return fields | _samples_fields(d)
        case Loop():
            return fields | {"iterations": d.iterations}
        case End():
            return fields | _updates(d.steps)
        case Set():
            return fields | _set(d)
        case Code():
            return fields | _code_fields(d)
        case Vector():
            return fields | _vector_fields(d)
        case MoveScales():
            return fields | _scales_fields(d)
        case Halt():
            return fields


_AT_LEAST_ONE = (
    "beats", "iterations", "last_rows", "length", "rows", "inner", "instructions", "samples",
    "record_beats", "total", "order_length", "input_bits", "entries",
)  # fmt: skip


def _least(name: str) -> int:
    """Least value of a field."""
    return 1 if name.startswith("count") or name in _AT_LEAST_ONE else 0


def encode_descriptor(d: Descriptor) -> bytes:
    """The ``DESCRIPTOR_BYTES`` of one descriptor.

    Raises ``ProgramError`` naming the field whose value does not fit.
    """
    fields = descriptor_fields(d)
    word, position = 0, 0
    for name, width in LAYOUTS[d.operation]:
        value = fields[name]
        least = _least(name)
        if not least <= value < 1 << width:
            raise ProgramError(
                f"{getattr(d, 'tensor', '') or d.operation.name}: {name} = {value} is not from "
                f"{least} to {(1 << width) - 1}"
            )
        word |= value << position
        position += width
    return word.to_bytes(DESCRIPTOR_BYTES, "little")


def decode_descriptor(data: bytes) -> Descriptor:
    """Inverse of ``encode_descriptor``, except for names, which are not encoded."""
    word = int.from_bytes(data, "little")
    operation = Operation(word & 15)
    f, position = {}, 0
    for name, width in LAYOUTS[operation]:
        f[name] = word >> position & ((1 << width) - 1)
        position += width
        least = _least(name)
        if f[name] < least:
            raise ProgramError(f"{operation.name}: {name} = {f[name]}, it must be at least {least}")
    d = _from_fields(operation, Engine(f["wait"]), f)
    return replace(d, wait_older=Engine(f["wait_older"]))


def _from_fields(operation: Operation, wait: Engine, f: Mapping[str, int]) -> Descriptor:
    match operation:
        case Operation.LOAD | Operation.STORE:
            return _transfer(operation, wait, f)
        case Operation.SAMPLES:
            return _samples(wait, f)
        case Operation.LOOP:
            return Loop(iterations=f["iterations"], wait=wait)
        case Operation.END:
            return End(steps=_pairs(f), wait=wait)
        case Operation.SET:
            seed = f["value0"] if f["mask"] & 1 else None
            return Set(values=_pairs(f), seed=seed, by_step=bool(f["by_step"]), wait=wait)
        case Operation.SCALES:
            return _scales(wait, f)
        case Operation.HALT:
            return Halt(wait=wait)
        case Operation.CODE:
            return _code(wait, f)
        case Operation.VECTOR:
            return _vector(wait, f)
        case _:
            return _compute(operation, wait, f)


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
