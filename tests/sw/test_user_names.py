"""Names of tensors in the user's words."""

import re

import pytest

from trainwright.graph.order import ordered, replaced
from trainwright.graph.step import step_graph
from trainwright.network import UserNames, load_network, network_from_dict

NAMED = {
    "name": "two ways", "classes": 10, "image": [8, 8], "padded": [8, 8],
    "inputs": [{"name": "left", "columns": [0, 4]}, {"name": "right", "columns": [4, 8]}],
    "layers": [
        {"name": "first", "from": "left", "kernel": [3, 3], "outputs": [2, 4], "inputs": [9, 1],
         "ranks": [3]},
        {"name": "mean", "pool": [2, 2]},
        {"name": "wide", "from": "right", "outputs": [2, 4], "inputs": [4, 8], "ranks": [2]},
        {"name": "head", "from": "mean", "outputs": [2, 8], "inputs": [3, 8], "ranks": [3]},
        {"outputs": [4, 4], "inputs": [2, 4], "ranks": [4], "from": "wide", "relu": False},
        {"name": "sum", "add": ["head", "l4"]},
    ],
    "heads": ["sum"],
}  # fmt: skip


def step_tensors(network) -> set[str]:
    """Return the names of all tensors of a step, products of two included."""
    graph = step_graph(network, 8)
    orders = [ordered(graph.whole, site, most=1, word=8)[0] for site in graph.sites.values()]
    return set(replaced(graph.whole, orders).tensors)


@pytest.mark.parametrize("network", ["digits", "fashion-conv", NAMED])
def test_user_names_every_tensor_of_a_step_has_no_internal_name(network):
    loaded = load_network(network) if isinstance(network, str) else network_from_dict(network)
    words = UserNames.of_network(loaded)
    names = step_tensors(loaded)
    assert len({words.tensor(name) for name in names}) == len(names)
    for name in names:
        text = words.tensor(name)
        assert not re.search(r"\bl\d|\b[xya]w?\b|\bd[xyabG]", text), (name, text)
        if "." in name:
            assert words.message(f"cannot hold {name}: large") == f"cannot hold {text}: large"


@pytest.mark.parametrize(
    ("name", "text", "short"),
    [
        ("l1.G2", "first: factor G2", "first G2"),
        ("l1.dG2", "first: gradient of factor G2", "first dG2"),
        ("l1.xw.dy", "first: product of windows of the input and gradient of the sums",
         "first xw*dy"),
        ("l2.dx.G1.dyw",
         "wide: product of factor G1 and windows of the gradient of the sums, for the gradient of "
         "the input", "wide G1*dyw for dx"),
        ("l4.da.2", "layer 4: gradient of the output (part 2)", "layer 4 da (part 2)"),
        ("l4.dy copy", "copy of layer 4: gradient of the sums", "layer 4 dy copy"),
        ("mean.share", "mean: averaging weights", "mean share"),
        ("left", "input left", "left"),
        ("dleft", "gradient of the input left", "dleft"),
        ("ones l1.oh l1.ow s", "ones", "ones"),
        ("zeros", "zeros", "zeros"),
    ],
)  # fmt: skip
def test_user_names_tensor_of_a_named_network_follows_its_file(name, text, short):
    words = UserNames.of_network(network_from_dict(NAMED))
    assert (words.tensor(name), words.short(name)) == (text, short)


def test_user_names_message_of_modules_keeps_figures_and_other_words():
    words = UserNames({"l1": "encoder.0.fc", "l2": "head"})
    text = "l2.dx.G1.dyw needs 65536 rows, l10.a and model.l1.a stay; use l1.1"
    assert words.message(text).startswith("head: product of factor G1 and windows")
    assert words.message(text).endswith("65536 rows, l10.a and model.l1.a stay; use l1.1")
    assert words.axis("l1.oh") == "output rows of encoder.0.fc"
    assert words.slice("l1.oh", 4, "l1") == "4 output rows"
    assert words.slice("l2.j1", 4, "l2") == "4 of outputs 1"
    assert words.axis("s") == "samples" and words.axis("l2.j1") == "outputs 1 of head"
