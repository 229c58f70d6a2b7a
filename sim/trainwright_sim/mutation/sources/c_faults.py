"""Faults of C: at operators, integers, truth values and loops' ends; none in the preprocessor.

What no compiler takes (a ``*`` of a declaration, say) shows when the mutant is built.
"""

import re
from pathlib import Path

from trainwright_sim.mutation.sources.fault import ASSIGNING, BINARY, WORDS, Fault, number_after

_TOKEN = re.compile(
    r"(?P<skip>/\*.*?\*/|//[^\n]*|^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*"
    r"|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
    r"|(?P<number>\d[\w.]*)|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<operator><<=|>>=|->|\+\+|--|&&|\|\||<<|>>|[-+*/%&|^<>=!]=|[-+*/%&|^<>=!~?:])"
    r"|(?P<other>\S)",
    re.DOTALL | re.MULTILINE,
)
_ONE = {"++": "--", "--": "++", "!": ""}
_NOT_OPERANDS = ("return", "case", "else", "sizeof", "const", "int", "static", "struct")


def faults(path: Path) -> list[Fault]:
    """Return all faults that a file of C code can have, in their order in the file."""
    text = path.read_text()
    faults_found: list[Fault] = []
    before, after_operand = "", False

    def add(start: int, old: str, new: str | None) -> None:
        if new is not None:
            place, line = len(text[:start].encode()), text.count("\n", 0, start) + 1
            faults_found.append(Fault(path, place, old, new, line))

    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match.group()
        if kind == "skip":
            continue
        if kind == "number":
            add(match.start(), token, number_after(token))
        elif kind == "word":
            add(match.start(), token, WORDS.get(token))
        elif token in _ONE:
            add(match.start(), token, _ONE[token])
        elif kind == "operator" and after_operand:
            add(match.start(), token, BINARY.get(token) or ASSIGNING.get(token))
        before = token
        after_operand = kind == "number" or token in (")", "]")
        after_operand |= kind == "word" and before not in _NOT_OPERANDS
    return faults_found
