"""The register map for other tools: SystemRDL, CMSIS-SVD, C header for drivers, reference.

All are written from ``trainwright.accelerator.registers.REGISTERS``, for an accelerator's
parameters: registers that it lacks are omitted.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from xml.etree import ElementTree

from trainwright.accelerator.registers import (
    MEANINGS,
    REGISTERS,
    Error,
    HostRegister,
    RegisterField,
)
from trainwright.parameters import AcceleratorParameters

NAME = "trainwright"
SIZE = 0x10000
"""Bytes of the register space."""
BITS = 32
"""Bits of a word."""

ACCESS = {"R": ("read-only", "sw = r; hw = w;"), "W": ("write-only", "sw = w; hw = r;"),
          "RW": ("read-write", "sw = rw; hw = rw;")}  # fmt: skip
"""Access in SVD and in SystemRDL."""


def words(p: AcceleratorParameters) -> Iterator[HostRegister]:
    """Yield the registers of an accelerator, those of 64 bits as a low and a high word."""
    for register in REGISTERS:
        if not register.elements(p):
            continue
        register = replace(register, offset=register.place(p))
        if register.words == 1:
            yield register
            continue
        for n, half in enumerate(("LOW", "HIGH")):
            yield HostRegister(
                f"{register.name}_{half}", register.offset + 4 * n, register.access,
                f"{register.meaning}: {half.lower()} word", count=register.count,
                step=register.step, block=register.block,
            )  # fmt: skip


def described_fields(register: HostRegister) -> tuple[RegisterField, ...]:
    """Return the fields of a register; without fields it is one of all bits."""
    return register.fields or (RegisterField("VALUE", 0, BITS, register.meaning),)


def meaning(register: HostRegister) -> str:
    """Return what a register means, field by field where it has any."""
    parts = [register.meaning] if register.meaning else []
    for field in register.fields:
        high = field.low + field.width - 1
        place = f"bit {high}" if field.width == 1 else f"bits {field.low}-{high}"
        parts.append(f"{place}: {field.meaning}")
    return "; ".join(parts)


# ---- Formats -----------------------------------------------------------------------------------


def c_header(p: AcceleratorParameters) -> str:
    """Return offsets, masks and shifts of all registers, and the error codes, for a driver in C."""
    lines = [
        f"/* Registers of the accelerator with fingerprint {p.fingerprint:08x}: 32 bits each. */",
        "#ifndef TRAINWRIGHT_REGISTERS_H",
        "#define TRAINWRIGHT_REGISTERS_H",
        "",
        f"#define TRAINWRIGHT_FINGERPRINT_VALUE 0x{p.fingerprint:08x}u",
    ]
    for register in words(p):
        name = f"TRAINWRIGHT_{register.name}"
        lines += ["", f"/* {register.access}: {meaning(register)} */"]
        if count := register.step and register.elements(p):
            lines.append(f"#define {name}(n) (0x{register.offset:04x}u + {register.step}u * (n))")
            lines.append(f"#define {name}_COUNT {count}u")
        else:
            lines.append(f"#define {name} 0x{register.offset:04x}u")
        if reset := register.reset_value(p):
            lines.append(f"#define {name}_RESET 0x{reset:08x}u")
        for field in register.fields:
            lines.append(f"#define {name}_{field.name}_SHIFT {field.low}")
            lines.append(f"#define {name}_{field.name}_MASK 0x{field.mask:08x}u")
    lines += ["", "/* Error codes: STATUS, CODE. */"]
    lines += [f"#define TRAINWRIGHT_ERROR_{error.name} {int(error)}" for error in Error]
    return "\n".join([*lines, "", "#endif", ""])


def system_rdl(p: AcceleratorParameters) -> str:
    """Return the map in SystemRDL 2.0."""
    lines = ["enum trainwright_error {"]
    for error in Error:
        text = MEANINGS.get(error, "none")
        lines.append(f'    {error.name} = 8\'d{int(error)} {{ desc = "{text}"; }};')
    lines += ["};", "", f"addrmap {NAME} {{", f"    default regwidth = {BITS};",
              "    littleendian;"]  # fmt: skip
    for block, members in blocks(p):
        first = members[0]
        place = f"[{first.elements(p)}] @ 0x{first.offset:x} += 0x{first.step:x}"
        if block:
            lines.append("    regfile {")
        for register in members:
            lines += _rdl_register(register, p)
            local = f" @ 0x{register.offset - (first.offset if block else 0):x}"
            lines.append(f"    }} {register.name}{place if first.step and not block else local};")
        if block:
            lines.append(f"    }} {block}{place};")
    return "\n".join([*lines, "};", ""])


def blocks(p: AcceleratorParameters) -> Iterator[tuple[str, list[HostRegister]]]:
    """Yield the registers, those of a block together."""
    for block, group in groupby(words(p), key=lambda register: register.block):
        members = [*group]
        yield from [(block, members)] if block else (("", [member]) for member in members)


def _rdl_register(register: HostRegister, p: AcceleratorParameters) -> Iterator[str]:
    yield f"    reg {{ desc = {_quoted(meaning(register))};"
    for field in described_fields(register):
        high, reset = field.low + field.width - 1, field.value(register.reset_value(p))
        encode = " encode = trainwright_error;" if field.name == "CODE" else ""
        yield (
            f"        field {{ desc = {_quoted(field.meaning)}; {ACCESS[register.access][1]}"
            f"{encode} }} {field.name}[{high}:{field.low}] = {field.width}'d{reset};"
        )


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'


def svd(p: AcceleratorParameters) -> str:
    """Return the map as CMSIS-SVD, for debuggers and for generators of drivers."""
    device = ElementTree.Element("device", {"schemaVersion": "1.3"})
    heads = {"name": NAME, "version": "1", "description": f"fingerprint {p.fingerprint:08x}",
             "addressUnitBits": "8", "width": str(BITS), "size": str(BITS)}  # fmt: skip
    _texts(device, heads)
    peripherals = ElementTree.SubElement(device, "peripherals")
    peripheral = ElementTree.SubElement(peripherals, "peripheral")
    _texts(peripheral, {"name": NAME.upper(), "description": "registers", "baseAddress": "0x0"})
    block = ElementTree.SubElement(peripheral, "addressBlock")
    _texts(block, {"offset": "0x0", "size": hex(SIZE), "usage": "registers"})
    registers = ElementTree.SubElement(peripheral, "registers")
    for block, members in blocks(p):
        first, parent, base = members[0], registers, 0
        size = {"dim": str(first.elements(p)), "dimIncrement": hex(first.step)}
        if block:
            parent, base = ElementTree.SubElement(registers, "cluster"), first.offset
            _texts(parent, {**size, "name": f"{block}[%s]", "addressOffset": hex(base)})
        for register in members:
            node = ElementTree.SubElement(parent, "register")
            is_array = register.step and not block
            _texts(node, {
                **(size if is_array else {}),
                "name": register.name + ("[%s]" if is_array else ""),
                "description": meaning(register), "addressOffset": hex(register.offset - base),
                "access": ACCESS[register.access][0], "resetValue": hex(register.reset_value(p)),
            })  # fmt: skip
            _svd_fields(ElementTree.SubElement(node, "fields"), register)
    ElementTree.indent(device)
    text = ElementTree.tostring(device, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _svd_fields(fields: ElementTree.Element, register: HostRegister) -> None:
    for field in described_fields(register):
        part = ElementTree.SubElement(fields, "field")
        _texts(part, {"name": field.name, "description": field.meaning,
                      "bitOffset": str(field.low), "bitWidth": str(field.width)})  # fmt: skip
        if field.name == "CODE":
            values = ElementTree.SubElement(part, "enumeratedValues")
            for error in Error:
                choice = ElementTree.SubElement(values, "enumeratedValue")
                _texts(choice, {"name": error.name, "value": str(int(error))})


def _texts(node: ElementTree.Element, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        ElementTree.SubElement(node, name).text = text


FILES = {"trainwright.rdl": system_rdl, "trainwright.svd": svd, "trainwright_registers.h": c_header}
"""Functions that write each file."""


def reference() -> list[str]:
    """Return the rows of the table of registers in ``docs/reference/accelerator.md``."""
    lines = ["| offset | register | access | meaning |", "|---|---|---|---|"]
    for register in REGISTERS:
        size = "64 bits, low word first: " if register.words == 2 else ""
        array = f"slot n at + {register.step} n: " if register.step else ""
        place = f"; at {register.far:#x} with `{register.count}` over {register.near}"
        far = place if register.far else ""
        needs = f"with `{register.needs}`: " if register.needs else ""
        fixed = register.reset if isinstance(register.reset, int) else 0
        reset = f"; {fixed:#x} after a reset" if fixed else ""
        text = (needs + array + size + meaning(register) + far + reset).replace("|", "\\|")
        lines.append(f"| 0x{register.offset:03X} | {register.name} | {register.access} | {text} |")
    return lines
