"""The error of programs."""


class ProgramError(ValueError):
    """A program, or a program file, that cannot be encoded, decoded or executed."""
