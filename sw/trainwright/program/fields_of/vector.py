"""The vector engine's instructions and passes, and moves of exponents."""

from collections.abc import Mapping, Sequence

from trainwright.program.errors import ProgramError
from trainwright.program.exponents import (
    ENTRIES,
    SCALARS,
    MoveScales,
    Scalar,
    ScalarKind,
    ScaleEntry,
)
from trainwright.program.fields import CODE, LOCAL_WIDTH, SCALES, VECTOR
from trainwright.program.fields_of import plain_values
from trainwright.program.fields_of.addresses import steps_of, strides_of
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

_OFFSET_WIDTH = 7


def fields_of_code(d: Code) -> dict[str, int]:
    """Fields of a CODE: its instructions as words."""
    if len(d.instructions) > CODE_WORDS:
        raise ProgramError(
            f"CODE: {len(d.instructions)} instructions, at most {CODE_WORDS} fit a descriptor"
        )
    words = [encode_instruction(one) for one in d.instructions]
    words += [0] * (CODE_WORDS - len(words))
    numbered = {f"word{number}": word for number, word in enumerate(words)}
    return {"instructions": len(d.instructions), **numbered}


def code(f: Mapping[str, int]) -> Code:
    """Return the CODE of these fields. Raises ``ProgramError`` for a word that is none."""
    if f["instructions"] > CODE_WORDS:
        raise ProgramError(f"CODE: {f['instructions']} instructions, at most {CODE_WORDS} fit")
    try:
        words = [decode_instruction(f[f"word{number}"]) for number in range(f["instructions"])]
    except ValueError as error:
        raise ProgramError(f"CODE: {error}") from None
    return Code(instructions=tuple(words), **plain_values(Code, CODE, f))


def fields_of_vector(d: Vector) -> dict[str, int]:
    """Fields of a pass: streams, constants and scalars, padded with such as do nothing."""
    constants = (*d.constants, *(0,) * (CONSTANTS - len(d.constants)))
    fields = {f"constant{n}": k % (1 << FACTOR_WIDTH) for n, k in enumerate(constants)}
    streams = (*d.streams, *(Stream(),) * (STREAMS - len(d.streams)))
    for number, one in enumerate(streams):
        steps = steps_of((d.outer, d.inner), (one.outer, one.inner), LOCAL_WIDTH)
        fields |= {f"base{number}": one.base}
        fields |= {f"outer_delta{number}": steps[0], f"inner_delta{number}": steps[1]}
    return fields | _scalar_fields(d.scalars)


def vector(f: Mapping[str, int]) -> Vector:
    """Return the pass of these fields. Raises ``ProgramError`` where rows do not divide."""
    sign = 1 << (FACTOR_WIDTH - 1)
    outer, rest = divmod(f["rows"], f["inner"])
    if rest:
        raise ProgramError(f"VECTOR: {f['rows']} rows are no multiple of inner = {f['inner']}")
    counts = outer, f["inner"]
    streams = []
    for number in range(STREAMS):
        deltas = f[f"outer_delta{number}"], f[f"inner_delta{number}"]
        streams.append(Stream(f[f"base{number}"], *strides_of(counts, deltas, LOCAL_WIDTH)))
    constants = [(f[f"constant{n}"] ^ sign) - sign for n in range(CONSTANTS)]
    while constants and not constants[-1]:
        constants.pop()
    used = (f["reads"] | f["writes"]).bit_length()
    return Vector(
        outer=outer,
        constants=tuple(constants),
        scalars=_scalars(f),
        streams=tuple(streams[:used]),
        **plain_values(Vector, VECTOR, f),
    )


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


def fields_of_scales(d: MoveScales) -> dict[str, int]:
    """Fields of a move of exponents."""
    if len(d.entries) > ENTRIES:
        raise ProgramError(f"SCALES: {len(d.entries)} entries, at most {ENTRIES} fit a descriptor")
    rest = (ScaleEntry(0, 0, 0, 0),) * (ENTRIES - len(d.entries))
    fields = {
        f"{name}{n}": getattr(entry, name)
        for n, entry in enumerate((*d.entries, *rest))
        for name in _ENTRY
    }
    return fields | {"entries": len(d.entries)}


def scales(f: Mapping[str, int]) -> MoveScales:
    """Return the move of exponents of these fields."""
    if f["entries"] > ENTRIES:
        raise ProgramError(f"SCALES: {f['entries']} entries, at most {ENTRIES} fit")
    entries = [ScaleEntry(*(f[f"{name}{n}"] for name in _ENTRY)) for n in range(f["entries"])]
    return MoveScales(entries=tuple(entries), **plain_values(MoveScales, SCALES, f))
