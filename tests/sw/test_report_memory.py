"""Memory of a training state: what each buffer is, and what float32 keeps."""

import pytest

from trainwright.compiler import compile_step
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.report import memory
from trainwright.report.memory import (
    ACCELERATOR,
    BETWEEN,
    FACTORS,
    GRADIENTS,
    INPUTS,
    KEPT,
    PROGRAMS,
    accelerator_memory,
    buffer_kind,
    float_memory,
)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (PROGRAMS, "program.forward zeros ones identity"),
        (INPUTS, "digit1 place2 l1.x2: targets"),
        (KEPT, "l3.a l2.x1.x2 l1.G2.x2 l3.x embedding.a heads.p heads.mask pooled.share l3.y:"),
        (GRADIENTS, "l1.dG3 l12.db"),
        (FACTORS, "l1.G1 l3.G1.G2 l2.b l3.b:"),
        (BETWEEN, "l11.dy dembedding l12.dy: l3.G1.dy l1.dx.G1 heads.dp"),
        ("weights and moments", "state factors"),
    ],
)
def test_buffer_of_a_network_with_named_values_has_its_kind(kind, names):
    network = load_network("intent-64")
    layout = {name: name.replace(":", ": s b l1.i2/") for name in names.split()}
    assert {name: buffer_kind(layout[name], network) for name in layout} == dict.fromkeys(
        layout, kind
    )


def test_buffers_of_the_image_are_inputs():
    network = load_network("digits")
    names = ("x", "x.windows", "l1.x: l1.i1 s/", "l2.x: l2.i1 s/")
    assert [buffer_kind(name, network) for name in names] == [INPUTS, INPUTS, INPUTS, KEPT]


@pytest.mark.parametrize(
    ("name", "kept", "logits", "widest"),
    [
        ("fashion", 28 * 32 + 512, 16, 512),
        ("fashion-conv", 28 * 28 + 14 * 14 * 16 + 7 * 7 * 64, 10, 14 * 14 * 16),
        # Digits and places of 32 words, 15 values of 64 and two of 128 for each; a pool of 64.
        ("intent-64", 32 * (3 * 10 + 4 + 8 + 15 * 64 + 2 * 128) + 64, 32 * 128 + 32, 32 * 128),
    ],
)
def test_float_memory_counts_the_values_of_every_position_and_token(name, kept, logits, widest):
    bits = {item.name: item.bits for item in float_memory(load_network(name), 8, 100)}
    assert bits["inputs and activations kept for backward"] == 32 * 8 * kept
    assert bits["logits, gradient between layers"] == 32 * 8 * (logits + widest)


def test_memory_parts_cover_all_kinds_of_a_buffer():
    kinds = {buffer_kind(name, load_network("digits")) for name in ("l1.a", "l1.dG1", "x", "zeros")}
    assert kinds <= set(memory._BUFFERS)


def test_accelerator_memory_of_a_step_adds_up_to_the_bytes_of_plan():
    """Include the images of factors, and the bytes up to each next buffer."""
    step = compile_step(load_network("digits"), 64, AcceleratorParameters())
    bits = {item.name: item.bits for item in accelerator_memory(step) if item.place == ACCELERATOR}
    assert sum(bits.values()) == 8 * step.memory_bytes
    images = {image.address: image for image in step.backward.images if image.is_factor}
    assert bits[FACTORS] >= 8 * sum(image.size for image in images.values())
