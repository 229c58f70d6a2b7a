"""Posit tensors of every size: empty, without dimensions, empty batches, both passes."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from slowly import mostly_slow

from trainwright import posit
from trainwright.posit import PositError, PositFormat, PositTensor

FORMATS = (PositFormat(16, 2), PositFormat(8, 2), PositFormat(32, 2))
SHAPES = [(), (0,), (1,), (2, 0), (0, 3), (2, 0, 3), (1, 2, 3)]
ALONG = {
    "sum": torch.sum, "mean": torch.mean, "softmax": torch.softmax,
    "log_softmax": torch.log_softmax, "norm": lambda x, d: x.norm(dim=d),
    "max": lambda x, d: x.max(d)[0], "cat": lambda x, d: torch.cat([x, x], d),
    "stack": lambda x, d: torch.stack([x, x], d), "flip": lambda x, d: x.flip(d),
    "kept": lambda x, d: x.sum(d, keepdim=True), "select": lambda x, d: x.select(d, 0),
    "var": lambda x, d: x.var(d, correction=0), "std": lambda x, d: x.std(d, keepdim=True),
    "prod": torch.prod, "cumsum": torch.cumsum, "nansum": torch.nansum, "amax": torch.amax,
}  # fmt: skip
WHOLE = {
    "sum": torch.sum, "mean": torch.mean, "norm": torch.norm, "flatten": torch.flatten,
    "exp": torch.exp, "tanh": torch.tanh, "new": lambda x: x[None], "mask": lambda x: x[x > 0],
    "mse": lambda x: F.mse_loss(x, x + 1), "product": lambda x: x @ x.transpose(-1, -2),
    "turned": lambda x: x.transpose(-1, -2) @ x, "linear": lambda x: F.linear(x, x),
    "strided": lambda x: x.transpose(0, -1) * x.transpose(0, -1), "relu": torch.relu,
    "expand": lambda x: x.expand(4, *x.shape) * 2, "div": lambda x: 1 / (abs(x) + 1),
}  # fmt: skip


def _outcome(compute, x):
    try:
        result = compute(x)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        return error
    return result.decode() if isinstance(result, PositTensor) else result.double()


def _check_outcome(compute, plain, ours, tolerance):
    wanted = _outcome(compute, plain)
    if not isinstance(wanted, Exception):
        result = _outcome(compute, ours)
        assert not isinstance(result, Exception), repr(result)
        torch.testing.assert_close(result, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.filterwarnings("ignore:Using a target size", "ignore:.*degrees of freedom")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@mostly_slow(
    "posit_path, mode, fmt",
    itertools.product(("native", "torch"), ("sequential", "quire"), FORMATS),
    lambda path, mode, fmt: (
        path == "native" or (mode, fmt.n) in (("sequential", 16), ("quire", 32))
    ),
    indirect=["posit_path"],
    ids=str,
)
def test_function_of_any_size_has_torchs_shape_and_values(fmt, shape, mode, posit_path):
    generator = torch.Generator().manual_seed(1)
    ours = PositTensor(torch.randn(shape, generator=generator, dtype=torch.float64), fmt)
    plain, tolerance = ours.decode(), 0.5 if fmt.n == 8 else 2e-2
    reach = max(1, len(shape))
    with posit.accumulation(mode):
        for compute in WHOLE.values():
            _check_outcome(compute, plain, ours, tolerance)
        for compute, dim in itertools.product(ALONG.values(), range(-reach, reach)):
            _check_outcome(lambda x, c=compute, d=dim: c(x, d), plain, ours, tolerance)


PRODUCTS = [
    ((3,), (3, 2)), ((2, 3), (3,)), ((3,), (3,)), ((0,), (0, 2)), ((2, 0), (0,)), ((0,), (0,)),
    ((2, 0, 3), (3, 4)), ((2, 3), (3, 0)), ((2, 0), (0, 3)), ((0, 2, 3), (3, 4)),
    ((0, 2, 3), (3,)), ((5, 2, 3), (1, 3, 0)), ((1, 2, 0), (5, 0, 3)), ((2, 3), (0, 3, 4)),
    ((3,), (0, 3, 2)), ((2, 1, 3), (2, 3, 1)),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["sequential", "quire"])
@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
def test_product_of_any_sizes_has_torchs_shape_values_and_gradients(shapes, mode, posit_path):
    generator = torch.Generator().manual_seed(2)
    ours = [
        PositTensor(torch.randn(s, generator=generator), FORMATS[0], requires_grad=True)
        for s in shapes
    ]
    plain = [x.decode().requires_grad_() for x in ours]
    with posit.accumulation(mode):
        result = torch.matmul(*ours)
        result.sum().backward()
    wanted = torch.matmul(*plain)
    wanted.sum().backward()
    torch.testing.assert_close(result.detach().decode(), wanted.detach(), rtol=2e-2, atol=2e-2)
    for x, y in zip(ours, plain, strict=True):
        torch.testing.assert_close(x.grad.decode(), y.grad, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("batch", [0, 2])
def test_layers_of_an_empty_batch_have_torchs_shapes_and_gradients(batch, posit_path):
    torch.manual_seed(3)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
        torch.nn.Linear(16, 3),
    )  # fmt: skip
    x = torch.randn(batch, 2, 6, 6)
    wanted = network(x)
    wanted.sum().backward()
    gradients = [p.grad.clone() for p in network.parameters()]
    network = posit.convert(network, FORMATS[2])
    network.zero_grad()
    result = network(PositTensor(x, FORMATS[2]))
    assert result.shape == wanted.shape
    torch.testing.assert_close(
        result.detach().decode(), wanted.detach().double(), atol=1e-5, rtol=1e-5
    )
    result.sum().backward()
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad.decode(), gradient.double(), atol=1e-5, rtol=1e-5)


def test_shape_changed_in_place_keeps_values_and_format():
    x = PositTensor(torch.randn(1, 3), FORMATS[0])
    values = x.decode()
    assert torch.equal(x.squeeze_(0).decode(), values[0]) and x.fmt == FORMATS[0]
    assert torch.equal(x.unsqueeze_(1).decode(), values.mT)
    assert torch.equal(x.t_().decode(), values) and isinstance(x, PositTensor)


LAYERS_OF_EMPTY_BATCHES = {
    "layer norm": (torch.nn.LayerNorm(4), (0, 3, 4)),
    "group norm": (torch.nn.GroupNorm(2, 4), (0, 4, 3)),
    "batch norm": (torch.nn.BatchNorm2d(4).eval(), (0, 4, 3, 3)),
    "1-d": (torch.nn.Conv1d(2, 3, 3), (0, 2, 6)),
    "3-d": (torch.nn.Conv3d(2, 3, 3), (0, 2, 5, 5, 5)),
    "transposed": (torch.nn.ConvTranspose2d(2, 3, 3, stride=2), (0, 2, 4, 4)),
    "adaptive pool": (
        torch.nn.Sequential(torch.nn.Conv2d(2, 2, 1), torch.nn.AdaptiveAvgPool2d(2)),
        (0, 2, 5, 5),
    ),
    "linear": (torch.nn.Linear(4, 5), (0, 3, 4)),
    "LSTM": (torch.nn.LSTM(4, 5, batch_first=True), (0, 3, 4)),
    "encoder": (torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), (0, 3, 8)),
    "embedding": (torch.nn.Embedding(7, 4), (0, 3)),
}


@pytest.mark.parametrize("layer", LAYERS_OF_EMPTY_BATCHES)
def test_layer_of_an_empty_batch_has_torchs_shape_and_zero_gradients(layer):
    module, shape = LAYERS_OF_EMPTY_BATCHES[layer]
    indices = layer == "embedding"
    x = torch.zeros(shape, dtype=torch.long) if indices else torch.zeros(shape)
    wanted = module(x)
    network = posit.convert(copy.deepcopy(module), FORMATS[2])
    result = network(x if indices else PositTensor(x, FORMATS[2]))
    if isinstance(wanted, tuple):
        wanted, result = wanted[0], result[0]
    assert result.shape == wanted.shape
    result.sum().backward()
    for parameter in network.parameters():
        assert not parameter.grad.decode().any()


REDUCTIONS = {
    **{
        name: lambda x, d, n=name: getattr(x, n)(dim=d)
        for name in ("sum", "mean", "std", "var", "norm", "nansum", "logsumexp", "amax")
    },
    "std_mean": lambda x, d: torch.std_mean(x, d),
    "prod": lambda x, d: x.prod(d[0]),
    "softmax": lambda x, d: x.softmax(d[0]),
    "cumsum": lambda x, d: x.cumsum(d[0]),
    "cumprod": lambda x, d: x.cumprod(d[0]),
    "logcumsumexp": lambda x, d: x.logcumsumexp(d[0]),
    "renorm": lambda x, d: x.renorm(2, d[0], 1.0),
}


@pytest.mark.parametrize("reduce", REDUCTIONS.values(), ids=REDUCTIONS)
@pytest.mark.parametrize("shape", [(), (0, 3), (4,), (2, 3)], ids=str)
def test_posit_dimensions_out_of_range_are_torchs_errors(reduce, shape):
    ours = PositTensor(torch.ones(shape), FORMATS[0])
    for dims in ((5,), (-4,), (2,)):
        for x in (ours, ours.decode()):
            with pytest.raises((IndexError, RuntimeError)):
                reduce(x, dims)


@pytest.mark.parametrize("name", ["sum", "mean", "var", "norm", "amax"])
def test_posit_repeated_dimensions_are_refused_where_torch_refuses_them(name):
    x = PositTensor(torch.ones(3), FORMATS[0])
    with pytest.raises(RuntimeError):
        REDUCTIONS[name](x, (0, -1))
    with pytest.raises(RuntimeError, match="trace needs a matrix"):
        x.expand(2, 3, 3).trace()


def test_posit_median_of_an_expanded_tensor_is_that_of_its_rows():
    x = PositTensor(torch.tensor([-5.0, -0.0625, 1.0, -1.5]), FORMATS[0]).expand(2, 4)
    for name in ("median", "nanmedian"):
        values, indices = getattr(x, name)(0)
        assert values.tolist() == x[0].tolist() and not indices.any()


@pytest.mark.parametrize("dim", [0, -1])
def test_posit_logcumsumexp_is_the_logsumexp_up_to_each_place(dim):
    x = PositTensor(torch.randn(4, 5, generator=torch.Generator().manual_seed(2)) * 6, FORMATS[0])
    ours = x.logcumsumexp(dim)
    for k in range(x.shape[dim]):
        part = x.narrow(dim, 0, k + 1).logsumexp(dim)
        assert torch.equal(ours.select(dim, k).codes(), part.codes())
    torch.testing.assert_close(ours.decode(), x.decode().logcumsumexp(dim), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("fmt", [PositFormat(16, 2), PositFormat(32, 2), PositFormat(8, 0)])
def test_posit_logsumexp_of_hidden_scores_alone_is_minus_maxpos(fmt):
    hidden = PositTensor(torch.full((2, 3), -fmt.maxpos, dtype=torch.float64), fmt)
    assert hidden.logsumexp(1).tolist() == [-fmt.maxpos] * 2
    assert hidden.logcumsumexp(0).tolist() == [[-fmt.maxpos] * 3] * 2
    partly = torch.where(torch.tensor([[False] * 3, [True, False, False]]), hidden * 0, hidden)
    assert partly.logsumexp(1).tolist() == [-fmt.maxpos, 0]


def test_posit_gradient_of_logcumsumexp_sums_shares_of_later_places():
    fmt, draw = PositFormat(32, 2), torch.Generator().manual_seed(4)
    x, g = (torch.randn(3, 5, generator=draw, dtype=torch.float64) for _ in range(2))
    p = PositTensor(x, fmt, requires_grad=True)
    p.logcumsumexp(1).backward(PositTensor(g, fmt))
    # d y_i / d x_j = exp(x_j - y_i) for j <= i
    y = torch.stack([x[:, : k + 1].exp().sum(1).log() for k in range(5)], 1)
    shares = (x.unsqueeze(1) - y.unsqueeze(2)).exp().tril()
    wanted = (g.unsqueeze(2) * shares).sum(1)
    torch.testing.assert_close(p.grad.decode(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", [torch.tensor(1), torch.tensor([1])])
@pytest.mark.parametrize("shape", [(), (1,), (4,)])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_posit_multi_margin_loss_of_one_sample_has_the_shape_of_its_target(
    target, shape, reduction
):
    target = target * (1 if shape == (4,) else 0)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    p = PositTensor(x, PositFormat(32, 2), requires_grad=True)
    plain = p.detach().decode().requires_grad_()
    if not shape and target.dim() and reduction == "none":
        pytest.skip("torch refuses a target of one dimension here")
    ours, theirs = (F.multi_margin_loss(t, target, reduction=reduction) for t in (p, plain))
    torch.testing.assert_close(ours.decode(), theirs)
    ours.sum().backward()
    theirs.sum().backward()
    torch.testing.assert_close(p.grad.decode(), plain.grad)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_posit_pooling_to_no_or_from_no_elements_follows_torch(dims):
    pool = getattr(torch.nn.functional, f"adaptive_avg_pool{dims}d")
    x = torch.ones(2, 3, *[4] * dims)
    assert pool(PositTensor(x, FORMATS[0]), 0).shape == pool(x, 0).shape
    with pytest.raises(PositError, match="no elements"):
        pool(PositTensor(x[:, :, :0], FORMATS[0]), 2)


@pytest.mark.parametrize(
    "groups, stride, message",
    [(0, 1, "in 0 groups"), (2, 1, r"\(2, 3, 4, 4, 4\)"), (1, 0, "at least 1, not"), (1, -1, "-1")],
)
def test_posit_volume_convolution_that_cannot_be_names_torchs_arguments(groups, stride, message):
    x, weight = (PositTensor(torch.ones(2, 3, *[n] * 3), FORMATS[0]) for n in (4, 2))
    with pytest.raises(PositError, match=message):
        torch.conv3d(x, weight, None, stride, 0, 1, groups)
