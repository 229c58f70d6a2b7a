"""The error of programs."""

from trainwright.support.errors import UserError


class ProgramError(UserError, ValueError):
    """A program, or a program file, that cannot be encoded, decoded or executed."""
