"""The tables of ``docs/reference/encoding.md``, from the bit layout itself.

``python tests/sw/field_tables.py`` writes them into the document, between its marks.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from trainwright.accelerator.register_files import reference
from trainwright.program.descriptors import (
    CLASSES,
    Compute,
    End,
    Halt,
    Loop,
    Set,
    Transfer,
)
from trainwright.program.exponents import MoveScales
from trainwright.program.samples import Samples
from trainwright.program.table import Described, Field, Header
from trainwright.program.vector import Code, Instruction, Vector

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "encoding.md"
PICTURES = DOCUMENT.parents[1] / "pictures"

NAMES: dict[type[Described], str] = {
    Header: "HEADER",
    Compute: "COMPUTE",
    Transfer: "TRANSFER",
    Loop: "LOOP",
    Set: "REGISTER_UPDATE",
    Vector: "VECTOR",
    Code: "CODE",
    Samples: "SAMPLES",
    MoveScales: "SCALES",
    Instruction: "INSTRUCTION",
}
LAYOUT_NAMES = {name: kind.layout for kind, name in NAMES.items()}
SHARED = {Halt: Header, End: Set}
"""Classes whose layout is shown as that of another."""


def rows(layout: Sequence[Field]) -> list[str]:
    """Return one line a field; repeated fields once, with the bits of number 0."""
    lines, position = [], 0
    last = {field.stem: field.name for field in layout if field.stem}
    for field in layout:
        low, high = position, position + field.width - 1
        bits = f"{high}:{low}" if field.width > 1 else str(low)
        position += field.width
        label = f"`{field.name}`"
        if field.number == 0:
            bits, label = f"{bits} ..", f"{label} .. `{last[field.stem]}`"
        if not field.number:
            lines.append(f"| {bits} | {label} | {field.width} | {field.meaning} |")
    return lines


def period(layout: Sequence[Field]) -> int:
    """Return the bits from one number of the repeated fields to the next."""
    return sum(field.width for field in layout if field.number == 0)


def tables() -> dict[str, str]:
    """Return the Markdown of each table by name."""
    head = ["| bits | field | width | meaning |", "|---|---|---|---|"]
    layouts = {name: "\n".join([*head, *rows(layout)]) for name, layout in LAYOUT_NAMES.items()}
    lines = ["| code | operation | layout | numbered fields repeat every |", "|---|---|---|---|"]
    for operation, kind in CLASSES.items():
        name, layout = NAMES[SHARED.get(kind, kind)], kind.layout
        repeat = f"{period(layout)} bits" if period(layout) else ""
        lines.append(
            f"| {int(operation)} | {operation.name} | {name} | {repeat} |".replace("  |", " |")
        )
    return {"OPERATIONS": "\n".join(lines)} | layouts


LINE, CELL, HEIGHT = 64, 15, 26
"""Bits of a line of a picture; width of a bit and height of a line, in pixels."""
LETTER = 6.6
"""Width of a letter, in pixels."""
STYLE = (
    "text{font:11px monospace;fill:#222;text-anchor:middle}"
    "rect{fill:#eef3fb;stroke:#667}"
    ".free{fill:none;stroke-dasharray:2}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}rect{fill:#223;stroke:#99a}}"
)


def _boxes(layout: Sequence[Field]) -> list[tuple[int, int, str]]:
    """Return first bit, bits and name of what a picture shows, the unused rest without a name."""
    boxes, position = [], 0
    for field in layout:
        boxes.append((position, field.width, field.name))
        position += field.width
    return [*boxes, (position, -position % LINE, "")]


def picture(layout: Sequence[Field]) -> str:
    """Draw a layout as SVG: ``LINE`` bits a line, bit 0 at the right of the first line."""
    shapes, lines = [], 0
    for first, bits, name in _boxes(layout):
        at = first
        while at < first + bits:
            line, place = divmod(at, LINE)
            lines = max(lines, line + 1)
            width = min(first + bits - at, LINE - place)
            x, y = (LINE - place - width) * CELL + 45, line * HEIGHT + 18
            kind = "" if name else ' class="free"'
            shapes.append(
                f'<rect{kind} x="{x}" y="{y}" width="{width * CELL}" height="{HEIGHT - 4}">'
                f"<title>{name or 'unused'}, bits {first + bits - 1} to {first}</title></rect>"
            )
            if len(name) * LETTER < width * CELL:
                shapes.append(f'<text x="{x + width * CELL / 2:g}" y="{y + 15}">{name}</text>')
            at += width
    for line in range(lines):
        shapes.append(f'<text x="20" y="{line * HEIGHT + 33}">{line * LINE}</text>')
    for place in (0, 15, 31, 47, 63):
        x = (LINE - place - 0.5) * CELL + 45
        shapes.append(f'<text x="{x:g}" y="12">{place}</text>')
    size = f'width="{LINE * CELL + 50}" height="{lines * HEIGHT + 22}"'
    body = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{STYLE}</style>\n{body}\n</svg>\n'
    )


def pictures() -> dict[str, str]:
    """Return the picture of every layout that has fields of its own, by its file's name."""
    drawn = {name: layout for name, layout in LAYOUT_NAMES.items() if name != "HEADER"}
    return {f"bits-{name.lower()}.svg": picture(layout) for name, layout in drawn.items()}


def main() -> None:
    """Write the tables into the document, and the pictures into their folder."""
    for name, svg in pictures().items():
        (PICTURES / name).write_text(svg)
    text = DOCUMENT.read_text()
    for name, table in tables().items():
        pattern = rf"(<!-- fields {name} -->\n).*?(\n<!-- end -->)"
        text, count = re.subn(pattern, rf"\g<1>{table}\g<2>", text, flags=re.DOTALL)
        assert count == 1, name
    DOCUMENT.write_text(text)
    write_registers()


def write_registers() -> None:
    """Write the table of registers into its document."""
    document = DOCUMENT.parent / "accelerator.md"
    table = "\n".join(reference()).replace("\\", "\\\\")
    pattern = r"(<!-- registers -->\n).*?(<!-- end -->)"
    text, count = re.subn(pattern, rf"\g<1>{table}\n\g<2>", document.read_text(), flags=re.DOTALL)
    assert count == 1
    document.write_text(text)


if __name__ == "__main__":
    main()
