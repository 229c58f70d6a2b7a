"""The list of accelerator sizes in ``check --help`` is what the accelerator takes."""

import re
from dataclasses import fields

import pytest

from trainwright.cli import main
from trainwright.cli.sizes import describe_sizes
from trainwright.parameters import PRESETS, AcceleratorParameters
from trainwright.support.settings import settings_of

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


@pytest.mark.parametrize(
    "size",
    [s for s in settings_of(AcceleratorParameters) if s.name != "formats"],
    ids=lambda s: s.name,
)
def test_size_range_in_help_is_accepted_and_its_outside_rejected(size):
    """Make both ends; reject the next values beyond, and others than powers of two."""
    low, high = min(size.choices or [size.limits.ge]), max(size.choices or [size.limits.le])
    for value in size.choices or (low, high):
        make(size.name, value)
    step = 2 if size.choices or size.limits.extra else 1
    beyond = [low - 1, high * 2 if step == 2 else high + 1]
    if size.limits and size.limits.extra and high > 2 * low:
        beyond.append(high - 1)
    for value in beyond:
        with pytest.raises(ValueError, match=size.name):
            make(size.name, value)


def test_size_table_of_help_lists_every_size_in_order():
    table, _, _ = describe_sizes().partition("\n\n")
    names = [line.split("|")[1].strip() for line in table.splitlines()[2:]]
    names = [name for name in names if name]  # a folded row goes on without a name
    assert names == [field.name for field in fields(AcceleratorParameters)]


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
    assert re.search(r"program_depth +\| 1, 2 \.\. 4096 +\| 512 ", shown)
