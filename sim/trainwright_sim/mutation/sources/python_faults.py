"""Faults of Python: at operators, integers, truth values, ``min``, ``max`` and loops' ends.

Annotations, decorators and what is raised get none: they decide nothing that a program computes.
"""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from trainwright_sim.mutation.sources.fault import ASSIGNING, BINARY, WORDS, Fault, number_after

_OPERATOR = re.compile(rb"<<|>>|//|\*\*|<=|>=|==|!=|and\b|or\b|[-+*/%&|^<>@]")


def faults(path: Path) -> list[Fault]:
    """Return all faults that a Python file can have, in their order in the file."""
    source = path.read_bytes()
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return sorted(finder.faults, key=lambda fault: fault.start)


class _Finder(ast.NodeVisitor):
    def __init__(self, path: Path, source: bytes):
        self._path, self._source = path, source
        ends = [0, *(match.end() for match in re.finditer(rb"\n", source))]
        self._lines = ends
        self.faults: list[Fault] = []

    def _at(self, line: int, column: int) -> int:
        return self._lines[line - 1] + column

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._at(node.lineno, node.col_offset)

    def _end(self, node: ast.expr) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._at(node.end_lineno, node.end_col_offset)

    def _add(self, start: int, old: str, new: str | None) -> None:
        if new is not None:
            line = self._source.count(b"\n", 0, start) + 1
            self.faults.append(Fault(self._path, start, old, new, line))

    def _between(self, left: int, right: int) -> Iterator[tuple[int, str]]:
        """Yield the operators between two operands; only brackets and comments stand there too."""
        gap = re.sub(rb"#[^\n]*", lambda m: b" " * len(m[0]), self._source[left:right])
        for match in _OPERATOR.finditer(gap):
            yield left + match.start(), match[0].decode()

    def visit_BinOp(self, node: ast.BinOp) -> None:
        for start, old in self._between(self._end(node.left), self._start(node.right)):
            self._add(start, old, BINARY.get(old))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, right in pairwise(operands):
            for start, old in self._between(self._end(left), self._start(right)):
                self._add(start, old, BINARY.get(old))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in pairwise(node.values):
            for start, old in self._between(self._end(left), self._start(right)):
                self._add(start, old, BINARY.get(old))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(self._start(node), "not ", "")
        if isinstance(node.op, ast.USub):
            self._add(self._start(node), "-", "+")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        left, right = self._end(node.target), self._start(node.value)
        for old, new in ASSIGNING.items():
            if (at := self._source.find(old.encode(), left, right)) >= 0:
                self._add(at, old, new)
                break
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        text = self._source[self._start(node) : self._end(node)].decode()
        if isinstance(node.value, bool):
            self._add(self._start(node), text, WORDS[text])
        elif isinstance(node.value, int):
            self._add(self._start(node), text, number_after(text))

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in ("min", "max"):
            self._add(self._start(node), node.id, WORDS[node.id])

    def visit_Break(self, node: ast.Break) -> None:
        self._add(self._start(node), "break", "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(self._start(node), "continue", "break")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip f-strings: some versions of Python give wrong positions for their parts."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """Skip ``raise``: a wrong error message is not a fault to test for."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Skip ``assert``: Python with ``-O`` ignores it."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)
