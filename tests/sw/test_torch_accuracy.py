"""Networks of tensor trains on real data reach what dense float32 networks of torch reach."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_sample_images
from slowly import mostly_slow

import trainwright
import trainwright.nn as tnn
from trainwright.data import load_data_set

pytestmark = pytest.mark.usefixtures("first_programs")

cross_entropy = torch.nn.functional.cross_entropy


def _trained(model, x, y, *, epochs, rate, batch=64):
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(epochs):
        for part in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            cross_entropy(model(x[part]), y[part]).backward()
            optimizer.step()
    return model.eval()


def _accuracy(model, x, y):
    return float((model(x).argmax(1) == y).float().mean())


def test_torch_accuracy_mlp_on_a_table_of_signed_features():
    """Breast cancer: 30 standardised features, 2 classes, three seeds.

    The means differ by at most 2.5 points of 142 test samples, of which one is 0.7.
    """
    features, labels = load_breast_cancer(return_X_y=True)
    features = (features - features.mean(0)) / features.std(0)
    x, y = torch.from_numpy(features).float(), torch.from_numpy(labels)
    accuracies = {"dense": [], "golden": []}
    for seed in range(3):
        order = torch.from_numpy(np.random.RandomState(seed).permutation(len(x)))
        train, test = order[142:], order[:142]
        for kind in accuracies:
            torch.manual_seed(seed)
            model = torch.nn.Sequential(
                torch.nn.Linear(30, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)
            )
            if kind == "golden":
                model = torch.nn.Sequential(
                    tnn.TTLinear(30, 32, rank=8), torch.nn.ReLU(),
                    tnn.TTLinear(32, 2, rank=8, relu=False),
                )  # fmt: skip
                model = trainwright.compile(model, batch=64)
            model = _trained(model, x[train], y[train], epochs=8, rate=1e-2)
            accuracies[kind].append(_accuracy(model, x[test], y[test]))
    dense, golden = (float(np.mean(accuracies[kind])) for kind in ("dense", "golden"))
    assert dense > 0.95 and golden > dense - 0.025, accuracies


@pytest.mark.slow  # "hybrid on pictures" trains a convolution in the default suite
@pytest.mark.parametrize("seed", range(3))
def test_torch_accuracy_convolutional_network(seed):
    """`digits`: two TT convolutions, averages and a TT head, one program of the golden model.

    The accuracy is at most 3 points of 360 samples below a dense float32 network of the same shape.
    """
    data = load_data_set("digits")
    x, tx = (
        torch.from_numpy(split.images / data.full_scale).float()[:, None]
        for split in (data.train, data.test)
    )
    y, ty = (torch.from_numpy(split.labels).long() for split in (data.train, data.test))
    accuracy = {}
    for kind in ("dense", "tt"):
        torch.manual_seed(seed)
        if kind == "dense":
            conv, last = torch.nn.Conv2d, torch.nn.Linear(128, 10)
        else:
            conv, last = tnn.TTConv2d, tnn.TTLinear((32, 2, 2), 10, relu=False)
        model = torch.nn.Sequential(
            conv(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.AvgPool2d(2),
            conv(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.AvgPool2d(2),
            torch.nn.Flatten(), last,
        )  # fmt: skip
        if kind == "tt":
            model = trainwright.compile(model, batch=64)
            assert {layer.where for layer in model.report().layers} == {"program 1"}
        model = _trained(model, x, y, epochs=8, rate=5e-3)
        accuracy[kind] = _accuracy(model, tx, ty)
    assert accuracy["dense"] > 0.85 and accuracy["tt"] > accuracy["dense"] - 0.03, accuracy


class _TwoHeads(torch.nn.Module):
    """Heads for one value and one logit of a table of 10 features."""

    def __init__(self, linear):
        super().__init__()
        self.body = linear(10, 32)
        self.value, self.above = linear(32, 1), linear(32, 1)

    def forward(self, x):
        h = torch.relu(self.body(x))
        return self.value(h)[:, 0], self.above(h)[:, 0]


@pytest.mark.slow
def test_torch_accuracy_regression_with_a_second_head():
    """Diabetes: progression, and whether it is above average; six seeds.

    342 samples explain 0.45 of the variance of 100 others, with a deviation of 0.08 over seeds: the
    means of twelve seeds differ by 0.052, those of these six by 0.066.
    """
    features, targets = load_diabetes(return_X_y=True)
    x = torch.from_numpy(features / features.std(0)).float()
    y = torch.from_numpy((targets - targets.mean()) / targets.std()).float()
    scores = {"dense": [], "golden": []}
    for seed in range(6):
        order = torch.from_numpy(np.random.RandomState(seed).permutation(len(x)))
        train, test = order[100:], order[:100]
        for kind in scores:
            torch.manual_seed(seed)
            if kind == "dense":
                model = _TwoHeads(torch.nn.Linear)
            else:
                model = _TwoHeads(lambda i, o: tnn.TTLinear(i, o, rank=8, relu=i == 10))
                model = trainwright.compile(model, batch=64)
                assert len(model.chains) == 1
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
            for _ in range(6):
                for part in train[torch.randperm(len(train))].split(64):
                    value, above = model(x[part])
                    loss = torch.nn.functional.mse_loss(value, y[part])
                    loss = loss + torch.nn.functional.binary_cross_entropy_with_logits(
                        above, (y[part] > 0).float()
                    )
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            with torch.no_grad():
                value, above = model.eval()(x[test])
            right = float(((above > 0) == (y[test] > 0)).float().mean())
            explained = 1 - float((value - y[test]).square().mean() / y[test].var())
            scores[kind].append((explained, right))
    dense, golden = (np.mean(scores[kind], axis=0) for kind in ("dense", "golden"))
    assert dense[0] > 0.35 and golden[0] > dense[0] - 0.08, scores
    assert dense[1] > 0.65 and golden[1] > dense[1] - 0.05, scores


@mostly_slow("seed", range(3), quick=[0])
def test_torch_accuracy_hybrid_on_pictures_in_colour(seed):
    """Patches of 8 x 8 pixels, signed RGB, of scikit-learn's two photographs: which one is it?

    A torch convolution and a TT head on the accelerator; at most 3 points of 1,000 patches (each
    has a deviation of a point) below the same network in float32.
    """
    random = np.random.RandomState(seed)
    patches, labels = [], []
    for label, photograph in enumerate(load_sample_images().images):
        whole = photograph.astype(np.float32).transpose(2, 0, 1) / 127.5 - 1
        for _ in range(1250):
            row, column = (random.randint(size - 8) for size in whole.shape[1:])
            patches.append(whole[:, row : row + 8, column : column + 8])
            labels.append(label)
    order = torch.from_numpy(random.permutation(len(patches)))
    x, y = torch.from_numpy(np.stack(patches))[order], torch.tensor(labels)[order]
    accuracy = {}
    for kind in ("dense", "golden"):
        torch.manual_seed(seed)
        first = torch.nn.Conv2d(3, 16, 3, stride=2, padding=1)
        if kind == "dense":
            head = torch.nn.Linear(256, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
        else:
            last = tnn.TTLinear(64, 2, rank=8, relu=False)
            head = tnn.TTLinear(256, 64, rank=8), torch.nn.ReLU(), last
        model = torch.nn.Sequential(first, torch.nn.ReLU(), torch.nn.Flatten(), *head)
        if kind == "golden":
            model = trainwright.compile(model, batch=64)
        model = _trained(model, x[1000:], y[1000:], epochs=3, rate=5e-3)
        accuracy[kind] = _accuracy(model, x[:1000], y[:1000])
    assert accuracy["dense"] > 0.85 and accuracy["golden"] > accuracy["dense"] - 0.03, accuracy


@mostly_slow("seed", range(6), quick=[0])
def test_untrained_mlp_converted_at_rank_two_learns_digits(seed):
    data = load_data_set("digits")
    (x, y), (tx, ty) = (
        (
            torch.from_numpy(split.images / data.full_scale).float().flatten(1),
            torch.from_numpy(split.labels).long(),
        )
        for split in (data.train, data.test)
    )
    torch.manual_seed(seed)
    mlp = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64), torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    )  # fmt: skip
    model = _trained(trainwright.from_torch(mlp, rank=2), x, y, epochs=4, rate=1e-2)
    assert _accuracy(model, tx, ty) > 0.8
