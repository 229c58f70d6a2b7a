"""Posits and multi-component floats within functions that torch compiles or records."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.forward_ad import dual_level, make_dual, unpack_dual
from torch.fx.experimental.proxy_tensor import make_fx

from trainwright import ape, mcf, posit, qr, tt
from trainwright.mcf.nn import MCLinear
from trainwright.precision import residues
from trainwright.support.graphs import cached_constant


def _posits():
    fmt = posit.PositFormat(16, 2)
    layers = torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)
    return posit.convert(torch.nn.Sequential(*layers), fmt), posit.PositTensor(
        torch.randn(5, 6), fmt
    )


def _components():
    return MCLinear(6, 3, nc=2), mcf.tensor(torch.randn(5, 6), nc=2)


def _words(x):
    return x.codes() if isinstance(x, posit.PositTensor) else getattr(x, "components", x)


@pytest.mark.parametrize("layer_and_inputs", [_posits, _components])
def test_compiled_layer_has_the_words_and_gradients_of_plain_calls(layer_and_inputs):
    torch.manual_seed(0)
    layer, x = layer_and_inputs()
    compiled = torch.compile(copy.deepcopy(layer), backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outputs = [network(x) for network in (layer, compiled)]
        for y in outputs:
            (y * y).sum().backward()
    assert torch.equal(*map(_words, outputs))
    for own, other in zip(layer.parameters(), compiled.parameters(), strict=True):
        assert torch.equal(_words(own.grad), _words(other.grad))


P32 = posit.PositFormat(32, 2)
OTHER = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
LOSING = {
    "gemm": lambda x: ape.gemm(x, OTHER),
    "gemm-b": lambda x: ape.gemm(OTHER, x, dtype="fp32-b"),
    "conv2d": lambda x: ape.conv2d(x[None, None], OTHER[None, None]),
    "posit": lambda x: (posit.PositTensor(x, P32) * 2).decode(),
    "round_to": lambda x: posit.round_to(x, P32),
    "mcf": lambda x: torch.exp(mcf.tensor(x, nc=2)).fc,
    "qr": lambda x: qr.block_qr(x).R,
    "lstsq": lambda x: qr.lstsq(x, OTHER).x,
    "tt_svd": lambda x: tt.tt_svd(x, [2, 1], [1, 2])[0],
    "tt_round": lambda x: tt.tt_round([x.reshape(1, 2, 2, 1)])[0],
}
"""Functions that gave zeros for derivatives of torch.func and for tangents, or raw errors."""


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", LOSING)
def test_libraries_in_transforms_of_torch_refuse_lost_derivatives(name):
    function, x, v = LOSING[name], OTHER + 0.25, torch.ones(2, 2)
    with pytest.raises(RuntimeError, match=r"hides the numbers of .* backward\(\)"):
        torch.func.grad(lambda x: function(x).sum())(x)
    with pytest.raises(RuntimeError, match=r"hides the numbers of"):
        torch.func.vmap(function)(torch.stack([x, x]))
    with pytest.raises(RuntimeError, match=r"has a tangent, .* no forward-mode derivatives"):
        torch.func.jvp(function, (x,), (v,))
    with dual_level(), pytest.raises(RuntimeError, match="has a tangent"):
        function(make_dual(x, v))
    # A constant of a function that is differentiated is no operand of the derivative.
    weighted = torch.func.grad(lambda scale: (function(x) * scale).sum())
    if name in ("posit", "round_to", "mcf"):  # kernels ask for memory
        with pytest.raises(RuntimeError, match=r"torch\.func"):
            weighted(torch.tensor(1.0))
    else:
        assert weighted(torch.tensor(1.0)).isclose(function(x).sum().float())


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_libraries_that_torch_differentiates_have_its_tangents():
    def within(x):
        with ape.enabled():
            return x @ OTHER

    v = torch.tensor([[1.0, -2.0], [0.5, 4.0]])
    for function in (
        within, lambda x: ape.gemm(x, OTHER, dtype="fp32"),
        lambda x: tt.to_matrix([x.reshape(1, 2, 2, 1)]) @ OTHER.double(),
    ):  # fmt: skip
        with dual_level():
            tangent = unpack_dual(function(make_dual(OTHER, v))).tangent
            assert tangent.float().equal(v @ OTHER)


@pytest.mark.parametrize("name", ["gemm", "conv2d", "qr", "lstsq", "tt_svd"])
def test_libraries_on_the_meta_device_raise_one_error(name):
    with pytest.raises(TypeError, match="has no numbers on the device meta"):
        LOSING[name](OTHER.to("meta"))
    for x in (posit.PositTensor(OTHER, P32), mcf.tensor(OTHER, nc=2)):
        assert "size=(2, 2)" in repr(x.to("meta"))


def test_cached_constant_first_asked_for_within_a_mode_of_torch_is_plain():
    x = OTHER.double()
    wanted = ape.gemm(x, x, dtype="fp64-i8")
    for cached in (residues._words, residues._digit_weights):
        cached.cache_clear()
    with pytest.raises(RuntimeError, match=r"torch\.func"):
        torch.func.grad(lambda s: (ape.gemm(x, x, dtype="fp64-i8") * s).sum())(torch.tensor(1.0))
    assert ape.gemm(x, x, dtype="fp64-i8").equal(wanted)
    kept = []
    for mode in (FakeTensorMode(), torch.device("meta"), torch.inference_mode()):
        with mode:
            kept.append(cached_constant(lambda: torch.ones(2))())
    torch.func.grad(lambda s: (kept.append(cached_constant(lambda: torch.ones(2))()), s)[1])(
        x.sum()
    )
    assert all(type(each) is torch.Tensor and each.tolist() == [1, 1] for each in kept)
    assert not any(each.is_inference() for each in kept) and kept[-1].data_ptr()


def test_number_tensors_in_a_worker_of_a_loader_are_stacked(monkeypatch):
    # Within a worker torch stacks plain tensors into shared memory.
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: "a worker")
    samples = posit.PositTensor(OTHER, P32), mcf.tensor([["0.1", "0.2"], ["0.3", "0.4"]], nc=2)
    for rows in samples:
        batch = torch.utils.data.default_collate([(row, 1) for row in rows])[0]
        assert type(batch) is type(rows) and torch.equal(_words(batch), _words(rows))


def test_recorded_operators_of_components_are_one_error():
    """Let no graph hold the unwritten memory of a kernel, which no operator of torch fills."""
    layer, x = _components()
    with pytest.raises(RuntimeError, match="cannot record"):
        make_fx(lambda x: x * x)(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tracer warns of each number that it cannot follow
        with pytest.raises(RuntimeError, match="cannot record"):
            torch.jit.trace(layer, (x,))


def test_recorded_product_of_posits_has_the_words_of_plain_calls():
    x, other = (_posits()[1] for _ in range(2))
    graph = make_fx(lambda x: torch.matmul(x, x.mT))(x)
    assert torch.equal(graph(other).codes(), torch.matmul(other, other.mT).codes())


def test_posits_of_fake_tensors_are_one_error():
    with FakeTensorMode(), pytest.raises(RuntimeError, match="cannot run on fake tensors"):
        x = posit.PositTensor(torch.randn(3, 3), posit.PositFormat(16, 2))
        torch.matmul(x, x)


_FORMAT = posit.PositFormat(8, 1)
_ONES = posit.encode(torch.ones(6, 6), _FORMAT)
_CALLS: dict[str, Any] = {
    "encode": lambda x: posit.encode(x, _FORMAT),
    "codes_product": lambda x: posit.matmul(posit.encode(x, _FORMAT), _ONES, _FORMAT),
    "posit_tensor": lambda x: posit.PositTensor(x, _FORMAT).codes(),
    "components": lambda x: _words(mcf.tensor(x, nc=2).exp()),
    "gemm": lambda x: ape.gemm(x, x, dtype="fp32-b"),
    "qr": lambda x: qr.householder_qr(x, high="fp32").R,
}


@pytest.mark.parametrize("name", _CALLS)
def test_compiled_library_call_runs_between_two_small_graphs(name):
    """Let torch compile no part of a library: it would take minutes, warn, and gain nothing."""
    call, sizes = _CALLS[name], []
    x = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))

    def counted(module, inputs):
        sizes.append(sum(node.op.startswith("call") for node in module.graph.nodes))
        return module.forward

    compiled = torch.compile(lambda x: call(x * 2) * 1, backend=counted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = compiled(x)
    assert torch.equal(result, call(x * 2) * 1)
    assert len(sizes) <= 3 and sum(sizes) <= 3, sizes


def test_product_of_enabled_ape_is_one_error_where_torch_records():
    """Let no record hold plain products: jit.trace records above dispatch, where ape computes."""
    x = torch.randn(4, 4)
    with warnings.catch_warnings(), ape.enabled("fp32-b"):
        warnings.simplefilter("ignore")
        for record in (lambda f: torch.jit.trace(f, (x,)), lambda f: make_fx(f)(x)):
            with pytest.raises(RuntimeError, match="cannot record"):
                record(lambda x: x @ x)
