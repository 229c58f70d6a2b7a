"""ResNet-18, encoders and recurrent networks, unmodified, train in posits as in float32."""

import copy

import pytest
import torch
from torch import nn

from trainwright import posit
from trainwright.posit import PositFormat, PositTensor
from trainwright.posit.rounding import round_to

P16 = PositFormat(16, 2)


class BasicBlock(nn.Module):
    """Residual block of ResNet-18."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += identity
        return self.relu(y)


class ResNet18(nn.Module):
    """ResNet-18 for images of CIFAR; ``width`` channels in front, 64 in the paper."""

    def __init__(self, width=64, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        blocks, inputs = [], width
        for outputs, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
            blocks += [BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1)]
            inputs = outputs
        self.layers = nn.Sequential(*blocks)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.layers(self.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Encoder(nn.Module):
    """Language model of ``nn.TransformerEncoder`` with causal and padding masks."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(12, 16, padding_idx=0), nn.Embedding(8, 16)
        layer = nn.TransformerEncoderLayer(
            16, 4, 32, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16))
        self.head = nn.Linear(16, 12)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        causal = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        padding = torch.zeros(tokens.shape).masked_fill(tokens == 0, float("-inf"))
        y = self.encoder(x, mask=causal, src_key_padding_mask=padding)
        return self.head(y).flatten(0, 1)


class Reader(nn.Module):
    """LSTM over packed sequences, read at the end of each."""

    def __init__(self):
        super().__init__()
        self.tokens, self.lstm = nn.Embedding(12, 8), nn.LSTM(8, 16, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, tokens):
        lengths = (tokens != 0).sum(1)
        packed = nn.utils.rnn.pack_padded_sequence(
            self.tokens(tokens), lengths, batch_first=True, enforce_sorted=False
        )
        _, (h, _) = self.lstm(packed)
        return self.head(h[-1])


def losses(model, x, labels, optimiser, steps):
    """Train on one batch, clipping gradients; return the loss of each step."""
    values = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        values.append(loss.item())
    return values


def compared(model, x, labels, make, steps, *, fmt=P16, **train):
    """Train a model in posits and in float32; return both lists of losses, and the posit model."""
    floats, posits = copy.deepcopy(model), posit.convert(copy.deepcopy(model), fmt)
    given = PositTensor(x, fmt) if x.is_floating_point() else x
    got = losses(posits, given, labels, make(posits.parameters()), steps)
    want = losses(floats, x, labels, make(floats.parameters()), steps)
    for value in posits.state_dict().values():
        if value.is_floating_point():
            assert isinstance(value, PositTensor)
            assert torch.equal(round_to(value.values(), fmt), value.values())
    return got, want, posits


def close(got, want, slack):
    assert got[-1] < 0.7 * got[0]
    assert max(abs(a - b) for a, b in zip(got, want, strict=True)) < slack


@pytest.mark.parametrize(
    ("width", "batch"), [(4, 4), pytest.param(64, 8, marks=pytest.mark.slow)], ids=str
)
def test_resnet_18_on_cifar_images_trains_as_in_float32(width, batch):
    torch.manual_seed(0)
    x, labels = torch.randn(batch, 3, 32, 32), torch.arange(batch) % 10
    got, want, model = compared(
        ResNet18(width), x, labels, lambda p: torch.optim.SGD(p, 0.05, momentum=0.9), 4
    )
    close(got, want, 0.15)
    model.eval()
    with torch.no_grad():
        assert model(PositTensor(x, P16)).isfinite().all()


def sequences():
    torch.manual_seed(0)
    tokens = torch.randint(1, 12, (6, 8))
    tokens[0, 6:], tokens[1, 3:] = 0, 0
    return tokens


def test_transformer_encoder_with_masks_trains_as_in_float32():
    tokens = sequences()
    labels = tokens.roll(-1, 1).masked_fill(tokens == 0, -100).flatten()
    got, want, model = compared(Encoder(), tokens, labels, lambda p: torch.optim.AdamW(p, 0.02), 20)
    close(got, want, 0.15)
    # A token changes nothing before it, nor does what stands after the end: not even a bit.
    model.eval()
    changed = tokens.clone()
    changed[:, 5] = 11
    with torch.no_grad():
        before, after = (model(t).unflatten(0, (6, 8)) for t in (tokens, changed))
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[2:, 5:], after[2:, 5:])


def test_lstm_of_packed_sequences_trains_as_in_float32():
    got, want, _ = compared(
        Reader(), sequences(), torch.arange(6) % 4, lambda p: torch.optim.Adam(p, 0.05), 20
    )
    close(got, want, 0.1)


def test_layers_evaluate_to_the_same_bits_without_gradients():
    """Torch has fused paths for evaluation, which would compute in floats."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = posit.convert(nn.TransformerEncoder(layer, 2), P16).eval()
    x, hidden = PositTensor(torch.randn(2, 5, 8), P16), torch.zeros(2, 5, dtype=torch.bool)
    hidden[1, 3:] = True
    for mask in (None, hidden):
        y = model(x, src_key_padding_mask=mask)
        with torch.no_grad():
            assert torch.equal(model(x, src_key_padding_mask=mask), y)
        with torch.inference_mode():
            assert torch.equal(model(x, src_key_padding_mask=mask), y)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.LSTM(3, 4, 2, batch_first=True), (2, 3, 3)),
        (lambda: nn.GRU(3, 4, bidirectional=True), (2, 3, 3)),
        (lambda: nn.Sequential(nn.Conv1d(3, 4, 2), nn.MaxPool1d(2)), (2, 3, 5)),
        (lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 2), nn.AdaptiveAvgPool2d(2)), (2, 3, 3, 3)),
        (lambda: nn.Sequential(nn.Linear(3, 4), nn.GroupNorm(2, 4), nn.GELU()), (5, 3)),
        (lambda: nn.Upsample(scale_factor=2), (2, 3, 3)),
        (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 1, 3, 3)),
    ],
)
def test_inference_mode_gives_the_same_bits(make, shape):
    """Torch then hands whole functions to tensors, not the operators that they consist of."""
    torch.manual_seed(0)
    model, x = posit.convert(make(), P16), PositTensor(torch.randn(shape), P16)
    with torch.inference_mode():
        y = model(x)
    want = model(x)
    y, want = (t[0] if isinstance(t, tuple) else t for t in (y, want))
    assert torch.equal(y.values(), want.values())


def test_batch_norm_of_mixed_precision_keeps_statistics_in_the_computing_format():
    narrow = PositFormat(8, 2)
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.SiLU())
    model = posit.convert(model, {"": posit.Mixed(P16, narrow)})
    y = model(PositTensor(torch.randn(3, 2, 6), narrow))
    y.backward(PositTensor(torch.randn(y.shape), narrow))
    assert y.fmt == narrow == model[1].running_var.fmt
    assert model[0].parametrizations.weight.original.grad.fmt == P16
