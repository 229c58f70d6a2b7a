"""The list of accelerator sizes in ``check --help`` is what the accelerator takes."""

from dataclasses import fields

import pytest

from trainwright.cli import main
from trainwright.cli.sizes import SIZES, describe_sizes
from trainwright.parameters import PRESETS, AcceleratorParameters

BESIDE = {
    ("scratchpad_banks", 8192): {"scratchpad_rows": 1 << 17},
    ("scratchpad_rows", 16): {"scratchpad_banks": 1},
    ("burst_beats", 256): {"lanes": 16},
    ("lanes", 4): {"pe1_rows": 4, "pe2_rows": 4},
    ("wide_tensors", 1): {"word_width": 8},
    **{("engine_lanes", lanes): {"vector_engine": 1} for lanes in (1, 2, 4, 8)},
}
"""Other sizes that an extreme needs beside it."""


def make(name: str, value: int) -> AcceleratorParameters:
    return AcceleratorParameters(**BESIDE.get((name, value), {}) | {name: value})


def test_every_size_is_listed_in_order():
    assert [size.name for size in SIZES] == [field.name for field in fields(AcceleratorParameters)]


@pytest.mark.parametrize(
    "size", [size for size in SIZES if not size.listed], ids=lambda size: size.name
)
def test_ranges_are_those_of_the_accelerator(size):
    """The ends are taken, what lies beyond is refused; between powers of two nothing is."""
    inside = size.values or (size.least, size.greatest)
    for value in inside:
        make(size.name, value)
    step = 2 if size.powers else 1
    beyond = [min(inside) - 1, max(inside) * 2 if size.powers else max(inside) + step]
    if size.powers and size.greatest > size.least * 2:
        beyond.append(size.greatest - 1)
    for value in beyond:
        with pytest.raises(ValueError, match=f"{size.name}|scratchpad_rows"):
            make(size.name, value)


def test_help_shows_sizes_and_presets(capsys):
    with pytest.raises(SystemExit) as done:
        main(["check", "--help"])
    assert done.value.code == 0
    shown = capsys.readouterr().out
    for line in describe_sizes().splitlines():
        assert line.strip() in shown
        assert len(line) <= 98
    for name in PRESETS:
        assert name in describe_sizes()
    assert "program_depth        1, 2 .. 4096      512 " in shown
