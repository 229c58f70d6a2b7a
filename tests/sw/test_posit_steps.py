"""Training steps with formats of every kind: the driver, the compiler and the golden model."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from cases import random_case
from operands import random_batch
from reference import ReferenceAccelerator
from slowly import mostly_slow

from trainwright.check.step import check_step, random_inputs
from trainwright.compiler import CompileError, compile_step
from trainwright.compiler.base.rules import COPIES
from trainwright.driver import Driver
from trainwright.fixed.quantise import dequantise, fitting_exponent, quantise
from trainwright.fixed.scale import Scales, TensorClass, TensorStatistics
from trainwright.formats import Fixed, Posit, parse_format
from trainwright.golden.backend import GoldenAccelerator
from trainwright.graph.network import network_graph
from trainwright.network import NetworkError, load_network, network_from_dict
from trainwright.parameters import CODED_ACCUMULATOR, AcceleratorParameters
from trainwright.program.descriptors import Compute
from trainwright.program.fields import Operation

pytestmark = pytest.mark.usefixtures("first_programs")

WIDEST = "intermediate=posit(8,1)c,gradient=posit(8,1)c"
NARROW = f"activation=posit(8,0),{WIDEST}"
FORMATS = {
    "narrow": NARROW,
    "factors": f"factor=posit(4,0),{NARROW}",
    "never": "factor=posit(4,0),intermediate=posit(8,0),gradient=posit(8,0),underflow=never",
    "zero": "activation=posit(6,1),intermediate=posit(6,1),gradient=posit(6,1),underflow=zero",
    "mixed": "factor=fixed(3),activation=fixed(8),intermediate=posit(10,0),gradient=fixed(8)",
    "fixed": "activation=fixed(6),intermediate=fixed(8),gradient=fixed(6)",
}


def accelerator_for(network, p: AcceleratorParameters) -> AcceleratorParameters:
    posits = tuple(dict.fromkeys(str(fmt) for _, fmt in network.coded))
    width = max(p.factor_width, network.widths.factor)
    return replace(p, formats=posits, factor_width=width)


def with_formats(seed: int, name: str):
    case = random_case(seed)
    network = case.network.with_formats(FORMATS[name])
    return network, case.batch, accelerator_for(network, case.parameters)


def singled(seed: int):
    """Return formats of single factors and activations that differ from their classes'."""
    case = random_case(seed)
    every = itertools.cycle(("fixed(7)", "posit(6,1)", "fixed(2)", "posit(4,0)", "fixed(5)"))
    factors = [name for name, kind in case.network.nameable.items() if kind == "factor"]
    between = [name for name in case.network.nameable if name not in factors]
    formats = dict(zip(factors, every, strict=False))
    formats |= dict(zip(between, itertools.cycle(("fixed(12)", "posit(8,1)c")), strict=False))
    network = case.network.with_formats({"activation": "fixed(6)", "gradient": "fixed(8)"})
    network = network.with_formats(formats)
    names = tuple(dict.fromkeys(str(fmt) for _, fmt in network.coded_used))
    p = replace(case.parameters, formats=names, factor_width=max(7, case.parameters.factor_width))
    return network, case.batch, p


@pytest.mark.parametrize("name", (*FORMATS, "singles"))
@mostly_slow("seed", range(3), quick=[0])
def test_steps_of_random_networks_are_those_of_the_literal_interpreter(seed, name):
    network, batch, p = singled(seed) if name == "singles" else with_formats(seed, name)
    with GoldenAccelerator(p, memory_bytes=1 << 22) as golden:
        driver = Driver(golden, network, batch)
        given = random_inputs(network, driver, seed)
        results = []
        for accelerator in (golden, ReferenceAccelerator(p, memory_bytes=1 << 22)):
            driver = Driver(accelerator, network, batch)
            forward = driver.forward(given.inputs, given.model, given.scales)
            results.append((forward, driver.backward(given.gradient, given.scales)))
    ours, theirs = results
    assert torch.equal(ours[0].logits, theirs[0].logits)
    for run, other in zip(ours, theirs, strict=True):
        assert run.statistics == other.statistics
    for mine, other in zip(ours[1].factors, theirs[1].factors, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))


def test_posit_steps_take_formats_by_tensor_name():
    """Words, bytes in memory, and results follow the tensor's format."""
    network = load_network("digits").with_formats("l1.a=fixed(12),l1.G1=fixed(7),l2.G2=posit(4,0)")
    p = replace(AcceleratorParameters(), formats=("posit(4,0)",), factor_width=7)
    step = compile_step(network, 16, p)
    assert step.buffers["l1.a"].element_bytes == 2
    (written,) = (t for t in step.forward.tensors if t.name == "l1.a")
    assert written.format == Fixed(12)
    with GoldenAccelerator(p, memory_bytes=1 << 22) as golden:
        driver = Driver(golden, network, 16)
        given = random_inputs(network, driver, 3)
        driver.forward(given.inputs, given.model, given.scales)
        read = driver._get("l1.a")
        assert 127 < read.max() < 2048
    below = network_graph(network, 16).tensors["l2.x"]
    assert below.format == Fixed(12)  # the same values, by other axes
    most = [f.abs().max() for f in given.model.factors[0]]
    assert 32 < most[0] <= 64 and most[1] <= 8


@pytest.mark.parametrize("name", ("narrow", "factors", "fixed"))
def test_results_are_near_those_of_exact_arithmetic(name):
    """A step with one matrix a layer: the values are what the formats make of the real ones."""
    network = load_network("digits").with_formats(FORMATS[name])
    p = accelerator_for(network, AcceleratorParameters())
    with GoldenAccelerator(p, memory_bytes=1 << 22) as golden:
        driver = Driver(golden, network, 16)
        inputs, gradient = random_batch(network, 16, 5)
        inputs = inputs.clamp(0, 40)
        given = random_inputs(network, driver, 5)
        scales = Scales()
        driver.calibrate(inputs, lambda logits: gradient, given.model, scales)
        forward = driver.forward(inputs, given.model, scales)
    x = dequantise(inputs, driver.input_exponent, network.format("activation"))
    for layer, factors, exponents, bias in zip(
        network.layers, given.model.factors, given.model.factor_exponents, given.model.biases,
        strict=True,
    ):  # fmt: skip
        fmt = network.format("factor")
        left, right = (dequantise(f, e, fmt) for f, e in zip(factors, exponents, strict=True))
        w = torch.einsum("ajib,bpqc->jpiq", left, right).reshape(layer.output_size, -1)
        x = x @ w.T + (0 if bias is None else bias.double())
        x = x.relu() if layer.relu else x
    error = (forward.logits - x).square().mean().sqrt() / x.square().mean().sqrt()
    assert float(error) < 0.25  # no bound of roundings: in a wrong format values are off by factors


# Descriptors.


def computes(network, p, batch=8, plan="auto"):
    step = compile_step(network, batch, p)
    programs = (step.forward, step.backward)
    return step, [d for program in programs for d in program.descriptors if isinstance(d, Compute)]


def test_descriptors_name_the_formats_of_their_tensors():
    network = load_network("digits").with_formats(FORMATS["factors"])
    p = accelerator_for(network, AcceleratorParameters())
    four, eight, clamped = (p.format_number(parse_format(name)) for name in p.formats)
    assert p.formats == ("posit(4,0)", "posit(8,0)", "posit(8,1)c")
    step, descriptors = computes(network, p)
    by_name = {d.tensor: d for d in descriptors}
    for d in descriptors:
        if d.tensor == "l2.G2.dy":  # of a factor and a gradient, on either side
            assert four in (d.x_format, d.g_format)
        if d.operation is Operation.BIAS and d.tensor == "l1.a":
            assert (d.x_format, d.g_format, d.z_format) == (clamped, 0, eight)
    assert by_name["l2.a"].z_format == clamped and not by_name["l2.a"].underflow_zero
    assert by_name["l1.dG1"].z_format == clamped and by_name["l1.dG1"].underflow_zero
    written = {
        t.name: t.format for program in (step.forward, step.backward) for t in program.tensors
    }
    assert written["l1.dG1"] == written["l2.a"] == parse_format("posit(8,1)c")


def test_copies_have_the_format_of_their_source():
    """Transposes have a constant of fixed point as their other operand."""
    network = load_network("digits").with_formats(FORMATS["factors"])
    step, _ = computes(network, accelerator_for(network, AcceleratorParameters()), batch=64)
    formats = []
    for program in (step.forward, step.backward):
        for index, rule in program.rules.items():
            d = program.descriptors[index]
            if rule.z.name == COPIES and isinstance(d, Compute):
                assert d.z_format == max(d.x_format, d.g_format), d
                formats.append(d.z_format)
    assert max(formats) > 0


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("gradients", {"gradient"}), ("never", set()), ("zero", {"gradient", "forward"})],
)
def test_posit_steps_count_underflows(rule, expected):
    given = f"{NARROW},underflow={rule}"
    network = load_network("digits").with_formats(given)
    p = accelerator_for(network, AcceleratorParameters())
    step, descriptors = computes(network, p)
    kinds = {t.name: t.kind for program in (step.forward, step.backward) for t in program.tensors}
    zero = {
        "gradient" if kinds[d.tensor] is TensorClass.GRADIENT else "forward"
        for d in descriptors
        if d.underflow_zero and d.tensor in kinds  # copies round nothing
    }
    assert zero == expected
    assert network.host_underflow == ("never" if rule == "never" else "zero")
    assert network_from_dict(network.to_dict()) == network


def test_sums_of_posits_need_wider_accumulators():
    """The proof takes the greatest integers, not the bits of the words."""
    network = load_network("digits").with_formats(NARROW)
    p = accelerator_for(network, AcceleratorParameters(accumulator_width=35))
    with pytest.raises(CompileError, match="64 products of 14 x 18 bits need accumulators of 36"):
        compile_step(network, 64, p)
    compile_step(network, 64, replace(p, accumulator_width=39))


SUMS_OF_512 = network_from_dict(
    {
        "classes": 10,
        "image": [8, 8],
        "layers": [
            {"outputs": [16, 16], "inputs": [8, 8], "ranks": [2], "relu": True},
            {"outputs": [5, 2], "inputs": [16, 16], "ranks": [5]},
        ],
    }
)
"""A network with sums of 512 products in a batch of 32."""


def test_44_bits_sum_512_products_of_the_widest_posits():
    network = SUMS_OF_512.with_formats("activation=posit(8,1)c," + WIDEST)
    p = accelerator_for(network, AcceleratorParameters(accumulator_width=CODED_ACCUMULATOR))
    compile_step(network, 32, p)
    with pytest.raises(CompileError, match="512 products of 18 x 18 bits need accumulators of 44"):
        compile_step(network, 32, replace(p, accumulator_width=CODED_ACCUMULATOR - 1))


def test_posit_steps_reject_format_that_accelerator_lacks():
    network = load_network("digits").with_formats("gradient=posit(6,1)")
    with pytest.raises(CompileError, match=r"gradients of posit\(6,1\).*formats=posit\(6,1\)"):
        compile_step(network, 64, AcceleratorParameters())


# Descriptions.


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("weights=fixed(8)", "no class of tensors 'weights'"),
        ("l1.G7=fixed(8)", "no tensor 'l1.G7'; there are factor, .* and the tensors l1.G1, "),
        ("l1.a=fixed(2)", "l1.a must have 4 bits at least, not fixed.2."),
        ("gradient=posit(8,1)c,gradient=fixed(8)", "two formats"),
        ("gradient=bfloat16", "no number format 'bfloat16'"),
        ("gradient=posit(3,0)", "gradient width must be from 4"),
        ("gradient", "CLASS=FORMAT"),
        ("underflow=often", "underflow must be one of gradients, never, zero, not 'often'"),
    ],
)
def test_posit_steps_reject_wrong_formats(given, message):
    with pytest.raises(NetworkError, match=message):
        load_network("digits").with_formats(given)


def test_formats_in_a_file_and_in_python_are_the_same():
    described = load_network("digits").to_dict()
    del described["widths"]  # they would contradict a gradient of 8 bits
    table = {"activation": "posit(8,0)", "gradient": "fixed(8)", "underflow": "zero"}
    network = network_from_dict(described | {"formats": table})
    text = ",".join(f"{name}={value}" for name, value in table.items())
    assert network == load_network("digits").with_formats(text)
    assert network_from_dict(network.to_dict()) == network
    assert network.formats == {
        "factor": "fixed(4)", "activation": "posit(8,0)", "intermediate": "fixed(16)",
        "gradient": "fixed(8)",
    }  # fmt: skip
    assert network.with_formats("activation=fixed(8),underflow=gradients").coded == ()
    nested = network_from_dict(described | {"formats": {"l1": {"G1": "fixed(7)"}}})
    assert nested == load_network("digits").with_formats("l1.G1=fixed(7)") != network
    assert nested.formats["l1.G1"] == "fixed(7)" and network_from_dict(nested.to_dict()) == nested
    assert nested.with_formats("l1.G1=fixed(4)").model_bits == load_network("digits").model_bits


# Quantising at the host.


def nearest(fmt: Posit, value: float, to_zero: bool) -> int:
    """Round the exact fraction, scaled to an integer, by the encoder."""
    exact = Fraction(value)
    shift = 61 - 22
    scaled = exact * 2**shift
    sign, size = (scaled > 0) - (scaled < 0), abs(scaled)
    size = min(size, Fraction(1 << 60))
    whole = int(size) | (size != int(size))
    words, _, _ = fmt.encode(whole, shift, underflow="zero" if to_zero else "never")
    return sign * int(words)


@pytest.mark.parametrize("name", ("posit(8,0)", "posit(8,1)c", "posit(4,0)", "posit(6,1)"))
@pytest.mark.parametrize("underflow", ("zero", "never"))
def test_quantised_values_are_nearest_and_come_back(name, underflow):
    fmt = parse_format(name)
    assert isinstance(fmt, Posit)
    words = torch.arange(-fmt.largest, fmt.largest + 1)
    values = dequantise(words, -3, fmt)
    assert torch.equal(quantise(values, -3, fmt, underflow=underflow), words)
    between = torch.from_numpy(np.random.default_rng(1).standard_normal(2000) * 2.0**-2)
    between = torch.cat([between, between * 2.0**-20, between * 2.0**12, torch.tensor([0.0])])
    codes = quantise(between, -8, fmt, underflow=underflow)
    expected = [nearest(fmt, v * 2.0**8, underflow == "zero") for v in between.tolist()]
    assert codes.tolist() == expected
    ties = (dequantise(words[:-1], 0, fmt) + dequantise(words[1:], 0, fmt)) / 2
    assert quantise(ties, 0, fmt, underflow=underflow).tolist() == [
        nearest(fmt, v, underflow == "zero") for v in ties.tolist()
    ]


def test_exponents_of_posits():
    for name in ("posit(8,0)", "posit(8,1)c", "posit(6,1)"):
        fmt = parse_format(name)
        for greatest in (0.75, 1.0, 3.0e-5):
            exponent = fitting_exponent(torch.tensor([greatest / 5, -greatest]), fmt)
            unit = 2.0 ** (exponent + fmt.scale)
            assert unit * 2 ** (2**fmt.es - 1) <= greatest < unit * 2 ** (2**fmt.es)
        ones = quantise(torch.ones(1), fmt.input_exponent, fmt)
        assert int(fmt.decode(ones.numpy())[0]) == 2 * 2**fmt.scale


# Scales.


def counted(fraction: float, **options) -> TensorStatistics:
    given = {
        "exponent": 0,
        "floor": -9,
        "count": 1000,
        "saturations": 0,
        "format": Posit(8, 0),
    } | options
    total = round(fraction * 1000 * 128)
    return TensorStatistics(TensorClass.GRADIENT, total=total, **given)


@pytest.mark.parametrize(
    ("fraction", "once", "jumped"),
    [(0.05, -1, -2), (0.08, -1, -1), (0.11, 0, 0), (0.39, 0, 0), (0.5, 1, 1), (0.9, 1, 4),
     (0, -1, -8)],
)  # fmt: skip
def test_scales_of_posits(fraction, once, jumped):
    for move, by in ((Scales.update, once), (Scales.jump, jumped)):
        scales = Scales()
        assert move(scales, {"t": counted(fraction)}) == (by != 0)
        assert scales.exponents["t"] == by


def test_scales_of_posits_stop_at_the_floor():
    for move in (Scales.update, Scales.jump):
        scales = Scales()
        assert move(scales, {"t": counted(0.01, floor=0)}) == 0


@pytest.mark.parametrize("name", ("narrow", "factors", "zero"))
def test_calibration_settles_and_underflows_are_counted(name):
    network = load_network("digits").with_formats(FORMATS[name])
    p = accelerator_for(network, AcceleratorParameters())
    with GoldenAccelerator(p, memory_bytes=1 << 20) as golden:
        driver = Driver(golden, network, 16)
        given = random_inputs(network, driver, 3)
        scales = Scales(exponents=dict(given.scales.exponents))
        assert driver.calibrate(given.inputs, lambda _: given.gradient, given.model, scales) == 1
        low = Scales(exponents={name: e + 9 for name, e in scales.exponents.items()})
        done = driver.forward(given.inputs, given.model, low)
        assert done.statistics["l1.a"].underflows + done.statistics["l1.y"].underflows > 0


def test_posit_steps_check_compares_formats():
    network = load_network("digits").with_formats(NARROW)
    p = accelerator_for(network, AcceleratorParameters())
    with GoldenAccelerator(p, memory_bytes=1 << 20) as golden:
        done = check_step(network, 16, golden)
    assert done.comparison.differing == 0
