"""Element-wise functions against real numbers, in networks, programs and PyTorch."""

import copy
import functools
import pickle
import re
import sys
import tomllib
from fractions import Fraction

import numpy as np
import pytest
import torch
from function_networks import (
    GUIDE,
    IN_TORCH,
    MODEL,
    TEXTS,
    TOML,
    between_layers,
    guide_network,
    image_network,
    kernels_dropped,
    random_kernel,
    two_layers,
    with_functions,
)
from graph_cases import deep_network, graph_network
from slowly import mostly_slow
from test_lowering import checked

import trainwright
import trainwright.nn as tnn
from trainwright.check.step import check_step
from trainwright.cli import main
from trainwright.cli.options import accelerator_parameters
from trainwright.compiler import compile_step
from trainwright.compiler.base.errors import CompileError
from trainwright.fixed.health import LostTensorWarning
from trainwright.functions import (
    FunctionError,
    Scale,
    Scaling,
    entries,
    function_names,
    function_of,
)
from trainwright.functions.groups import avg_pool, max_pool
from trainwright.golden.backend import GoldenAccelerator
from trainwright.graph.step import step_graph
from trainwright.kernels import KernelError, Rounding, evaluate, where
from trainwright.kernels.phases import GroupLayout, Role
from trainwright.network import NetworkError, Widths, network_from_dict
from trainwright.network.nodes import Map
from trainwright.parameters import AcceleratorParameters
from trainwright.program.vector import Vector
from trainwright.train.functional import outputs

pytestmark = pytest.mark.usefixtures("first_programs")

ENGINE = AcceleratorParameters(vector_engine=1)
WIDTHS = (4, 8, 12, 16)


def every_word(width):
    """List every integer of ``width`` bits, in rows of 16."""
    return np.arange(-(1 << (width - 1)), 1 << (width - 1)).reshape(-1, 16)


def applied(kernel, operands, widths, width, *exponents):
    """Evaluate a kernel without instructions."""
    operands, count = operands[: kernel.operands], kernel.operands
    body, exponents = kernel.traced(widths[:count], width), exponents[:count]
    rows = {f"x{n}": words for n, words in enumerate(operands)}
    scaling = kernel.bound(exponents or (0,) * len(operands), width, None)
    return evaluate(body, rows, constants=scaling.constants, checks=True).rows["z"]


def wanted(real, exponent, width):
    """Return real results in units of the result's last place, saturated."""
    most = 1 << (width - 1)
    return np.clip(real * 2.0**-exponent, -most, most - 1)


@pytest.mark.parametrize(("width", "bound"), ((4, 0.5), (8, 0.51), (12, 0.71), (16, 3.5)))
@pytest.mark.parametrize("exponent", (-30, -16, -9, -5, 0, 4, 20))
def test_tanh_of_every_word_is_within_its_bound(width, bound, exponent):
    kernel, x = function_of("tanh").forward, every_word(width)
    result = applied(kernel, [x], (width,), width, exponent)
    real = wanted(np.tanh(x * 2.0**exponent), kernel.exponent(exponent, width), width)
    assert np.abs(result - real).max() <= bound
    assert (result.ravel()[len(x) * 8] == 0) and (result.ravel() >= -(1 << (width - 1))).all()


@pytest.mark.parametrize("width", WIDTHS)
def test_tanh_gradient_of_random_words_is_within_a_unit(width):
    y = every_word(width)
    upper = np.random.default_rng(width).integers(-(1 << 15), 1 << 15, y.shape)
    result = applied(function_of("tanh").backward, [upper, y], (16, width), 16)
    assert np.abs(result - upper * (1 - (y * 2.0 ** (1 - width)) ** 2)).max() <= 0.75


@pytest.mark.parametrize(("width", "bound"), ((4, 0.51), (8, 0.51), (12, 0.6), (16, 2.1)))
@pytest.mark.parametrize("exponent", (-30, -16, -10, -5, 0, 6))
def test_sigmoid_of_every_word_is_within_its_bound(width, bound, exponent):
    kernel, x = function_of("sigmoid").forward, every_word(width)
    result = applied(kernel, [x], (width,), width, exponent)
    real = torch.from_numpy(x * 2.0**exponent).sigmoid().numpy()
    assert np.abs(result - wanted(real, kernel.exponent(exponent, width), width)).max() <= bound


@pytest.mark.parametrize("width", WIDTHS)
def test_sigmoid_gradient_of_random_words_is_within_a_unit(width):
    y = np.maximum(every_word(width), 0)  # as results are
    upper = np.random.default_rng(width).integers(-(1 << 15), 1 << 15, y.shape)
    result = applied(function_of("sigmoid").backward, [upper, y], (16, width), 16)
    real = y * 2.0 ** (1 - width)
    assert np.abs(result - upper * real * (1 - real)).max() <= 0.75


GATES = {"silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu}


@pytest.mark.parametrize(("text", "bounds"), (("silu", (0.51, 2.3)), ("gelu", (0.51, 6.9))))
@pytest.mark.parametrize("exponent", (-30, -16, -10, -5, 0, 6))
def test_gated_function_of_every_word_is_within_its_bound(text, bounds, exponent):
    for width, bound in zip((8, 16), bounds, strict=True):
        x = every_word(width)
        result = applied(function_of(text).forward, [x], (width,), width, exponent)
        real = GATES[text](torch.from_numpy(x * 2.0**exponent)).numpy()
        assert np.abs(result - wanted(real, exponent, width)).max() <= bound


@pytest.mark.parametrize(("text", "bound"), (("silu", 8), ("gelu", 24)))
@pytest.mark.parametrize("exponent", (-16, -12, -8, -5, 0))
def test_gated_gradient_of_largest_words_is_within_its_bound(text, bound, exponent):
    """Compare with torch's own gradient; the bound is at most 0.08 % of the largest gradient."""
    x = every_word(12)
    upper = np.random.default_rng(3).integers(-(1 << 15), 1 << 15, x.shape)
    result = applied(function_of(text).backward, [upper, x], (16, 12), 16, 0, exponent)
    real = torch.from_numpy(x * 2.0**exponent).requires_grad_()
    GATES[text](real).backward(torch.from_numpy(upper.astype(np.float64)))
    assert np.abs(result - wanted(real.grad.numpy(), 0, 16)).max() <= bound


@pytest.mark.parametrize(
    ("mean", "deviation"), ((0, 1), (0.5, 0.25), (-3, 1.7), (100, 77), (1e-6, 3e-5))
)
@pytest.mark.parametrize("exponent", (-30, -20, -12, -5, 0, 4))
def test_frozen_batch_norm_of_every_word_is_within_its_bound(mean, deviation, exponent):
    function = function_of(f"batch_norm({mean}, {deviation})")
    for width, bound in ((8, 0.51), (16, 1.4)):
        x = every_word(width).reshape(-1, function.group or 16)
        result = applied(function.forward, [x], (width,), width, exponent)
        real = (x * 2.0**exponent - mean) / deviation
        assert np.abs(result - wanted(real, 4 - width, width)).max() <= bound
    upper = every_word(16).reshape(-1, function.group or 16)
    result = applied(function.backward, [upper], (16,), 16, exponent)
    unit = function.backward.bound((exponent,), 16, None).exponent
    assert np.abs(result - upper / deviation * 2.0 ** (exponent - unit)).max() <= 0.6


def test_gelu_of_large_words_is_zero_or_the_word():
    """Beyond 4 the tables take their limits, so that no gradient leaks into dead units."""
    x = every_word(16)[::7]
    upper = np.full(x.shape, 32767)
    result = applied(function_of("gelu").forward, [x], (16,), 16, -12)
    slope = applied(function_of("gelu").backward, [upper, x], (16, 16), 16, 0, -12)
    above, below = x >= 4 << 12, x <= -4 << 12
    assert (result[above] == x[above]).all() and (slope[above] == 32767).all()
    assert not result[below].any() and not slope[below].any()
    near = np.abs(result * 2.0**-12 - GATES["gelu"](torch.from_numpy(x * 2.0**-12)).numpy())
    assert near.max() <= 3.4e-4 + 2.0**-13  # of the table, and of rounding a word


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("slope", (0.0, 0.01, 0.25, 0.3, 0.999))
def test_leaky_relu_rounds_the_exact_product_to_even(width, slope):
    kernels = function_of(f"leaky_relu({slope})")
    x = every_word(width)
    upper = np.random.default_rng(width).integers(-(1 << 15), 1 << 15, x.shape)
    factor = Fraction(round(slope * 65536), 65536)
    for kernel, operands, widths in (
        (kernels.forward, [x], (width,)),
        (kernels.backward, [upper, x], (16, width)),
    ):
        result = applied(kernel, operands, widths, widths[0])
        first = operands[0].ravel().tolist()
        exact = [round(factor * w) if n < 0 else w for w, n in zip(first, x.ravel(), strict=True)]
        np.testing.assert_array_equal(result.ravel(), exact)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("width", WIDTHS)
def test_functions_of_zero_are_zero(text, width):
    """Padding stays 0, unless the function of real numbers is not 0 at 0."""
    function, zero = function_of(text), np.zeros((1, 16), np.int64)
    if not function(torch.zeros(1)):
        for exponent in (-20, -7, 3):
            assert not applied(function.forward, [zero], (width,), width, exponent).any()
    assert not applied(function.backward, [zero, every_word(8)[:1]], (16, 8), 16, 0, -5).any()


@pytest.mark.parametrize("text", TEXTS)
def test_library_function_between_layers_equals_its_graph(text):
    checked(between_layers(function_of(text), channels=False), 16, ENGINE)


def test_kernel_constant_beyond_18_bits_names_its_line(registered):
    @trainwright.kernel(gradient="straight-through")
    def shifted(k, x):
        return (x + (1 << 30)) - (1 << 30)

    with pytest.raises(KernelError, match=r"test_functions.py:\d+: the constant 1073741824 has"):
        shifted.make()


class InPlace(torch.nn.Module):
    """Two layers and a function that writes into its operand, which may be read again."""

    def __init__(self, function, *, again):
        super().__init__()
        numbers = Widths(activation=16)
        self.first = tnn.TTLinear(32, 32, rank=8, numbers=numbers)
        self.second = tnn.TTLinear(32, 16, rank=8, numbers=numbers)
        self.function, self.again = function, again

    def forward(self, x):
        before = self.first(x)
        after = self.function(before)
        return self.second(before + after if self.again else after)


@pytest.mark.parametrize("again", (False, True))
@pytest.mark.parametrize(
    "function",
    (
        lambda x: torch.nn.functional.relu(x, True),
        lambda x: torch.nn.functional.leaky_relu(x, 0.25, True),
        lambda x: torch.nn.functional.silu(x, inplace=True),
        torch.nn.SiLU(inplace=True),
        torch.nn.LeakyReLU(0.25, inplace=True),
    ),
)
def test_function_in_place_is_on_the_accelerator_and_changes_its_operand(function, again):
    torch.manual_seed(1)
    module, x = InPlace(function, again=again), torch.randn(64, 32)
    model = trainwright.compile(module, batch=64, accelerator=ENGINE)
    result = model(x)
    assert len(model.chains) == 1 + again
    after = function(torch.nn.functional.linear(x, module.first.weight, module.first.bias))
    operand = after + after if again else after
    want = torch.nn.functional.linear(operand, module.second.weight, module.second.bias)
    assert (result - want).norm() < 0.002 * want.norm()


def near_real(function, width=8, exponent=-5):
    """Compare both kernels of a function with its record's real numbers, and those with torch's."""
    real = function.definition.real
    assert real, f"give the kernel {function.text} the option `real`, its function of torch tensors"
    x = every_word(width)
    real = torch.from_numpy(x * 2.0**exponent).requires_grad_()
    result = applied(function.forward, [x], (width,), width, exponent)
    unit = function.forward.exponent(exponent, width)
    values = wanted(function(real).detach().numpy(), unit, width)
    assert np.abs(result - values).max() <= 1, "`body` and `real` of the function differ"
    upper = np.random.default_rng(7).integers(-(1 << 14), 1 << 14, x.shape)
    given = torch.from_numpy(upper.astype(np.float64))
    (slope,) = torch.autograd.grad(function(real), real, given)
    exact = function.backward.real(
        given, function(real) if function.reads == "result" else real
    )  # fmt: skip
    torch.testing.assert_close(
        exact, slope, msg=lambda text: f"`real_gradient` is not torch's gradient of `real`: {text}"
    )
    second = result if function.reads == "result" else x
    at = unit if function.reads == "result" else exponent
    computed = applied(function.backward, [upper, second], (16, width), 16, 0, at)
    exact = function.backward.real(given, torch.from_numpy(second * 2.0**at)).detach().numpy()
    off = np.abs(computed - exact)
    at = np.unravel_index(off.argmax(), off.shape)
    assert off[at] <= 16, f"`gradient` is not that of `real` where x is {x[at]} 2^{exponent}"


@pytest.mark.parametrize("text", TEXTS)
def test_kernels_of_a_function_agree_with_its_real_numbers(text):
    near_real(function_of(text))


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_names_of_a_function_are_those_of_torch(entry):
    owners = torch, torch.nn.functional, torch.Tensor
    unknown = [name for name in entry.calls if not any(hasattr(owner, name) for owner in owners)]
    assert not unknown, f"torch has no {unknown}: models that call {entry.name} would stay in torch"
    assert entry.torch_class is None or hasattr(torch.nn, entry.torch_class), "omit torch_class"


@pytest.mark.parametrize("name", function_names())
def test_guide_has_a_row_of_every_function(name):
    assert f"\n| `{name}` |" in GUIDE.read_text(), f"add a row of `{name}` to the table of {GUIDE}"


def instructions(kernel, widths, width):
    """Return the instructions of each pass over the rows of an element-wise kernel."""
    phases = kernel.passes(widths, width, GroupLayout(across=False, joined=True))
    return [phase.code.instructions for phase in phases if phase.role is Role.SWEEP]


@pytest.mark.parametrize("text", TEXTS)
def test_guide_gives_the_instructions_of_a_function(text):
    """Count those of a row of 8 bits forward, and backward with a gradient of 16."""
    function = function_of(text)
    counts = [
        sum(map(len, instructions(kernel, widths[: kernel.operands], width)))
        for kernel, widths, width in (
            (function.forward, (8,), 8),
            (function.backward, (16, 8), 16),
        )
    ]
    name = function.definition.name
    row = re.search(rf"^\| `{name}` \|.*$", GUIDE.read_text(), re.MULTILINE)
    wanted = ", ".join(map(str, counts))
    assert row and row[0].endswith(f"| {wanted} |"), f"end the row of `{name}` with {wanted}"


@pytest.mark.parametrize(
    ("text", "match"),
    (
        (
            "tahn",
            "'tahn' is no function; there are .*leaky_relu, .*silu, .*; did you mean 'tanh'",
        ),
        ("relu 6", "is no function"),
        ("tanh(1)", "tanh takes no parameter, not 1"),
        ("leaky_relu(1, 2)", "leaky_relu takes the parameters slope, not 2"),
        ("leaky_relu(two)", "could not convert string to float"),
        ("leaky_relu(1.5)", "the slope is from 0 to below 1, not 1.5"),
        ("batch_norm(0, 0)", "the deviation is above 0 and the mean within 8 deviations, not 0 an"),
        ("leaky_relu(nan)", "the slope is from 0 to below 1, not nan"),
    ),
)
def test_function_text_without_meaning_names_the_remedy(text, match):
    with pytest.raises(NetworkError, match=match):
        two_layers(text)


def test_network_with_a_function_is_read_back_from_its_tables():
    network = two_layers("leaky_relu(0.2)")
    assert network_from_dict(network.to_dict()) == network
    assert network.functions == (function_of("leaky_relu(0.2)"),)
    assert pickle.loads(pickle.dumps(network)) == network


def test_layer_that_a_function_reads_has_no_relu_unless_told():
    assert not two_layers("tanh").layers[0].relu
    layers = [
        {"outputs": [4, 8], "inputs": [8, 8], "ranks": [4], "relu": True},
        {"function": "tanh"},
        {"outputs": [2, 8], "inputs": [4, 8], "ranks": [4], "name": "mid"},
        {"outputs": [2, 8], "inputs": [2, 8], "ranks": [4], "name": "again"},
        {"add": ["mid", "again"], "name": "sum"},
        {"function": "leaky_relu", "from": "sum"},
        {"outputs": [1, 8], "inputs": [2, 8], "ranks": [2]},
    ]
    network = network_from_dict({"classes": 4, "image": [8, 8], "layers": layers})
    assert [layer.relu for layer in network.layers] == [True, True, True, False]
    assert not next(node for node in network.nodes if node.name == "sum").relu


def test_functional_network_applies_functions_in_torch():
    network = two_layers("tanh")
    weights = [torch.randn(layer.output_size, layer.input_size) for layer in network.layers]
    x = torch.randn(3, 64)
    result = outputs(network, weights, [None, None], x)
    torch.testing.assert_close(result, torch.tanh(x @ weights[0].T) @ weights[1].T)


@pytest.mark.parametrize(("make", "lanes"), ((deep_network, 16), (graph_network, 8)))
def test_random_networks_with_functions_are_exact(make, lanes):
    """Compare every word of both programs with the graph, evaluated without instructions."""
    network, batch = make(1) if make is deep_network else make(1, windows=False)
    network = with_functions(network, 1)
    assert any(isinstance(node, Map) for node in network.nodes)
    rows = {} if lanes == 16 else {"lanes": 8, "pe1_rows": 2, "pe2_rows": 4}
    checked(network, batch, AcceleratorParameters(vector_engine=1, **rows), 1)


def test_bound_passes_follow_the_exponent_of_their_operand():
    """Bind one program to three exponents: constants alone differ."""
    step = compile_step(two_layers("tanh"), 16, ENGINE)
    given = dict.fromkeys(("x", "l1.G1", "l1.G2", "l1.b", "l2.G1", "l2.G2", "l2.b"), -4)
    passes = []
    for exponent in (-6, -3, -6):
        bound = step.forward.bind({"l1.a": exponent}, given)
        assert bound.exponents["n2.a"] == -7
        vectors = [d for d in bound.program.descriptors if isinstance(d, Vector)]
        # A pass without streams gives the shift to a register, for all rows.
        passes += [d.constants[0] for d in vectors if not d.streams]
    assert passes == [16 - 13 + 6, 16 - 13 + 3, 16 - 13 + 6]


def test_compiled_kernel_and_interpreter_train_a_function_alike():
    network = with_functions(graph_network(3, windows=True)[0], 3)
    with GoldenAccelerator(ENGINE, memory_bytes=1 << 22) as accelerator:
        result = check_step(network, 8, accelerator, seed=3)
    assert result.comparison.values and result.comparison.mismatches == {}


@pytest.mark.parametrize(
    ("sizes", "formats", "match"),
    (
        ({}, {}, "tanh is computed by the vector engine, .* use one with vector_engine=1"),
        (
            {"formats": "posit(8,0)"}, {"activation": "posit(8,0)"},
            "tanh is computed by the vector engine",
        ),
    ),
)  # fmt: skip
def test_accelerator_without_an_engine_refuses_functions(sizes, formats, match):
    keys = {"formats": formats} if formats else {}
    with pytest.raises(CompileError, match=match):
        compile_step(two_layers("tanh", **keys), 16, AcceleratorParameters(**sizes))


def test_command_line_asks_for_an_engine_and_formats_of_a_network_with_functions():
    network = two_layers("gelu", formats={"activation": "posit(8,0)"})
    p = accelerator_parameters([], network)
    assert p.vector_engine and p.formats == ("posit(8,0)",)


def test_command_line_asks_for_an_engine_of_a_network_with_scales():
    layer = {"outputs": [2, 4], "inputs": [4, 4], "ranks": [2]}
    tables = [layer, {"scale": 8}, {"outputs": [1, 2], "inputs": [2, 4], "ranks": [2]}]
    network = network_from_dict({"classes": 2, "image": [4, 4], "layers": tables})
    assert not network.functions and accelerator_parameters([], network).vector_engine


def test_function_gradient_reads_the_tensor_that_it_declares():
    for text, second in (("tanh", "n2.a"), ("leaky_relu", "l1.a")):
        ops = step_graph(two_layers(text), 4).backward.ops
        assert [op.operands for op in ops if op.out == "l1.da"] == [("n2.da", second)]


@pytest.fixture
def registered():
    """Drop the kernels that a test registers."""
    with kernels_dropped():
        yield


# -- PyTorch ---------------------------------------------------------------------------------------
def module_of(function):
    """Make a model of two layers with a function between them."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = tnn.TTLinear(64, 32, rank=4)
            self.second = tnn.TTLinear(32, 10, rank=4)
            self.function = function if isinstance(function, torch.nn.Module) else None

        def forward(self, x):
            h = self.first(x)
            return self.second(self.function(h) if self.function else function(h))

    torch.manual_seed(5)
    return Model()


@pytest.mark.parametrize(
    "function",
    (
        torch.nn.Tanh(),
        torch.nn.LeakyReLU(0.2),
        torch.nn.GELU(),
        torch.nn.SiLU(),
        torch.nn.functional.gelu,
        torch.tanh,
        lambda h: h.tanh(),
        lambda h: torch.nn.functional.leaky_relu(h, 0.2),
        lambda h: torch.nn.functional.leaky_relu(h, negative_slope=0.2),
    ),
)
def test_compiled_model_computes_functions_on_the_accelerator(function):
    model = module_of(function)
    x, y = torch.randn(32, 64), torch.arange(32) % 10
    compiled = trainwright.compile(model, batch=32, accelerator=ENGINE)
    assert len(compiled.chains) == 1
    (stretch,) = compiled.chains
    text = next(node.function.text for node in stretch.wiring if isinstance(node, Map))
    assert text in ("tanh", "leaky_relu(0.2)", "gelu", "silu")
    for _ in range(3):
        result = compiled(x)
        torch.nn.functional.cross_entropy(result, y).backward()
    real = model(x)
    assert (result - real).norm() <= 0.1 * real.norm()


def test_function_called_as_a_builtin_is_recognised(registered):
    def absolute(k, x):
        return x.at_least(0 - x)

    def gradient(k, upper, x):
        return where(x.negative, 0 - upper, upper)

    if "abs" not in function_names():
        trainwright.kernel(name="abs", gradient=gradient, calls=("abs",))(absolute)
    for function in (abs, torch.abs, lambda h: h.abs()):
        compiled = trainwright.compile(module_of(function), batch=16, accelerator=ENGINE)
        assert len(compiled.chains) == 1


@pytest.mark.parametrize("text", ("tanh", "leaky_relu(0.123456789)", "gelu"))
def test_network_with_a_function_becomes_modules_in_a_row(text):
    modules = list(tnn.from_network(two_layers(text)))
    assert [type(part) for part in modules[::2]] == [tnn.TTLinear, tnn.TTLinear]
    x = torch.linspace(-2, 2, 40)
    torch.testing.assert_close(modules[1](x), function_of(text)(x), atol=5e-4, rtol=0)


def test_module_with_a_function_asks_for_an_engine_by_itself():
    model = torch.nn.Sequential(
        tnn.TTLinear(64, 32, rank=4), torch.nn.Tanh(), tnn.TTLinear(32, 10, rank=4)
    )
    assert len(trainwright.compile(model, batch=16).chains) == 1


def test_function_stays_in_torch_without_an_engine():
    model = torch.nn.Sequential(
        tnn.TTLinear(64, 32, rank=4), torch.nn.Tanh(), tnn.TTLinear(32, 10, rank=4)
    )
    compiled = trainwright.compile(model, batch=16, accelerator=AcceleratorParameters())
    assert len(compiled.chains) == 2


# -- kernels of users ----------------------------------------------------------------------------
def described(folder, text, *functions, **keys):
    """Write a file of kernels and describe a network that applies some."""
    (folder / "own.py").write_text(f"import trainwright\nfrom trainwright.kernels import *\n{text}")
    layers = [
        {"outputs": [4, 8], "inputs": [8, 8], "ranks": [4]},
        *({"function": text} for text in functions),
        {"outputs": [2, 8], "inputs": [4, 8], "ranks": [4]},
    ]
    description = {"classes": 10, "image": [8, 8], "kernels": ["own.py"], "layers": layers}
    return network_from_dict(description | keys, folder)


def test_guide_network_and_model_are_as_the_page_says(capsys):
    layers = tomllib.loads(TOML)["layers"]
    network = network_from_dict({"classes": 10, "image": [8, 8], "layers": layers})
    assert network.functions == (function_of("tanh"),)
    exec(MODEL, {"__name__": "example"})
    assert capsys.readouterr().out == "1\n"


def test_guide_kernels_run_in_a_network_file_and_in_torch(
    tmp_path, monkeypatch, capsys, registered
):
    network = guide_network(tmp_path)
    assert [f.text for f in network.functions] == ["hard_tanh", "centred(32, -120.0)"]
    checked(network, 16, ENGINE)
    command = ["check", "--network", str(tmp_path / "mine.toml"), "--batch", "16"]
    assert main([*command, "--backend", "golden"]) == 0  # tests/sim/test_functions.py has the RTL
    assert " 0 mismatches" in capsys.readouterr().out
    assert network_from_dict(network.to_dict()) == network
    assert pickle.loads(pickle.dumps(network)) == network
    monkeypatch.syspath_prepend(tmp_path)
    page = {"__name__": "example", "trainwright": trainwright}
    exec(IN_TORCH, page)
    printed = re.findall(r"# (.*)", IN_TORCH)
    assert capsys.readouterr().out.splitlines() == printed
    x, upper = torch.randn(4, 32, requires_grad=True), torch.linspace(1, 2, 128).view(4, 32)
    page["centred"](x).backward(upper)  # the sum of 32 gradients of one sign has 21 bits
    torch.testing.assert_close(x.grad, upper - upper.mean(1, keepdim=True), rtol=0, atol=2e-4)


ERRORS = {
    "return x * x * x * x": r"own.py:5: a factor of a product reaches from",
    "return x * 0.5": r"own.py:5: a kernel computes with whole numbers, not with 0.5: scale it",
    "return 0.5 + x": r"own.py:5: a kernel computes with whole numbers, not with 0.5",
    "return x.at_least('1')": r"own.py:5: a kernel computes with whole numbers, not with '1'",
    "return x - 0.5": r"own.py:5: a kernel computes with whole numbers, not with 0.5",
    "return x.relu()": r"own.py:5: own: AttributeError: a value has no 'relu'; .*at_least",
    "return x.round(4)": r"own.py:5: own: AttributeError: .* did you mean 'rounded'",
    "return k.max(x)": r"own.py:5: own: AttributeError: a body has no 'max'; .*sum, greatest",
    "pass": r"own.py:3: own must return a value of the kernel, not None",
    "return exp2(x * 4).lookup(9)": r"own.py:5: there is no table 9; there are EXP2 = 0, .*LOG2",
    "return k.sum(x)": r"own.py:5: sum is over a group; this kernel is element-wise",
    "return x * k.group": r"own.py:5: group is over a group; this kernel is element-wise",
    "return x if x else 0": r"own.py:5: a value has no truth in Python, as every lane has its own",
    "return x or 3": r"own.py:5: a value has no truth in Python",
    "return x if x.negative else x * 0": r"own.py:5: a condition has no truth in Python",
    "return where(x.negative and x.zero, 0, x)": r"own.py:5: a condition has no truth in Python",
    "return x if x == 3 else 0": r"own.py:5: a value has no comparison with 3 .*\(x - 3\).zero",
    "return x if x != 0 else 0": r"own.py:5: a value has no comparison with 0 .*where\(x.zero",
    "return where(True, 0, x)": r"own.py:5: where takes a condition such as x.negative, not True",
    "return x if x == x + 1 else 0": r"own.py:5: a value has no comparison by == .*\(x - y\).zero",
    "return where(~x.negative, 0, x)": r"own.py:5: a condition has no ~ .*where\(condition, old",
    "return where(x.negative & x.zero, 0, x)": r"own.py:5: a condition has no &, \| or \^",
    "return x * x.negative": r"own.py:5: a kernel computes with whole .* the condition negative of",
    "return 1 - x.positive": r"own.py:5: a condition has no arithmetic .*where\(condition, 1",
    "import numpy as np; return x + np.int64(3)": r"own.py:5: a .*int64\(3\): give .* int\(c\)",
    "import numpy as np; return np.int64(3) * x": r"own.py:5: numpy's multiply .* int\(c\)",
    "import numpy as np; return np.maximum(x, 0)": r"own.py:5: numpy's maximum takes no value",
    "import torch; return torch.relu(x)": r"own.py:5: torch's relu takes no value of a kernel",
    "import torch; return torch.tensor(2) * x": r"own.py:5: torch's mul takes no value of a kernel",
    "return where(x.negative(), 0, x)": r"own.py:5: a condition has no \(\) .*without parentheses",
    "return 1 >> x": r"own.py:5: a value has no >> of a number .*k.constant\(number\) >> x",
    "return k.scaled(x, 0.5)": r"own.py:5: the bits below the point are a whole number.*, not 0.5",
    "return k.scaled(x, -(2**40))": r"own.py:5: the bits .* from -63 to 63, not -1099511627776",
    "return k.scaled(x, 2, 18)": r"own.py:5: scaled saturates to at most 17 bits, not 18",
    "return x.clip(0, 1)": r"own.py:5: own: clip takes \(width\), .*at_least and at_most cut to a",
    "return x.rounded(2)": r"own.py:5: own: rounded takes \(shift, rounding\), .*Rounding.EVEN; >>",
    "return x.rounded(2, Rounding.RANDOM)": r"own.py:5: a function has no random bits: round by Ro",
    "return k.sum(x, axis=1)": r"own.py:5: own: sum takes \(value\), not the arguments of this",
    "return where(x.negative, 0, 0.5)": r"own.py:5: a kernel computes with whole .* not with 0.5",
    "return x.at_least(x) + k.sum(0)": r"own.py:5: a value .* is needed, not 0: .*constant\(0\)",
    "return where(x.negative, 0)": r"own.py:5: own: where takes \(condition, new, old\), not the",
    "return k.given(3)": r"own.py:5: own: given takes \(number, low, high\), not the arguments",
    "return x + k.given(0, 0, 5)": r"own.py:5: k.given\(0, ..\) asks for a constant that no rule",
    "return x >> k.given_shift(0)": r"own.py:5: given_shift is for vector kernels",
    "k.preserve(3)": r"own.py:5: preserve is for vector kernels",
    "return x + k.given": r"own.py:5: a kernel computes with whole numbers, not with <.{99,240}$",
    "return len(3)": r"own.py:5: own: TypeError: object of type 'int' has no len\(\)",
    "return x == x": r"own.py:3: own must return a value of the kernel, not True",
    "return k.stored('stored', x)": r"own.py:5: stored is over a group; this kernel is",
    **{  # a packed row holds values of any samples
        f"return {text}": rf"own.py:5: {text[2:].partition('(')[0]} is for vector kernels: lanes"
        for text in (
            "x.sum_lanes()", "x.greatest_lane()", "k.lane()", "k.read('y')", "k.write('y', x)",
            "k.total(x)", "k.count(x)", "k.held(Register(3))", "k.keep(Register(3), x)",
        )
    },
    **{
        f"return {text}": rf"own.py:5: a value has no {re.escape(what)} in Python: write {remedy}"
        for what, texts, remedy in (
            ("unary -", ["-x"], "0 - x"),
            ("unary +", ["+x"], "x"),
            ("~", ["~x"], "-1 - x"),
            ("abs()", ["abs(x)"], r"where\(x.negative"),
            ("/ or //", ["x / 2", "2 / x", "x // 2", "divmod(x, 2)"], "x >> n"),
            ("%", ["x % 8", "9 % x"], "x & 7"),
            ("**", ["x ** 2", "2 ** x", "pow(x, 2)"], r"x \* x"),
            ("@", ["x @ x"], r"k.sum\("),
            ("<<", ["x << 2", "1 << x"], r"x \* 4"),
            ("| or ^", ["x | 1", "1 ^ x"], "x & mask"),
            ("<, <=, > or >=", ["x < 0", "x if 0 >= x else 1", "max(x, 0)"], r"where\("),
            ("[]", ["x[0]"], r"k.sum\(x\) or"),
            ("iteration", ["sum(x)", "max(x)", "[v for v in x]"], r".*k.greatest"),
            ("in", ["x if 1 in x else 0"], ""),
            ("len()", ["len(x)"], ""),
            ("int(), float() or round()", ["int(x)", "round(x)", "range(x)"], "x >> n"),
        )
        for text in texts
    },
}  # fmt: skip


@pytest.mark.parametrize("text", ERRORS)
def test_kernel_that_cannot_be_names_file_and_line(tmp_path, registered, text):
    kernels = f'@trainwright.kernel(gradient="straight-through")\ndef own(k, x):\n    {text}\n'
    with pytest.raises(NetworkError, match=ERRORS[text]):
        described(tmp_path, kernels, "own")


@pytest.mark.parametrize("part", ("kernel", "gradient"))
@pytest.mark.parametrize("over", ((), "features"))
def test_kernel_whose_global_variable_changes_is_refused(registered, part, over):
    """A compiled program keeps the old value, and torch would compute with the new one."""
    values = {"kernel": 3, "gradient": 3}
    own = trainwright.kernel(
        name="own", over=over, gradient=lambda k, upper: upper * values["gradient"]
    )(lambda k, x: x.at_most(99 + values["kernel"]))
    module = torch.nn.Sequential(
        tnn.TTLinear(32, 32, rank=4), own.module(), tnn.TTLinear(32, 16, rank=4)
    )
    model, x = trainwright.compile(module, batch=16), torch.randn(16, 32)
    for each in (module, model):
        each(x).sum().backward()
    for value in (5, 3):
        values[part] = value
        for each in (module, model):
            if value == 3:
                each(x).sum().backward()
                continue
            with pytest.raises(KernelError, match=r"test_functions.py:\d+: own.* that has changed"):
                each(x).sum().backward()


@pytest.mark.parametrize("part", ("scale", "gradient_scale"))
def test_kernel_whose_rule_reads_a_changed_variable_is_refused(registered, part):
    raised = [0]
    rule = Scale(lambda e, *_: Scaling(e[0] + raised[0], e[0] + raised[0], ()))
    own = trainwright.kernel(name="own", gradient=lambda k, upper: upper * 1, **{part: rule})(
        lambda k, x: x.at_most(99)
    )
    x = torch.tensor([[0.5, -0.25]], requires_grad=True)
    y = own(x)
    y.sum().backward()
    assert torch.equal(y, x) and torch.equal(x.grad, torch.ones(1, 2))
    raised[0] = 1
    with pytest.raises(KernelError, match=r"test_functions.py:\d+: own.* that has changed"):
        own(x).sum().backward()


DECLARED = {
    '(over="feature")': r"own.py:3: own is over the axis 'feature';.* did you mean 'features'",
    '(gradient="straight")': r"own.py:3: the gradient of own must be a function or 'straight-thr",
    "(gradient=max)": r"own.py:3: the gradient of own must be a function or .*, not <built-in",
    "(gradient=lambda k: 1)": r"own.py:3: the gradient of own takes \(k, upper, x\)",
    "(gradient=lambda k, upper, slope=1: upper)": r"own.py:3: .* takes the parameter slope, which",
    "(gradient=lambda k, upper, y: upper * y)": r"own.py:3: .* own reads y: call it x, .*or result",
    "(depth=3)": r"own.py:3: kernel has no option depth; there are name, gradient",
    "(whole_bits=1.5)": r"own.py:3: whole_bits of own must be .* from -63 to 63, not 1.5",
    "(whole_bits=True)": r"own.py:3: whole_bits of own must be .* from -63 to 63, not True",
    "(whole_bits=-(2**40))": r"whole_bits of own must be .* from -63 to 63, not -1099511627776",
    "(gain='2')": r"own.py:3: gain of own must be a number above 0, not '2'",
    "(gain=-1)": r"own.py:3: gain of own must be a number above 0, not -1",
    "(name='own kernel')": r"own.py:3: a kernel needs a name, not 'own kernel'.* or give name=",
    "(name='')": r"own.py:3: a kernel needs a name, not ''",
    "(name=['own'])": r"own.py:3: a kernel needs a name, not \['own'\]",
    "(name='tanh')": r"own.py:3: trainwright has a function tanh: choose another name",
    "(gradiant=None)": r"own.py:3: kernel has no option gradiant; .* did you mean 'gradient'",
    "(body=None)": r"own.py:3: kernel has no option body; there are name, gradient, over",
    "(reduces='False', over='features')": r"own.py:3: reduces of own must be True or False, not 'F",
    "(scale='exact')": r"own.py:3: scale of own must be a rule \(Scale\), not 'exact'",
    "(gradient_scale=2)": r"own.py:3: gradient_scale of own must be a rule \(Scale\), not 2",
    "(real='relu')": r"own.py:3: real of own must be a function, not 'relu'",
    "(real_gradient=1)": r"own.py:3: real_gradient of own must be a function, not 1",
    "(torch_class=int)": r"own.py:3: torch_class of own must be the name of a class, not <class",
    "(calls=[max])": r"own.py:3: calls of own must be names of functions, not \[<built-in",
    "(attributes={'x': 1})": r"own.py:3: attributes of own must be a mapping of names to names",
    "(gain=float('nan'))": r"own.py:3: gain of own must be a number above 0, not nan",
    "(calls='own', attributes={'a': 'alpha'})": r"attributes of own .* \(there is none\), not {'a'",
    "(attributes={'a': 'alpha'})": r"own.py:3: attributes of own needs torch_class or calls",
    "(real_gradient=abs)": r"own.py:3: real_gradient of own needs real: add it, or omit it",
}


def test_kernel_with_one_call_as_text_is_not_known_by_its_letters(registered):
    for calls in ("own_call", ["own_call"]):
        definition = trainwright.kernel(name="own", calls=calls)(lambda k, x: x)
        assert definition.calls == ("own_call",)


def test_kernel_without_torchs_name_of_a_parameter_is_refused(registered):
    """Torch's default stood in for the parameter: ``own.module(0.3)`` had a slope of 0.01."""
    with pytest.raises(FunctionError, match=r"torch's name of each parameter \(slope\), not {}"):
        trainwright.kernel(name="own", torch_class="LeakyReLU")(lambda k, x, slope=0.5: x)


@pytest.mark.parametrize("gradient", [None, "straight-through"])
def test_kernel_gradient_scale_without_a_gradient_is_refused(registered, gradient):
    with pytest.raises(FunctionError, match="gradient_scale of own needs a function as its grad"):
        trainwright.kernel(name="own", gradient=gradient, gradient_scale=Scale(max))(lambda k, x: x)


def test_kernel_parameter_that_is_given_twice_is_refused(registered):
    own = trainwright.kernel(name="own")(lambda k, x, slope=0.5: x)
    with pytest.raises(FunctionError, match="own is given the parameter slope twice"):
        own(torch.ones(2), 0.25, slope=0.75)


def test_kernel_parameters_reach_torch_by_name_in_any_order(registered):
    names = {"high": "max_val", "low": "min_val"}
    own = trainwright.kernel(name="own", torch_class="Hardtanh", attributes=names)(
        lambda k, x, low=-1.0, high=1.0: x
    )
    module = own.module(-0.25, 0.5)
    assert (module.min_val, module.max_val) == (-0.25, 0.5)


@pytest.mark.parametrize(
    ("function", "is_own"),
    [
        (torch.nn.Hardtanh(), True),
        (torch.nn.Hardtanh(inplace=True), True),
        (torch.nn.Hardtanh(-2.0, 2.0), False),
        (torch.nn.functional.hardtanh, True),
        (lambda x: torch.nn.functional.hardtanh(x, -2.0, 2.0), False),
        (lambda x: torch.nn.functional.hardtanh(x, max_val=0.5), False),
    ],
)
def test_torch_function_with_options_that_a_kernel_lacks_stays_in_torch(
    registered, function, is_own
):
    @trainwright.kernel(
        torch_class="Hardtanh", calls="hardtanh", gradient="straight-through", whole_bits=0
    )
    def own(k, x):
        return k.fixed(k.scaled(x, 12), 12)

    model = trainwright.compile(module_of(function), batch=32, accelerator=ENGINE)
    assert len(model.chains) == (1 if is_own else 2)


def test_kernel_of_no_function_of_python_is_one_error(registered):
    own = trainwright.kernel(name="own")(lambda k, x: x)
    for body in (max, functools.partial(own, 2), np.abs, own, "own", 3):
        with pytest.raises(FunctionError, match="kernel takes a function made by def or lambda"):
            trainwright.kernel(body)


@pytest.mark.parametrize("options", DECLARED)
def test_kernel_declared_wrongly_names_file_and_line(tmp_path, registered, options):
    kernels = f"@trainwright.kernel{options}\ndef own(k, x):\n    return x\n"
    with pytest.raises(NetworkError, match=DECLARED[options]):
        described(tmp_path, kernels, "own")


def test_network_with_a_kernel_out_of_place_names_the_remedy(tmp_path, registered):
    own = "@trainwright.kernel{}\ndef own(k, x):\n    return x - (x >> 1)\n"
    with pytest.raises(NetworkError, match=r"'onw' is no function;.* did you mean 'own'"):
        described(tmp_path, own.format(""), "onw")
    with pytest.raises(NetworkError, match=r"cannot read.*did you mean 'own.py'"):
        described(tmp_path, own.format(""), "own", kernels=["owns.py"])
    with pytest.raises(NetworkError, match=r"own.py:3: own is over the axis 'rows'; 'l1' has feat"):
        described(tmp_path, own.format("(over='rows')"), "own")
    with pytest.raises(FunctionError, match=r"own.py:3: own has no gradient: give its kernel one"):
        compile_step(described(tmp_path, own.format(""), "own"), 16, ENGINE)
    with pytest.raises(NetworkError, match=r"own.py:3: trainwright has a function tanh"):
        described(tmp_path, own.format("").replace("own", "tanh"), "tanh")
    with pytest.raises(NetworkError, match=r"own.py:3: ZeroDivisionError"):
        described(tmp_path, "1 / 0\n", "own")
    with pytest.raises(NetworkError, match=r"own.py:3: SystemExit: 0"):
        described(tmp_path, "raise SystemExit(0)\n", "own")


def test_changed_file_of_kernels_is_read_again(tmp_path, registered, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    own = "@trainwright.kernel(gradient='straight-through')\ndef own(k, x):\n    return x >> {}\n"
    x = np.full((1, 16), 64)
    for shift in (1, 2):
        (function,) = described(tmp_path, own.format(shift), "own").functions
        assert applied(function.forward, [x], (8,), 8)[0, 0] == 64 >> shift
    assert not (tmp_path / "__pycache__").exists()


OWN_KERNEL = """
def back(k, upper, x):
    return upper >> 2

@trainwright.kernel(gradient=back)
def own(k, x):
    return x >> 1
"""


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("x >> 1", "x >> 2"), ("upper >> 2", "upper >> 1"), ("=back", "=back, whole_bits=1"),
        ("=back", "='straight-through'"), ("upper, x", "upper, result"),
    ],
)  # fmt: skip
def test_stored_network_whose_kernel_computes_something_else_is_refused(
    tmp_path, registered, text, other
):
    stored = described(tmp_path, OWN_KERNEL, "own").to_dict()
    named = OWN_KERNEL.replace("back", "halved").replace("return", "# the same\n    return")
    assert described(tmp_path, named, "own").to_dict() == stored
    described(tmp_path, OWN_KERNEL.replace(text, other), "own")  # a new network may have it
    with pytest.raises(
        NetworkError,
        match=r"own of .*own\.py computes something else than when the model was trained: restore",
    ):
        network_from_dict(stored)


def test_kernel_in_torch_has_the_bits_of_its_integers(registered):
    @trainwright.kernel(gradient=lambda k, upper, x: upper >> 2)
    def quarter(k, x):
        return x >> 2

    x = torch.tensor([1.0, -0.5, 0.3, 0.0]).requires_grad_()
    y = quarter(x)  # words of 8 bits at exponent -6
    assert (y * 64).tolist() == [16, -8, 4, 0]
    y.backward(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert x.grad.tolist() == [0.25, 0.5, 0.75, 1.0]
    near_one = torch.tensor([0.9988])  # 128 units of 2^-7 would saturate: the exponent is -6
    assert quarter(near_one * 4).tolist() == [1.0]
    with pytest.raises(TypeError, match=r"takes floating point.*: convert it, x\.float\(\)"):
        quarter(torch.arange(3))
    with pytest.raises(ValueError, match="finite values"):
        quarter(torch.tensor([float("nan")]))


@pytest.fixture
def quarter(registered):
    @trainwright.kernel(gradient=lambda k, upper, x: upper >> 2)
    def quarter(k, x):
        return x >> 2

    return quarter


def test_kernel_that_a_model_keeps_is_copied_pickled_and_compiled_as_itself(quarter):
    model = InPlace(quarter, again=False)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert copied.function is quarter
    compiled = trainwright.compile(model, batch=4, accelerator=ENGINE)
    assert len(compiled.chains) == 1


def test_kernel_of_two_numbers_and_a_wide_fixed_value_saturates(registered):
    """Both ask for an instruction more than their text has: a constant, and a clip of a factor."""

    @trainwright.kernel(gradient="straight-through")
    def signs(k, x):
        return where(x.negative, -3, where(x.zero, 0, 3))

    @trainwright.kernel(gradient="straight-through", whole_bits=2)
    def squared(k, x):
        scaled = k.scaled(x, 12)
        return k.fixed((scaled * scaled).rounded(12, Rounding.EVEN), 12)

    x = torch.tensor([-1.0, 0.0, 0.5, 1.984375])
    assert signs(x).mul(64).tolist() == [-3, 0, 3, 3]
    assert squared(x).tolist() == [1.0, 0.0, 0.25, 126 / 32]  # 1.984375^2 is 126.008 / 32
    assert squared(x * 2).tolist() == [127 / 32, 0.0, 1.0, 127 / 32]


def test_kernel_gradient_of_gradient_is_one_error_and_no_constant(quarter):
    x = torch.tensor([1.0, -0.5], requires_grad=True)
    with pytest.raises(RuntimeError, match=r"quarter has no gradients of gradients: .* real="):
        torch.autograd.grad(quarter(x * x).sum(), x, create_graph=True)
    assert torch.autograd.grad(quarter(x * x).sum(), x)[0].tolist() == [0.5, -0.25]


def test_kernel_in_a_second_backward_pass_raises_as_torch_does(quarter):
    x = torch.tensor([1.0, -0.5], requires_grad=True)
    loss = quarter(x).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert x.grad.tolist() == [0.5, 0.5]
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_kernel_gradient_that_overflows_passes_to_the_scaler_of_losses(quarter):
    layer = torch.nn.Linear(2, 2)
    optimizer, scaler = torch.optim.SGD(layer.parameters(), 0.1), torch.amp.GradScaler("cpu")
    before = layer.weight.tolist()
    scaler.scale((quarter(layer(torch.ones(3, 2))) * torch.inf).sum()).backward()
    assert bool(layer.weight.grad.isnan().all())
    scaler.step(optimizer)
    assert layer.weight.tolist() == before


@pytest.mark.parametrize(
    ("options", "body"),
    [
        ({}, lambda k, x: (x >> 2).within(-31, 31)),  # -32 of 8 bits, -128
        ({"gradient": lambda k, upper, x: (upper >> 1).within(-9000, 9000)}, lambda k, x: x),
        ({"over": "features"}, lambda k, x: k.sum(x).within(-100, 100)),
    ],
)
def test_kernel_statement_that_words_leave_is_refused_with_its_line(registered, options, body):
    own = trainwright.kernel(name="own", **options)(body)
    with pytest.raises(KernelError, match=r"test_functions.py:\d+: .* the kernel states"):
        own.module()(torch.ones(2, 4)).sum().backward()
    # Statements that hold for every word, and for every result that a gradient reads.
    fine = trainwright.kernel(
        name="fine", gradient=lambda k, upper, result: upper * 1 + 0 * result.within(-4, 4)
    )(lambda k, x: (x >> (k.bits - 3)).within(-4, 3))
    fine.module()


def test_kernel_that_keeps_values_in_another_stream_is_one_error(registered):
    own = trainwright.kernel(name="own", over="features")(lambda k, x: k.stored("kept", x))
    with pytest.raises(KernelError, match=r"a function keeps values in 'stored' alone, not 'kept'"):
        own(torch.ones(2, 3))


@pytest.mark.parametrize("value", ([2], "2", None, 1j, torch.tensor(2.0)))
def test_kernel_parameter_that_is_no_number_is_one_error(registered, value):
    own = trainwright.kernel(name="own")(lambda k, x, slope=1: x * round(slope))
    with pytest.raises(FunctionError, match="the parameter slope of own is a number, not"):
        own(torch.ones(2), value)
    assert own.make(np.float64(2)).text == "own(2.0)"  # a network file can hold it


@pytest.mark.parametrize("factor", [1, 2, 100, -3])
def test_kernel_gradient_in_torch_that_grows_is_not_clipped(registered, factor):
    @trainwright.kernel(gradient=lambda k, upper: upper * factor)
    def grown(k, x):
        return x

    torch.manual_seed(0)
    x, upper = torch.randn(100, requires_grad=True), torch.randn(100, dtype=torch.float64)
    grown(x).backward(upper.float())
    assert (x.grad - factor * upper).norm() < 0.01 * (factor * upper).norm()
    assert (x.grad - upper).norm() < 1e-4 * upper.norm() or factor != 1  # all 16 bits are used


def test_kernel_in_torch_keeps_shapes_down_to_no_dimension(quarter):
    for shape in ((), (0,), (1,), (2, 0, 3), (2, 3)):
        x = torch.ones(shape, requires_grad=True)
        y = quarter(x)
        assert y.shape == x.shape and bool((y == 0.25).all())
        assert torch.autograd.grad(y.sum(), x)[0].shape == x.shape
    assert quarter(torch.ones(3, 2, device="meta")).shape == (3, 2)


def test_kernel_over_no_features_gives_none(registered):
    @trainwright.kernel(over="features", gradient="straight-through")
    def above(k, x):
        return x - k.greatest(x)

    for shape in ((3, 0), (0, 3), (0,)):
        assert above(torch.ones(shape)).shape == shape


@pytest.mark.parametrize("options", ({"over": "features", "reduces": True}, {"over": "window"}))
def test_kernel_that_reduces_without_a_reduction_is_one_error(registered, options):
    own = trainwright.kernel(name="own", **options)(lambda k, x: x - k.greatest(x))
    window = 2 if options["over"] == "window" else None
    with pytest.raises(KernelError, match=r"test_functions.py:\d+: own\(\d\): the result differs"):
        own(torch.arange(8.0).reshape(1, 1, 2, 4), window=window)


def test_kernel_over_features_of_one_sample_equals_its_batch(registered):
    @trainwright.kernel(over="features", gradient="straight-through")
    def above(k, x):
        return x - k.greatest(x)

    x = torch.tensor([0.5, -0.25, 0.125])
    assert above(x).tolist() == above(x[None])[0].tolist() == [0.0, -0.75, -0.375]


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32, torch.float64))
def test_kernel_of_the_largest_number_stays_finite(registered, dtype):
    @trainwright.kernel(gradient="straight-through")
    def same(k, x):
        return x

    most = torch.finfo(dtype).max
    y = same(torch.tensor([most, -most], dtype=dtype))  # 127.9 steps round up to 2^7
    assert y.tolist() == [most, -most]


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, of its prototypes
def test_kernel_in_torch_of_unreadable_input_is_one_error_with_remedy(quarter, registered):
    @trainwright.kernel(over="window", gradient=lambda k, upper: upper)
    def first(k, x):
        return k.greatest(x)

    x = torch.ones(1, 1, 4, 4)
    for value in ([1.0], np.ones(2), 0.5, None):
        with pytest.raises(TypeError, match=r"takes a torch\.Tensor, not .*torch\.as_tensor"):
            quarter(value)
    for value in (torch.eye(3).to_sparse(), torch.nested.nested_tensor([torch.ones(2)])):
        with pytest.raises(TypeError, match=r"takes dense tensors: .*(to_dense|to_padded_tensor)"):
            quarter(value)
    for transform in (torch.func.vmap(quarter), torch.func.grad(lambda v: quarter(v).sum())):
        with pytest.raises(RuntimeError, match=r"which torch\.func .* hide: .* real="):
            transform(torch.ones(2, 3))
    for window in (0, -2, (2, 0), (2, 2, 2), 1.5, True, None, torch.tensor(2)):
        with pytest.raises(ValueError, match="window must be one or two integers"):
            first(x, window=window)
    for window in (2, np.int64(2), [np.int64(2), 2], np.array([2, 2])):
        assert first(x, window=window).tolist() == [[[[1.0, 1.0], [1.0, 1.0]]]]


def test_kernel_over_channels_of_images_is_exact(registered):
    """Compare a kernel over each axis of an image with its graph, and with torch."""

    @trainwright.kernel(over="channels", gradient="straight-through")
    def above(k, x):
        return x - k.greatest(x)

    x = torch.randint(-100, 100, (2, 3, 4, 5), generator=torch.Generator().manual_seed(0)) / 128
    x[0, 0, 0, 0] = 127 / 128
    with pytest.warns(LostTensorWarning, match=r"above\(3\): 5% of the results .* in torch"):
        assert torch.equal(above(x), (x - x.amax(1, keepdim=True)).clamp(-1))
    layers = [
        {"outputs": [2, 4], "inputs": [9, 1], "ranks": [2], "kernel": [3, 3], "padding": [1, 1]},
        {"function": "above"},
        {"outputs": [1, 16], "inputs": [16, 32], "ranks": [4]},
    ]
    checked(network_from_dict({"classes": 4, "image": [8, 8], "layers": layers}), 16, ENGINE)


@mostly_slow("seed", range(40), quick=range(4))
def test_random_kernel_of_a_user_is_exact(registered, seed):
    """Compare every word of both programs with the graph, evaluated without instructions."""
    over = ("", "features", "", "channels", "rows", "")[seed % 6]
    function = random_kernel(seed, over)
    network = between_layers(function, channels=over in ("channels", "rows"))
    rows = {"lanes": 8, "pe1_rows": 2, "pe2_rows": 4} if seed % 4 == 1 else {}
    batch = (16, 5, 24)[seed % 3]
    checked(network, batch, AcceleratorParameters(vector_engine=1, **rows), seed)


MANY = """
@trainwright.kernel(gradient="straight-through")
def own(k, x):
    parts = [((x * (3 + n)) >> 2).clip(16) for n in range(10)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    total = total.clip(16)
    for n, part in enumerate(parts):
        total = total - ((part * (n + 1)) >> 1)
    return total >> 4
"""


def test_kernel_of_too_many_values_is_cut_in_passes(tmp_path, registered):
    network = described(tmp_path, MANY, "own")
    passes = network.functions[0].forward.passes((8,), 8, GroupLayout(across=False, joined=True))
    assert len(passes) > 1 and all("stored" in phase.code.streams for phase in passes[1:])
    checked(network, 16, ENGINE)


def test_kernel_of_too_many_instructions_is_cut_in_passes(tmp_path, registered):
    own = """
@trainwright.kernel(gradient="straight-through")
def own(k, x):
    total = x
    for n in range(25):
        total = ((total * (3 + n % 5)) >> 2).clip(12) - (x >> 3)
    return total
"""
    network = described(tmp_path, own, "own")
    passes = instructions(network.functions[0].forward, (8,), 8)
    assert [len(code) <= 63 for code in passes] == [True, True]
    checked(network, 16, ENGINE)


@pytest.mark.filterwarnings("ignore:own.py")
def test_kernel_that_no_cut_helps_is_one_error_with_its_line(tmp_path, registered):
    own = """
@trainwright.kernel(gradient="straight-through")
def own(k, x):
    values = [(x * 1001).times_low(2 * n + 1).wrap(18) for n in range(12)]
    products = [a * b for a, b in zip(values, values[::-1])]
    total = products[0]
    for value in products[1:]:
        total = total.at_least(value)
    for value in products[1:]:
        total = total.at_most(value + (value >> 1))
    return total >> 20
"""
    network = described(tmp_path, own, "own")
    with pytest.raises(KernelError, match=r"own.py:4: own: more than 8 values .*: clip one"):
        compile_step(network, 16, ENGINE)


@pytest.mark.parametrize(
    ("text", "window", "batch"),
    (("max_pool", (2, 2), 16), ("avg_pool", (2, 4), 5), ("max_pool", (8, 1), 16)),
)
def test_pooling_by_a_kernel_is_exact(text, window, batch):
    size = 64 // window[0] // window[1]
    network = image_network({"pool": list(window), "function": text}, [size, 8])
    assert network_from_dict(network.to_dict()) == network
    checked(network, batch, ENGINE)


def test_pooling_kernels_have_the_values_and_gradients_of_torch():
    torch.manual_seed(3)
    x = torch.randint(-100, 100, (2, 3, 4, 6)) / 128
    x[0, 0, 0, 0] = 127 / 128
    for pool, real in (
        (max_pool, lambda v: v.unfold(2, 2, 2).unfold(3, 3, 3).amax((4, 5))),
        (avg_pool, lambda v: torch.nn.functional.avg_pool2d(v, (2, 3))),
    ):
        own, other = (x.clone().requires_grad_() for _ in range(2))
        y, wanted = pool(own, window=(2, 3)), real(other)
        assert ((y - wanted).abs() * 128).max() <= 0.51
        upper = torch.randn(y.shape)
        y.backward(upper)
        wanted.backward(upper)
        unit = 2.0 ** (np.frexp(float(upper.abs().max()))[1] - 15)
        assert (own.grad - other.grad).abs().max() <= 2 * unit
    with pytest.raises(ValueError, match=r"windows of 3 x 3 divide, not the shape \(2, 3, 4, 6\)"):
        max_pool(x, window=3)


def test_compiled_model_pools_by_a_kernel():
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        tnn.TTConv2d(1, 8, 3, padding=1, rank=2), max_pool.module(window=2), torch.nn.Flatten(),
        tnn.TTLinear((8, 4, 4), 16, rank=4),
    )  # fmt: skip
    x, compiled = torch.randn(16, 1, 8, 8), trainwright.compile(model, batch=16)
    for _ in range(2):
        result = compiled(x)
        result.square().sum().backward()
    assert len(compiled.chains) == 1
    assert (result - model(x)).norm() <= 0.1 * result.norm()


@pytest.mark.parametrize(
    ("table", "match"),
    (
        ({"pool": [2, 2], "function": "tanh"}, r"layer 2: function: tanh is not over a window"),
        ({"function": "max_pool"}, r"layer 2: function: max_pool is over a window: give the table"),
        ({"pool": [2, 2], "function": "maxpool"}, r"'maxpool' is no function.*'max_pool'"),
    ),
)
def test_pooling_that_cannot_be_names_the_remedy(table, match):
    with pytest.raises(NetworkError, match=match):
        image_network(table, [4, 4])


@pytest.mark.parametrize(
    ("over", "size"), (("features", [1, 1]), ("channels", [8, 8]), ("rows", [8, 8]))
)
def test_kernel_that_reduces_over_an_axis_is_exact(registered, over, size):
    @trainwright.kernel(
        over=over, reduces=True, gradient=lambda k, upper, x: where(x.zero, 0, upper)
    )
    def total(k, x):
        return k.sum(x).rounded(4, Rounding.EVEN)

    network = image_network({"function": "total"}, size)
    checked(network, 16, ENGINE)
    x = torch.randint(-100, 100, (2, 3, 4, 5), generator=torch.Generator().manual_seed(0)) / 128
    x[0, 0, 0, 0] = 127 / 128
    dims = {"features": (1, 2, 3), "channels": (1,), "rows": (2,)}[over]
    assert ((total(x) - x.sum(dims, keepdim=True) / 16).abs() * 128).max() <= 0.5


@pytest.mark.parametrize("batch", (16, 5, 37))
@pytest.mark.parametrize("channels", (False, True))
def test_kernel_of_zero_that_is_not_zero_is_exact(registered, batch, channels):
    """Keep lanes behind the last sample at 0, as sums over samples read them."""

    @trainwright.kernel(gradient=lambda k, upper, x: where(x.zero, 1, upper >> 1), whole_bits=0)
    def bell(k, x):
        v = k.scaled(x, 10)
        return k.fixed(((1 << 12) - ((v * v) >> 9)).clip(18), 12)

    checked(between_layers(bell.make(), channels=channels), batch, ENGINE)


def test_function_registered_as_an_unknown_module_is_refused_by_name(registered):
    """Refuse the record, as an AttributeError of torch would hide it from every other function."""

    @trainwright.kernel(torch_class="Twice", gradient="straight-through")
    def twice(k, x):
        return x + x

    with pytest.raises(CompileError, match=r"twice is registered as torch.nn.Twice"):
        trainwright.compile(module_of(torch.nn.Tanh()), batch=32, accelerator=ENGINE)


def test_guide_files_to_touch_exist():
    text = GUIDE.read_text().split("## Add a function to the library")[1]
    names = re.findall(r"`([\w/.-]+\.\w+)`", text)
    assert len(names) >= 4 and all((GUIDE.parents[2] / name).exists() for name in names)


def test_kernel_whose_scales_depend_on_bits_is_one_error():
    """Shifts of ``scaled`` are bound from one trace: at 8 bits results were wrong by 77 units."""
    with kernels_dropped():

        @trainwright.kernel(gradient="straight-through", whole_bits=0)
        def uneven(k, x):
            return k.fixed(k.scaled(x, k.bits - 1), k.bits - 1)

        with pytest.raises(KernelError, match=r"test_functions.py:\d+: uneven: k.scaled is called"):
            uneven.make()
