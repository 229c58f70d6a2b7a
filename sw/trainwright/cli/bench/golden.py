"""``trainwright bench golden``: time of a training step on the golden model, beside tltorch's."""

import argparse
import platform
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from statistics import median
from time import process_time
from typing import Any

from trainwright.cli.command import SimpleCommand
from trainwright.cli.options import add_network_argument, natural, positive

PEER = "tltorch"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "A training step (forward, backward, all gradients; no update) on the golden model, bit "
        "by bit what the accelerator computes, with all statistics, alone and as a compiled torch "
        "module; trainwright.nn's layers in torch; and in float32: tltorch's tensor-train layers "
        "(pip install 'trainwright[bench]') and a dense pair of torch's. Steps of all are "
        "interleaved; processor seconds of one thread."
    )
    add_network_argument(parser)
    parser.add_argument("--batch", type=positive, default=64, metavar="N", help="default: 64")
    parser.add_argument("--repeat", type=positive, default=200, metavar="N", help="default: 200")
    parser.add_argument("--seed", type=natural, default=0, metavar="S", help="default: 0")
    parser.add_argument("--json", action="store_true", help="print JSON and no table")


def _golden(network: Any, batch: int, seed: int, rounding: str = "nearest") -> Callable[[], object]:
    """A step, its exponents calibrated, its seeds other ones each time."""
    from trainwright.check.step import random_inputs
    from trainwright.driver import Driver
    from trainwright.fixed.random_bits import step_seeds
    from trainwright.golden.backend import GoldenAccelerator
    from trainwright.parameters import AcceleratorParameters

    parameters = AcceleratorParameters(
        factor_width=network.widths.factor, stochastic_rounding=rounding != "nearest"
    )
    golden = GoldenAccelerator(parameters, memory_bytes=1 << 24)
    driver = Driver(golden, network, batch)
    given = random_inputs(network, driver, seed)
    numbers = count()

    def step() -> object:
        forward, backward = step_seeds(rounding, seed, next(numbers))
        driver.forward(given.inputs, given.model, given.scales, seed=forward)
        return driver.backward(given.gradient, given.scales, seed=backward)

    return step


def _float_step(modules: Any, network: Any, batch: int) -> Callable[[], object]:
    """A step of torch modules, one a layer, in float32."""
    import torch

    inputs = torch.rand(batch, network.layers[0].input_size)
    gradient = torch.randn(batch, network.layers[-1].output_size) / batch

    def step() -> object:
        x = inputs
        for module, layer in zip(modules, network.layers, strict=True):
            x = torch.relu(module(x)) if layer.relu else module(x)
        for module in modules:
            module.zero_grad(set_to_none=True)
        return x.backward(gradient)

    return step


def _own(network: Any, batch: int) -> dict[str, Callable[[], object]]:
    """Steps of our own layers in torch, and compiled for the golden model."""
    from trainwright.nn import from_network
    from trainwright.offload import compile

    steps = {
        f"trainwright.nn, {numbers}": _float_step(_layers(from_network(one)), network, batch)
        for numbers, one in (("float32", network.in_float32()), ("fixed point", network))
    }
    steps["trainwright.compile, golden"] = _compiled_step(
        compile(from_network(network), batch=batch), network, batch
    )
    return steps


def _layers(model: Any) -> list[Any]:
    from trainwright.nn import TTLinear

    return [module for module in model if isinstance(module, TTLinear)]


def _compiled_step(model: Any, network: Any, batch: int) -> Callable[[], object]:
    import torch

    inputs = torch.rand(batch, network.layers[0].input_size)
    gradient = torch.randn(batch, network.layers[-1].output_size) / batch

    def step() -> object:
        model.zero_grad(set_to_none=True)
        return model(inputs).backward(gradient)

    return step


def _peers(network: Any, batch: int) -> dict[str, Callable[[], object]]:
    import torch

    dense = [torch.nn.Linear(one.input_size, one.output_size) for one in network.layers]
    steps = {"dense float32, torch.nn.Linear": _float_step(dense, network, batch)}
    if find_spec(PEER) is None:
        return steps
    peer: Any = import_module(PEER)  # its annotations are narrower than what it takes

    for implementation in ("reconstructed", "factorized"):
        layers = [
            peer.FactorizedLinear(
                in_tensorized_features=one.inputs,
                out_tensorized_features=one.outputs,
                factorization="blocktt",
                rank=(1, *one.ranks, 1),
                implementation=implementation,
            )
            for one in network.layers
        ]
        steps[f"tltorch float32, {implementation}"] = _float_step(layers, network, batch)
    return steps


def _measure(steps: dict[str, Callable[[], object]], repeat: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(3):
            step()
    for _ in range(repeat):
        for name, step in steps.items():
            begun = process_time()
            step()
            times[name].append((process_time() - begun) * 1e3)
    return times


def _run(args: argparse.Namespace) -> int:
    import torch

    from trainwright.cli.output import to_json
    from trainwright.fixed.random_bits import ROUNDINGS
    from trainwright.golden.executor import SOURCE
    from trainwright.network import load_network
    from trainwright.report.tables import markdown
    from trainwright.support import native

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    network = load_network(args.network)
    steps = {"golden": _golden(network, args.batch, args.seed)}
    for rounding in ROUNDINGS[1:]:
        steps[f"golden, {rounding}"] = _golden(network, args.batch, args.seed, rounding)
    steps |= _own(network, args.batch) | _peers(network, args.batch)
    times = _measure(steps, args.repeat)
    rows = [{"step": name, "median_ms": median(t), "least_ms": min(t)} for name, t in times.items()]
    peers = [row for row in rows if PEER in row["step"]]
    best = min(peers, key=lambda row: row["median_ms"]) if peers else None
    for row in rows:
        row["of_the_faster_tltorch"] = row["median_ms"] / best["median_ms"] if best else None
    conditions = {
        "network": network.name,
        "batch": args.batch,
        "repeat": args.repeat,
        "threads": 1,
        "clock": "processor time",
        "native_kernel": native.load(SOURCE) is not None,
        "tltorch": find_spec(PEER) is not None,
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    if args.json:
        print(to_json({"conditions": conditions, "steps": rows}))
        return 0
    names = list(rows[0])
    print(markdown(names, [[row[name] for name in names] for row in rows]), end="")
    if best is None:
        print("tltorch is not installed: pip install 'trainwright[bench]'")
    return 0


command = SimpleCommand(
    "golden", "a training step on the golden model, beside tltorch", _add_arguments, _run
)
