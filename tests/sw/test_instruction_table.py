"""The table of the instruction set: a field that is added there is known everywhere."""

import ctypes
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from field_tables import rows
from nests import program_of

import trainwright
from trainwright.golden import executor, flat
from trainwright.parameters import AcceleratorParameters
from trainwright.program import records
from trainwright.program.descriptors import (
    CLASSES,
    Compute,
    End,
    Halt,
    Level,
    Loop,
    Program,
    Set,
    Transfer,
)
from trainwright.program.encoding import encode_descriptor
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import ExponentFile
from trainwright.program.fields import Operation
from trainwright.program.listing import listing
from trainwright.program.records import (
    HEADER,
    KINDS,
    header,
    members,
    record,
    record_column,
    record_type,
)
from trainwright.program.table import (
    Described,
    Field,
    Limits,
    beyond,
    bits,
    check_codes,
    decoded,
    encoded_fields,
    unpacked,
)
from trainwright.support.native import library
from trainwright.support.native.cache import Cache
from trainwright.support.native.tools import ToolError, compiler

P = AcceleratorParameters(scratchpad_rows=256)
(PACKAGE,) = map(Path, trainwright.__path__)


class Longer(Compute):
    """A copy of the table with one field more."""

    damping: int = bits(5, "left shift of nothing", least=2, most=20, plus=1, default=7)


D = Longer(operation=Operation.PE3, levels=(Level(3, 1, 2, -1),), x=1, g=2, z=3, damping=9)


def compiled(folder: Path, source: str, kinds: tuple[type[Described], ...]) -> ctypes.CDLL:
    """Compile C text that includes the header of these classes."""
    try:
        tool = compiler("C")
    except ToolError as error:
        pytest.skip(str(error))
    (folder / "isa.h").write_text(header(kinds))
    (folder / "probe.c").write_text(f'#include <stddef.h>\n#include "isa.h"\n{source}')
    return ctypes.CDLL(str(library.build(folder / "probe.c", tool, kept=Cache(folder / "kept"))))


def test_header_in_the_repository_is_that_of_the_table():
    assert HEADER.read_text() == header(), "python -m trainwright.program.records"


def test_record_type_of_every_class_has_the_places_of_the_header(tmp_path):
    places = [(kind, name) for kind in KINDS for name, *_ in members(kind)]
    text = ", ".join(f"offsetof({kind.__name__}, {name})" for kind, name in places)
    sizes = ", ".join(f"sizeof({kind.__name__})" for kind in KINDS)
    source = f"const size_t places[] = {{{text}}};\nconst size_t sizes[] = {{{sizes}}};\n"
    probe = compiled(tmp_path, source, KINDS)
    offsets = (ctypes.c_size_t * len(places)).in_dll(probe, "places")
    assert list(offsets) == [8 * record_column(kind, name) for kind, name in places]
    lengths = (ctypes.c_size_t * len(KINDS)).in_dll(probe, "sizes")
    assert list(lengths) == [record_type(kind).itemsize for kind in KINDS]


def test_field_added_to_a_copy_is_encoded_and_decoded():
    word = int.from_bytes(encode_descriptor(D), "little")
    assert word >> sum(field.width for field in Compute.layout) == 9 + 1
    fields = unpacked(Longer.layout, word)
    check_codes(Longer, fields)
    assert decoded(Longer, fields) == D
    assert encoded_fields(D)["damping"] == 10


def test_field_added_to_a_copy_is_checked_for_its_range():
    limits = Limits(P, P.statistics_depth)
    assert beyond(D, limits) is None
    assert beyond(Longer(**{**vars(D), "damping": 21}), limits) == ("damping", 21, (2, 20))
    with pytest.raises(ProgramError, match="damping = 2, it must be at least 3"):
        check_codes(Longer, encoded_fields(D) | {"damping": 2})


@pytest.mark.parametrize(
    "width, signed, wraps", [(20, True, False), (32, True, True), (5, False, False)]
)
def test_range_of_a_field_is_that_of_its_bits(width, signed, wraps):
    low, high = Field("f", width, "", signed=signed, wraps=wraps).limits
    assert low == (-(2 ** (width - 1)) if signed else 0)
    assert high == 2 ** (width - 1 if signed and not wraps else width) - 1


@pytest.mark.parametrize("name", ["x", "g", "z"])
def test_level_step_beyond_its_bits_is_named(name):
    limits, half = Limits(P, P.statistics_depth), 1 << 19
    for value, inside in ((half - 1, True), (half, False), (-half, True), (-half - 1, False)):
        violation = beyond(replace(D, levels=(Level(3, **{name: value}),)), limits)
        expected = None if inside else (f"level's {name}", value, (-half, half - 1))
        assert violation == expected


@pytest.mark.parametrize("count", [0, 11])
def test_number_of_levels_out_of_range_is_named_first(count):
    d = replace(D, levels=(Level(1),) * count, tile_level=20)
    assert beyond(d, Limits(P, P.statistics_depth)) == ("levels", count, (1, 10))


def test_field_added_to_a_copy_is_in_record_and_header(tmp_path):
    words = np.zeros(record_type(Longer).itemsize // 8, np.int64)
    integers = record(D)
    words[: len(integers)] = integers
    assert words.view(record_type(Longer))[0]["damping"] == 9
    source = (
        "int64_t damping(const Longer *d) { return d->damping; }\n"
        "int64_t last_step(const Longer *d) { return d->level[d->levels - 1].z; }\n"
        "const int place = LONGER_DAMPING, width = LONGER_DAMPING_BITS;\n"
    )
    probe = compiled(tmp_path, source, (Longer,))
    for name, value in (("damping", 9), ("last_step", -1)):
        function = getattr(probe, name)
        function.restype, function.argtypes = ctypes.c_int64, [ctypes.c_void_p]
        assert function(words.ctypes.data) == value
    assert ctypes.c_int.in_dll(probe, "place").value == 988
    assert ctypes.c_int.in_dll(probe, "width").value == 5


def test_field_added_to_a_copy_is_in_the_reference():
    assert rows(Longer.layout)[-1] == "| 992:988 | `damping` | 5 | left shift of nothing |"


def test_field_added_to_a_copy_is_in_the_listing():
    line, _ = listing(Program((D, Halt()), 0)).splitlines()
    assert line.endswith("  damping=9")
    line, _ = listing(Program((replace(D, damping=7), Halt()), 0)).splitlines()
    assert "damping" not in line


GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "instruction-set.md"
TRACED = re.compile(
    r"Operation\.SAMPLES\b|program\.samples import .*\bSamples\b|^    Samples,$|case SAMPLES\b"
    r"|== SAMPLES\b|^class Samples\b|^    SAMPLES = ",
    re.MULTILINE,
)
"""Ways to name an operation and its class, of the one that the guide follows."""


def test_guide_lists_every_file_that_names_an_operation():
    """Follow SAMPLES, which one engine executes; what compilers emit is their own."""
    root = GUIDE.parents[2]
    folders = ("sw/trainwright/program", "sw/trainwright/golden", "sw/trainwright/timing",
               "hw/trainwright_hw")  # fmt: skip
    paths = [path for folder in folders for path in (root / folder).rglob("*.*") if path != HEADER]
    sources = [path for path in paths if path.suffix in (".py", ".h", ".c")]
    traced = {str(p.relative_to(root)) for p in sources if TRACED.search(p.read_text())}
    listed = set(re.findall(r"`((?:sw|hw)/[\w/.]+\.\w+)`", GUIDE.read_text()))
    assert len(traced) > 12
    assert traced <= listed
    assert all((root / path).exists() for path in listed)


def test_golden_library_of_another_table_is_an_error(monkeypatch):
    if executor.Executor.open(P, np.zeros(64, np.uint8)) is None:
        pytest.skip("no C compiler here")
    executor._typed.cache_clear()
    monkeypatch.setattr(executor, "digest", lambda: 0)
    with pytest.raises(RuntimeError, match=r"python -m trainwright[.]program[.]records"):
        executor.Executor.open(P, np.zeros(64, np.uint8))
    executor._typed.cache_clear()


def outcome() -> tuple[np.ndarray, np.ndarray]:
    """Run registers, a loop and a contraction; return memory and sums."""
    memory = np.arange(4096, dtype=np.uint8)
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=64, address_register=1)
    d = Compute(operation=Operation.PE4, levels=(Level(2, z=8), Level(2, x=1, g=1)), x=0, g=2,
                z=64, reduce_levels=1, last_rows=8, z_row_stride=1, shift=3, slot=5)  # fmt: skip
    store = Transfer(operation=Operation.STORE, address=2048, local=64, beats=8)
    program = program_of(P, Set(values=((1, 32),)), Loop(iterations=2), load, d, store, End())
    kernels = executor.Executor.open(P, memory)
    assert kernels is not None
    run = kernels.run(program, trace=False, file=ExponentFile(0))
    assert run is not None
    return memory, run.sums


@pytest.mark.slow
def test_golden_kernels_know_no_place_of_a_field(monkeypatch, tmp_path):
    """Records whose members are in the reverse order give the same bits."""
    if executor.Executor.open(P, np.zeros(64, np.uint8)) is None:
        pytest.skip("no C compiler here")
    expected = outcome()
    folder = tmp_path / "native"
    shutil.copytree(HEADER.parent, folder)
    for kind in set(CLASSES.values()):
        first, *rest = kind.table  # the operation says which member of the union it is
        monkeypatch.setattr(kind, "table", (first, *reversed(rest)))
    for cached in (records.record_type, records._getters):
        cached.cache_clear()
    (folder / "isa.h").write_text(header())
    monkeypatch.setattr(executor, "SOURCE", folder / "execute.c")
    columns = [records.record_column(Compute, name) for name in flat.SHIFTS]
    assert columns != flat._SHIFTS
    monkeypatch.setattr(flat, "_SHIFTS", columns)
    try:
        moved = outcome()
    finally:
        for cached in (records.record_type, records._getters):
            cached.cache_clear()
    for array, due in zip(moved, expected, strict=True):
        assert array.tolist() == due.tolist()


PLACES = (
    r"\.words\[[^\]]*,[^\]]*\b\d",
    r"\bd->level\[\d",
    r"\bdescriptor\[\s*:?\s*\d",
    r"\bfield\([^()]*\b\d+, *\d+\)",
    r"\bint bits\[\]",
)
"""Ways to say a field's place by a number: integers of a record, bits of a descriptor."""


@pytest.mark.parametrize("folder", ["sw/trainwright/program", "sw/trainwright/golden",
                                    "hw/trainwright_hw", "sim/trainwright_sim"])  # fmt: skip
def test_sources_name_no_place_of_a_field_by_number(folder):
    root = Path(__file__).parents[2] / folder
    sources = [path for end in ("py", "h", "c", "cpp") for path in root.rglob(f"*.{end}")]
    assert len(sources) > 10
    wrong = [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if path != HEADER and any(re.search(pattern, line) for pattern in PLACES)
    ]
    assert not wrong
