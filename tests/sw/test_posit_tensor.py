"""Posit tensors as torch citizens: making, printing, moving, saving, converting."""

import copy
import io
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from posit_cases import any_codes, generator

from trainwright import posit
from trainwright.posit import Mixed, PositError, PositFormat, PositTensor, native, round_to
from trainwright.posit.exactness import carrier

P16, P8, P32 = PositFormat(16, 2), PositFormat(8, 2), PositFormat(32, 2)
FORMATS = pytest.mark.parametrize("fmt", [P16, P8, PositFormat(16, 1), P32], ids=str)


def some(*shape, fmt=P16, seed=0):
    return PositTensor(torch.randn(shape, generator=generator(seed), dtype=torch.float64), fmt)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))


def same(a, b):
    return a.fmt == b.fmt and torch.equal(a.codes(), b.codes())


@FORMATS
def test_values_are_rounded_once_and_held_in_the_carrier(fmt):
    x = torch.randn(100, generator=generator(1), dtype=torch.float64)
    p = PositTensor(x, fmt)
    assert p.fmt == fmt and p.dtype is carrier(fmt) and p.shape == (100,)
    assert torch.equal(p.decode(), round_to(x, fmt).to(torch.float64))
    assert torch.equal(p.codes(), posit.encode(x, fmt))
    codes = any_codes((50,), fmt, 2)
    assert torch.equal(PositTensor.from_codes(codes, fmt).codes(), codes)
    assert torch.equal(PositTensor(x.tolist(), fmt).codes(), p.codes())


def test_posit_tensor_keeps_special_values():
    p = PositTensor([0.0, -0.0, float("nan"), float("inf"), 1e40, -1e-40], P16)
    assert p.codes().tolist() == [0, 0, 0x8000, 0x8000, 0x7FFF, 0xFFFF]
    assert (p / 0).codes().tolist() == [0x8000] * 6
    assert p.isnan().tolist() == [False, False, True, True, False, False]
    with pytest.raises(PositError, match="codes of"):
        PositTensor.from_codes(torch.tensor([70000]), P16)
    with pytest.raises(TypeError, match=r"not torch\.complex64"):
        PositTensor(torch.ones(2) * 1j, P16)


def test_making_one_copies():
    x = torch.ones(3)
    p = PositTensor(x, P16)
    x[0] = 5
    assert p.tolist() == [1.0, 1.0, 1.0]
    q = PositTensor(p, P16)
    q[0] = 2.0
    assert p.tolist() == [1.0, 1.0, 1.0] and q.tolist() == [2.0, 1.0, 1.0]


def test_posit_tensor_prints_values_and_format():
    p = PositTensor([1.0, -0.5, float("nan")], P16)
    assert repr(p) == "PositTensor([ 1.0000, -0.5000,     nar], posit(16,2))"
    p = PositTensor([[1.0, 2.0], [3.0, 4.0]], P8, requires_grad=True)
    assert repr(p) == (
        "PositTensor([[1., 2.],\n             [3., 4.]], posit(8,2), requires_grad=True)"
    )
    assert "grad_fn=<MulBackward0>" in repr(p * p)
    assert repr(torch.nn.Parameter(p.detach())).startswith("PositTensor(")


def test_posit_tensor_converts_to_other_types():
    p = some(2, 3)
    assert p.numpy().tolist() == p.tolist() == p.decode().tolist()
    assert p.numpy().dtype == "float64"
    p.numpy()[:] = 0.3  # a copy: posits stay posits
    p.decode().fill_(0.3)
    assert same(p, some(2, 3))
    assert isinstance(p[0, 0].item(), float)
    import numpy

    assert numpy.asarray(p).tolist() == p.tolist()


def test_to_a_format_and_back():
    p = some(40).requires_grad_()
    q = p.to(P8)
    assert torch.equal(q.codes(), posit.convert(p.codes(), P16, P8)) and q.fmt == P8
    assert p.to(P16) is p
    g = some(40, fmt=P8, seed=3)
    (gradient,) = torch.autograd.grad(q, p, g)
    assert gradient.fmt == P16 and torch.equal(gradient.decode(), g.decode())
    wide = p.to(P32)
    assert wide.dtype is torch.float64
    (gradient,) = torch.autograd.grad(wide, p, some(40, fmt=P32, seed=4))
    assert torch.equal(gradient.codes(), posit.encode(some(40, fmt=P32, seed=4).decode(), P16))


def test_to_a_device_or_its_own_type():
    p = some(3)
    assert p.to("cpu") is p and p.to(torch.float32) is p
    meta = p.to(P8, device="cpu")
    assert meta.fmt == P8
    module = posit.convert(network(), P16)
    before = module[0].weight.codes()
    assert module.to("cpu") is module and module.float() is module
    assert same(module[0].weight, PositTensor.from_codes(before, P16))
    with pytest.raises(PositError, match="decode"):
        module.double()


def test_data_stays_posits():
    p = torch.nn.Parameter(some(3))
    p.data = some(3, seed=5)
    assert same(p, some(3, seed=5)) and same(p.data, p)
    with pytest.raises(PositError, match=r"data: torch.float32 does not go into posit\(16,2\)"):
        p.data = torch.ones(3)
    with pytest.raises(PositError, match="data mixes"):
        p.data = some(3, fmt=P8)


def test_copies_and_pickles():
    p = torch.nn.Parameter(some(3))
    p.grad = some(3, seed=1)
    torch.save({"p": p}, file := io.BytesIO())
    file.seek(0)
    for q in (copy.deepcopy(p), pickle.loads(pickle.dumps(p)), torch.load(file)["p"]):
        assert same(p, q) and isinstance(q, torch.nn.Parameter) and q.requires_grad
        assert q.data_ptr() != p.data_ptr()
    assert same(copy.deepcopy(p).grad, p.grad)
    memo = {}
    assert copy.deepcopy(p, memo) is copy.deepcopy(p, memo)
    with pytest.raises(RuntimeError, match="without history"):
        copy.deepcopy(p * p)


def test_posit_tensor_survives_state_dicts():
    a, b = posit.convert(network(), P16), posit.convert(network(), P16)
    with torch.no_grad():
        a[0].weight.uniform_()
    state = a.state_dict()
    assert all(isinstance(x, PositTensor) for x in state.values())
    b.load_state_dict(state)
    assert all(same(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    plain = network().state_dict()
    b.load_state_dict(plain)  # floats are rounded
    assert torch.equal(b[2].bias.codes(), posit.encode(plain["2.bias"], P16))
    with pytest.raises(RuntimeError, match=r"mixes posit\(16,2\) and posit\(8,2\)"):
        b.load_state_dict(posit.convert(network(), P8).state_dict())


@FORMATS
def test_safetensors_of_words(fmt, tmp_path):
    safetensors = pytest.importorskip("safetensors")
    tensors = {"a": some(3, 4, fmt=fmt), "b.c": some(2, 3, fmt=fmt).t(), "steps": torch.tensor([7])}
    posit.save_file(tensors, tmp_path / "x.safetensors", {"of": "a test"})
    loaded = posit.load_file(tmp_path / "x.safetensors")
    assert same(loaded["a"], tensors["a"]) and same(loaded["b.c"], tensors["b.c"])
    assert loaded["steps"].tolist() == [7]
    with safetensors.safe_open(tmp_path / "x.safetensors", framework="pt") as file:
        assert file.metadata()["of"] == "a test"
        assert file.get_tensor("a").element_size() == (1 if fmt.n <= 8 else fmt.n // 8)


def test_safetensors_of_values(tmp_path):
    files = pytest.importorskip("safetensors.torch")
    module = posit.convert(network(), P16)
    files.save_file(module.state_dict(), tmp_path / "x.safetensors")
    other = posit.convert(network(), P16)
    with torch.no_grad():
        other[0].weight.zero_()
    other.load_state_dict(files.load_file(tmp_path / "x.safetensors"))
    assert same(other[0].weight, module[0].weight)
    with pytest.raises(PositError, match="holds no posits of save_file"):
        posit.load_file(tmp_path / "x.safetensors")


def test_converting_a_module():
    module = network()
    module[2].bias = module[0].bias  # tied
    module.register_buffer("scale", torch.full((2,), 0.3))
    module.register_buffer("steps", torch.tensor([3]))
    module[0].weight.requires_grad_(False)
    plain = module[2].weight.detach().clone()
    assert posit.convert(module, P16) is module
    assert torch.equal(module[2].weight.codes(), posit.encode(plain, P16))
    assert module[2].bias is module[0].bias
    assert not module[0].weight.requires_grad and module[2].weight.requires_grad
    assert module.scale.fmt == P16 and module.steps.dtype is torch.int64
    posit.convert(module, P8)
    assert {x.fmt for x in module.parameters()} == {P8}


def test_formats_layer_by_layer():
    module = posit.convert(network(), {"0": P8, "2": P16})
    assert (module[0].weight.fmt, module[2].weight.fmt) == (P8, P16)
    x = some(4, 3)
    hidden = torch.tanh(torch.nn.functional.linear(x.to(P8), module[0].weight, module[0].bias))
    want = torch.nn.functional.linear(hidden.to(P16), module[2].weight, module[2].bias)
    y = module(x)
    assert same(y, want)
    y.sum().backward()
    assert [p.grad.fmt for p in module.parameters()] == [P8, P8, P16, P16]
    posit.convert(module, P16)  # what converted the layers' inputs is gone
    assert {p.fmt for p in module.parameters()} == {P16}
    with pytest.raises(PositError, match="mixes"):
        module(some(4, 3, fmt=P8))


def test_weights_kept_in_one_format_and_used_in_another():
    module = posit.convert(network(), {"0": Mixed(P16, P8), "2": P16})
    kept = module[0].parametrizations.weight.original
    assert kept.fmt == P16 and module[0].weight.fmt == P8
    assert same(module[0].weight, kept.to(P8))
    x = some(4, 3)
    y = module(x)
    linear = torch.nn.functional.linear
    hidden = torch.tanh(linear(x.to(P8), kept.to(P8), module[0].bias))
    assert y.fmt == P16
    assert same(y, linear(hidden.to(P16), module[2].weight, module[2].bias))
    y.sum().backward()
    assert all(p.grad.fmt == P16 for p in module.parameters())
    optimiser = torch.optim.Adam(module.parameters())
    before = kept.codes()
    optimiser.step()
    assert not torch.equal(kept.codes(), before)
    twin = copy.deepcopy(module)
    twin.load_state_dict(module.state_dict())
    assert same(twin(x), module(x))
    posit.convert(module, P8)
    assert module[0].weight.fmt == P8 and not hasattr(module[0], "parametrizations")


@pytest.mark.parametrize(
    "formats, message",
    [
        ({"1": P8, "9": P16}, "no layer is called '9'; there are 0, 1, 2"),
        ({"0": P8}, "no format for 2.weight: name its layer, or ''"),
    ],
)
def test_plans_that_do_not_fit(formats, message):
    module = network()
    with pytest.raises(PositError, match=message):
        posit.convert(module, formats)
    assert type(module[0].weight) is torch.nn.Parameter  # nothing was begun


@pytest.mark.parametrize("wrong", ["16,2", (16, 2), None, torch.float16])
def test_posit_tensor_rejects_bad_format(wrong):
    x, message = torch.ones(2), r"a format is PositFormat\(n, es\) or PositFormat\.parse"
    for call in (
        lambda: posit.encode(x, wrong),
        lambda: posit.decode(torch.tensor([1]), wrong),
        lambda: PositTensor(x, wrong),
        lambda: PositTensor.from_codes(torch.tensor([1]), wrong),
        lambda: posit.convert(network(), wrong),
        lambda: posit.convert(network(), {"0": P8, "2": wrong}),
        lambda: posit.convert(network(), Mixed(P16, wrong)),
    ):
        with pytest.raises(TypeError, match=message):
            call()


def test_posit_convert_names_type_of_argument():
    codes = any_codes((20,), P16, 1)
    assert torch.equal(posit.convert(codes, P16, P8), posit.encode(posit.decode(codes, P16), P8))
    p = some(4)
    assert same(posit.convert(p, P8), p.to(P8))
    for given in ((codes, P8), (p, P16, P8), (3, P8), (network(), P16, P8)):
        with pytest.raises(TypeError, match=r"convert takes \(module, fmt\)") as raised:
            posit.convert(*given)
        assert str(raised.value).endswith("1 format" if len(given) == 2 else "2 formats")
    with pytest.raises(TypeError, match="codes are integers"):
        posit.add(p, p, P16)


def test_floats_given_to_a_module_of_posits():
    module = posit.convert(network(), P16)
    with pytest.raises(PositError, match=r"mixes posits and torch.float32: PositTensor\(x, fmt\)"):
        module(torch.ones(1, 3))
    with pytest.raises(PositError, match=r"mixes posits and torch\.float32"):
        network()(some(1, 3))


def test_posit_tensor_follows_accumulation_mode():
    assert posit.get_accumulation() == "quire"
    with posit.accumulation("sequential"):
        assert posit.get_accumulation() == "sequential"
        with pytest.raises(ValueError, match="mode must be one of sequential, quire"):
            posit.set_accumulation("float")
        posit.set_accumulation("quire")
    assert posit.get_accumulation() == "quire"
    a, b = some(8, 200), some(200, 8, seed=1)
    with posit.accumulation("sequential"):
        rounded = a @ b
    assert torch.equal(rounded.codes(), posit.matmul(a.codes(), b.codes(), P16, "sequential"))
    assert not same(rounded, a @ b)


@pytest.mark.parametrize("n", (8, 9, 16, 17, 32))
def test_words_of_every_width_are_stored(n, tmp_path):
    x = some(37, fmt=posit.PositFormat(n, 1))
    posit.save_file({"x": x}, tmp_path / "x.safetensors")
    loaded = posit.load_file(tmp_path / "x.safetensors")["x"]
    assert loaded.fmt == x.fmt and torch.equal(loaded.codes(), x.codes())


def test_kernels_are_usable_where_those_of_the_numbers_type_are(monkeypatch):
    """On the CPU; the type is that of the first tensor, or the one that is named."""
    single, double = torch.zeros(1), torch.zeros(1, dtype=torch.float64)
    kernels = object()
    monkeypatch.setattr(native, "load", lambda _, *o: kernels if "-DDOUBLE" in o else None)
    assert native.usable(double, single) and native.usable(single, dtype=torch.float64)
    assert not native.usable(single, double) and not native.usable(double, dtype=torch.float32)
    assert not native.usable(double, double.to("meta"))


@pytest.mark.parametrize("function", ["softmax", "log_softmax", "logsumexp"])
def test_softmax_of_a_number_has_torch_s_value_and_gradient(function):
    wanted = torch.tensor(2.5, requires_grad=True)
    result = getattr(wanted, function)(0)
    result.backward()
    x = PositTensor(torch.tensor(2.5), PositFormat(16, 1), requires_grad=True)
    y = getattr(x, function)(0)
    y.backward()
    assert float(y.detach()) == float(result.detach())
    assert float(x.grad) == float(wanted.grad) and not x.grad.shape


@pytest.mark.parametrize(
    ("shape", "dims"),
    [((0,), 0), ((2, 0), -1), ((0, 3), 0), ((0, 3), 1), ((2, 0), (0, 1))],
)
@pytest.mark.parametrize("keepdim", [False, True])
def test_logsumexp_of_nothing_is_nar(shape, dims, keepdim):
    plain = torch.zeros(shape)
    y = torch.logsumexp(PositTensor(plain, PositFormat(16, 1)), dims, keepdim)
    wanted = torch.logsumexp(plain, dims, keepdim)  # -inf, which posits have not
    assert y.shape == wanted.shape
    assert bool(y.isnan().all()) and bool(wanted.isinf().all())


@pytest.mark.parametrize("fmt", [PositFormat(8, 1), PositFormat(12, 2)], ids=str)
def test_posit_numbers_beyond_a_float64_are_rounded_once(fmt):
    wider, words = PositFormat(fmt.n + 1, fmt.es), torch.arange(1, fmt.nar - 1)
    # A word of one more bit lies in the middle of two neighbours; a 2^-90 of it decides.
    middles = [Fraction(x) for x in posit.decode(2 * words + 1, wider).tolist()]
    near = Fraction(1, 2**90)
    for shift, even in ((near, False), (0, True), (-near, False)):
        got = PositTensor([middle * (1 + shift) for middle in middles], fmt).codes()
        above = words % 2 == 1 if even else torch.full_like(words, shift > 0)
        assert torch.equal(got, words + above)


def test_posit_numbers_of_many_digits_are_nearest():
    p = PositTensor([2**62 + 2**49 + 1, Fraction(1, 3), Decimal("0.1"), 10**400], P32)
    assert p[:3].tolist() == [2.0**62 + 2.0**50, 178956971 / 2**29, 214748365 / 2**31]
    assert p[3].item() == P32.maxpos


def test_posit_part_of_a_float_model_passes_gradients_both_ways():
    torch.manual_seed(0)
    fmt, x = PositFormat(32, 2), torch.randn(5, 4)
    enter, inner, leave = (torch.nn.Linear(4, 4) for _ in range(3))
    plain = copy.deepcopy(torch.nn.Sequential(enter, inner, leave)).double()
    posit.convert(inner, fmt)
    y = leave(inner(PositTensor(enter(x), fmt)).decode().float())
    y.square().sum().backward()
    plain(x.double()).square().sum().backward()
    own = (*enter.parameters(), *inner.parameters(), *leave.parameters())
    for parameter, wanted in zip(own, plain.parameters(), strict=True):
        gradient = parameter.grad
        if isinstance(gradient, PositTensor):
            gradient = gradient.decode()
        torch.testing.assert_close(gradient.double(), wanted.grad, rtol=1e-4, atol=1e-5)


def test_posits_made_in_a_graph_have_gradients_of_gradients():
    values, fmt = [0.5, 1.5, -2.0], PositFormat(16, 2)
    floats = torch.tensor(values, requires_grad=True)
    posits = PositTensor(values, fmt, requires_grad=True)
    for x, cube in (
        (floats, lambda x: PositTensor(x, fmt) ** 3),
        (posits, lambda x: x.to(PositFormat(32, 2)) ** 3),
        (posits, lambda x: PositTensor(x, PositFormat(32, 2)) ** 3),
        (posits, lambda x: (x * 1).decode() ** 3),
    ):
        (slope,) = torch.autograd.grad(cube(x).sum(), x, create_graph=True)
        assert slope.tolist() == [0.75, 6.75, 12.0]
        assert torch.autograd.grad(slope.sum(), x)[0].tolist() == [3.0, 9.0, -12.0]


def test_posits_that_begin_a_graph_are_leaves_and_decode_to_numbers():
    x, fmt = torch.ones(2, requires_grad=True), PositFormat(16, 2)
    leaf = PositTensor(x, fmt, requires_grad=True)
    assert leaf.is_leaf and leaf.requires_grad and not leaf.decode().requires_grad
    with torch.no_grad():
        assert not PositTensor(x, fmt).requires_grad
    assert (leaf * 2).numpy().tolist() == [2.0, 2.0]
    assert not PositTensor(x.detach(), fmt).requires_grad


@pytest.mark.parametrize("place", [0, slice(None), torch.tensor([True]), torch.tensor([0])])
def test_posit_assignment_of_a_number_rounds_once(place):
    x = PositTensor([1.0], P16)
    tie = 1 + 2.0**-12  # to which float32, the carrier, rounds the numbers next to it
    for number, wanted in ((tie + 2.0**-45, 1 + 2.0**-11), (tie - 2.0**-45, 1.0)):
        x[place] = number
        assert x.tolist() == [wanted]
        x[place] = np.float64(number)
        assert x.tolist() == [wanted]


def test_posit_of_numpys_integers_beyond_doubles_rounds_once():
    integer = 18014948265295873  # a double is the tie of two posits
    wanted = PositTensor([integer], P32).tolist()
    for data in ([np.int64(integer)], np.array([integer])):
        assert PositTensor(data, P32).tolist() == wanted == [18015498021109760]


@pytest.mark.parametrize(
    "compute",
    [
        lambda x, array: x * array, lambda x, array: array / x, lambda x, array: x @ array,
        lambda x, array: np.exp(x),
    ],
)  # fmt: skip
def test_numpy_computing_with_posits_is_refused(compute):
    with pytest.raises(PositError, match=r"numpy computes with floats.*x.numpy\(\)"):
        compute(some(3), np.ones(3))


def test_posit_exchanged_by_dlpack_is_a_copy():
    x = some(3)
    before = x.tolist()
    array, tensor = np.from_dlpack(x), torch.from_dlpack(x)
    assert array.tolist() == tensor.tolist() == before
    array[:], tensor[:] = 0.1, 0.1
    assert x.tolist() == before


@pytest.mark.parametrize("write", [lambda x, y: x.copy_(y), lambda x, y: x.__setitem__(0, y[0])])
def test_gradient_of_floats_written_into_posits_is_of_floats(write):
    floats = torch.tensor([0.3, 2.0], dtype=torch.float64, requires_grad=True)
    x = torch.ones_like(some(2))
    write(x, floats)
    (x * x).sum().backward()
    assert floats.grad is not None and type(floats.grad) is torch.Tensor
    assert floats.grad[0] == 2 * PositTensor([0.3], P16).item()


def test_posit_new_tensor_of_other_data_gives_posits_rounded_once():
    x, third = some(2, fmt=P32), Fraction(1, 3)
    posits = x.new_tensor([third, 2**60 + 2**31 + 1])
    assert same(posits, PositTensor([third, 2**60 + 2**31 + 1], P32))
    assert same(x.new_tensor(torch.tensor(0.1)), PositTensor(torch.tensor(0.1), P32))
    assert x.new_tensor([1], requires_grad=True).requires_grad
    assert not x.new_tensor(torch.ones(1, requires_grad=True)).requires_grad
    whole = x.new_tensor([1, 2], dtype=torch.int64)
    assert type(whole) is torch.Tensor and whole.tolist() == [1, 2]
    with pytest.raises(PositError, match=r"does not turn into torch\.float16"):
        x.new_tensor([1], dtype=torch.float16)


def test_posit_old_constructor_takes_data_and_sizes_and_gives_posits():
    x = some(2, fmt=P8)
    assert same(x.new([0.1]), PositTensor([0.1], P8))
    for given, shape in (
        ((), (0,)),
        ((3,), (3,)),
        ((2, 3), (2, 3)),
        ((torch.Size((2, 1)),), (2, 1)),
    ):
        posits = x.new(*given)
        assert posits.fmt == P8 and posits.shape == shape


@pytest.mark.parametrize("exponent", (Fraction(1, 3), Decimal("0.1"), np.longdouble(1) / 3))
def test_posit_power_by_a_number_of_any_type_takes_the_nearest_float64(exponent):
    x = PositTensor([0.5, 2.0, 3.0, 40.0], PositFormat(8, 0))
    assert same(x**exponent, x ** float(exponent))
    assert same(x.clone().__ipow__(exponent), x ** float(exponent))


def test_posit_power_by_an_integer_that_float64_rounds_is_refused():
    x = PositTensor([-1.0, 2.0], P16)
    assert (x ** (2**60)).tolist()[0] == 1
    for odd in (2**60 + 1, np.int64(2**60 + 1), 10**400):
        with pytest.raises(PositError, match=r"float64 does not hold the exponent"):
            x**odd


def test_posit_base_that_is_a_decimal_number_is_rounded_once():
    near_tie = Fraction(1) + Fraction(1, 2**12) + Fraction(1, 2**62)
    base = Decimal(near_tie.numerator) / Decimal(near_tie.denominator)
    x = PositTensor([1.0, 2.0], P16)
    assert (base**x).tolist() == (PositTensor([near_tie], P16) ** x).tolist()


def test_posit_power_by_a_complex_number_is_refused():
    x = PositTensor([2.0], P16)
    for power in (lambda: x**1j, lambda: torch.pow(x, 1j), lambda: 1j**x):
        with pytest.raises(PositError, match="complex number 1j do not mix"):
            power()
