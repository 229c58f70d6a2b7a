"""Ask number formats by their members, never by their class."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("sw/trainwright", "hw/trainwright_hw", "sim/trainwright_sim", "boards")
OWN = Path("sw/trainwright/formats")
"""Files of this folder may tell formats apart by class."""


def _imported(tree: ast.Module) -> set[str]:
    """Collect the names that a file imports from ``trainwright.formats``."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("trainwright.formats")
        for alias in node.names
    }


def _names(node: ast.AST) -> set[str]:
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def tellings(source: str) -> Iterator[int]:
    """Yield lines that tell a number format by its class: isinstance, type(..) and patterns."""
    tree = ast.parse(source)
    known = {name for name in _imported(tree) if name[:1].isupper() and not name.isupper()}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                classes = _names(kinds) & known
            case ast.Compare(left=left, comparators=sides):
                types = [side for side in (left, *sides) if isinstance(side, ast.Call)]
                asks = any(isinstance(t.func, ast.Name) and t.func.id == "type" for t in types)
                classes = set[str]().union(*map(_names, (left, *sides))) & known if asks else set()
            case ast.MatchClass(cls=kind):
                classes = _names(kind) & known
            case _:
                continue
        if classes:
            yield getattr(node, "lineno", 0)


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("isinstance(fmt, Posit)", 1),
        ("isinstance(fmt, (int, Fixed))", 1),
        ("type(fmt) is Posit", 1),
        ("isinstance(fmt, int)", 0),
        ("fmt == Posit(8, 0)", 0),
        ("match fmt:\n    case Posit(n=8): pass", 1),
    ],
)
def test_telling_a_format_by_class_is_found(body: str, count: int) -> None:
    source = f"from trainwright.formats import Fixed, Posit\n{body}"
    assert len(list(tellings(source))) == count


def test_no_package_outside_formats_tells_formats_by_class() -> None:
    lines = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if not relative.is_relative_to(OWN):
                text = path.read_text()
                if "trainwright.formats" in text:
                    lines += [f"{relative}:{line}" for line in tellings(text)]
    assert not lines, "ask a member of trainwright.formats.Format instead"
