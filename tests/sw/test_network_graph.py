"""Networks as graphs: what a description says, every complaint, and plain data back."""

import pytest
from graph_cases import colour_network, graph_network

from trainwright.compiler import compile_step
from trainwright.network import (
    Apply,
    NetworkError,
    Pool,
    Sum,
    Window,
    load_network,
    network_from_dict,
)
from trainwright.nn import from_network
from trainwright.parameters import AcceleratorParameters

STEM = {"outputs": [2, 3], "inputs": [4, 4], "ranks": [3]}
SQUARE = {"outputs": [2, 3], "inputs": [2, 3], "ranks": [2], "name": "inner"}
SUM = {"add": ["inner", "l1"], "name": "sum"}
HEAD = {"outputs": [1, 4], "inputs": [2, 3], "ranks": [2]}
KERNEL = {"outputs": [2, 2], "inputs": [9, 1], "ranks": [2], "kernel": [3, 3]}
FLAT = {"outputs": [1, 4], "inputs": [4, 4], "ranks": [2]}


def network(*layers, **more):
    return network_from_dict({"classes": 3, "image": [4, 4], "layers": [*layers], **more})


def test_values_are_made_of_each_other():
    graph = network(STEM, SQUARE, SUM, {"weights": "inner", "name": "again"}, HEAD)
    assert [(node.name, node.sources) for node in graph.nodes] == [
        ("x", ()), ("l1", ("x",)), ("inner", ("l1",)), ("sum", ("inner", "l1")),
        ("again", ("sum",)), ("l3", ("again",)),
    ]  # fmt: skip
    assert graph.nodes[3] == Sum("sum", ("inner", "l1"), relu=True)
    assert graph.nodes[4] == Apply("again", ("sum",), 1)
    assert len(graph.layers) == 3 and not graph.is_straight
    assert [layer.relu for layer in graph.layers] == [True, True, False]
    assert graph.heads == ("l3",) and graph.head_sizes == (4,)


def test_values_are_put_in_order():
    head = {**HEAD, "from": "sum", "name": "out"}
    graph = network(STEM, head, SQUARE | {"from": "l1"}, SUM, heads=["out"])
    assert [node.name for node in graph.nodes] == ["x", "l1", "inner", "sum", "out"]


@pytest.mark.parametrize("first", [False, True])
def test_layer_that_a_function_reads_in_any_order_has_no_relu(first):
    tanh = {"function": "tanh", "from": "sum", "name": "tanh"}
    tables = [STEM | {"from": "x"}, SQUARE | {"from": "l1"}, SUM]
    tables = [tanh, *tables] if first else [*tables, tanh]
    graph = network(*tables, HEAD | {"from": "tanh"})
    assert [layer.relu for layer in graph.layers] == [True, True, False]
    assert next(node for node in graph.nodes if node.name == "sum") == Sum(
        "sum", ("inner", "l1"), relu=False
    )


def test_function_of_a_shared_layer_leaves_the_relu_of_other_layers():
    again = {"weights": "inner", "name": "again"}
    graph = network(STEM, SQUARE, SQUARE | {"name": "last"}, again, {"function": "tanh"}, HEAD)
    assert [layer.relu for layer in graph.layers] == [True, True, True, False]


def test_names_alone_leave_a_straight_line():
    named = network(STEM | {"name": "stem"}, HEAD)
    assert named.is_straight
    plain = network(STEM, HEAD)
    assert plain.is_straight and plain.wiring == ()
    p = AcceleratorParameters(lanes=4, pe1_rows=2, pe2_rows=2)
    steps = [compile_step(net, 2, p) for net in (named, plain)]
    assert steps[0].predicted_cycles == steps[1].predicted_cycles


def test_windows_have_shapes():
    pool = {"pool": [2, 2], "padding": [1, 1]}
    net = network(KERNEL | {"padding": [1, 1]}, pool, {**FLAT, "inputs": [9, 4]})
    assert net.shapes == {"x": (4, 4, 1), "l1": (4, 4, 4), "n2": (3, 3, 4), "l2": (4,)}
    assert net.nodes[2] == Pool("n2", ("l1",), Window((2, 2), (2, 2), (1, 1)))
    assert net.layers[0].channels == 1 and not net.is_straight
    assert net.layers[0].factor_shapes == ((1, 2, 9, 2), (2, 2, 1, 1))


@pytest.mark.parametrize("windows", (False, True))
@pytest.mark.parametrize("seed", range(6))
def test_plain_data_says_all(seed, windows):
    net, _ = graph_network(seed, windows=windows)
    assert network_from_dict(net.to_dict()) == net


def test_images_of_several_channels():
    net, _ = colour_network(0)
    assert network_from_dict(net.to_dict()) == net
    assert net.shapes["image"] == (4, 6, 3) and net.shapes["mean"] == (2, 3, 8)
    assert net.input_size == 72 and net.layers[2].leading == 2


SIDES = [{"name": "left", "columns": [0, 2]}, {"name": "right", "columns": [2, 5]}]


@pytest.mark.parametrize(
    ("layers", "more", "message"),
    [
        ((STEM, SQUARE, SUM | {"add": ["inner", "y"]}, HEAD), {},
         "sum: there is no value 'y'; there are x, l1, inner, sum, l3"),
        ((STEM, SQUARE | {"from": "sum"}, SUM, HEAD), {},
         "a cycle: inner from sum from inner; read an earlier value in one of them"),
        ((STEM, SUM | {"add": ["x", "l1"]}, HEAD), {},
         r"sum: 'x' has 16 values \[4, 4, 1\], 'l1' 6 \[6\]: only values of one size add; put a "
         "layer between"),
        ((STEM, SUM | {"add": ["l1"]}, HEAD), {}, "sum: two values are added, not 1"),
        ((STEM, SQUARE, HEAD | {"from": "l1"}), {},
         "no head needs the value 'inner': name it in `from`, `add` or `heads`, or omit it"),
        ((STEM, HEAD), {"heads": ["l2", "l3"]}, "heads: there is no value 'l3'"),
        ((STEM, HEAD), {"heads": ["l2", "l2"]}, r"heads \['l2', 'l2'\] has a name twice"),
        ((STEM, HEAD | {"relu": True}), {"heads": ["l2"]}, "gives the logits and has no relu"),
        ((STEM, HEAD | {"name": "l1"}), {}, "layer 2: 'l1' is no name of a value"),
        ((STEM, HEAD | {"name": "x"}), {}, "two values have the name 'x': rename one"),
        ((STEM, {"weights": "head"}, HEAD), {},
         "n2: weights: there is no layer 'head'; there are l1, l2"),
        ((STEM, {"weights": "l1"}, HEAD), {},
         r"n2: inputs \[4, 4\] multiply to 16, layer 1 has 6 outputs"),
        ((STEM, {"add": [1, 2]}, HEAD), {}, r"layer 2: add must be a list of names, not \[1, 2\]"),
        ((STEM, SUM | {"outputs": [2]}, HEAD), {}, "layer 2: unknown key 'outputs'"),
        ((STEM, HEAD), {"inputs": SIDES},
         r"input 2: columns \[2, 5\] must be the first and the one after the last within 4"),
        ((STEM, HEAD), {"inputs": [{"name": "rgb", "channels": 3}]},
         "input 1: channels must divide its 4 columns, not 3"),
        ((KERNEL, HEAD | {"leading": 1, "inputs": [8, 2]}), {},
         r"the leading 1 of inputs \[8, 2\] multiply to 8: they are the channels of an image, 'l1' "
         r"is \[2, 2, 4\]"),
        ((STEM | {"leading": 2}, HEAD), {}, "layer 1: leading inputs are from 0 to 1 of a layer"),
        ((KERNEL | {"leading": 1}, FLAT), {}, "layer 1: leading inputs are from 0 to 1 of a layer"),
        ((KERNEL | {"inputs": [8, 1]}, FLAT), {},
         r"the first of inputs \[8, 1\] must be the 9 values of the kernel"),
        ((KERNEL | {"inputs": [9, 2]}, FLAT), {},
         r"layer 1: inputs \[2\] behind the kernel's multiply to 2, 'x' has 1 channel"),
        ((KERNEL | {"padding": [3, 0]}, FLAT), {},
         r"padding \[3, 0\] must be smaller than the kernel \[3, 3\]"),
        ((KERNEL | {"stride": [0, 1]}, FLAT), {}, "layer 1: stride must be two integers"),
        ((KERNEL | {"kernel": [5, 5], "inputs": [25, 1]}, FLAT), {},
         r"layer 1: a window of \[5, 5\] is larger than 'x' of \[4, 4\]"),
        ((STEM, {"pool": [2, 2]}, HEAD), {},
         "n2: a window is of an image, 'l1' is 6 outputs of a layer without one"),
        ((STEM | {"padding": [1, 1]}, HEAD), {},
         "layer 1: stride and padding are of a convolution: give it a kernel"),
    ],
)  # fmt: skip
def test_network_graph_names_fault_of_description(layers, more, message):
    with pytest.raises(NetworkError, match=message):
        network(*layers, **more)


def test_modules_in_a_row_are_no_graph():
    net = network(STEM, SQUARE, SUM, HEAD)
    with pytest.raises(NetworkError, match="is a graph: modules in a row are for layers in one"):
        from_network(net)


def test_network_graph_is_read_from_file(tmp_path):
    path = tmp_path / "skip.toml"
    path.write_text(
        """
classes = 3
image = [4, 4]

[[layers]]
outputs = [2, 3]
inputs = [4, 4]
ranks = [3]

[[layers]]
outputs = [2, 3]
inputs = [2, 3]
ranks = [2]
relu = false

[[layers]]
add = ["l1", "l2"]

[[layers]]
outputs = [1, 4]
inputs = [2, 3]
ranks = [2]
"""
    )
    net = load_network(str(path))
    assert net.nodes[3] == Sum("n3", ("l1", "l2"), relu=True)
