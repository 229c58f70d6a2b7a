"""Networks of sequences: descriptions, exact programs, torch, statistics in several runs."""

import pickle
from dataclasses import replace
from math import prod

import numpy as np
import pytest
import torch
from sequence_networks import classifier, encoder_tables, encoders_768, small_encoder
from slowly import mostly_slow
from test_lowering import checked

from trainwright.check.step import check_step, random_inputs
from trainwright.cli import main
from trainwright.compiler import compile_step
from trainwright.compiler.forms.layout import Layout
from trainwright.compiler.step.compile import view_layout
from trainwright.driver import Driver
from trainwright.driver.tokens import TokenCounts, token_words
from trainwright.fixed.quantise import dequantise
from trainwright.fixed.scale import Scales
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import NetworkError, load_network, network_from_dict
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Halt, Level, Program
from trainwright.program.fields import Operation
from trainwright.program.segments import segments
from trainwright.program.vector import Vector
from trainwright.train.batches import input_quantiser
from trainwright.train.functional import outputs

pytestmark = pytest.mark.usefixtures("first_programs")

ENGINE = AcceleratorParameters(vector_engine=1)


@pytest.mark.parametrize("network", (small_encoder(), classifier(), load_network("encoder-768")))
def test_network_of_tokens_is_read_back_from_its_tables(network):
    assert network_from_dict(network.to_dict()) == network
    assert pickle.loads(pickle.dumps(network)) == network


def changed(name, **keys):
    """Return the tables of the encoder with other keys of a layer."""
    tables = encoder_tables()
    tables["layers"] = [
        {**layer, **keys} if layer["name"] == name else layer for layer in tables["layers"]
    ]
    return tables


@pytest.mark.parametrize(
    ("tables", "match"),
    (
        ({**encoder_tables(), "tokens": 0}, "tokens of a sequence are from 1 to .*, not 0"),
        ({**encoder_tables(), "tokens": 1}, "attention is over the tokens of a sequence: give"),
        (changed("heads", heads=5), "heads: 5 heads do not divide 24 values"),
        (
            changed("heads", attention=["query", "key", "value", "key"]),
            "attention reads queries, keys",
        ),
        (changed("value", outputs=[4, 3]), r"queries, keys and values have \[24, 24, 12\] values"),
        (changed("norm1", norm="batch"), "norm is \"layer\", not 'batch'"),
        (changed("scale1", scale=23), r"inputs \[23\] multiply to 23, 'norm1' has 24 values"),
        (changed("embedding", product=["digit1", "query"]), "a cycle"),
        (changed("embedding", inputs=[5, 6]), r"the values of product have \[5, 5\] values"),
    ),
)
def test_network_of_tokens_with_wrong_sizes_is_one_error(tables, match):
    with pytest.raises(NetworkError, match=match):
        network_from_dict(tables)


def test_function_over_tokens_with_padding_is_rejected(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import trainwright\n"
        "@trainwright.kernel(over='tokens', gradient='straight-through')\n"
        "def summed(k, x):\n"
        "    return k.sum(x)\n"
    )
    tables = encoder_tables()
    tables["layers"][6:6] = [{"name": "summed", "from": "output", "function": "summed"}]
    tables["layers"][7]["add"] = ["embedding", "summed"]
    network_from_dict({**tables, "kernels": [str(file)]})
    with pytest.raises(NetworkError, match=r"summed.* is over tokens and would count padding"):
        network_from_dict({**tables, "kernels": [str(file)], "padding": True})


@mostly_slow("batch, tokens", ((1, 16), (2, 19)), quick=[(2, 19)])
def test_small_encoder_is_exact_in_every_tensor(batch, tokens):
    step = checked(small_encoder(tokens=tokens), batch, ENGINE)
    names = {op.out for op in step.backward.lowered.graph.ops}
    assert {"heads.dy", "sum1.da", "l6.dG1", "l6.db", "l1.dG1"} <= names


def test_attention_as_the_last_value_is_exact_in_every_tensor():
    tables = encoder_tables()["layers"][:5]
    step = checked(small_encoder(layers=tables), 2, ENGINE)
    names = {op.out for op in step.backward.lowered.graph.ops}
    assert {"heads.dy", "heads.dv", "l4.dG1"} <= names and "heads.da" not in names


@mostly_slow("over, batch, tokens", (("mean", 3, 16), ("first", 1, 19)), quick=[("first", 1, 19)])
def test_classifier_with_padding_is_exact_in_every_tensor(over, batch, tokens):
    network = classifier(over=over, tokens=tokens)
    step = checked(network, batch, ENGINE)
    assert step.forward.lowered.graph.results == ("l10.a",)
    with GoldenAccelerator(ENGINE, memory_bytes=1 << 24) as golden:
        check = check_step(network, batch, golden)
    assert "heads.mask in memory" in check.comparison.tensors and not check.comparison.mismatches


def test_scale_whose_values_lie_in_padded_rows_is_exact_in_every_tensor():
    """Store normalised values in rows padded to the lanes, which the backward pass reads anew."""
    layer = {"outputs": [2, 16], "inputs": [2, 16], "ranks": [4], "relu": False}
    layers = [
        {"name": "normal", "norm": "layer"},
        {"name": "scaled", "scale": 32},
        *({"name": name, "from": "scaled", **layer} for name in ("query", "key", "value")),
        {"name": "heads", "attention": ["query", "key", "value"], "heads": 2, "causal": True},
    ]
    tables = {"classes": 2, "image": [1, 32], "tokens": 2, "layers": layers}
    step = checked(network_from_dict(tables), 16, ENGINE)
    normal = step.forward.lowered.outer.values()
    assert [outer.layout.padded for outer in normal if outer.tensor == "normal.a"] == [("s",)]


def test_scale_that_two_values_share_is_exact_in_every_tensor():
    layer = {"outputs": [4, 6], "inputs": [4, 6], "ranks": [6], "relu": False}
    layers = [
        {"name": "first", "scale": 24},
        {"name": "middle", **layer},
        {"name": "second", "weights": "first"},
        {"name": "last", **layer},
        {"name": "third", "weights": "first"},
    ]
    step = checked(
        network_from_dict({"classes": 24, "image": [1, 24], "layers": layers}), 5, ENGINE
    )
    assert "l1.dG1.3" in {op.out for op in step.backward.lowered.graph.ops}


@pytest.mark.parametrize(
    ("layout", "axes", "view", "wanted"),
    (
        (Layout(("p", "s"), ("b",), ("s",)), "pbs", "jbs", Layout(("j", "s"), ("b",), ("s",))),
        (Layout(("p", "b"), ("s",), (), 4), "pbs", "jkbs", Layout(("j", "k", "b"), ("s",), (), 4)),
        (Layout(("p", "s"), ("b",), ("p",)), "pbs", "jbs", None),
        (Layout(("s", "p"), ("b",)), "pbs", "jbs", None),
        (Layout(("b", "s"), ("p",)), "pbs", "jbs", None),
    ),
)
def test_view_lies_as_its_tensor_only_in_the_same_rows(layout, axes, view, wanted):
    assert view_layout(layout, tuple(axes), tuple(view)) == wanted


def dense(network, model):
    """Return W (J, I) of each layer and its bias, float64 leaves."""
    weights = []
    for number, layer in enumerate(network.layers):
        factors = [
            dequantise(words, exponent, network.factor_format(number, n))
            for n, (words, exponent) in enumerate(
                zip(model.factors[number], model.factor_exponents[number], strict=True)
            )
        ]
        matrix = factors[0]
        for factor in factors[1:]:
            matrix = torch.einsum("ajib,bklc->ajkilc", matrix, factor).reshape(
                1, matrix.shape[1] * factor.shape[1], matrix.shape[2] * factor.shape[2], -1
            )
        columns = 1 if layer.diagonal else layer.input_size
        weights.append(matrix.reshape(layer.output_size, columns))
    biases = [None if bias is None else bias.double().requires_grad_() for bias in model.biases]
    return weights, biases


@pytest.mark.parametrize("batch", (1, 2))
def test_small_encoder_is_near_torch_in_float64(batch):
    """Compare logits with the dense network on the dequantised factors."""
    network = small_encoder()
    with GoldenAccelerator(ENGINE, memory_bytes=1 << 22) as golden:
        driver = Driver(golden, network, batch)
        given = random_inputs(network, driver, 0)
        logits = driver.forward(given.inputs, given.model, given.scales).logits
    inputs = dequantise(given.inputs, driver.input_exponent, network.format("activation"))
    real = outputs(network, *dense(network, given.model), inputs)
    assert logits.shape == (batch, network.tokens * prod(network.shapes["scale2"]))
    assert (logits - real).norm() <= 0.12 * real.norm()


@pytest.mark.parametrize(
    ("over", "shares"),
    (
        ("mean", [[8192, 8192, 0], [16384, 0, 0], [0, 0, 0]]),
        ("first", [[16384, 0, 0]] * 2 + [[0] * 3]),
    ),
)
def test_token_words_leave_tokens_of_zeros_out(over, shares):
    network = classifier(over=over, tokens=3)
    inputs = torch.zeros(3, 3, 10, dtype=torch.int64)
    inputs[0, :2, 4] = inputs[1, 0, 7] = 127
    words = token_words(network, inputs.flatten(1))
    assert words["pooled.share"].tolist() == shares
    masks = words["heads.mask"]
    assert masks.shape == (3, 3, 3, 3)  # queries, heads, sequences, keys
    assert (masks == torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]])).all()


def test_counts_of_gradients_leave_out_tokens_without_one():
    """Gradients of the first token alone reach queries and what follows them, keys get all."""
    network = classifier(over="first", tokens=4)
    present = torch.tensor([[True] * 4, [True, False, False, False]])
    counts = TokenCounts(network, present)
    step = compile_step(network, 2, ENGINE)
    tensors = {tensor.name: tensor for tensor in step.backward.tensors}
    shares = {"l2.dx": 2 / 8, "sum1.da": 2 / 8, "l3.dx": 5 / 8, "l4.dx": 5 / 8, "heads.dv": 5 / 8,
              "heads.dp": 5 / 32, "l1.dG1": 1.0, "l10.db": 1.0}  # fmt: skip
    for name, share in shares.items():
        assert counts.of(tensors[name]) == round(share * tensors[name].count), name


@pytest.mark.parametrize("over", ("mean", "first"))
def test_classifier_of_sequences_of_all_lengths_is_near_plain_torch(over):
    """Run each sequence alone in torch without its padding: padded tokens count nowhere."""
    network, batch = classifier(over=over), 16
    with GoldenAccelerator(ENGINE, memory_bytes=1 << 24) as golden:
        driver = Driver(golden, network, batch)
        given = random_inputs(network, driver, 0)
        logits = driver.forward(given.inputs, given.model, given.scales).logits
        back = driver.backward(given.gradient, given.scales)
    weights, biases = dense(network, given.model)
    inputs = dequantise(given.inputs, driver.input_exponent, network.format("activation"))
    rows = []
    for length, sequence in enumerate(inputs, 1):
        alone = replace(network, tokens=max(length, 2), padding=length == 1)
        rows.append(outputs(alone, weights, biases, sequence[None, : alone.input_size]))
    real = torch.cat(rows)
    (real * given.gradient).sum().backward()
    assert (logits - real).norm() <= 0.2 * real.norm()
    for gradient, bias in zip(back.biases, biases, strict=True):
        if bias is not None and bias.grad.norm() > 1e-9:  # the keys' bias changes no softmax
            assert torch.cosine_similarity(gradient, bias.grad, 0) > 0.94
            assert 0.85 < gradient.norm() / bias.grad.norm() < 1.15


def test_statistics_of_passes_follow_the_segments_of_a_program():
    """Count passes of the vector engine in the slots of a segment, as arrays are counted."""

    def compute(slot):
        return Compute(operation=Operation.BIAS, levels=(Level(1),), x=0, g=1, z=2, slot=slot)

    def passes(slot):
        return Vector(entry=0, length=1, inner=8, slot=slot, reads=0, writes=0, outer=1, streams=())

    ds = (compute(0), passes(1), passes(1), compute(2), passes(3), passes(0), Halt())
    parts = segments(Program(ds, ENGINE.fingerprint, tuple("abcd")), 2)
    assert [part.slots for part in parts] == [(0, 1), (2, 3)]
    own = [[d.slot for d in p.program.descriptors if not isinstance(d, Halt)] for p in parts]
    assert own == [[0, 1, 1], [0, 1, 0]]


@pytest.mark.slow
@pytest.mark.parametrize(("count", "values"), ((1, 3_000_000), (2, 6_000_000)))
def test_encoders_of_hidden_size_768_compile_to_exact_programs(count, values):
    network = encoders_768(count)
    assert network.shapes[f"heads_{count}"] == (768,) and network.tokens == 32
    with GoldenAccelerator(ENGINE, memory_bytes=1 << 23) as golden:
        check = check_step(network, 1, golden)
    assert check.comparison.values > values and check.comparison.mismatches == {}


def test_passes_that_count_never_name_the_first_slot():
    step = compile_step(small_encoder(), 1, ENGINE)
    counted = {tensor.name for tensor in step.backward.tensors if tensor.counted}
    assert {"heads.dy", "sum1.da", "sum2.da"} <= counted
    slots = {d.tensor: d.slot for d in step.backward.descriptors if isinstance(d, Vector)}
    assert all(slots[name] > 0 for name in ("heads.dy", "sum1.da", "sum2.da"))


def test_training_of_sequences_on_images_names_the_remedy(capsys, monkeypatch):
    monkeypatch.delattr("trainwright.cli.backend.open_accelerator")  # refusals open nothing
    assert main(["train", "--network", "encoder-768", "--dataset", "digits"]) == 2
    (line,) = [text for text in capsys.readouterr().err.splitlines() if "error" in text]
    assert "give --data with lines" in line


def bag_of_words(digit, outputs, rank, bits):
    """Build the mean of embeddings of words, which are several digits below ``digit``."""
    names = [f"digit{n + 1}" for n in range(len(outputs))]
    embedding = {
        "name": "embedding", "product": names, "outputs": outputs, "inputs": [digit] * len(names),
        "ranks": [rank] * (len(names) - 1), "bias": False, "relu": False,
    }  # fmt: skip
    return network_from_dict({
        "classes": 6, "image": [len(names), digit], "tokens": 16, "padding": True,
        "widths": {"activation": bits},
        "inputs": [{"name": name, "rows": [n, n + 1]} for n, name in enumerate(names)],
        "layers": [
            embedding,
            {"name": "pooled", "over_tokens": "mean"},
            {"outputs": [6], "inputs": [prod(outputs)], "ranks": [], "relu": False},
        ],
    })  # fmt: skip


@pytest.mark.parametrize(
    ("digit", "shape", "rank", "bits", "word"),
    ((5, [4, 6], 5, 8, 127), (5, [4, 6], 5, 12, 1), (5, [4, 6], 5, 16, 1), (3, [2, 2, 4], 2, 8, 1)),
)
def test_products_of_digits_of_any_width_do_not_saturate(digit, shape, rank, bits, word):
    network, batch = bag_of_words(digit, shape, rank, bits), 8
    with GoldenAccelerator(ENGINE, memory_bytes=1 << 24) as golden:
        driver = Driver(golden, network, batch)
        given, scales = random_inputs(network, driver, 0), Scales()
        numbers = np.random.RandomState(0).randint(1, digit ** len(shape) + 1, (batch, 1, 16))
        inputs = input_quantiser(network, 255, driver.input_exponent)(numbers)
        assert inputs.max() == word
        driver.calibrate(inputs, lambda logits: given.gradient, given.model, scales)
        ahead = driver.forward(inputs, given.model, scales)
        back = driver.backward(given.gradient, scales)
    assert not any(s.saturations for s in (ahead.statistics | back.statistics).values())
    real = outputs(network, *dense(network, given.model), (inputs > 0).double()).detach()
    assert (ahead.logits - real).norm() <= 0.015 * real.norm()


def test_twin_of_a_driver_has_the_exponent_of_its_inputs():
    with GoldenAccelerator(ENGINE, memory_bytes=1 << 24) as golden:
        driver = Driver(golden, small_encoder(), 2)
        driver.input_exponent = -3
        with driver.twin() as twin:
            assert twin.input_exponent == -3
