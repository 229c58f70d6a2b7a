"""Describe a fault in source code: one token that is replaced by another."""

from dataclasses import dataclass
from pathlib import Path

BINARY = {
    "+": "-", "-": "+", "*": "+", "/": "*", "//": "*", "%": "+",
    "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "&",
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "&&": "||", "||": "&&", "and": "or", "or": "and", "@": "*",
}  # fmt: skip
"""Operators between two operands."""
ASSIGNING = {f"{operator}=": f"{BINARY[operator]}=" for operator in "+ - * << >> & | ^".split()}
WORDS = {
    "true": "false", "false": "true", "True": "False", "False": "True",
    "min": "max", "max": "min", "break": "continue", "continue": "break",
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """``old`` at byte ``start`` of the file ``path`` becomes ``new``; ``line`` counts from 1."""

    path: Path
    start: int
    old: str
    new: str
    line: int

    def apply(self, source: bytes) -> bytes:
        """Return the source with the fault. Raises ``ValueError`` if the source does not match."""
        end = self.start + len(self.old.encode())
        if source[self.start : end] != self.old.encode():
            raise ValueError(f"{self.path} has no {self.old!r} at byte {self.start}")
        return source[: self.start] + self.new.encode() + source[end:]

    def text(self, source: bytes) -> str:
        """Return the unchanged source line that contains the fault."""
        return source.splitlines()[self.line - 1].decode().strip()


def number_after(literal: str) -> str | None:
    """Return a literal of the next integer; ``None`` if the literal is not an integer."""
    digits = literal.rstrip("uUlL").replace("_", "")
    suffix = literal[len(literal.rstrip("uUlL")) :]
    try:
        value = int(digits, 0)
    except ValueError:
        return None
    return (hex(value + 1) if digits[:2] in ("0x", "0X") else str(value + 1)) + suffix
