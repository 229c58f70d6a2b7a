"""Batch-norm with frozen statistics: folded into the layer before, and compiled with the layer."""

import pytest
import torch

import trainwright
import trainwright.nn as tnn

pytestmark = pytest.mark.usefixtures("first_programs")

NUMBERS = "factor=fixed(12),activation=fixed(16)"


class Block(torch.nn.Module):
    """Residual block of two convolutions, each with a batch-norm."""

    def __init__(self, channels=8):
        super().__init__()
        self.enter = torch.nn.Conv2d(3, channels, 3, padding=1)
        self.norm0 = torch.nn.BatchNorm2d(channels)
        self.conv1 = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = torch.nn.BatchNorm2d(channels, affine=False)
        self.conv2 = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = torch.nn.BatchNorm2d(channels)

    def forward(self, x):
        x = torch.relu(self.norm0(self.enter(x)))
        y = torch.relu(self.norm1(self.conv1(x)))
        return self.norm2(self.conv2(y)) + x


def statistics(model, seed=0):
    """Give every batch-norm statistics, scales and shifts of its own for each channel."""
    generator = torch.Generator().manual_seed(seed)
    for norm in model.modules():
        if isinstance(norm, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
            norm.running_mean.normal_(0, 0.5, generator=generator)
            norm.running_var.uniform_(0.2, 3, generator=generator)
            if norm.affine:
                torch.nn.init.uniform_(norm.weight, -2, 2, generator=generator)
                torch.nn.init.normal_(norm.bias, generator=generator)
    return model.eval()


def test_fold_of_frozen_norms_keeps_the_results():
    torch.manual_seed(0)
    mlp = torch.nn.Sequential(
        torch.nn.Linear(6, 5, bias=False), torch.nn.BatchNorm1d(5), torch.nn.ReLU(),
        torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Tanh(),
        torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3, affine=False),
    )  # fmt: skip
    for model, x in ((mlp, torch.randn(7, 6)), (Block(), torch.randn(2, 3, 9, 9))):
        statistics(model)
        folded = tnn.fold_batch_norm(model)
        torch.testing.assert_close(folded(x), model(x), rtol=1e-4, atol=1e-5)
        kinds = {type(part).__name__ for part in folded.modules()}
        assert "Identity" in kinds and not {"BatchNorm1d", "BatchNorm2d"} & kinds
        assert any(isinstance(part, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d)
                   for part in model.modules())  # fmt: skip


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_bias_that_a_fold_adds_to_a_layer_trains_as_the_norm_did(affine, trains):
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, bias=False), torch.nn.BatchNorm2d(8, affine=affine),
        torch.nn.Flatten(), torch.nn.Linear(8, 4, bias=False), torch.nn.BatchNorm1d(4),
    )  # fmt: skip
    folded = tnn.fold_batch_norm(model.eval().requires_grad_(trains))
    assert [p.requires_grad for p in folded.parameters()] == [trains] * 4


def test_compiled_residual_block_with_frozen_batch_norm_is_near_float():
    """Compile the block to one program; outputs are within 2 % of float, gradients within 5 %."""
    torch.manual_seed(1)
    model = statistics(Block(), 1)
    tt = tnn.from_torch(tnn.fold_batch_norm(model), rank=72, numbers=NUMBERS, tolerance=1e-6)
    compiled = trainwright.compile(tt, batch=4)
    x, weights = torch.randn(4, 3, 8, 8), torch.randn(4, 8, 8, 8)
    compiled(x)  # exponents are chosen
    assert len(compiled.chains) == 1
    y, real = compiled(x), model(x)
    assert (y - real).norm() < 0.02 * real.norm()
    inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    for net, given in zip((compiled.train(), model), inputs, strict=True):
        for _ in range(2):  # the first step chooses exponents
            given.grad = None
            (net(given) * weights).sum().backward()
    assert (inputs[0].grad - inputs[1].grad).norm() < 0.05 * inputs[1].grad.norm()


@pytest.mark.parametrize(
    ("model", "message"),
    (
        (torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)),
         "1: statistics follow each batch; freeze them first"),
        (torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.BatchNorm2d(2)),
         "2: a BatchNorm2d is folded into a Conv2d that it alone reads"),
        (torch.nn.Sequential(tnn.TTLinear(4, 4), torch.nn.BatchNorm1d(4)).eval(),
         "1: a BatchNorm1d is folded into a Linear .*: fold before from_torch"),
        (torch.nn.Sequential(torch.nn.Linear(4, 4),
                             torch.nn.BatchNorm1d(4, track_running_stats=False)).eval(),
         "statistics follow each batch"),
    ),
    ids=("training", "behind a ReLU", "behind a train", "no statistics"),
)  # fmt: skip
def test_batch_norm_that_cannot_be_folded_is_one_error(model, message):
    with pytest.raises(ValueError, match=message):
        tnn.fold_batch_norm(model)


def test_shared_layer_before_a_batch_norm_is_not_folded():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)

        def forward(self, x):
            return self.norm(self.layer(self.layer(x)))

    with pytest.raises(ValueError, match=r"norm: .* each called once"):
        tnn.fold_batch_norm(Twice().eval())
