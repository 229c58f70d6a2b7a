"""The MCTensor paper's experiments in small, what they compute, and their command."""

import importlib.util
import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from trainwright import mcf
from trainwright.cli import main
from trainwright.data import DataError
from trainwright.mcf.experiments import data, embedding, errors, hierarchy
from trainwright.mcf.experiments.halfspace import RiemannianSGD, distance, moved
from trainwright.mcf.experiments.learning import WIDE, train
from trainwright.mcf.experiments.tables import TABLES
from trainwright.support.tensor_file import CheckpointError

TREE = """id1,id2,weight
dog,canine,1
dog,mammal,1
canine,mammal,1
cat,mammal,1
wolf,canine,1
wolf,mammal,1
"""


@pytest.fixture
def tree(tmp_path):
    path = tmp_path / hierarchy.FILE
    path.parent.mkdir()
    path.write_text(TREE)
    return hierarchy.read(str(tmp_path))


def run(capsys, *arguments):
    status = main(["reproduce", "mctensor", *map(str, arguments)])
    return status, capsys.readouterr()


@pytest.mark.parametrize("name, epochs", [("table-6", 30), ("table-8", 40), ("table-2", 4)])
def test_two_components_of_float16_learn_as_float32_does(name, epochs):
    table = TABLES[name]
    loaded = table.load(None, 1234)
    task = replace(table.task, epochs=epochs)
    ways = ("float16", "float32", "mcf float16 nc=2", "mcf float16 nc=2" + WIDE)
    outcomes = {way: train(task, loaded, way) for way in ways}
    ends = {way: outcome.loss for way, outcome in outcomes.items()}
    # a gradient is of float16: every step's length is right to 2^-11 or better
    assert ends["mcf float16 nc=2"] == pytest.approx(ends["float32"], rel=2.0**-11)
    assert ends["mcf float16 nc=2" + WIDE] == pytest.approx(ends["float32"], rel=2.0**-18)
    assert all(len(outcome.losses) == epochs for outcome in outcomes.values())
    assert all(outcome.losses[-1] < outcome.losses[0] for outcome in outcomes.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table-7", "table-8", "table-2"])
def test_losses_match_to_the_digits_that_the_paper_prints(name):
    table = TABLES[name]
    loaded = table.load(None, 1234)
    outcomes = [train(table.task, loaded, way) for way in ("float32", "mcf float16 nc=2")]
    assert len({table.spelt(outcome.loss) for outcome in outcomes}) == 1


def test_regression_is_compared_while_float32_has_digits():
    """Table 6: after the last hundred of epochs at which float32's loss is still float64's."""
    table = TABLES["table-6"]
    loaded, at = table.load(None, 1234), table.compared
    task = replace(table.task, epochs=at + 100)
    whole = [train(table.task, loaded, way).losses for way in ("float32", "float64")]
    runs = [losses[: task.epochs] for losses in whole]
    runs.append(train(task, loaded, "mcf float16 nc=2").losses)
    assert len({table.spelt(losses[at - 1]) for losses in runs}) == 1
    assert all(losses[-1] < losses[at - 1] / 100 for losses in runs)
    later = (losses[at + 99 :: 100] for losses in whole)
    assert all(table.spelt(a) != table.spelt(b) for a, b in zip(*later, strict=True))


def test_dropped_activations_are_the_same_in_every_type():
    table = TABLES["table-11"]
    draw = np.random.default_rng(0)
    x = torch.from_numpy(draw.normal(0, 0.5, (96, 784)))
    y = torch.from_numpy(draw.integers(0, 10, 96))
    small = data.Data(x, y, x[:32], y[:32])
    task = replace(table.task, epochs=2, batch=32)
    first, again, other = (
        train(each, small, "mcf float16 nc=2") for each in (task, task, replace(task, dropout=0))
    )
    assert first == again
    assert first.losses != other.losses
    assert first.loss == pytest.approx(train(task, small, "float64").loss, rel=1e-3)


def test_data_sets_are_the_papers():
    assert data.regression().x.shape == (10_000, 2)
    assert data.synthetic().x.shape == (800, 2)
    breast = data.cancer()
    assert breast.x.shape == (455, 30) and breast.test_x.shape == (114, 30)
    assert breast.x.mean(0).abs().max() < 1e-12


def test_reduced_mnist_takes_as_many_of_every_digit(monkeypatch):
    from trainwright.data.dataset import DataSet, Split

    labels = np.repeat(np.arange(10, dtype=np.uint8), 12)
    images = np.full((120, 28, 28), 255, np.uint8)
    part = Split(images, labels)
    full = DataSet("mnist", part, part, 255, tuple("0123456789"))
    monkeypatch.setattr(data, "load_data_set", lambda name, folder: full)
    monkeypatch.setattr(data, "IMAGES_A_CLASS", 10)
    reduced = data.reduced_mnist(None)
    assert (
        reduced.y.bincount().tolist() == [8] * 10 and reduced.test_y.bincount().tolist() == [2] * 10
    )
    assert reduced.x.shape == (80, 784) and bool((reduced.x == 1).all())


def test_hyperbolic_distance_is_that_of_the_model():
    u = torch.tensor([[0.3, 0.5]], dtype=torch.float64)
    v = torch.tensor([[-1.0, 2.0]], dtype=torch.float64)
    want = math.acosh(1 + (1.3**2 + 1.5**2) / 2)
    assert distance(u, v).item() == pytest.approx(want, rel=1e-14)
    up = torch.tensor([[0.3, 8.0]], dtype=torch.float64)
    assert distance(u, up).item() == pytest.approx(math.log(16), rel=1e-14)


def test_distances_between_very_low_points_are_finite():
    """In float32 the square of t is out of range from heights of 1e-9 on."""
    ends = torch.tensor([[0.7, 1.4e-10], [-2.3, 5.7e-10], [1.1, 1e-15]], requires_grad=True)
    lengths = distance(ends[:1], ends[1:])
    lengths.sum().backward()
    want = distance(ends[:1].double(), ends[1:].double())
    assert torch.allclose(lengths.double(), want, rtol=1e-6) and ends.grad.isfinite().all()


def test_components_keep_distances_that_float64_loses():
    """Points 2^-60 apart at 1, high above the boundary by 2^-60: the distance is arcosh 1.5."""
    near = [[Fraction(1), 2.0**-60], [1 + Fraction(1, 2**60), 2.0**-60]]
    far = mcf.tensor(near, nc=2, dtype=torch.float64)
    assert distance(far[0], far[1]).item() == pytest.approx(math.acosh(1.5), rel=1e-13)
    plain = far.to_float64()
    assert distance(plain[0], plain[1]).item() < 1e-100


@pytest.mark.parametrize("direction", [(0.4, 1.1), (0.4, -1.1), (0.0, 0.7), (2.0, 0.0), (0.0, 0.0)])
def test_exponential_map_goes_as_far_as_the_step_is_long(direction):
    point = torch.tensor([[0.3, 0.5]], dtype=torch.float64)
    step = torch.tensor([direction], dtype=torch.float64)
    end = moved(point, step)
    assert distance(point, end).item() == pytest.approx(math.hypot(*direction), abs=1e-12)
    # Half of the way, then the other half in the direction of the geodesic, would be the same
    # point; that the first piece lies on the way is what the triangle's equality says.
    half = moved(point, step / 2)
    whole = distance(point, half) + distance(half, end)
    assert whole.item() == pytest.approx(math.hypot(*direction), abs=1e-12)
    ours = moved(mcf.tensor(point, nc=2), step)
    assert torch.allclose(ours.to_float64(), end, rtol=1e-14, atol=0)


def test_riemannian_steps_descend_and_stay_in_the_half_space():
    target = torch.tensor([[0.0, 2.0]], dtype=torch.float64)
    points = torch.nn.Parameter(mcf.tensor([[3.0, 1e-6]], nc=2, dtype=torch.float64))
    optimiser = RiemannianSGD([points], lr=0.5)
    before = distance(points, target).item()
    for _ in range(10):
        optimiser.zero_grad()
        distance(points, target).sum().backward()
        optimiser.step()
    # The gradient of a distance has the length 1: ten steps of a half.
    assert before - distance(points, target).item() == pytest.approx(5, rel=1e-9)


def test_reconstruction_counts_ranks_and_precision(tree):
    related = tree.related()
    place = {name: n for n, name in enumerate(tree.names)}
    perfect = torch.where(related, 1.0, 2.0)
    assert hierarchy.reconstruction(perfect, related) == hierarchy.Reconstruction(100.0, 1.0)
    worse = perfect.clone()
    worse[place["cat"], place["dog"]] = 0.5  # nearer than cat's only ancestor
    scores = hierarchy.reconstruction(worse, related)
    assert scores.map == pytest.approx(100 * (3 + 0.5) / 4)
    assert scores.mean_rank == pytest.approx((5 + 2) / 6)
    unknown = torch.full_like(perfect, torch.nan)  # all as far: all others come first
    own = related.sum(1)
    ranks = (own * (len(related) - own)).sum().item() / own.sum().item()
    assert hierarchy.reconstruction(unknown, related).mean_rank == pytest.approx(ranks)


def test_hierarchy_that_cannot_be_read(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="mammal_closure"):
        hierarchy.read(str(tmp_path))
    monkeypatch.delenv("TRAINWRIGHT_DATA", raising=False)
    with pytest.raises(DataError, match="TRAINWRIGHT_DATA"):
        hierarchy.read(None)


def test_negatives_are_no_ancestors(tree):
    settings = embedding.EmbeddingSettings("float64", negatives=20, batch=4)
    related = tree.related()
    batches = embedding.Examples(tree, settings).of_epoch(3)
    places = torch.cat(batches)
    assert len(batches) == 2 and places.shape == (6, 22)
    assert related[places[:, 0], places[:, 1]].all()
    nouns = places[:, :1].expand(-1, 20)
    assert not related[nouns, places[:, 2:]].any() and not (nouns == places[:, 2:]).any()
    assert not torch.equal(places, torch.cat(embedding.Examples(tree, settings).of_epoch(4)))


@pytest.mark.parametrize("way", ["float32", "mcf float64 nc=2"])
def test_mcf_experiments_embedding_that_was_interrupted_goes_on_as_if_it_had_not_been(
    tree, tmp_path, way
):
    settings = embedding.EmbeddingSettings(way, negatives=3, batch=2, slow_epochs=1)
    whole = embedding.train(tree, settings, 6)
    path = tmp_path / "run.safetensors"
    embedding.train(tree, settings, 3, path)
    assert embedding.train(tree, settings, 6, path) == whole
    assert whole.losses[-1] < whole.losses[0] and whole.lowest > 0
    with pytest.raises(CheckpointError, match="6 epochs, not 2"):
        embedding.train(tree, settings, 2, path)
    with pytest.raises(CheckpointError, match="choose another folder"):
        embedding.train(tree, replace(settings, seed=7), 6, path)


def test_mcf_experiments_one_component_embeds_exactly_as_plain_floats_do(tree):
    plain, ours = (
        embedding.train(tree, embedding.EmbeddingSettings(way, negatives=3, batch=2), 4)
        for way in ("float64", "mcf float64 nc=1")
    )
    assert (plain.losses, plain.reconstruction, plain.lowest) == (
        ours.losses,
        ours.reconstruction,
        ours.lowest,
    )


def test_errors_fall_with_every_component():
    points = errors.run(10, (-3, 5))
    assert {(p.figure, p.operation) for p in points} == {
        (figure, name) for figure in (8, 9) for name in errors.OPERATIONS
    }
    limits = {"float32": 2.0**-24, "mcf nc=2": 2.0**-48.5, "mcf nc=3": 2.0**-73}
    for point in points:
        assert 0 < point.mean <= point.largest <= limits[point.way]


def test_command_writes_tables_and_pictures(capsys, tmp_path):
    ways = ["float32", "mcf float16 nc=2"]
    chosen = [word for way in ways for word in ("--way", way)]
    chosen += ["--experiment", "figures", "--experiment", "table-8"]
    status, said = run(capsys, *chosen, "--quick", "--out", tmp_path)
    assert status == 0 and "paper's loss" in said.out
    results = json.loads((tmp_path / "results.json").read_text())
    assert [each["way"] for each in results["table-8"]["outcomes"]] == ways
    for name in ("figure-8.png", "figure-9.png", "table-8.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "tables.md").read_text() in said.out


def test_mcf_experiments_command_runs_embedding(capsys, tmp_path, tree):
    chosen = ["--experiment", "table-3", "--epochs", 2, "--seeds", 2, "--way", "float64"]
    status, said = run(capsys, *chosen, "--json", "--data", tmp_path, "--out", tmp_path / "out")
    assert status == 0
    rows = json.loads(said.out)["table-3"]
    assert [(each["seed"], each["epochs"]) for each in rows] == [(1234, 2), (1235, 2)]
    assert " ± " in (tmp_path / "out" / "tables.md").read_text()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--way", "float8"], "--way 'float8': there are"),
        (["--experiment", "table-3", "--way", "float16", "--data", "."], "cannot read"),
        (["--experiment", "table-8", "--way", "mcf float64 nc=2"], "table-8 has float16"),
    ],
)
def test_mcf_experiments_command_rejects_bad_options(capsys, tmp_path, arguments, message):
    status, said = run(capsys, *arguments, "--quick", "--out", tmp_path)
    assert status == 2 and message in said.err and len(said.err.strip().splitlines()) == 1


def test_comparison_of_libraries_reports_their_digits(monkeypatch):
    path = Path(__file__).parents[2] / "experiments" / "mcf_peers.py"
    spec = importlib.util.spec_from_file_location("mcf_peers", path)
    peers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peers)
    sizes = {"add": 20, "multiply": 20, "mv 512": 6, "matmul 64": 5, "solve 64": 4, "svd 24": 3}
    monkeypatch.setattr(peers, "SIZES", sizes)
    monkeypatch.setattr(peers, "seconds", lambda call, repeat: call() is not None or 2.0)
    rows = {(row["operation"], row["library"]): row for row in peers.measured(1)}
    assert {name for name, _ in rows} == set(sizes)
    for name in ("add", "multiply", "mv 512", "matmul 64"):
        for library in (peers.Ours.name, peers.Mpmath.name):
            assert 104 <= rows[name, library]["bits"] < 130 or name == "add"
    wrong = peers.Ours().convert(np.ones(20), np.full(20, 2.0**-60))
    pairs = [(np.ones(20), np.zeros(20)), (np.zeros(20), np.zeros(20))]
    assert peers.bits(peers.Ours(), "add", pairs, wrong) == 60
