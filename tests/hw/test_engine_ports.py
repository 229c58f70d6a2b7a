"""Commands as structures: fields have the places that they have in memory."""

import pytest

from trainwright.program.fields import (
    COMPUTE,
    HEADER,
    LAYOUTS,
    OF_EXPONENTS,
    TRANSFER,
    VECTOR,
)
from trainwright_hw.control.engine_ports import command_layout


@pytest.mark.parametrize("operation", list(LAYOUTS))
def test_command_layout_of_every_operation_keeps_the_places(operation):
    layout, position = command_layout(LAYOUTS[operation]), 0
    for name, width in LAYOUTS[operation]:
        if name not in OF_EXPONENTS:
            assert (layout[name].offset, layout[name].width) == (position, width)
        position += width


@pytest.mark.parametrize("fields", [COMPUTE, TRANSFER, VECTOR])
def test_command_layout_field_behind_the_exponents_is_an_error(fields):
    with pytest.raises(ValueError, match="field negated is behind"):
        command_layout((*fields, ("negated", 1)))


def test_command_layout_named_exponent_field_before_another_is_an_error():
    with pytest.raises(ValueError, match="field count is behind last"):
        command_layout((*HEADER, ("last", 1), ("count", 16)))
