"""Faster Python from Amaranth's simulator, which takes half the time of hardware tests."""

import builtins
import re
from types import CodeType

from amaranth.sim import _pyrtl

_UPDATE = re.compile(r"^( *)(slots\[\d+\])\.update\((next_\d+), (-?\d+)\)$", re.MULTILINE)
_SIGN_ENDS = re.compile(r", -(0x[0-9a-f]+|\d+)\)")
_SLOT = re.compile(r"slots\[(\d+)\]")
_TEXTS = ("print(", "pin_blame(")
"""Calls with texts of the design, which may hold any characters."""


def faster(code: str) -> str:
    """Rewrite a process of Amaranth's simulator: the same values, by a fifth less time.

    Signals are arguments instead of elements of a global list, signals that keep their value are
    not updated, and signs are extended without a call: ``(a ^ m) - m`` for the highest bit m.
    """
    if any(call in code for call in _TEXTS):
        return code
    # The mask gets parentheses, so that a negative one does not end like a sign's highest bit.
    code = _UPDATE.sub(r"\1if \2.next != \3: \2.update(\3, (\4))", code)
    code = _SIGN_ENDS.sub(r" ^ \1) - \1)", code.replace("sign(", "(("))
    numbers = sorted(set(map(int, _SLOT.findall(code))))
    arguments = ", ".join(f"slot{number}=slots[{number}]" for number in numbers)
    return _SLOT.sub(r"slot\1", code).replace("def run():", f"def run({arguments}):", 1)


def compiled(code: str, filename: str, mode: str) -> CodeType:
    """Compile like ``compile``, in whose place the simulator calls this function."""
    return builtins.compile(faster(code), filename, mode)


def install() -> None:
    """Let Amaranth's simulator compile faster processes."""
    _pyrtl.compile = compiled  # pyright: ignore[reportAttributeAccessIssue]
