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
from trainwright.posit.experiments.lenet import LeNet5, TrainingArithmetic
from trainwright.posit.files import pack, unpack
from trainwright.support.files import write_whole
from trainwright.support.tensor_file import CheckpointError, decode, encode

FORMAT = "trainwright-posit-lenet-2"
_BATCH = 500
"""Images classified at once."""


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run; a checkpoint of other settings is rejected."""

    data: str
    arithmetic: str
    images: int
    """Training images used, from the first on."""
    batch: int = 32
    seed: int = 0


@dataclass(frozen=True)
class Epoch:
    """Result of one epoch."""

    loss: float
    """Mean over the batches, each rounded by the arithmetic."""
    accuracy: float
    """Share of test images classified correctly."""
    seconds: float
    """CPU seconds of training, without evaluation."""
    digest: str = ""
    """Digest of the network after the epoch."""


@dataclass
class TrainingRun:
    """State of a run: network, optimiser, finished epochs and the epoch in progress."""

    network: LeNet5
    optimiser: torch.optim.Optimizer
    epochs: list[Epoch] = field(default_factory=list)
    done: int = 0
    """Batches finished in the present epoch."""
    loss: float = 0.0
    """Sum of the losses of these batches."""
    seconds: float = 0.0


def pixels(split: Split, full_scale: int) -> Tensor:
    """Return images in float32, 0 to 1, zero-padded to 32 x 32: (N, 1, 32, 32)."""
    images = torch.tensor(split.images, dtype=torch.float32) / full_scale
    rows, columns = (32 - side for side in images.shape[1:])
    edges = (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
    return F.pad(images, edges).unsqueeze(1)


def begin(settings: RunSettings, kind: TrainingArithmetic) -> TrainingRun:
    """Initialise the network, and Adam with torch's defaults."""
    network = kind.network(settings.seed)
    return TrainingRun(network, torch.optim.Adam(network.parameters()))


def step(run: TrainingRun, images: Tensor, labels: Tensor) -> float:
    """Run one training step of Listing 1 and return the loss."""
    run.optimiser.zero_grad()
    loss = nn.functional.cross_entropy(run.network(images), labels)
    loss.backward()
    run.optimiser.step()
    return loss.item()


def digest(network: nn.Module) -> str:
    """Hash tensors in order of their names, posits as words: 16 hex digits of SHA-256."""
    tensors, _ = pack(network.state_dict())
    state = hashlib.sha256()
    for name in sorted(tensors):
        state.update(tensors[name].numpy().tobytes())
    return state.hexdigest()[:16]


def evaluate(network: LeNet5, kind: TrainingArithmetic, images: Tensor, labels: Tensor) -> float:
    """Return the share of images classified correctly in the arithmetic."""
    right = 0
    with torch.no_grad():
        for x, y in zip(images.split(_BATCH), labels.split(_BATCH), strict=True):
            right += int((network(kind.entering(x)).argmax(1) == y).sum())
    return right / len(labels)


def train(
    data: DataSet,
    settings: RunSettings,
    kind: TrainingArithmetic,
    epochs: int,
    checkpoint: Path,
    *,
    interval: float = 20.0,
    progress: Callable[[int, int, TrainingRun], None] = lambda done, total, run: None,
) -> list[Epoch]:
    """Train until there are ``epochs``; save every ``interval`` seconds and after each epoch.

    The order of the images depends on the seed and the epoch only, so an interrupted run ends like
    an uninterrupted one. Raises ``CheckpointError`` for a checkpoint of other settings.
    """
    run = resume(checkpoint, settings, kind) if checkpoint.exists() else begin(settings, kind)
    images = pixels(data.train, data.full_scale)[: settings.images]
    labels = torch.tensor(data.train.labels[: settings.images], dtype=torch.int64)
    test = (pixels(data.test, data.full_scale), torch.tensor(data.test.labels, dtype=torch.int64))
    with accumulation(kind.mode):
        saved = time.monotonic()
        while len(run.epochs) < epochs:
            generator = torch.Generator().manual_seed(1000 * settings.seed + len(run.epochs))
            order = torch.randperm(len(images), generator=generator).split(settings.batch)
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
            accuracy = evaluate(run.network, kind, *test)
            loss, network_digest = run.loss / run.done, digest(run.network)
            run.epochs.append(Epoch(loss, accuracy, run.seconds, network_digest))
            run.done, run.loss, run.seconds = 0, 0.0, 0.0
            save(checkpoint, run, settings)
            saved = time.monotonic()
            progress(len(run.epochs) * len(images), epochs * len(images), run)
    return run.epochs[:epochs]


def _tensors(run: TrainingRun) -> dict[str, Tensor]:
    """Return parameters and Adam's state for each."""
    tensors = {f"network.{key}": x for key, x in run.network.state_dict().items()}
    for number, kept in run.optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{number}.{key}": x for key, x in kept.items()}
    return tensors


def save(path: Path, run: TrainingRun, settings: RunSettings) -> None:
    """Write the run; an existing file is replaced atomically. Raises ``OSError``."""
    tensors, formats = pack(_tensors(run))
    metadata = {
        "format": FORMAT,
        "settings": asdict(settings),
        "formats": formats,
        "epochs": [asdict(epoch) for epoch in run.epochs],
        "present": [run.done, run.loss, run.seconds],
    }
    write_whole(path, encode(metadata, tensors))


def resume(path: Path, settings: RunSettings, kind: TrainingArithmetic) -> TrainingRun:
    """Load a saved run. Raises ``CheckpointError`` for other settings."""
    metadata, tensors = decode(path, FORMAT)
    if metadata["settings"] != asdict(settings):
        raise CheckpointError(
            f"{path} is of {metadata['settings']} and not of {asdict(settings)}: "
            "choose another folder, or remove it"
        )
    run = begin(settings, kind)
    stored = unpack(tensors, metadata["formats"])
    prefix = "network."
    run.network.load_state_dict(
        {key.removeprefix(prefix): x for key, x in stored.items() if key.startswith(prefix)}
    )
    kept: dict[int, dict[str, Any]] = {}
    for name, x in stored.items():
        if name.startswith("adam."):
            _, number, key = name.split(".")
            kept.setdefault(int(number), {})[key] = x
    groups = run.optimiser.state_dict()["param_groups"]
    run.optimiser.load_state_dict({"state": kept, "param_groups": groups})
    run.epochs = [Epoch(**epoch) for epoch in metadata["epochs"]]
    run.done, run.loss, run.seconds = metadata["present"]
    return run
