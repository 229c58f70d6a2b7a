"""The axis ``board`` of ``trainwright sweep``."""

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from trainwright.cli.errors import OptionError
from trainwright.parameters import PRESETS
from trainwright_boards.axis import options
from trainwright_boards.catalogue import BOARDS


@pytest.mark.parametrize("name", BOARDS)
def test_board_axis_selects_preset_of_board(name):
    assert options(name) == ("--preset", BOARDS[name].preset)
    assert BOARDS[name].preset in PRESETS


def test_another_name_is_one_error():
    with pytest.raises(OptionError, match="no board 'arty'; there are ulx3s-85f"):
        options("arty")


def test_it_is_registered():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["trainwright.axes"]["board"].partition(":")
    assert getattr(import_module(module), name) is options
