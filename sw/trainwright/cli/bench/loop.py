"""``trainwright bench loop``: whole training steps of a torch loop beside the trainer's."""

import argparse
import platform
from collections.abc import Callable
from random import Random
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Any

from trainwright.cli.command import SimpleCommand
from trainwright.cli.options import add_network_argument, natural, positive

if TYPE_CHECKING:
    from trainwright.data import DataSet
    from trainwright.network import Network
    from trainwright.train.trainer import Trainer

OPTIMISERS = ("trainwright.nn.Adam", "torch.optim.Adam")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Training steps on the golden model, update included: of trainwright train, and of a loop "
        "around trainwright.compile with the same network, batch and random images. A step of "
        "each in turn; processor seconds of one thread, medians."
    )
    add_network_argument(parser)
    parser.add_argument("--batch", type=positive, default=64, metavar="N", help="default: 64")
    parser.add_argument("--repeat", type=positive, default=300, metavar="N", help="default: 300")
    parser.add_argument("--seed", type=natural, default=0, metavar="S", help="default: 0")
    parser.add_argument("--json", action="store_true", help="print JSON and no table")


def _data(network: "Network", batch: int, seed: int) -> "DataSet":
    """16 batches of random images and labels."""
    import numpy as np

    from trainwright.data import DataSet, Split

    random = np.random.RandomState(seed)
    images = random.randint(0, 256, (16 * batch, *network.image)).astype(np.uint8)
    split = Split(images, random.randint(0, network.classes, len(images)).astype(np.uint8))
    return DataSet("random", split, split, 255, tuple(map(str, range(network.classes))))


def _trainer(network: "Network", data: "DataSet", batch: int, steps: int) -> "Trainer":
    from trainwright.cli.options import accelerator_parameters
    from trainwright.driver import Driver
    from trainwright.golden.backend import GoldenAccelerator
    from trainwright.train.settings import TrainSettings
    from trainwright.train.state import initial_state
    from trainwright.train.trainer import Trainer

    golden = GoldenAccelerator(accelerator_parameters([], network), memory_bytes=1 << 24)
    state = initial_state(network, TrainSettings(steps=steps, batch=batch, prior=None))
    return Trainer(state, data, lambda ranks: Driver(golden, ranks, batch))


def _loop(
    network: "Network", data: "DataSet", batch: int, optimiser: str
) -> Callable[[int], object]:
    """A step of a loop in torch, by its number."""
    import torch

    import trainwright.nn as tnn
    from trainwright.offload import compile

    image, padded = network.image, network.padded
    sides = (0, padded[1] - image[1], 0, padded[0] - image[0])
    pixels = torch.from_numpy(data.train.images).float() / data.full_scale
    rows = torch.nn.functional.pad(pixels, sides).flatten(1)
    labels = torch.from_numpy(data.train.labels).long()
    order = torch.randperm(len(labels)).split(batch)
    model = compile(tnn.from_network(network), batch=batch)
    make = tnn.Adam if optimiser == OPTIMISERS[0] else torch.optim.Adam
    optimizer = make(model.parameters(), lr=4e-3)

    def step(number: int) -> None:
        chosen = order[number % len(order)]
        logits = model(rows[chosen])[:, : network.classes]
        loss = torch.nn.functional.cross_entropy(logits, labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _measure(steps: dict[str, Callable[[int], object]], repeat: int) -> dict[str, list[float]]:
    """Milliseconds, the order another one each time. The first steps calibrate: not counted."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    order = Random(0)
    for number in range(3 + repeat):
        for name in order.sample(list(steps), len(steps)):
            begun = process_time()
            steps[name](number)
            if number > 2:
                times[name].append((process_time() - begun) * 1e3)
    return times


def _run(args: argparse.Namespace) -> int:
    import torch

    from trainwright.cli.errors import OptionError
    from trainwright.cli.output import to_json
    from trainwright.network import NetworkError, load_network
    from trainwright.report.tables import markdown

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    network = load_network(args.network)
    data = _data(network, args.batch, args.seed)
    trainer = _trainer(network, data, args.batch, 3 + args.repeat)
    steps: dict[str, Callable[[int], object]] = {"trainwright train": lambda _: trainer.step()}
    try:
        for name in OPTIMISERS:
            steps[f"compile, {name}"] = _loop(network, data, args.batch, name)
    except NetworkError as error:
        raise OptionError(str(error)) from None
    times = _measure(steps, args.repeat)
    of = median(times["trainwright train"])
    rows: list[dict[str, Any]] = [
        {"step": name, "median_ms": median(t), "least_ms": min(t), "over_train": median(t) / of - 1}
        for name, t in times.items()
    ]
    conditions = {
        "network": network.name,
        "batch": args.batch,
        "repeat": args.repeat,
        "threads": 1,
        "clock": "processor time",
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    if args.json:
        print(to_json({"conditions": conditions, "steps": rows}))
    else:
        names = list(rows[0])
        print(markdown(names, [[row[name] for name in names] for row in rows]), end="")
    return 0


command = SimpleCommand(
    "loop", "a step of a torch loop, beside that of trainwright train", _add_arguments, _run
)
