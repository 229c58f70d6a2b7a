"""Every operator of posit tensors: held against functions on codes; and those there are none of."""

import pytest
import torch
import torch.nn.functional as F
from posit_operator_bench import Bench
from posit_operator_cases import CASES

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


PATHS = [
    pytest.param(
        fmt, path, id=f"{fmt}-{path}",
        marks=[pytest.mark.slow] if path == "torch" and fmt.es == 2 and fmt.n < 32 else [],
    )
    for path in ("native", "torch")
    for fmt in FORMATS
]  # fmt: skip
"""Formats, with kernels and without. Operators call both alike, and ``test_posit_exact`` holds
rounding without kernels in every format: by default a format of each type that carries posits."""


@pytest.mark.parametrize(("fmt", "posit_path"), PATHS, indirect=["posit_path"])
@pytest.mark.parametrize("name", CASES)
def test_operators_are_those_on_codes(name, fmt, posit_path):
    for mode in ("sequential", "quire"):
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
    with pytest.raises(PositError, match=r"0\.3\d* is no value of posit"):
        torch.where(y > 0, x, 0.3)
    for call in (lambda: x.to(torch.float64), lambda: x.sum(dtype=torch.float64), x.half):
        with pytest.raises(PositError, match=r"decode\(\) gives floats"):
            call()


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
