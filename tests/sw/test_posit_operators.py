"""Every operator of posit tensors: held against functions on codes; and those there are none of."""

from fractions import Fraction
from math import inf

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from posit_operator_bench import Bench
from posit_operator_cases import CASES
from posit_reference import nearest, value

from trainwright import posit
from trainwright.posit import PositError, PositFormat, PositTensor, UncoveredError, accumulation
from trainwright.posit.dispatch import _COPY, _SET, EACH, RESHAPES
from trainwright.posit.exactness import carrier
from trainwright.posit.operators import IN_PLACE, OUT, RULES

FORMATS = [PositFormat(16, 2), PositFormat(8, 2), PositFormat(16, 1), PositFormat(32, 2)]
P16, P8 = FORMATS[:2]
ATEN = [
    getattr(getattr(torch.ops.aten, packet), overload)
    for packet in dir(torch.ops.aten)
    if not packet.startswith("__")
    for overload in getattr(getattr(torch.ops.aten, packet), "overloads", list)()
]
"""Every operator of torch."""
KNOWN = set(torch._C._dispatch_get_all_op_names())
"""Names of those that tensors are dispatched to."""


def check(got, want, fmt):
    if isinstance(got, PositTensor):
        assert got.fmt == fmt and got.dtype is carrier(fmt)
        assert torch.equal(got.codes(), want)
        assert not (got.decode().signbit() & (got.decode() == 0)).any()  # 0 has one word
    elif isinstance(got, torch.Tensor):
        assert not got.is_floating_point() and torch.equal(got, want)
    else:
        assert got == want


MODES = ("sequential", "quire")
PATHS = [
    pytest.param(
        fmt, MODES, "native", id=f"{fmt}-native",
        marks=[pytest.mark.slow] if fmt == PositFormat(16, 1) else [],
    )
    for fmt in FORMATS
]  # fmt: skip
PATHS += [
    pytest.param(
        fmt, (mode,), "torch", id=f"{fmt}-torch-{mode}",
        marks=[] if (fmt, mode) in zip(FORMATS[2:], MODES, strict=True) else [pytest.mark.slow],
    )
    for fmt in FORMATS
    for mode in MODES
]  # fmt: skip
"""Formats and sums, with kernels and without. Operators call both alike. ``test_posit_exact`` holds
rounding without kernels in every format, and ``test_posit_products`` both kinds of sums: by default
a format of each type that carries posits, and a kind of sums each."""


@pytest.mark.parametrize(("fmt", "modes", "posit_path"), PATHS, indirect=["posit_path"])
@pytest.mark.parametrize("name", CASES)
def test_operators_are_those_on_codes(name, fmt, modes, posit_path):
    for mode in modes:
        with accumulation(mode):
            for got, want in CASES[name](Bench(fmt, mode)):
                check(got, want, fmt)


def test_cases_reach_every_operator(monkeypatch):
    reached = set()
    inner = PositTensor.__torch_dispatch__

    def recorded(cls, func, types, args=(), kwargs=None):
        reached.add(func)
        return inner(func, types, args, kwargs)

    monkeypatch.setattr(PositTensor, "__torch_dispatch__", classmethod(recorded))
    with accumulation("quire"):
        for function in CASES.values():
            for _ in function(Bench(P16, "quire")):
                pass
    covered = {*RULES, *IN_PLACE, *OUT, *RESHAPES, *EACH, _COPY, _SET}
    assert sorted(map(str, covered - reached)) == []
    assert len(ATEN) > 2000 and len(covered) > 150


def test_every_other_operator_is_an_error_that_names_it():
    x = PositTensor([1.0, 2.0], P16)
    covered = {*RULES, *IN_PLACE, *OUT, *RESHAPES, *EACH, _COPY, _SET}
    for func in set(ATEN) - covered:
        if func.name() not in KNOWN or func._can_decompose():
            continue  # no operator of tensors, or one that runs as its parts: see below
        with pytest.raises(UncoveredError) as raised:
            PositTensor.__torch_dispatch__(func, (PositTensor,), (x, x))
        assert str(func) in str(raised.value)


VALUES = {
    "int": 1, "SymInt": 1, "float": 0.5, "number": 1.5, "bool": False, "str": "none",
    "Dimname": "N", "int[]": [1], "List[int]": [1], "SymInt[]": [1], "float[]": [0.5],
    "bool[]": [True],
}  # fmt: skip


def argument(kind, x):
    if kind == "Tensor":
        return x
    if kind.startswith("List[Tensor") or kind.startswith("Optional[List[Tensor"):
        return [x, x]
    if kind.startswith("Optional[Tensor"):
        return x
    return VALUES.get(kind)


def floats(value):
    if isinstance(value, torch.Tensor):
        plain = not isinstance(value, PositTensor)
        return [value] if plain and (value.is_floating_point() or value.is_complex()) else []
    return [f for item in value for f in floats(item)] if isinstance(value, list | tuple) else []


def test_nothing_falls_back_to_floats():
    """Called with posits through torch, each operator gives posits or an error, no floats."""
    errors = returned = 0
    for func in ATEN:
        schema = func._schema
        kinds = [str(a.type) for a in schema.arguments if not a.has_default_value()]
        named = any(a.kwarg_only and not a.has_default_value() for a in schema.arguments)
        composite = func.name() in KNOWN and func._can_decompose()
        if not composite or named or not any("Tensor" in kind for kind in kinds):
            continue  # others go to PositTensor as they are, see above
        for shape in ((), (2,), (2, 2), (1, 2, 2), (1, 2, 4, 4)):
            x = PositTensor(torch.ones(shape), P16)
            try:
                result = func(*(argument(kind, x) for kind in kinds))
            except (PositError, RuntimeError, IndexError, TypeError, ValueError):
                errors += 1
                continue
            returned += 1
            assert floats(result) == [], func
    assert errors > 300 and returned > 400


def sparse_bag(table):
    table = table.clone().requires_grad_()
    torch.nn.functional.embedding_bag(torch.tensor([[0, 1]]), table, sparse=True).sum().backward()


def test_uses_of_operators_that_are_not_covered():
    x = PositTensor(torch.ones(1, 2, 4, 4), P16)
    f = torch.nn.functional
    for call, message in (
        (
            lambda: f.grid_sample(x, x[..., :2, :2].transpose(1, 3), align_corners=True),
            "grid_sampler_2d",
        ),
        (lambda: torch.lgamma(x), "aten.lgamma.default"),
        (lambda: sparse_bag(x[0, 0]), "sparse gradients"),
    ):
        with pytest.raises(UncoveredError, match=message):
            call()


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: x + y,
        lambda x, y: x @ y,
        lambda x, y: torch.cat([x, y]),
        lambda x, y: torch.where(x > 0, x, y),
        lambda x, y: x.copy_(y),
        lambda x, y: x.set_(y),
        lambda x, y: torch.nn.functional.mse_loss(x, y),
        lambda x, y: x.mul_(y),
        lambda x, y: torch.maximum(y, y, out=x),
    ],
)
def test_formats_do_not_mix(call):
    x, y = PositTensor(torch.ones(2, 2), P16), PositTensor(torch.ones(2, 2), P8)
    with pytest.raises(PositError, match=r"mixes posit\(16,2\) and posit\(8,2\): convert one"):
        call(x, y)
    with pytest.raises(PositError, match=r"mixes posit\(8,2\) and posit\(16,2\): convert one"):
        call(y, x)


def test_posits_and_other_numbers_do_not_mix():
    x, y = PositTensor(torch.ones(2, 2), P16), torch.ones(2, 2)
    for call in (
        lambda: x + y,
        lambda: y + x,
        lambda: x + torch.tensor(2.0),
        lambda: x @ y,
        lambda: torch.cat([x, y]),
        lambda: torch.nn.functional.mse_loss(x, y),
        lambda: x.add_(y),
    ):
        with pytest.raises(PositError, match=r"mixes posits and torch.float32: PositTensor"):
            call()
    for number, message in (
        (float("nan"), "NaR is no torch.int64"),
        (2.0**32, r"4.29497e\+09 is no torch.int32"),
    ):
        with pytest.raises(PositError, match=message):
            PositTensor([number], P16).to(torch.int64 if number != number else torch.int32)
    with pytest.raises(PositError, match=r"posits do not go into torch.float32; decode\(\)"):
        y.copy_(x)
    with pytest.raises(PositError, match="complex"):
        x * 1j
    for call in (lambda: x.to(torch.float64), lambda: x.sum(dtype=torch.float64), x.half):
        with pytest.raises(PositError, match=r"decode\(\) gives floats"):
            call()


@pytest.mark.parametrize("fmt", [PositFormat(6, 0), P16, PositFormat(32, 2)])
def test_posit_where_with_python_numbers_rounds_them(fmt):
    x, chosen = PositTensor([1.0, 2.0], fmt).requires_grad_(), torch.tensor([True, False])
    least = torch.finfo(torch.float32).min
    for number in (0.1, -65504.0, 3, True, 1e-30, inf, -inf, float("nan"), least):
        wanted = -fmt.maxpos if number in (-inf, least) else float("nan")
        if abs(number) < 1e38:
            word = nearest(Fraction(number), fmt.n, fmt.es)
            wanted = float(value(word, fmt.n, fmt.es)) if word else 0.0
        for y in (
            torch.where(chosen, x, number), x.where(chosen, number),
            torch.where(~chosen, number, x), x.where(condition=chosen, other=number),
        ):  # fmt: skip
            got = y.decode().tolist()[1]
            assert got == wanted or (got != got and wanted != wanted), (number, got)
    torch.where(chosen, x, 0.1).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 0.0]


def test_float_zeros_enter_but_other_floats_and_masks_elsewhere_do_not():
    x = PositTensor([[0.3, 1.7]], P16)
    assert torch.equal(x + torch.zeros(1, 2, dtype=torch.float64), x)
    mask = torch.tensor([[0.0, float("-inf")]])
    assert (x + mask).tolist() == [[x[0, 0].item(), -P16.maxpos]]
    for call in (
        lambda: x * mask,
        lambda: x + mask.neg(),
        lambda: x + torch.tensor([[float("-inf"), 0.5]]),
        lambda: x + torch.tensor([[float("-inf"), float("nan")]]),
    ):
        with pytest.raises(PositError, match=r"mixes posits and torch\.float32"):
            call()
    assert PositTensor([float("-inf")], P16).isnan().all()


def test_layers_give_one_result_whatever_the_memory_layout():
    """A sum starts from the bias also where x is not contiguous."""
    torch.manual_seed(0)
    x = PositTensor(torch.randn(4, 3, 8), P16)
    layer = posit.convert(torch.nn.Linear(8, 8), P16)
    assert torch.equal(layer(x.transpose(0, 1)), layer(x).transpose(0, 1))
    for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        layer = posit.convert(kind(8, 5, 2, bidirectional=True), P16)
        y = layer(x)[0]
        assert torch.equal(layer(x.transpose(0, 1).contiguous().transpose(0, 1))[0], y)
        layer.batch_first = True
        assert torch.equal(layer(x.transpose(0, 1))[0], y.transpose(0, 1))


def test_results_in_place_keep_their_shape():
    x = PositTensor(torch.ones(2), P16)
    with pytest.raises(RuntimeError, match=r"shape \(3, 2\) is not \(2,\)"):
        x.add_(PositTensor(torch.ones(3, 2), P16))


@pytest.mark.parametrize("fmt", [PositFormat(16, 2), PositFormat(32, 2)], ids=str)
def test_infinite_limits_are_beyond_every_posit(fmt):
    numbers, inf = torch.tensor([-2.0, 0.0, 3.0]), float("inf")
    x = PositTensor(numbers, fmt)
    for compute in (
        lambda x: x.clamp(0, inf), lambda x: x.clamp(-inf, 1), lambda x: x.clamp_max(inf),
        lambda x: x.clamp_min(-inf), lambda x: F.hardtanh(x, -inf, 1.0),
        lambda x: F.threshold(x, inf, 9.0), lambda x: F.threshold(x, -inf, 9.0),
        lambda x: F.hardshrink(x, inf), lambda x: x.where(x < inf, 1.0),
        lambda x: x.where(x > -inf, 1.0), lambda x: x.where(x <= -inf, 1.0),
    ):  # fmt: skip
        assert torch.equal(compute(x).decode().float(), compute(numbers))
    nar = PositTensor(torch.tensor([float("nan")]), fmt)
    assert (nar < inf).all() and (nar == inf).all() and (nar >= float("nan")).all()
    assert not nar.isfinite().any() and x.isfinite().all()


INVALID = {
    "dot": lambda x: torch.dot(x(1, 1), x(3)),
    "mm": lambda x: torch.mm(x(1, 2, 3), x(3, 2)),
    "bmm": lambda x: torch.bmm(x(2, 2, 3), x(1, 3, 2)),
    "cross": lambda x: torch.linalg.cross(x(5, 3), x(5, 1)),
    "renorm": lambda x: torch.renorm(x(3, 2), 2, 0, -1.0),
    "layer_norm": lambda x: F.layer_norm(x(2, 3), (2,)),
    "avg_pool1d": lambda x: F.avg_pool1d(x(1, 4), 2, padding=2),
    "avg_pool2d": lambda x: F.avg_pool2d(x(1, 4, 4), 2, divisor_override=0),
    "avg_pool3d": lambda x: F.avg_pool3d(x(1, 4, 4, 4), 2, padding=-1),
    "softshrink": lambda x: F.softshrink(x(3), -0.5),
    "gelu": lambda x: F.gelu(x(3), approximate="sigmoid"),
    "glu": lambda x: F.glu(x(3)),
    "huber": lambda x: F.huber_loss(x(3), x(3), delta=-1.0),
    "smooth_l1": lambda x: F.smooth_l1_loss(x(3), x(3), beta=-1.0),
    "cross_entropy": lambda x: F.cross_entropy(x(2, 3), torch.tensor([0, 1]), x(2)),
    "index_add": lambda x: x(3).index_add(0, torch.tensor([0, 1]), x(3)),
    "scatter_add": lambda x: x(3).scatter_add(0, torch.tensor([0, 1, 2]), x(2)),
    "scatter_reduce": lambda x: x(3).scatter_reduce(0, torch.tensor([0]), x(1), "most"),
    "conv_transpose": lambda x: F.conv_transpose1d(x(1, 3, 5), x(3, 4, 3), output_padding=1),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_posit_arguments_that_torch_refuses_raise(name):
    def posits(*shape):
        return PositTensor(torch.full(shape, 0.5), P16)

    for operands in (lambda *shape: torch.full(shape, 0.5), posits):
        with pytest.raises((RuntimeError, ValueError)):
            INVALID[name](operands)


START = {"addmm": ((1, 1),) * 3, "addmv": ((1,), (1, 1), (1,)), "addr": ((1, 1), (1,), (1,)),
         "baddbmm": ((1, 1, 1),) * 3, "addbmm": ((1, 1), (1, 1, 1), (1, 1, 1))}  # fmt: skip


@pytest.mark.parametrize("name", START)
def test_posit_products_with_beta_zero_ignore_nar(name):
    start, *factors = (torch.full(shape, 3.0) for shape in START[name])
    operands = (PositTensor(x, P16) for x in (start * float("nan"), *factors))
    assert getattr(torch, name)(*operands, beta=0).decode().flatten().tolist() == [9.0]


def test_posit_nanmean_divides_by_the_count_of_reals():
    x = torch.tensor([[1.0, float("nan")], [3.0, 5.0]], dtype=torch.float64)
    p = PositTensor(x, P16, requires_grad=True)
    assert torch.nanmean(p).item() == 3.0
    assert p.nanmean(1).tolist() == [1.0, 4.0]
    torch.nanmean(p, 1).sum().backward()
    assert p.grad.tolist() == [[1.0, 0.0], [0.5, 0.5]]


def test_posit_isclose_of_nar_agrees_with_allclose():
    p = PositTensor([1.0, float("nan")], P16)
    assert torch.isclose(p, p).tolist() == [True, False] and not torch.allclose(p, p)
    assert torch.isclose(p, p, equal_nan=True).all() and torch.allclose(p, p, equal_nan=True)


def test_posit_norm_of_empty_matrix_is_posits():
    norm = torch.linalg.norm(PositTensor(torch.zeros(0, 5), P16), float("inf"))
    assert isinstance(norm, PositTensor) and norm.item() == 0


@pytest.mark.parametrize("order", [-1, -2, -0.5, -1.5, -3, float("-inf")])
def test_posit_norm_of_negative_order_is_zero_at_a_zero(order):
    values = torch.tensor([[1.0, 0.0, 2.0, -4.0], [0.0, 1.0, float("nan"), 1.0]])
    x = PositTensor(values, P16)
    lines = torch.linalg.vector_norm(x, order, 1, keepdim=True)
    assert lines[0].tolist() == [0.0] and lines.isnan().tolist() == [[False], [True]]
    assert torch.linalg.vector_norm(x, order).isnan() and torch.norm(x[0], order).item() == 0
    (without_zero,) = torch.linalg.vector_norm(x[:1, ::2], order, 1).tolist()
    assert without_zero == pytest.approx(
        torch.linalg.vector_norm(values[0, ::2], order).item(), rel=2**-8
    )
    line = x[0].clone().requires_grad_()
    line.norm(order).backward()
    assert line.grad.tolist() == [0.0] * 4


@pytest.mark.parametrize("order", [-1, float("-inf"), float("inf")])
def test_posit_norm_without_identity_over_nothing_raises(order):
    for make in (torch.zeros, lambda *shape: PositTensor(torch.zeros(shape), P16)):
        assert torch.linalg.vector_norm(make(0, 3), order, 1).shape == (0,)
        for dim in (0, None):
            with pytest.raises(RuntimeError, match=f"{order} .*"):
                torch.linalg.vector_norm(make(0, 3), order, dim)


@pytest.mark.parametrize("place", ["input", "target"])
@pytest.mark.parametrize("outside", [1.5, -0.25, float("nan")])
def test_posit_cross_entropy_outside_of_chances_raises(place, outside):
    operands = {"input": [0.0, 0.5, 1.0], "target": [0.0, 0.5, 1.0]}
    for make in (torch.tensor, lambda values: PositTensor(values, P16)):
        assert F.binary_cross_entropy(*map(make, operands.values())).isfinite()
        wrong = operands | {place: [0.5, outside, 0.5]}
        with pytest.raises(RuntimeError, match=f"elements of {place}"):
            F.binary_cross_entropy(*map(make, wrong.values()))
    first = "NaR" if outside != outside else str(outside)
    with pytest.raises(RuntimeError, match=f"{place} from 0 to 1, not {first}"):
        F.binary_cross_entropy(*map(make, wrong.values()))


@pytest.mark.parametrize(("depth", "message"), [(3, "fit 1 plane$"), (4, "fit 2 planes$")])
def test_posit_convolution_deeper_than_its_volume_counts_planes(depth, message):
    volume = PositTensor(torch.ones(1, 1, depth - 2, 4, 4), P16)
    with pytest.raises(posit.PositError, match=message):
        F.conv3d(volume, PositTensor(torch.ones(1, 1, depth, 1, 1), P16))


def test_posit_transposed_convolution_counts_groups_and_outputs():
    x, weight = (PositTensor(torch.ones(1, n, 4, 4), P16) for n in (1, 1))
    with pytest.raises(posit.PositError, match="in 1 group to an image"):
        F.conv_transpose2d(x, weight, padding=9)
    with pytest.raises(posit.PositError, match=r"not \(1,\): one value an output$"):
        F.conv_transpose2d(x, weight, PositTensor(torch.ones(2), P16))


def test_posit_gradient_of_take_adds_at_negative_places():
    x = PositTensor([[1.0, 2.0], [3.0, 4.0]], P16, requires_grad=True)
    torch.take(x, torch.tensor([-1, 0, -4])).sum().backward()
    assert x.grad.tolist() == [[2.0, 0.0], [0.0, 1.0]]
    with pytest.raises(IndexError):
        x.detach().put(torch.tensor([4]), x.detach().flatten()[:1], accumulate=True)


def test_posit_gradient_of_gathered_number_is_its_sum():
    x = PositTensor(2.0, P16, requires_grad=True)
    torch.gather(x, 0, torch.tensor([0])).backward(PositTensor([3.0], P16))
    assert x.grad.item() == 3.0


@pytest.mark.parametrize("fmt", [PositFormat(16, 2), PositFormat(32, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_posit_where_with_a_types_least_number_hides_scores(fmt, dtype):
    x = PositTensor([[0.5, 2.0]], fmt)
    least = torch.tensor(torch.finfo(dtype).min, dtype=torch.float64)
    hidden = torch.where(torch.tensor([[True, False]]), x, least)
    assert hidden.tolist() == [[0.5, -fmt.maxpos]]
    assert hidden.softmax(1).tolist() == [[1, 0]]


def test_quantiles_between_elements_name_the_remedy_that_works():
    x = PositTensor([1.0, 3.0, 2.0, 8.0], PositFormat(16, 2))
    for take in (lambda: torch.quantile(x, 0.3), lambda: x.nanquantile(torch.tensor([0.3]), dim=0)):
        with pytest.raises(PositError, match=r"interpolation='nearest' takes one .* x.decode\(\)"):
            take()
    assert torch.quantile(x, 0.3, interpolation="nearest").item() == 2.0
    assert torch.quantile(x.decode(), 0.5).item() == 2.5
    with pytest.raises(RuntimeError, match=r"in the range \[0, 1\]"):
        torch.quantile(x, 2.0)


@pytest.mark.parametrize("write", [lambda x: x.masked_fill(x > 1, 2j), lambda x: x.fill_(2j)])
def test_fill_with_a_complex_number_is_refused_by_name(write):
    with pytest.raises(PositError, match="2j"):
        write(PositTensor([1.0, 2.0], PositFormat(16, 1)))


@pytest.mark.parametrize("dividend", [3, 0.1, np.float32(7)])
def test_number_divided_by_posits_is_rounded_once(dividend):
    fmt = PositFormat(12, 1)
    x = PositTensor.from_codes(torch.arange(1, fmt.nar), fmt).requires_grad_()
    quotients = dividend / x
    exact = Fraction(PositTensor(float(dividend), fmt).item())
    words = [nearest(exact / Fraction(y), 12, 1) for y in x.tolist()]
    assert quotients.codes().tolist() == words
    quotients.sum().backward()
    assert x.grad is not None and bool((x.grad.decode() < 0).all())


WRITES = {
    "pad": lambda x, n: F.pad(x, (0, 1), value=n)[-1],
    "full_like": lambda x, n: torch.full_like(x, n)[0],
    "masked_fill": lambda x, n: x.masked_fill(x == 0, n)[0],
    "setitem": lambda x, n: x.__setitem__(0, n) or x[0],
    "where": lambda x, n: torch.where(x == 0, n, x)[0],
    "add": lambda x, n: (x + n)[0],
    "alpha": lambda x, n: torch.add(x, x + 1, alpha=n)[0],
    "value": lambda x, n: torch.addcmul(x, x + 1, x + 1, value=n)[0],
    "lerp": lambda x, n: torch.lerp(x, x + 1, n)[0],
    "list": lambda x, n: torch._foreach_add([x], n)[0][0],
    "nan_to_num": lambda x, n: (x / 0).nan_to_num(nan=n)[0],
    "new": lambda x, n: PositTensor([n], x.fmt)[0],
    "array": lambda x, n: PositTensor(np.array([n]), x.fmt)[0],
}


@pytest.mark.parametrize("kind", [int, np.int64, np.longdouble])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_integer_beyond_float64_is_rounded_to_posits_once(write, kind):
    # A unit beyond half-way between two posits: float64 has the half-way point.
    fmt = PositFormat(32, 2)
    for number in (18014948265295873, -36032095553847295, 4613374868287651839):
        given = kind(number)
        got = write(PositTensor([0.0, 0.0], fmt), given)
        assert got.codes().item() == nearest(Fraction(int(given)), 32, 2)
