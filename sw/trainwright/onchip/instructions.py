"""Instructions that passes of the vector engine are made of."""

from trainwright.program.vector import Instruction, Kind, Memory


def keep(d: int, **fields) -> Instruction:
    """A result to register ``d``; ``fields`` are others of ``Instruction``, here and below."""
    return Instruction(keep=True, d=d, **fields)


def read(stream: int, d: int, **fields) -> Instruction:
    """A row of a stream as the first operand, the result to register ``d``."""
    return keep(d, memory=Memory.READ, stream=stream, **fields)


def write(stream: int, **fields) -> Instruction:
    """A result to a row of a stream."""
    return Instruction(memory=Memory.WRITE, stream=stream, **fields)


def zero(d: int, **fields) -> Instruction:
    """0 to register ``d``: the lane's number, shifted away."""
    return keep(d, kind=Kind.LANE, shift=63, **fields)
