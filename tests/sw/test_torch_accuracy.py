"""Networks of tensor trains on real data reach what dense float32 networks of torch reach."""

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer

import trainwright
import trainwright.nn as tnn
from trainwright.data import load_data_set

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


def test_an_mlp_on_a_table_of_signed_features():
    """Breast cancer: 30 standardised features, 2 classes, three seeds. The means differ by at most
    2.5 points of 142 test samples, of which one is 0.7."""
    features, labels = load_breast_cancer(return_X_y=True)
    features = (features - features.mean(0)) / features.std(0)
    x, y = torch.from_numpy(features).float(), torch.from_numpy(labels)
    found = {"dense": [], "golden": []}
    for seed in range(3):
        order = torch.from_numpy(np.random.RandomState(seed).permutation(len(x)))
        train, test = order[142:], order[:142]
        for kind in found:
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
            found[kind].append(_accuracy(model, x[test], y[test]))
    dense, golden = (float(np.mean(found[kind])) for kind in ("dense", "golden"))
    assert dense > 0.95 and golden > dense - 0.025, found


def test_a_convolutional_network():
    """`digits`: two TT convolutions of 4-bit factors and a TT head on the accelerator against a
    dense float32 network of the same shape; at most 3 points of 360 samples below it."""
    data = load_data_set("digits")
    x, tx = (
        torch.from_numpy(split.images / data.full_scale).float()[:, None]
        for split in (data.train, data.test)
    )
    y, ty = (torch.from_numpy(split.labels).long() for split in (data.train, data.test))
    accuracy = {}
    for kind in ("dense", "tt"):
        torch.manual_seed(0)
        if kind == "dense":
            conv, head = torch.nn.Conv2d, torch.nn.Linear
        else:
            conv, head = tnn.TTConv2d, tnn.TTLinear
        model = torch.nn.Sequential(
            conv(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            conv(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Flatten(), head(128, 10),
        )  # fmt: skip
        if kind == "tt":
            model = trainwright.compile(model, batch=64)
            places = [layer.where for layer in model.report().layers]
            assert places[2] == "program 1" and "no TTConv2d" in places[0]
        model = _trained(model, x, y, epochs=6, rate=5e-3)
        accuracy[kind] = _accuracy(model, tx, ty)
    assert accuracy["dense"] > 0.93 and accuracy["tt"] > accuracy["dense"] - 0.03, accuracy
