"""Commands as structures: fields have the places that they have in memory."""

import pytest

from trainwright.program.descriptors import LAYOUTS, Compute, Transfer
from trainwright.program.table import Field, Header
from trainwright.program.vector import Vector
from trainwright_hw.control.engine_ports import command_layout


@pytest.mark.parametrize("operation", list(LAYOUTS))
def test_command_layout_of_every_operation_keeps_the_places(operation):
    layout, position = command_layout(LAYOUTS[operation]), 0
    for field in LAYOUTS[operation]:
        if not field.resident:
            place = layout[field.name]
            assert (place.offset, place.width) == (position, field.width)
        position += field.width


@pytest.mark.parametrize("kind", [Compute, Transfer, Vector])
def test_command_layout_field_behind_the_exponents_is_an_error(kind):
    with pytest.raises(ValueError, match="field negated is behind"):
        command_layout((*kind.layout, Field("negated", 1, "")))


def test_command_layout_named_exponent_field_before_another_is_an_error():
    with pytest.raises(ValueError, match="field count is behind last"):
        command_layout(
            (*Header.layout, Field("last", 1, "", resident=True), Field("count", 16, ""))
        )
