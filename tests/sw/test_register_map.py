"""The register map: its files say what the table says, and the reference too."""

import ctypes
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from trainwright.accelerator.register_files import c_header, reference, svd, system_rdl, words
from trainwright.accelerator.registers import (
    EXPONENTS_BASE,
    REGISTERS,
    STATISTICS_BASE,
    STATUS_FIELDS,
    Error,
    exponents_base,
    statistics_base,
)
from trainwright.parameters import AcceleratorParameters
from trainwright.support.native import library
from trainwright.support.native.cache import Cache
from trainwright.support.native.tools import ToolError, compiler

PLAIN = AcceleratorParameters()
RESIDENT = AcceleratorParameters(vector_engine=1, exponents=64, sample_loads=1, address_checks=1)
WIDE = AcceleratorParameters(vector_engine=1, exponents=1024, statistics_depth=1024)
DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "accelerator.md"
EACH = pytest.mark.parametrize("p", [PLAIN, RESIDENT, WIDE], ids=["plain", "resident", "wide"])


def places(p: AcceleratorParameters) -> dict[str, int]:
    """Return the address of every word, element by element."""
    return {
        f"{register.name}{n if register.step else ''}": register.offset + n * register.step
        for register in words(p)
        for n in range(register.elements(p))
    }


@EACH
def test_register_words_of_an_accelerator_have_addresses_of_their_own(p):
    addresses = list(places(p).values())
    assert len(set(addresses)) == len(addresses)
    assert all(address % 4 == 0 and address < 0x10000 for address in addresses)


def test_register_arrays_of_large_accelerators_have_places_of_their_own():
    at = places(WIDE)
    assert (at["EXPONENT0"], at["EXPONENT1023"]) == (0x2000, 0x2FFC)
    assert (at["SUM_LOW0"], at["UNDERFLOWS1023"]) == (0x4000, 0x7FFC)
    assert (exponents_base(WIDE), statistics_base(WIDE)) == (at["EXPONENT0"], at["SUM_LOW0"])
    at = places(replace(WIDE, exponents=512, statistics_depth=256))
    assert (at["EXPONENT0"], at["SUM_LOW0"]) == (EXPONENTS_BASE, STATISTICS_BASE)


def test_register_fields_of_the_table_do_not_overlap():
    for register in REGISTERS:
        masks = [field.mask for field in register.fields]
        assert sum(masks) < 1 << 32
        assert sum(masks) == sum(1 << bit for bit in range(32) if any(m >> bit & 1 for m in masks))


@EACH
def test_register_map_in_svd_has_every_word(p):
    addresses = {}
    for place in ElementTree.fromstring(svd(p)).find(".//registers") or ():
        is_cluster = place.tag == "cluster"
        base = int(place.findtext("addressOffset", ""), 0)
        count, step = int(place.findtext("dim", "1")), int(place.findtext("dimIncrement", "0"), 0)
        for register in place.findall("register") if is_cluster else [place]:
            offset = base + (int(register.findtext("addressOffset", ""), 0) if is_cluster else 0)
            name = register.findtext("name", "").removesuffix("[%s]")
            addresses |= {f"{name}{n if step else ''}": offset + n * step for n in range(count)}
    assert addresses == places(p)


@EACH
def test_register_map_in_system_rdl_has_every_word_and_field(p, tmp_path):
    rdl = pytest.importorskip("systemrdl", reason="systemrdl-compiler is not installed")
    (tmp_path / "map.rdl").write_text(system_rdl(p))
    compiled = rdl.RDLCompiler()
    compiled.compile_file(str(tmp_path / "map.rdl"))
    root = compiled.elaborate().top
    addresses, fields = {}, {}
    for node in root.descendants(unroll=True):
        if isinstance(node, rdl.node.RegNode):
            numbers = re.findall(r"\[(\d+)\]", node.get_path())
            addresses[node.inst_name + "".join(numbers)] = node.absolute_address
        if isinstance(node, rdl.node.FieldNode) and node.parent.inst_name == "STATUS":
            fields[node.inst_name] = (node.low, node.width)
    assert addresses == places(p)
    assert fields == {name: (field.low, field.width) for name, field in STATUS_FIELDS.items()}


def test_register_map_in_c_gives_the_values_of_the_table(tmp_path):
    try:
        tool = compiler("C")
    except ToolError as error:
        pytest.skip(str(error))
    (tmp_path / "trainwright_registers.h").write_text(c_header(RESIDENT))
    (tmp_path / "probe.c").write_text(
        '#include <stdint.h>\n#include "trainwright_registers.h"\n'
        "uint32_t value(int n) { switch (n) {\n"
        "case 0: return TRAINWRIGHT_STATUS; case 1: return TRAINWRIGHT_SUM_HIGH(3);\n"
        "case 2: return TRAINWRIGHT_STATUS_CODE_MASK; case 3: return TRAINWRIGHT_EXPONENT_COUNT;\n"
        "case 4: return TRAINWRIGHT_ERROR_WATCHDOG; case 5: return TRAINWRIGHT_WINDOW_LAST_RESET;\n"
        "default: return TRAINWRIGHT_FINGERPRINT_VALUE; } }\n"
    )
    probe = ctypes.CDLL(
        str(library.build(tmp_path / "probe.c", tool, kept=Cache(tmp_path / "kept")))
    )
    probe.value.restype = ctypes.c_uint32
    pages = (1 << (RESIDENT.address_width - 12)) - 1
    assert [probe.value(n) for n in range(7)] == [
        0x00C, 0x1000 + 3 * 16 + 4, 0xFF00, 64, Error.WATCHDOG, pages, RESIDENT.fingerprint
    ]  # fmt: skip


def test_register_reference_is_the_table():
    """``python tests/sw/field_tables.py`` writes the table anew."""
    assert "\n".join(reference()) in DOCUMENT.read_text()
