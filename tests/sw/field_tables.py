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
}

MEANINGS = {
    "operation": "what the descriptor does",
    "wait": "engines that must be idle first: 1 LOAD, 2 STORE, 4 PE1, 8 PE2",
    "wait_older": "engines that must have done all commands but the last one: 4 PE1, 8 PE2",
    "x_base": "row of the first operand",
    "x_register": "register added to `x_base`",
    "g_base": "row of the second operand, of PE3 group of words",
    "g_register": "register added to `g_base`",
    "z_base": "row of the result",
    "z_register": "register added to `z_base`",
    "x_row_stride": "rows from one tile row of x to the next, signed",
    "z_row_stride": "rows from one tile row of z to the next, signed",
    "g_row_stride": "PE4: rows from one entry of g to the next, signed",
    "reduce_levels": "innermost levels that are summed",
    "tile_level": "level in whose last iteration a tile may have fewer rows",
    "last_rows": "tile rows written in that last iteration",
    "shift": "right shift of the requantiser",
    "out_width": "bits that the result is saturated to",
    "slot": "statistics slot",
    "relu": "BIAS: negative sums become 0",
    "stochastic": "rounds by random bits",
    "x_format": "number format of x: 0 fixed point, n the n-th posit of the accelerator",
    "g_format": "number format of g",
    "z_format": "number format of z; `out_width` is of fixed point alone",
    "underflow_zero": "z closer to 0 than the smallest posit becomes the nearer of the two; with "
    "`digits`: "
    "the second summed level goes over digits, the outermost over those of the other operand",
    "digits": "the outermost summed level goes over digits: sums so far x 2^7 as it advances",
    "x_exponent": "slot of x's exponent",
    "g_exponent": "slot of that of g",
    "z_exponent": "slot of that of z; not 0: the shifts are those of the exponents",
    "exact": "the exponent of z is its floor",
    "grows": "the exponent of z is at most 15 above that of g",
    "by_step": "SET: the stream is the seed + step x 2 x 0x9E3779B9",
    "scalar": "what the scalar gives: 0 nothing, 1 a constant, 2 a power of two, 3 a shift",
    "strict": "whether a scalar under 0 is an error",
    "to": "number of the constant or shift that it gives",
    "plus": "slot that it begins with",
    "minus": "slot that is subtracted",
    "offset": "what is added, signed",
    "eighth": "m + r, m = 1, 2, 4, 8: only in steps of number r modulo m; 0: in all",
    "later": "1: not in the first step of a run",
    "last": "1: only in the last step of a run",
    "entries": "entries, 1 to 6",
    "exponent": "slot that moves; 0: none",
    "statistics": "statistics slot whose sum is taken",
    "low": "sum under which the exponent goes down",
    "high": "sum over which it goes up",
    "copy": "slot that gets the exponent as it was; 0: none",
    "x_shift": "BIAS: left shift of x",
    "g_shift": "BIAS: left shift of g",
    "target": "0 scratchpad; 3 program memory, for the sequencer's own loads",
    "element_bytes": "bytes of an element outside: 1 or 2",
    "address": "byte address outside",
    "address_register": "register added to `address`",
    "local": "row inside",
    "local_register": "register added to `local`",
    "beats": "beats of a run",
    "iterations": "times the body is executed",
    "mask": "registers that are set (SET) or stepped (END), bit n for Rn; bit 0, SET: the seed",
    "count": "iterations of the level",
    "x_delta": "step of x when the level advances",
    "g_delta": "step of g when the level advances",
    "z_delta": "step of z when the level advances",
    "address_delta": "step of `address` when the level advances",
    "local_delta": "step of `local` when the level advances",
    "entry": "first instruction of the pass",
    "length": "instructions of the pass",
    "rows": "rows of the pass",
    "inner": "iterations of the inner level",
    "key": "row of the first random bits",
    "reads": "streams that are read",
    "writes": "streams that are written",
    "constant": "a constant, signed",
    "base": "first row of a stream",
    "outer_delta": "step of a stream when the outer level advances",
    "inner_delta": "step of a stream when the inner level advances",
    "first": "place of the first instruction",
    "instructions": "instructions, 1 to 20",
    "word": "an instruction",
    "pixel_bytes": "bytes of a pixel: 1, or 0 where it has 4 bits",
    "record_beats": "beats of a record: those of its pixels, and one of targets",
    "samples": "records that are loaded",
    "stride": "bytes from one record of the set to the next",
    "local_step": "rows from one sample to the next, signed",
    "targets": "row of the first sample's targets",
    "input_bits": "bits of an input, its sign left out",
    "drawn": "the generator gives the records; else they are 0, 1, ...",
    "total": "records of the set",
    "order_mask": "2^k - 1, k the bits of a record's number, at least 2",
    "order_first": "the generator's value at the begin of an epoch",
    "order_length": "samples of an epoch",
    "value": "value (SET) or step (END) of the register",
}


def stem(name: str) -> str:
    """A field's name without the number of its level or register."""
    return name.rstrip("0123456789")


def rows(layout: Sequence[Field]) -> list[str]:
    """One line a field; fields of numbered groups once, with the bits of number 0."""
    found, position = [], 0
    groups = {stem(name) for name, _ in layout if name[-1].isdigit()}
    last = {stem(name): name for name, _ in layout if name[-1].isdigit()}
    for name, width in layout:
        bits = f"{position + width - 1}:{position}" if width > 1 else str(position)
        position += width
        if stem(name) not in groups:
            found.append(f"| {bits} | `{name}` | {width} | {MEANINGS[name]} |")
        elif name.endswith("0"):
            label = f"`{name}` .. `{last[stem(name)]}`"
            found.append(f"| {bits} .. | {label} | {width} | {MEANINGS[stem(name)]} |")
    return found


def period(layout: Sequence[Field]) -> int:
    """Bits from a numbered group to the next."""
    return sum(width for name, width in layout if name[-1] == "0")


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
