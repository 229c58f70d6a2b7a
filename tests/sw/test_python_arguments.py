"""Arguments of the Python interface: other values than the documented ones give one error.

Silent before: flags such as "False", which counted as True, and values that one mode ignored.
"""

import io
import json
import math
from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import torch

import trainwright
from trainwright import nn as tnn
from trainwright.accelerator import open_accelerator
from trainwright.compiler import CompileError, compile_step
from trainwright.data import DataError, OwnOptions, load_data_set
from trainwright.formats import Fixed
from trainwright.mcf.nn import MCSGD
from trainwright.network import NetworkError, load_network
from trainwright.network.description import network_from_dict
from trainwright.onchip.optimiser import IntegerSGD
from trainwright.parameters import AcceleratorParameters, preset
from trainwright.support.arguments import flag, require_seed
from trainwright.train.settings import ChipSettings, PriorSettings, TrainSettings

TEXT = "False"
"""Value of a flag as a configuration file may give it: a string that counts as True."""


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: tnn.TTLinear(16, 16, bias=TEXT), "bias"),
        (lambda: tnn.TTLinear(16, 16, relu="gelu"), "relu"),
        (lambda: tnn.TTConv2d(4, 8, 3, bias=math.nan), "bias"),
        (lambda: tnn.TTLayerNorm(16, bias=2), "bias"),
        (lambda: tnn.TokenAttention(2, causal=TEXT), "causal"),
    ],
)
def test_layer_flag_that_is_text_or_no_flag_raises(make, name):
    with pytest.raises(TypeError, match=f"{name} must be True or False, not "):
        make()


@pytest.mark.parametrize(("value", "expected"), [(np.bool_(False), False), (1, True), (0, False)])
def test_flag_of_numpy_or_an_integer_is_a_flag(value, expected):
    assert flag("bias", value) is expected
    assert (tnn.TTLinear(16, 16, bias=value).bias is not None) is expected


@pytest.mark.parametrize("place", [2.5, 2.0, True, np.float32(0.5), "3", 16, -17])
def test_padding_idx_that_is_no_row_raises(place):
    with pytest.raises(NetworkError, match="padding_idx must be an integer within the 16 rows"):
        tnn.TTEmbedding(16, 16, place)


def test_padding_idx_of_numpy_names_a_row_of_zeros():
    table = tnn.TTEmbedding(16, 16, np.int64(-1))
    assert table.padding_idx == 15
    assert not table(torch.tensor([15])).any()
    assert table(torch.tensor([0])).any()


@pytest.mark.parametrize("exponents", [[-3], [-3.5, -3], [True, -3], [-3, -3, -3]])
def test_set_factors_with_other_exponents_than_one_integer_a_factor_raises(exponents):
    layer = tnn.TTLinear(16, 16, rank=2, order=2)
    factors = [factor.detach() for factor in layer.factors]
    with pytest.raises(NetworkError, match="exponents must be 2 integers, one of each factor"):
        layer.set_factors(factors, exponents)


def test_set_factors_with_exponents_of_numpy_takes_them():
    layer = tnn.TTLinear(16, 16, rank=2, order=2)
    layer.set_factors([torch.full_like(f, 0.25) for f in layer.factors], np.array([-4, -3]))
    assert layer.factor_exponents.tolist() == [-4, -3]


def _weak_layer():
    layer = tnn.TTLinear(64, 16, rank=4)
    torch.nn.init.zeros_(layer.factors[0][..., 2:].data)
    return layer


@pytest.mark.parametrize("owner", ["layer", "model", "compiled"])
def test_cut_ranks_with_a_misspelt_form_raises_and_cuts_nothing(owner):
    layer = _weak_layer()
    cut = {
        "layer": layer.cut_ranks,
        "model": lambda *a, **k: tnn.cut_ranks(layer, *a, **k),
        "compiled": lambda *a, **k: trainwright.compile(layer, batch=4).cut_ranks(*a, **k),
    }[owner]
    before = layer.ranks
    with pytest.raises(ValueError, match="prior form must be one of storage, paper, not 'stored'"):
        cut(1e-6, form="stored")
    assert layer.ranks == before


@pytest.mark.parametrize("name", ["optimizer", "averaged"])
def test_cut_ranks_of_other_objects_raises_before_there_is_a_cut(name):
    with pytest.raises(TypeError, match=f"{name} must be a "):
        tnn.TTLinear(64, 16, rank=4).cut_ranks(1e-6, **{name: "adam"})


def test_cut_ranks_of_an_average_of_other_ranks_cuts_no_layer():
    model = torch.nn.Sequential(_weak_layer(), _weak_layer())
    averaged, ranks = deepcopy(model), model[0].ranks
    assert averaged[1].cut_ranks()
    with pytest.raises(ValueError, match="averaged has ranks"):
        tnn.cut_ranks(model, averaged=averaged)
    assert model[0].ranks == averaged[0].ranks == ranks


def test_adam_refuses_a_sparse_gradient_before_it_moves_a_parameter():
    first, second = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    first.grad, second.grad = torch.ones(2), torch.ones(2).to_sparse()
    optimizer = tnn.Adam([first, second])
    with pytest.raises(TypeError, match="with a sparse gradient"):
        optimizer.step()
    assert torch.equal(first, torch.ones(2)) and not optimizer.state


@pytest.mark.parametrize("seed", [True, 1.0, "1", torch.tensor(1), None])
def test_network_seed_that_is_no_integer_raises(seed):
    with pytest.raises(TypeError, match="seed must be an integer, not"):
        tnn.from_network("digits", seed)


def test_seed_out_of_range_raises_and_one_of_numpy_is_an_integer():
    with pytest.raises(ValueError, match="seed must be from 0 to 7, not 8"):
        require_seed(8, 7)
    assert type(require_seed(np.uint8(3))) is int


@pytest.mark.parametrize("lr", [math.inf, math.nan, 0, -1e-3, True])
def test_adam_rate_that_is_not_finite_and_positive_raises(lr):
    with pytest.raises(ValueError, match="lr must be a finite number over 0, not"):
        tnn.Adam([torch.nn.Parameter(torch.ones(2))], lr)


@pytest.mark.parametrize(
    ("kind", "option"), [(tnn.Adam, "weight_decay"), (IntegerSGD, "betas"), (MCSGD, "eps")]
)
def test_optimiser_option_of_a_group_that_updates_ignore_raises(kind, option):
    weight, bias = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    match = rf"{kind.__name__} has no option {option}=0\.5 of a group, only lr"
    with pytest.raises(ValueError, match=match):
        kind([{"params": [weight], option: 0.5}, {"params": [bias]}])
    optimizer = kind([{"params": [weight], "lr": 0.25, "name": "weights"}])
    with pytest.raises(ValueError, match=match):
        optimizer.add_param_group({"params": [bias], option: 0.5})
    optimizer.add_param_group({"params": [bias], "lr": 0.5})
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.5]


@pytest.mark.parametrize("kind", [tnn.Adam, MCSGD])
def test_options_that_a_scheduler_writes_are_checked_at_each_step(kind):
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = kind([weight], lr=0.5)
    weight.grad = torch.ones(2)
    (group,) = optimizer.param_groups
    group["lr"] = 0.0  # as warm-ups begin
    optimizer.step()
    group["lr"] = -0.5
    with pytest.raises(ValueError, match=r"lr of a group must be .* at least 0, not -0\.5"):
        optimizer.step()
    group |= {"lr": 0.5, "amsgrad": True}
    with pytest.raises(ValueError, match=r"has no option amsgrad=True of a group"):
        optimizer.step()
    assert torch.equal(weight, torch.ones(2))


def test_adam_refuses_the_state_of_another_optimiser():
    weight = torch.nn.Parameter(torch.ones(2))
    state = torch.optim.Adam([weight]).state_dict()
    with pytest.raises(ValueError, match=r"Adam has no option amsgrad=False of a group, only lr"):
        tnn.Adam([weight]).load_state_dict(state)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("kind", [tnn.Adam, partial(IntegerSGD, width=8)])
def test_optimiser_state_read_from_a_file_goes_on_with_the_same_bits(kind, dtype):
    ends = []
    for interrupted in (False, True):
        random = torch.Generator().manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(40, 30, generator=random).to(dtype))
        optimizer = kind([weight], lr=0.25)
        for number in range(4):
            if interrupted and number == 2:
                torch.save(optimizer.state_dict(), file := io.BytesIO())
                file.seek(0)
                optimizer = kind([weight], lr=0.25)
                optimizer.load_state_dict(torch.load(file))
            weight.grad = (torch.randn(40, 30, generator=random) / 100).to(dtype)
            optimizer.step()
        state = [v for v in optimizer.state[weight].values() if isinstance(v, torch.Tensor)]
        ends.append([weight.detach(), *state])
    assert all(a.dtype is b.dtype and torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_integer_optimiser_takes_its_seed_and_no_other_rule_from_a_state():
    weight = torch.nn.Parameter(torch.ones(2))
    state = IntegerSGD([weight], seed=7).state_dict()
    other = IntegerSGD([weight], seed=8)
    other.load_state_dict(state)
    assert other.state_dict() == state and other._seed == 7
    with pytest.raises(ValueError, match="state is of optimiser='esgd', not of 'momentum'"):
        IntegerSGD([weight], optimiser="momentum").load_state_dict(state)


@pytest.mark.parametrize("lr", [9.0, -1.0, math.nan])
def test_integer_optimiser_rate_that_a_scheduler_sets_out_of_range_raises(lr):
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer = IntegerSGD([weight])
    optimizer.param_groups[0]["lr"] = lr
    with pytest.raises(ValueError, match="lr must be from 0 to 8, not"):
        optimizer.step()
    optimizer.param_groups[0]["lr"], weight.grad[0] = 0.5, math.nan
    with pytest.raises(ValueError, match=r"takes finite numbers, .* of \(2,\)"):
        optimizer.step()


@pytest.mark.parametrize("size", [True, 2.0, 0, "4"])
@pytest.mark.parametrize("name", ["in_features", "out_features", "rank", "order"])
def test_layer_size_that_is_no_integer_raises(name, size):
    with pytest.raises(NetworkError, match="must be"):
        tnn.TTLinear(**{"in_features": 16, "out_features": 16, name: size})


def test_layer_dtype_of_text_raises_an_error_that_names_it():
    with pytest.raises(NetworkError, match=r"dtype must be a real .* not 'float32'"):
        tnn.TTLinear(16, 16, dtype="float32")


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("accelerator", False, TypeError),
        ("accelerator", {}, TypeError),
        ("backend", None, TypeError),
        ("batch", True, ValueError),
        ("effort", True, ValueError),
    ],
)
def test_compile_with_an_argument_of_another_type_raises(name, value, kind):
    with pytest.raises(kind, match=f"{name} must be"):
        trainwright.compile(tnn.TTLinear(16, 16, rank=2), **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prior", "paper"), ("prior", False), ("prior", {}), ("chip", True), ("chip", "esgd"),
        ("seed", np.float32(0.5)), ("seed", True), ("seed", torch.tensor(1)), ("epochs", 2.0),
        ("spread", True), ("spread", "2"), ("learning_rate", math.nan), ("learning_rate", None),
    ],
)  # fmt: skip
def test_train_setting_of_another_type_raises(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        TrainSettings(**{name: value})


@pytest.mark.parametrize("weight", [math.inf, math.nan, True, torch.tensor(0.5)])
def test_prior_weight_that_is_no_finite_number_raises(weight):
    with pytest.raises(ValueError, match=r"weight must be (a finite number|over 0), not"):
        PriorSettings(weight=weight)


def test_settings_of_numpy_numbers_are_those_of_python():
    given = TrainSettings(
        batch=np.int64(32), seed=np.uint32(3), learning_rate=np.float64(0.25),
        prior=PriorSettings(interval=np.int16(4)), chip=ChipSettings(pixels=np.int8(8)),
    )  # fmt: skip
    expected = TrainSettings(
        batch=32, seed=3, learning_rate=0.25, prior=PriorSettings(interval=4),
        chip=ChipSettings(pixels=8),
    )  # fmt: skip
    assert json.dumps(given.to_dict()) == json.dumps(expected.to_dict())


def test_accelerator_of_numpy_numbers_has_the_text_of_pythons():
    given = AcceleratorParameters(pe1_rows=np.int64(4), lanes=np.int8(8), vector_engine=np.True_)
    assert repr(given) == repr(AcceleratorParameters(pe1_rows=4, lanes=8, vector_engine=True))


@pytest.mark.parametrize("value", [torch.tensor(4), "4", True, 4.0])
def test_accelerator_size_that_is_no_integer_raises(value):
    with pytest.raises(ValueError, match="pe1_rows must be an integer, not"):
        AcceleratorParameters(pe1_rows=value)


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        *(({"batch": value}, CompileError) for value in (True, 8.0, "8")),
        *(({"effort": value}, CompileError) for value in (0, -1, None, math.nan, True)),
        ({"input_gradients": "no"}, TypeError), ({"input_gradients": None}, TypeError),
        ({"parameters": {}}, TypeError), ({"network": "digits"}, TypeError),
    ],
)  # fmt: skip
def test_compile_step_with_an_argument_of_another_type_raises(option, kind):
    given = {"network": load_network("digits"), "batch": 8, "parameters": AcceleratorParameters()}
    with pytest.raises(kind, match=f"{next(iter(option))} must be"):
        compile_step(**(given | option))


def test_compile_step_of_a_numpy_batch_is_that_of_the_integer():
    network, parameters = load_network("digits"), AcceleratorParameters()
    steps = [compile_step(network, batch, parameters) for batch in (np.int64(8), 8)]
    assert steps[0].memory_bytes == steps[1].memory_bytes
    assert type(steps[0].batch) is int


@pytest.mark.parametrize("underflow", ["Zero", "", None, 1])
def test_fixed_point_rounding_of_an_unknown_underflow_rule_raises(underflow):
    with pytest.raises(ValueError, match="underflow must be one of never, zero, not"):
        Fixed(8).nearest(np.array([1.5]), underflow=underflow)


@pytest.mark.parametrize(
    ("make", "rows"),
    [
        (lambda: tnn.TTLinear(16, 16, rank=2), (16, 16)),
        (lambda: tnn.TTConv2d(4, 16, 2, rank=2), (16, 4, 2, 2)),
        (lambda: tnn.TTLayerNorm(16), (16,)),
    ],
)
def test_load_dense_of_other_numbers_raises_and_none_is_broadcast(make, rows):
    layer, weight = make(), torch.ones(rows)
    with pytest.raises(NetworkError, match="weight must be of real numbers, not "):
        layer.load_dense(weight * 1j)
    with pytest.raises(TypeError, match="weight must be a Tensor, not"):
        layer.load_dense(weight.numpy())
    for shape in ((1,), (15,), (16, 1), ()):
        with pytest.raises(NetworkError, match="the bias has shape"):
            layer.load_dense(weight, torch.ones(shape))
    with pytest.raises(NetworkError, match="bias must be of real numbers, not "):
        layer.load_dense(weight, torch.ones(16) * 1j)
    layer.load_dense(weight, torch.ones(16)).load_dense(weight)
    assert layer.bias.tolist() == [1.0] * 16


@pytest.mark.parametrize("sizes", [{4, 16}, "88", np.array([8.0, 8.0]), 64, []])
def test_layer_sizes_without_an_order_raise(sizes):
    for name, other in (("outputs", "inputs"), ("inputs", "outputs")):
        with pytest.raises(NetworkError, match=f"{name} must be integers of at least 1"):
            tnn.TTLinear(64, 64, rank=2, **{name: sizes, other: [8, 8]})


@pytest.mark.parametrize("rank", [[True], [None], ["4"], np.array(4.5), {4}])
def test_layer_rank_that_is_no_list_of_integers_raises(rank):
    with pytest.raises(NetworkError, match="rank must be at least 1, a list of ranks"):
        tnn.TTLinear(64, 64, rank=rank, order=2)


@pytest.mark.parametrize("kernel", [None, np.array([3.0, 3.0]), {3}, 3.0])
def test_kernel_size_that_is_none_raises(kernel):
    with pytest.raises(NetworkError, match="kernel_size must be one or two integers"):
        tnn.TTConv2d(4, 8, kernel)


def test_from_torch_with_an_empty_name_in_skip_raises():
    with pytest.raises(ValueError, match="a name in skip is empty"):
        trainwright.from_torch(torch.nn.Sequential(torch.nn.Linear(64, 64)), skip=[""])


@pytest.mark.parametrize("size", [-1, [1], 1.5, True, None, (1 << 32) + 1])
def test_accelerator_memory_that_is_no_size_raises(size):
    with pytest.raises(ValueError, match="memory_bytes must be an integer from 0 to"):
        open_accelerator("golden", AcceleratorParameters(), memory_bytes=size)


def test_back_end_with_an_option_of_another_raises():
    for name, options, strange in (("golden:0", {}, "target"), ("golden", {"pace": 2}, "pace")):
        with pytest.raises(ValueError, match=f"back end 'golden' takes no {strange}: omit it"):
            open_accelerator(name, AcceleratorParameters(), memory_bytes=1 << 16, **options)


@pytest.mark.parametrize("integer", [np.int64, np.int32, np.uint8])
def test_sizes_of_formats_and_components_take_numpy_integers(integer):
    from trainwright import mcf
    from trainwright.formats import Fixed, Posit, parse_format
    from trainwright.posit import PositFormat
    from trainwright.posit.takum import TakumFormat

    for kind, sizes in (
        (Fixed, (8,)), (Posit, (8, 1)), (type(parse_format("float(4,3)")), (4, 3)),
        (PositFormat, (16, 2)), (TakumFormat, (16,)),
    ):  # fmt: skip
        given = kind(*map(integer, sizes))
        assert given == kind(*sizes) and repr(given) == repr(kind(*sizes))
        with pytest.raises(ValueError, match=r"not .*True"):
            kind(np.bool_(True), *sizes[1:])
    x = mcf.tensor([0.1, 0.2], nc=integer(2))
    assert x.nc == 2 and x.to_nc(integer(3)).nc == 3
    assert x.decimals(integer(5)) == x.decimals(5)
    for refused in (True, np.bool_(True), 2.0):
        with pytest.raises(ValueError, match=r"nc must be an integer of at least 1, not"):
            mcf.tensor([0.1], nc=refused)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("task", "regresion"),
        ("ignore", "size"),
        ("ignore", (3,)),
        ("category", "size"),
        ("image_size", "8x8"),
        ("image_size", (8.0, 8)),
        ("image_size", (0, 8)),
        ("image_size", (8,)),
    ],
)
def test_option_of_own_data_that_is_none_raises(name, value):
    with pytest.raises(ValueError, match=f"{name} must be .*, not"):
        OwnOptions(**{name: value})


@pytest.mark.parametrize("value", [None, 3])
@pytest.mark.parametrize(
    ("find", "kind"),
    [(load_data_set, DataError), (preset, ValueError), (network_from_dict, NetworkError)],
)
def test_name_of_another_type_raises_the_error_of_an_unknown_one(find, kind, value):
    with pytest.raises(kind, match=str(value)):
        find(value)


def test_layer_order_of_zero_raises_next_to_a_list_of_ranks():
    with pytest.raises(NetworkError, match="order must be an integer of at least 2, not 0"):
        tnn.TTLinear(64, 64, rank=[4], order=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("padding", "valid"), ("padding", "same"), ("padding", 2), ("padding_mode", "reflect"),
     ("stride", np.array([2, 1])), ("dilation", 2)],
)  # fmt: skip
def test_convolution_option_set_later_is_that_of_torch(name, value):
    layer = tnn.TTConv2d(3, 8, 3, padding=1, rank=3, numbers="float32")
    dense, x = layer.to_dense(), torch.randn(2, 3, 7, 7)
    setattr(layer, name, value)
    setattr(dense, name, value if isinstance(value, str | int) else tuple(value))
    if name == "padding_mode":  # torch computes its padding in the constructor
        dense._reversed_padding_repeated_twice = [1, 1, 1, 1]
    torch.testing.assert_close(layer(x), dense(x), rtol=1e-5, atol=1e-5)


def test_same_padding_follows_a_dilation_that_is_set_later():
    layer = tnn.TTConv2d(3, 8, 3, padding="same", rank=3, numbers="float32")
    dense, x = torch.nn.Conv2d(3, 8, 3, padding="same"), torch.randn(2, 3, 7, 7)
    dense.load_state_dict(layer.to_dense().state_dict())
    layer.dilation = dense.dilation = 2, 3
    torch.testing.assert_close(layer(x), dense(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(NetworkError, match='"same" needs a stride of 1'):
        layer.stride = 2
    torch.testing.assert_close(layer(x), dense(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (lambda: tnn.TTConv2d(4, 8, 3), "groups", 2),
        (lambda: tnn.TTConv2d(4, 8, 3), "padding", "vaild"),
        (lambda: tnn.TTConv2d(4, 8, 3), "padding_mode", "Zeros"),
        (lambda: tnn.TTConv2d(4, 8, 3), "stride", 0),
        (lambda: tnn.TTEmbedding(64, 8), "max_norm", 1.0),
        (lambda: tnn.TTEmbedding(64, 8), "scale_grad_by_freq", True),
        (lambda: tnn.TTEmbedding(64, 8), "sparse", True),
        (lambda: tnn.TTMultiheadAttention(16, 2), "add_zero_attn", True),
        (lambda: tnn.TTLayerNorm(8), "eps", math.nan),
        (lambda: tnn.TTLinear(64, 8), "numbers", "fixd"),
    ],
)
def test_layer_option_set_later_that_it_lacks_raises(make, name, value):
    layer = make()
    before = getattr(layer, name)
    with pytest.raises(ValueError, match=name):
        setattr(layer, name, value)
    assert getattr(layer, name) == before


def test_layer_numbers_set_later_are_those_of_set_numbers():
    layers = [tnn.TTLinear(32, 16, rank=3) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    layers[0].set_numbers("activation=posit(8,0)")
    layers[1].numbers = layers[0].numbers
    x = torch.randn(4, 32)
    assert torch.equal(layers[0](x), layers[1](x))


@pytest.mark.parametrize("dropout", [True, "0.5", None, torch.ones(1)])
def test_attention_dropout_that_is_no_number_raises(dropout):
    with pytest.raises(NetworkError, match="dropout must be a probability"):
        tnn.TTMultiheadAttention(16, 2, dropout)
