"""Branches of the Verilog that yosys writes, and reasons why they are never taken.

Branches are described in words that other parameters of a block leave unchanged.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REASONS = Path(__file__).with_name("branches.toml")
_SOURCE = re.compile(
    r'\(\* src = "(?:.*/)?(?:trainwright_(?:hw|sim)|site-packages)/(.*?):\d+" \*\)'
)
_ANONYMOUS = re.compile(r"\\\$\d+|_\d+_")
"""A wire that yosys or Amaranth named."""
_ASSIGNMENT = re.compile(r"\s*(?:assign )?(\\?[^\s\[]+) *(?:\[[^\]]*\] *)*<?= (.*);")
_SLICE = re.compile(r" ?\[\d+(?::\d+)?\]")
_SUFFIX = re.compile(r"\\?((?:\$?[A-Za-z_])[\w.]*)(?:\$\d+)+ ?")
_REPEATED = re.compile(r"([^\s{},]+)(?:, \1(?![^\s,}]))+")
_CASE = re.compile(r"(\d+)'([bh])([0-9a-f?]+)")
_CHOICE = re.compile(r"  assign (\\?[^\s\[]+) *(?:\[[^\]]*\] *)*= (.*?) \? .*;")
_TEST = re.compile(r"(end else )?if \((.*)\)")
_SELECT = re.compile(r"case[zx]? \((.*)\)$")
_LABEL = re.compile(r"(default|[\d'bh?0-9a-f, ]+):")
_NEVER = re.compile(r"\(?1'h0\)?|not \(?1'h1\)?")
_DEEP = 4
"""Wires in wires, of a condition."""


@dataclass(frozen=True)
class Branch:
    """Branch of a module.

    ``source`` is the file of the module's class, ``signal`` the signal that the branch writes,
    ``conditions`` those under which it is taken, of outer branches first.
    """

    source: str
    signal: str
    conditions: tuple[str, ...]

    @property
    def is_constant(self) -> bool:
        """Whether a condition is a constant that is never met."""
        return any(_NEVER.fullmatch(condition) for condition in self.conditions)

    def __str__(self) -> str:
        return f"{self.source}, {self.signal}: {' and '.join(self.conditions) or 'always'}"

    def row(self) -> dict[str, object]:
        """Return the branch as a JSON object."""
        return {"source": self.source, "signal": self.signal, "conditions": list(self.conditions)}


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Reason why branches are not taken.

    A reason covers modules of ``source``, branches that write ``signal`` (default: any) and have
    ``condition`` in a condition (default: any), in the block ``block`` (default: any).
    """

    source: str
    why: str
    signal: str = ""
    condition: str = ""
    block: str = ""

    def explains(self, block: str, branch: Branch) -> bool:
        """Return whether the reason covers a branch of a block."""
        return (
            branch.source == self.source
            and self.signal in ("", branch.signal)
            and self.block in ("", block)
            and any(self.condition in condition for condition in (*branch.conditions, ""))
        )


def reasons(path: Path = REASONS) -> list[Reason]:
    """Read the reasons of the file. Raises ``OSError`` or ``ValueError`` for a malformed file."""
    try:
        return [Reason(**row) for row in tomllib.loads(path.read_text()).get("branch", [])]
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from None


class Verilog:
    """A design that yosys wrote; its branches by line and by whether the ``else`` is meant."""

    def __init__(self, text: str):
        self.branches: dict[tuple[int, bool], Branch] = {}
        source = ""
        body: list[tuple[int, str]] = []
        for number, line in enumerate(text.splitlines(), 1):
            if (match := _SOURCE.match(line)) and not source:
                source = match[1]
            body.append((number, line))
            if line.startswith("endmodule"):
                self.branches |= _Module(source, body).branches()
                source, body = "", []

    def at(self, place: str) -> Branch:
        """Find the branch of a place as Verilator writes it: line, column, and which way."""
        line, _, way = place.partition(" ")
        key = int(line.partition(".")[0]), way in ("else", "cond_else")
        return self.branches.get(key, Branch("", "", (place,)))


@dataclass(frozen=True)
class _Open:
    """Statement that encloses a line.

    ``terms`` are met inside, ``failed`` inside its ``else``; ``select`` is the subject of a
    ``case``.
    """

    indent: int
    terms: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    select: str = ""


class _Module:
    """The lines of one module, with their numbers."""

    def __init__(self, source: str, body: list[tuple[int, str]]):
        self._source, self._body = source, body
        self._meaning: dict[str, str] = {}
        """Value of each wire that has no name of its own."""
        self._register: dict[str, str] = {}
        """Register to which each such wire is assigned."""
        for _, line in body:
            if match := _ASSIGNMENT.fullmatch(line):
                name, value = match[1], match[2]
                if line.startswith("  assign ") and _ANONYMOUS.fullmatch(name):
                    self._meaning[name] = value
                elif _ANONYMOUS.fullmatch(value.strip()):
                    self._register.setdefault(value.strip(), name)

    def branches(self) -> Iterator[tuple[tuple[int, bool], Branch]]:
        """Yield branches by (line, whether the branch is that of an ``else``)."""
        signal, open_ = "", list[_Open]()
        for index, (number, line) in enumerate(self._body):
            text, indent = line.strip(), len(line) - len(line.lstrip())
            if text.startswith("always"):
                signal, open_ = self._named(index + 1), []
                yield (number, False), self._branch(signal, [])
            if choice := _CHOICE.fullmatch(line):
                name = self._register.get(choice[1], choice[1])
                for otherwise in (False, True):
                    term = self._terms(choice[2], otherwise)
                    yield (number, otherwise), Branch(self._source, _plain_name(name), term)
            if text.startswith(("begin", "endcase")) or text == "end":
                continue
            before = next((block for block in open_ if block.indent == indent), None)
            open_ = [block for block in open_ if block.indent < indent]
            outer = list(open_)
            if test := _TEST.match(text):
                failed = before.failed if test[1] and before else ()
                met = self._terms(test[2])
                not_met = self._terms(test[2], otherwise=True)
                open_.append(_Open(indent, (*failed, *met), (*failed, *not_met)))
                yield (number, True), self._branch(signal, [*outer, _Open(0, open_[-1].failed)])
                yield (number, False), self._branch(signal, open_)
            elif text == "end else begin" or text == "else":
                open_.append(_Open(indent, before.failed if before else ()))
            elif select := _SELECT.match(text):
                open_.append(_Open(indent, select=select[1]))
            elif open_ and open_[-1].select and (label := _LABEL.match(text)):
                open_.append(_Open(indent, self._case(open_[-1].select, label[1])))
                yield (number, False), self._branch(signal, open_)

    def _branch(self, signal: str, open_: list["_Open"]) -> Branch:
        return Branch(self._source, signal, tuple(term for block in open_ for term in block.terms))

    def _terms(self, text: str, otherwise: bool = False) -> tuple[str, ...]:
        """Return a condition as text, or its negation if ``otherwise``."""
        plain = self._plain(text + " ")
        return (f"not {plain}" if otherwise else plain,)

    def _named(self, index: int) -> str:
        """Return the signal that assignments from a line on write."""
        for _, line in self._body[index:]:
            if match := re.match(r"\s*(?:if \(.*\) )?(\\?[^\s\[(]+) *(?:\[[^\]]*\] *)*<?= ", line):
                name = match[1]
                return _plain_name(self._register.get(name, name))
        return ""

    def _plain(self, text: str, depth: int = 0) -> str:
        """Replace wires by their meaning and omit widths and places of bits."""
        if depth < _DEEP:
            text = re.sub(
                r"(\\\$\d+) ",
                lambda wire: (
                    f"({self._plain(self._meaning[wire[1]], depth + 1)}) "
                    if wire[1] in self._meaning
                    else wire[0]
                ),
                text + " ",
            )
        text = _SLICE.sub("", _SUFFIX.sub(r"\1 ", text))
        text = re.sub(r"\s*(,|\))", r"\1", re.sub(r"\s+", " ", text)).replace("\\", "").strip()
        return _REPEATED.sub(r"\1, ..", text)

    def _case(self, select: str, label: str) -> tuple[str, ...]:
        """Return a label as conditions of the bits that it names."""
        parts = select.strip("{} ").split(",")
        if "{" in select and (match := _CASE.fullmatch(label)):
            digits = match[3]
            if match[2] == "h":
                digits = "".join("????" if d == "?" else f"{int(d, 16):04b}" for d in digits)
            digits = digits[-len(parts) :]
            if len(digits) == len(parts) == int(match[1]):
                pairs = [(p, d) for p, d in zip(parts, digits, strict=True) if d != "?"]
                return tuple(self._terms(part, digit == "0")[0] for part, digit in pairs)
        return (f"{self._plain(select)} = {label}",)


def _plain_name(name: str) -> str:
    return _SUFFIX.sub(r"\1", name).removeprefix("\\")
