"""Networks as data: the built-in ones to the digit, a user's own, and every complaint."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trainwright.compiler import compile_step
from trainwright.network import (
    BUILT_IN,
    Layer,
    Network,
    NetworkError,
    Widths,
    load_network,
    network_from_dict,
    rank_bounds,
)
from trainwright.parameters import AcceleratorParameters

DOCUMENT = Path(__file__).parents[2] / "docs" / "guide" / "networks.md"

OWN = """
classes = 3
image = [2, 16]

[[layers]]
outputs = [2, 2, 8]
inputs = [1, 2, 16]
ranks = [2, 5]

[[layers]]
outputs = [1, 8]
inputs = [4, 8]
ranks = [3]
"""


def test_fashion_is_the_papers_network():
    network = load_network("fashion")
    assert network.parameters == 14_800
    assert network.model_bits == 61_312
    assert network.dense_bits == 467_472 * 32
    assert int(network.reduction) == 243
    assert [layer.factor_parameters for layer in network.layers] == [9_664, 4_608]
    assert [layer.bias_parameters for layer in network.layers] == [512, 16]
    assert [layer.input_size for layer in network.layers] == [896, 512]
    assert network.ranks == ((16, 16, 16), (16,))
    assert network.layers[0].factor_shapes == (
        (1, 4, 7, 16),
        (16, 4, 4, 16),
        (16, 2, 2, 16),
        (16, 16, 16, 1),
    )
    assert (network.image, network.padded, network.classes) == ((28, 28), (28, 32), 10)
    assert network.widths == Widths(4, 8, 8, 16, 16)
    assert 32 * network.parameters == 473_600


def test_network_with_a_scale_is_as_large_dense_as_its_matrices_and_vectors():
    scale = Layer((12,), (12,), (), bias=True, diagonal=True)
    network = Network("n", (Layer((3, 4), (3, 5), (2,)), scale), classes=12, image=(3, 5),
                      padded=(3, 5))  # fmt: skip
    assert network.dense_bits == 32 * ((12 * 15 + 12) + (12 + 12))
    assert network.reduction == network.dense_bits / network.model_bits


def test_network_digits_has_known_size():
    network = load_network("digits")
    assert network.dataset == "digits"
    assert network.layers[0].input_size == 64
    assert [layer.output_size for layer in network.layers] == [128, 16]


@pytest.mark.parametrize("name", BUILT_IN)
def test_dictionaries_round_trip(name):
    network = load_network(name)
    assert network_from_dict(network.to_dict()) == network


def test_network_file_of_user_is_read(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    network = load_network(str(path))
    assert network.padded == network.image == (2, 16)
    assert [layer.relu for layer in network.layers] == [True, False]
    assert all(layer.bias for layer in network.layers)
    assert network.widths == Widths()
    assert network.layers[0].factor_shapes == ((1, 2, 1, 2), (2, 2, 2, 5), (5, 8, 16, 1))


def test_network_documented_example_loads(tmp_path):
    example = re.search(r"```toml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert example is not None
    path = tmp_path / "example.toml"
    path.write_text(example[1])
    network = load_network(str(path))
    assert len(network.layers) == 2
    compile_step(network, 64, AcceleratorParameters())
    assert f"{network.parameters:,} parameters" in DOCUMENT.read_text()


def test_ranks_can_be_cut():
    network = load_network("fashion")
    cut = network.with_ranks([(12, 5, 13), (16,)])
    assert cut.ranks == ((12, 5, 13), (16,))
    assert cut.parameters < network.parameters
    assert cut.with_ranks(network.ranks) == network
    with pytest.raises(NetworkError, match="ranks for 1 layer, network 'fashion' has 2"):
        network.with_ranks([(1, 1, 1)])


def test_network_rank_bounds_follow_shapes():
    assert rank_bounds((4, 4, 2, 16), (7, 4, 2, 16)) == (28, 448, 256)
    assert rank_bounds((1, 16), (32, 16)) == (32,)


# Complaints: the key or the value that is wrong is in the message.


def load(tmp_path, text: str) -> Network:
    path = tmp_path / "network.toml"
    path.write_text(text)
    return load_network(str(path))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "inputs = [1, 2, 16]",
            "inputs = [1, 3, 16]",
            r"layer 1: inputs \[1, 3, 16\] multiply to 48, the padded image \[2, 16\] has 32",
        ),
        (
            "inputs = [4, 8]",
            "inputs = [5, 8]",
            r"layer 2: inputs \[5, 8\] multiply to 40, layer 1 has 32 outputs",
        ),
        ("ranks = [2, 5]", "ranks = [3, 5]", r"layer 1: rank R_1 = 3 is over its bound 2"),
        ("ranks = [3]", "ranks = [5]", r"layer 2: rank R_1 = 5 is over its bound 4"),
        (
            "ranks = [3]",
            "ranks = [0]",
            "layer 2: dimensions and ranks are from 1 to 1048576, not 0",
        ),
        ("ranks = [3]", "ranks = [2.5]", "layer 2: dimensions and ranks .* not 2.5"),
        ("ranks = [3]", "ranks = [3, 3]", r"layer 2: 2 factors have 1 rank, not \[3, 3\]"),
        ("inputs = [4, 8]", "inputs = [4, 2, 4]", "layer 2: outputs .* differ in length"),
        ("outputs = [1, 8]", "outputs = []", r"at least 1 factor, not outputs \[\]"),
        ("classes = 3", "classes = 9", "classes must be from 1 .* to the 8 outputs .* not 9"),
        ("classes = 3", "classes = 0", "classes must be from 1 .* not 0"),
        ("classes = 3", "classes = 'x'", "network: classes must be an integer, not 'x'"),
        ("classes = 3", "classes = true", "network: classes must be an integer, not True"),
        ("classes = 3", "", "network: 'classes' is missing"),
        ("classes = 3", "classes = 3\ncolour = 1", "network: unknown key 'colour'; there are"),
        ("ranks = [3]", "ranks = [3]\nrank = 1", "layer 2: unknown key 'rank'; there are"),
        ("ranks = [3]", "", "layer 2: 'ranks' is missing"),
        ("ranks = [3]", "ranks = 3", "layer 2: ranks must be a list, not 3"),
        ("ranks = [3]", "ranks = [3]\nrelu = 1", "layer 2: relu must be true or false, not 1"),
        ("ranks = [3]", "ranks = [3]\nrelu = true", "last layer gives the logits"),
        ("image = [2, 16]", "image = [2]", r"image must be two integers .* not \[2\]"),
        ("image = [2, 16]", "image = [2, 16]\npadded = [1, 32]", r"\[1, 32\] is smaller than"),
        (
            "image = [2, 16]",
            "image = [2, 16]\nwidths = {factor = 1}",
            "factor width must be from 2 to 16 bits, not 1",
        ),
        (
            "image = [2, 16]",
            "image = [2, 16]\nwidths = {gradient = 17}",
            "gradient width must be from 4 to 16 bits, not 17",
        ),
        (
            "image = [2, 16]",
            "image = [2, 16]\nwidths = {bits = 4}",
            "widths: unknown key 'bits'; there are factor, bias",
        ),
        ("ranks = [3]", "ranks = [true]", r"layer 2: ranks has numbers or names, not \[True\]"),
        ("image = [2, 16]", "image = [2, true]", "network: image has numbers or names"),
        (
            "image = [2, 16]",
            "image = [2, 16]\nwidths = {activation = 8}\nformats = {activation = 'posit(16,1)'}",
            r"formats: activation has 16 bits and \[widths\] says 8: omit one of them",
        ),
    ],
)
def test_network_wrong_description_is_one_error(tmp_path, old, new, message):
    assert old in OWN
    with pytest.raises(NetworkError, match=message):
        load(tmp_path, OWN.replace(old, new))


@pytest.mark.parametrize(
    "name",
    ["/tmp/else", "../..", "..", ".", ".hidden", "", "a/b", "a\\b", "C:x", "a\n", "x.", "n" * 65],
)
def test_names_that_would_leave_the_folder_of_runs(name):
    """A run's folder is ``runs/NAME``."""
    described = load_network("digits").to_dict() | {"name": name}
    with pytest.raises(NetworkError, match=f"name {re.escape(repr(name))} is not one: up to 64"):
        network_from_dict(described)


@pytest.mark.parametrize("name", ["a", "digits-4.2", "my network", "mit Umlaut ä", "n" * 64])
def test_names_of_networks(name):
    described = load_network("digits").to_dict() | {"name": name}
    assert network_from_dict(described).name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("classes = ", "not a TOML file"),
        ("classes = 3\nimage = [2, 16]\nlayers = []", "'network' has no layers"),
        ("classes = 3\nimage = [2, 16]\nlayers = [1]", "layer 1 must be a table, not 1"),
        ("classes = 3\nimage = [2, 16]\nlayers = {}", "layers must be a list, not {}"),
        ("classes = 3\nimage = [2, 16]", "'layers' is missing"),
    ],
)
def test_network_file_of_other_kind_is_one_error(tmp_path, text, message):
    with pytest.raises(NetworkError, match=message):
        load(tmp_path, text)


def test_network_missing_file_is_one_error(tmp_path):
    path = str(tmp_path / "none.toml")
    with pytest.raises(NetworkError, match=f"cannot read network file '{path}': No such file"):
        load_network(path)


def test_folder_and_binary_file(tmp_path):
    with pytest.raises(NetworkError, match="cannot read network file"):
        load_network(str(tmp_path))
    path = tmp_path / "picture.toml"
    path.write_bytes(b"\xff\xfe\x80")
    with pytest.raises(NetworkError, match="not a text file"):
        load_network(str(path))


def test_network_unknown_name_is_one_error():
    message = (
        "unknown network 'resnet'; built in are digits, fashion, fashion-conv, encoder-64, "
        "encoder-768, tagger-64, intent-64, or give"
    )
    with pytest.raises(NetworkError, match=message):
        load_network("resnet")


@pytest.mark.parametrize(
    ("name", "least"),
    [("factor", 2), ("bias", 4), ("activation", 4), ("gradient", 4), ("intermediate", 4)],
)
def test_network_widths_stay_within_bounds(name, least):
    for width in (least, 16):
        assert getattr(Widths(**{name: width}), name) == width
    for width in (least - 1, 17):
        message = f"{name} width must be from {least} to 16 bits, not {width}"
        with pytest.raises(NetworkError, match=message):
            Widths(**{name: width})


def test_layers_without_bias_count_none():
    layer = Layer((2, 16), (2, 16), (3,), bias=False)
    assert layer.bias_parameters == 0
    assert layer.factor_parameters == 2 * 2 * 3 + 3 * 16 * 16
    assert replace(layer, bias=True).bias_parameters == 32


def test_network_of_sizes_of_numpy_is_that_of_python():
    n = np.int64
    layers = [
        {"outputs": (n(4), n(8)), "inputs": np.array([4, 8]), "ranks": [n(4)], "relu": np.True_},
        {"outputs": [2, 8], "inputs": [n(4), 8], "ranks": np.array([2])},
    ]
    own = network_from_dict({"classes": n(3), "image": np.array([2, 16]), "layers": layers})
    plain = [
        {"outputs": [4, 8], "inputs": [4, 8], "ranks": [4], "relu": True},
        {"outputs": [2, 8], "inputs": [4, 8], "ranks": [2]},
    ]
    assert own == network_from_dict({"classes": 3, "image": [2, 16], "layers": plain})
    json.dumps(own.to_dict())
