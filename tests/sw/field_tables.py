"""The tables of ``docs/program.md``, from the bit layout itself.

``python tests/sw/field_tables.py`` writes them into the document, between its marks.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from trainwright.program.fields import (
    CODE,
    COMPUTE,
    HEADER,
    LAYOUTS,
    LOOP,
    REGISTER_UPDATE,
    SAMPLES,
    SCALES,
    TRANSFER,
    VECTOR,
    Field,
)
from trainwright.program.vector import INSTRUCTION

DOCUMENT = Path(__file__).parents[2] / "docs" / "program.md"

LAYOUT_NAMES = {
    "HEADER": HEADER,
    "COMPUTE": COMPUTE,
    "TRANSFER": TRANSFER,
    "LOOP": LOOP,
    "REGISTER_UPDATE": REGISTER_UPDATE,
    "VECTOR": VECTOR,
    "CODE": CODE,
    "SAMPLES": SAMPLES,
    "SCALES": SCALES,
    "INSTRUCTION": INSTRUCTION,
}


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
    """Markdown of every table by its name."""
    head = ["| bits | field | width | meaning |", "|---|---|---|---|"]
    found = {name: "\n".join([*head, *rows(layout)]) for name, layout in LAYOUT_NAMES.items()}
    lines = ["| code | operation | layout | numbered fields repeat every |", "|---|---|---|---|"]
    for operation, layout in LAYOUTS.items():
        name = next(name for name, known in LAYOUT_NAMES.items() if known is layout)
        repeat = f"{period(layout)} bits" if period(layout) else ""
        lines.append(
            f"| {int(operation)} | {operation.name} | {name} | {repeat} |".replace("  |", " |")
        )
    return {"OPERATIONS": "\n".join(lines)} | found


def main() -> None:
    """Write the tables into the document."""
    text = DOCUMENT.read_text()
    for name, table in tables().items():
        pattern = rf"(<!-- fields {name} -->\n).*?(\n<!-- end -->)"
        text, count = re.subn(pattern, rf"\g<1>{table}\g<2>", text, flags=re.DOTALL)
        assert count == 1, name
    DOCUMENT.write_text(text)


if __name__ == "__main__":
    main()
