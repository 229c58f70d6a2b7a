"""Numbers that the compiler's search weighs."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import trainwright.compiler
from trainwright.compiler.base.tuning import TUNING

SOURCES = "\n".join(
    path.read_text()
    for path in Path(trainwright.compiler.__file__).parent.rglob("*.py")
    if path.name != "tuning.py"
)


@pytest.mark.parametrize("section", [field.name for field in fields(TUNING)])
def test_tuning_numbers_of_a_section_are_all_weighed(section):
    read = set(re.findall(rf"TUNING\.{section}\.(\w+)", SOURCES))
    # A function that reads several numbers of a section names the section once.
    for body in re.split(r"\n(?= *def )", SOURCES):
        if re.search(rf"= TUNING\.{section}\b(?!\.)|, TUNING\.{section}\b(?!\.)", body):
            read |= set(re.findall(r"\btune\.(\w+)", body))
    assert {field.name for field in fields(getattr(TUNING, section))} <= read


def test_tuned_number_is_that_of_the_record_after_a_test(tune):
    before = TUNING.block.cuts
    tune("block", cuts=before + 1)
    assert TUNING.block.cuts == before + 1
