"""Models stored with a number format of the user's own: they know its file and its words."""

import re
import warnings
from pathlib import Path

import pytest
import torch

import trainwright
import trainwright.nn as tnn
from trainwright.formats import Fixed, Format, FormatError, parse_format
from trainwright.network import NetworkError, network_from_dict

PAGE = Path(__file__).parents[2] / "docs/guide/number-formats.md"
CODE = PAGE.read_text().split("```python\n")[1].split("\n\nfmt =")[0]
EDITED = CODE.replace("        return 4\n", "        return 5\n")
"""Words of half the value: the smallest number is 2^-5."""


@pytest.fixture(autouse=True)
def kinds(monkeypatch):
    """Forget the formats of a test."""
    monkeypatch.setattr(Format, "kinds", [*Format.kinds])


def stored(folder, code=CODE):
    """Describe a stored network whose activations have the format of a file of kernels."""
    (folder / "six.py").write_text(code)
    layers = [{"outputs": [2, 5], "inputs": [8, 8], "ranks": [4], "relu": False, "bias": True}]
    description = {"name": "n", "classes": 10, "image": [8, 8], "layers": layers}
    description |= {"kernels": ["six.py"], "formats": {"activation": "six()"}}
    return network_from_dict(description, folder).to_dict()


def test_stored_network_names_the_file_of_its_format(tmp_path, monkeypatch):
    description = stored(tmp_path)
    assert description["kernels"] == [str(tmp_path / "six.py")]
    again = network_from_dict(description)
    assert again.to_dict() == description
    (tmp_path / "six.py").write_text("# A comment\n" + CODE)
    assert network_from_dict(description).to_dict() == description


def test_stored_network_whose_format_has_other_words_is_refused(tmp_path):
    description = stored(tmp_path)
    (tmp_path / "six.py").write_text(EDITED)
    with pytest.raises(
        NetworkError, match=r"six\(\) has other words than when the model was trained"
    ):
        network_from_dict(description)
    del description["format_digests"]  # of a version that kept none
    network_from_dict(description)


def define(code, module="__main__"):
    """Execute a cell of a notebook, or a module."""
    exec(code, {"__name__": module})


def test_class_defined_again_replaces_the_format():
    for code, module, scale in ((CODE, "a", 4), (EDITED, "a", 5), (CODE, "b", 4)):
        define(code, module)
        assert parse_format("six()").scale == scale


def test_state_of_an_edited_format_gives_a_warning_and_new_exponents():
    define(CODE)
    layer, x = tnn.TTLinear(16, 8, rank=2, numbers="activation=six()"), torch.randn(16, 16)
    model = trainwright.compile(torch.nn.Sequential(layer), batch=16)
    model(x * 1e3).sum().backward()
    state = model.state_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tnn.TTLinear(16, 8, rank=2, numbers="activation=six()").load_state_dict(layer.state_dict())
    define(EDITED)
    other = tnn.TTLinear(16, 8, rank=2, numbers="activation=six()")
    with pytest.warns(UserWarning, match=r"other numbers \(activation=six\(\) #.* for six\(\) #"):
        torch.nn.Sequential(other).load_state_dict(state)
    assert not other.quantise_input.calibrated


def test_state_without_digests_loads_without_a_warning():
    define(CODE)
    layer = tnn.TTLinear(16, 8, rank=2, numbers="activation=six()")
    state = layer.state_dict()
    text = bytes(map(int, state["formats"])).decode()
    old = re.sub(" #[0-9a-f]+", "", text).encode()
    assert old != text.encode()
    state["formats"] = torch.tensor(list(old), dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer.load_state_dict(state)


@pytest.mark.parametrize("spelling", [Fixed.spelling.pattern, r"fixed\(([0-9]{1,9})\)"])
def test_class_with_a_spelling_of_the_library_is_refused_by_both_names(spelling):
    known = list(Format.kinds)
    with pytest.raises(TypeError, match=r"mine\.Own has the spelling of .*formats\.fixed\.Fixed"):
        type("Own", (Fixed,), {"__module__": "mine", "spelling": re.compile(spelling)})
    assert Format.kinds == known


def test_text_that_two_classes_read_is_an_error_naming_both():
    kind = {"__module__": "mine", "spelling": re.compile(r"fixed\((8)\)"), "allowed": "fixed(8)"}
    type("Eight", (Fixed,), kind)
    assert parse_format("fixed(7)") == Fixed(7)
    with pytest.raises(FormatError, match=r"formats of .*fixed\.Fixed and mine\.Eight: let one"):
        parse_format("fixed(8)")
