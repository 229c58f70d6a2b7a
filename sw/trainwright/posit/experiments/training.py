"""Training LeNet-5 in an arithmetic: epochs, checkpoints, accuracy on the test images."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainwright.data import DataSet
from trainwright.data.dataset import Split
from trainwright.posit.accumulation import accumulation
from trainwright.posit.experiments.lenet import Arithmetic, LeNet5
from trainwright.posit.files import pack, unpack
from trainwright.support.files import write_whole
from trainwright.support.tensor_file import CheckpointError, decode, encode

FORMAT = "trainwright-posit-lenet-2"
_BATCH = 500
"""Images classified at once."""


@dataclass(frozen=True)
class Settings:
    """Of a run; checkpoints of other settings are not continued."""

    data: str
    arithmetic: str
    images: int
    """Of the training set, the first ones."""
    batch: int = 32
    seed: int = 0


@dataclass(frozen=True)
class Epoch:
    """What an epoch came to."""

    loss: float
    """Mean over its batches, each rounded as the arithmetic has it."""
    accuracy: float
    """Share of the test images that are classified right."""
    seconds: float
    """Of the processor, evaluation not included."""
    digest: str = ""
    """Of the network after it."""


@dataclass
class Run:
    """A run as far as it has come."""

    network: LeNet5
    optimiser: torch.optim.Optimizer
    epochs: list[Epoch] = field(default_factory=list)
    done: int = 0
    """Batches of the present epoch."""
    loss: float = 0.0
    """Their sum."""
    seconds: float = 0.0


def pixels(split: Split, full_scale: int) -> Tensor:
    """Images in float32, 0 to 1, with zeros around to 32 x 32: (N, 1, 32, 32)."""
    images = torch.tensor(split.images, dtype=torch.float32) / full_scale
    rows, columns = (32 - side for side in images.shape[1:])
    edges = (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
    return F.pad(images, edges).unsqueeze(1)


def begin(settings: Settings, kind: Arithmetic) -> Run:
    """Before the first step: Adam with torch's defaults."""
    network = kind.network(settings.seed)
    return Run(network, torch.optim.Adam(network.parameters()))


def step(run: Run, images: Tensor, labels: Tensor) -> float:
    """One step of Listing 1; the loss."""
    run.optimiser.zero_grad()
    loss = nn.functional.cross_entropy(run.network(images), labels)
    loss.backward()
    run.optimiser.step()
    return loss.item()


def digest(network: nn.Module) -> str:
    """16 digits of the SHA-256 of its tensors in order of their names, of posits the words."""
    tensors, _ = pack(network.state_dict())
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(tensors[name].numpy().tobytes())
    return found.hexdigest()[:16]


def evaluate(network: LeNet5, kind: Arithmetic, images: Tensor, labels: Tensor) -> float:
    """Share of the images that are classified right, in the arithmetic."""
    right = 0
    with torch.no_grad():
        for x, y in zip(images.split(_BATCH), labels.split(_BATCH), strict=True):
            right += int((network(kind.entering(x)).argmax(1) == y).sum())
    return right / len(labels)


def train(
    data: DataSet,
    settings: Settings,
    kind: Arithmetic,
    epochs: int,
    checkpoint: Path,
    *,
    interval: float = 20.0,
    progress: Callable[[int, int, Run], None] = lambda done, total, run: None,
) -> list[Epoch]:
    """Go on until there are ``epochs``; a checkpoint every ``interval`` seconds and after each.

    The order of the images depends on the seed and the epoch only: an interrupted run ends as an
    uninterrupted one. Raises ``CheckpointError`` for a checkpoint of other settings.
    """
    run = resume(checkpoint, settings, kind) if checkpoint.exists() else begin(settings, kind)
    images = pixels(data.train, data.full_scale)[: settings.images]
    labels = torch.tensor(data.train.labels[: settings.images], dtype=torch.int64)
    test = (pixels(data.test, data.full_scale), torch.tensor(data.test.labels, dtype=torch.int64))
    with accumulation(kind.mode):
        while len(run.epochs) < epochs:
            _epoch(run, settings, kind, images, labels, epochs, checkpoint, interval, progress)
            accuracy = evaluate(run.network, kind, *test)
            loss, made = run.loss / run.done, digest(run.network)
            run.epochs.append(Epoch(loss, accuracy, run.seconds, made))
            run.done, run.loss, run.seconds = 0, 0.0, 0.0
            save(checkpoint, run, settings)
            progress(len(run.epochs) * len(images), epochs * len(images), run)
    return run.epochs[:epochs]


def _epoch(
    run: Run,
    settings: Settings,
    kind: Arithmetic,
    images: Tensor,
    labels: Tensor,
    epochs: int,
    checkpoint: Path,
    interval: float,
    progress: Callable[[int, int, Run], None],
) -> None:
    generator = torch.Generator().manual_seed(1000 * settings.seed + len(run.epochs))
    order = torch.randperm(len(images), generator=generator).split(settings.batch)
    saved = time.monotonic()
    for batch in order[run.done :]:
        begun = time.process_time()
        run.loss += step(run, kind.entering(images[batch]), labels[batch])
        run.seconds += time.process_time() - begun
        run.done += 1
        done = len(run.epochs) * len(images) + run.done * settings.batch
        progress(done, epochs * len(images), run)
        if time.monotonic() - saved > interval:
            save(checkpoint, run, settings)
            saved = time.monotonic()


def _tensors(run: Run) -> dict[str, Tensor]:
    """Parameters and what Adam keeps for each."""
    tensors = {f"network.{key}": x for key, x in run.network.state_dict().items()}
    for number, kept in run.optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{number}.{key}": x for key, x in kept.items()}
    return tensors


def save(path: Path, run: Run, settings: Settings) -> None:
    """Write the run; the file is replaced whole. Raises ``OSError``."""
    tensors, formats = pack(_tensors(run))
    metadata = {
        "format": FORMAT,
        "settings": asdict(settings),
        "formats": formats,
        "epochs": [asdict(epoch) for epoch in run.epochs],
        "present": [run.done, run.loss, run.seconds],
    }
    write_whole(path, encode(metadata, tensors))


def resume(path: Path, settings: Settings, kind: Arithmetic) -> Run:
    """A run as it was saved. Raises ``CheckpointError``."""
    metadata, tensors = decode(path, FORMAT)
    if metadata["settings"] != asdict(settings):
        raise CheckpointError(
            f"{path} is of {metadata['settings']} and not of {asdict(settings)}: "
            "choose another folder, or remove it"
        )
    run = begin(settings, kind)
    found = unpack(tensors, metadata["formats"])
    prefix = "network."
    run.network.load_state_dict(
        {key.removeprefix(prefix): x for key, x in found.items() if key.startswith(prefix)}
    )
    kept: dict[int, dict[str, Any]] = {}
    for name, x in found.items():
        if name.startswith("adam."):
            _, number, key = name.split(".")
            kept.setdefault(int(number), {})[key] = x
    groups = run.optimiser.state_dict()["param_groups"]
    run.optimiser.load_state_dict({"state": kept, "param_groups": groups})
    run.epochs = [Epoch(**epoch) for epoch in metadata["epochs"]]
    run.done, run.loss, run.seconds = metadata["present"]
    return run
