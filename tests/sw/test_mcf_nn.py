"""Layers and optimisers of multi-component floats, beside torch's own in float64."""

import copy

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from trainwright import mcf
from trainwright.mcf.nn import (
    MCGELU,
    MCSGD,
    MCAdam,
    MCEmbedding,
    MCLinear,
    MCReLU,
    MCSequential,
    MCSoftmax,
)


def twins(optimiser, peer, dtype=torch.float32, nc=2, steps=5, **options):
    """Fit a regression by ours and by torch in float64; return both final weights."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(20, 3, generator=g).to(dtype)
    y = torch.randn(20, 2, generator=g).to(dtype)
    ours = MCLinear(3, 2, dtype=dtype, nc=nc)
    theirs = nn.Linear(3, 2, dtype=torch.float64)
    theirs.load_state_dict({k: v.to_float64() for k, v in ours.named_parameters()})
    first, second = optimiser(ours.parameters(), **options), peer(theirs.parameters(), **options)
    for _ in range(steps):
        first.zero_grad()
        torch.nn.functional.mse_loss(ours(x), y).backward()
        second.zero_grad()
        torch.nn.functional.mse_loss(theirs(x.double()), y.double()).backward()
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            q.grad.copy_(p.grad)  # the same gradients: only the update is compared
        first.step()
        second.step()
    return ours, theirs


@pytest.mark.parametrize(
    "optimiser, peer, options",
    [
        (MCSGD, torch.optim.SGD, {"lr": 0.05}),
        (MCSGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
        (MCSGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
        (MCSGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.8, "dampening": 0.2, "maximize": True}),
        (MCAdam, torch.optim.Adam, {"lr": 0.01}),
        (MCAdam, torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True}),
        (MCAdam, torch.optim.Adam, {"lr": 0.01, "betas": (0.5, 0.9), "maximize": True}),
    ],
)
def test_updates_are_those_of_torch_in_float64(optimiser, peer, options):
    ours, theirs = twins(optimiser, peer, **options)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        # five steps of a few operations of 2^-48 each
        assert (p.to_float64() - q).abs().max() <= 2.0**-42 * q.abs().max()


def test_float16_holds_updates_that_one_component_loses():
    small = {}
    for nc in (1, 2):
        p = nn.Parameter(mcf.tensor([1.0], nc=nc, dtype=torch.float16))
        optimiser = MCSGD([p], lr=1e-4)
        p.grad = torch.ones(1, dtype=torch.float16)
        for _ in range(10):
            optimiser.step()
        small[nc] = p.to_float64().item()
    assert small[1] == 1.0
    assert small[2] == pytest.approx(1 - 1e-3, abs=10 * 2.0**-25)


@pytest.mark.parametrize("options", [{"lr": -1}, {"momentum": -0.1}, {"nesterov": True}])
def test_mcf_nn_sgd_rejects_bad_arguments(options):
    with pytest.raises(ValueError, match="not"):
        MCSGD(MCLinear(1, 1).parameters(), **options)


def test_mcf_nn_adam_rejects_bad_arguments():
    with pytest.raises(ValueError, match=r"betas\[1\]"):
        MCAdam(MCLinear(1, 1).parameters(), betas=(0.9, 1.0))


def test_layers_begin_as_torchs_do_and_compute_as_they_do():
    torch.manual_seed(3)
    ours = MCSequential(MCEmbedding(7, 4), MCLinear(4, 5), MCGELU(), MCReLU(), MCSoftmax(-1))
    torch.manual_seed(3)
    theirs = nn.Sequential(
        nn.Embedding(7, 4), nn.Linear(4, 5), nn.GELU(), nn.ReLU(), nn.Softmax(-1)
    ).double()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        q.data.copy_(p.to_float64())
    at = torch.tensor([[1, 2, 6], [0, 1, 1]])
    y, want = ours(at), theirs(at)
    assert y.nc == 2 and (y.to_float64() - want).abs().max() < 2.0**-45
    y[..., 0].sum().backward()
    want[..., 0].sum().backward()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(p.grad.double(), q.grad, rtol=1e-4, atol=1e-6)


def test_state_goes_through_safetensors():
    model = MCSequential(MCLinear(3, 2, nc=3), MCLinear(2, 1, bias=False, nc=3))
    with torch.no_grad():
        model[0].weight.add_(mcf.tensor(torch.rand(2, 3), nc=3) * 1e-9)
    stored = load(save(model.state_dict()))
    assert stored["0.weight"].shape == (2, 3, 3)
    other = MCSequential(MCLinear(3, 2, nc=3), MCLinear(2, 1, bias=False, nc=3))
    other.load_state_dict(stored)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(p.components, q.components)


def test_state_of_another_kind_loads_and_a_wrong_shape_is_an_error():
    plain = nn.Linear(3, 2)
    model = MCLinear(3, 2)
    model.load_state_dict(plain.state_dict())
    assert torch.equal(model.weight.fc, plain.weight) and not model.weight.components[..., 1].any()
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        MCLinear(2, 2).load_state_dict(plain.state_dict())
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict({"weight": plain.weight})


def test_optimiser_state_resumes_to_the_same_bits():
    model, _ = twins(MCAdam, torch.optim.Adam, lr=0.01)
    optimiser = MCAdam(model.parameters(), lr=0.01)
    x = torch.randn(4, 3)

    def step(net, opt):
        opt.zero_grad()
        net(x).square().sum().backward()
        opt.step()

    step(model, optimiser)
    twin = copy.deepcopy(model)
    again = MCAdam(twin.parameters(), lr=0.01)
    again.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    step(model, optimiser)
    step(twin, again)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p.components, q.components)


def test_mcf_nn_modules_convert():
    model = MCLinear(3, 2).to(torch.float64)
    assert model.weight.components.dtype is torch.float64 and isinstance(model.weight, nn.Parameter)
    assert model(torch.ones(1, 3, dtype=torch.float64)).dtype is torch.float64
