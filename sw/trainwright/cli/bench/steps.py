"""Training steps: ``trainwright bench cycles``, ``compile``, ``golden`` and ``loop``."""

import platform
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, count
from random import Random
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Annotated, Any

from trainwright.cli import options as shared
from trainwright.cli.declare import command
from trainwright.cli.errors import OptionError
from trainwright.cli.output import dict_table, show
from trainwright.network import Network, NetworkError, load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.support.errors import errors_as
from trainwright.support.settings import Natural, Option, Positive, require_effect, require_unset

if TYPE_CHECKING:
    from trainwright.data import DataSet
    from trainwright.train.trainer import Trainer


# -- cycles ----------------------------------------------------------------------------------------
PAPER_CYCLES = 9_000_000
"""Cycles of a batch of 64 of the paper's network: 0.09 s at 100 MHz (its Table 3)."""


class CyclesOptions(shared.JsonOptions, shared.AcceleratorOptions):
    """Compare predicted and simulated cycles of a training step.

    A step is forward, backward and all gradients. Cycles are listed for each plan, network and set
    of ranks: by the cycle model and in the simulated accelerator, next to the 9,000,000 of the
    paper for its network. Without options: digits, and fashion at rank 16 and at ranks 12,5,13|16.
    """

    network: Annotated[str | None, Option(metavar="NETWORK", only=("named networks",))] = None
    """measure only this network"""
    ranks: Annotated[shared.Ranks | None, Option(metavar="R", parse=shared.parse_ranks)] = None
    """ranks of the network, as '12,5,13|16'"""
    plan: tuple[str, ...] = ()
    """plan to compile by (default: auto)"""
    batch: Annotated[Positive, Option(only=("named networks",))] = 64
    """samples of a batch"""
    random: Natural = 0
    """number of random networks to measure instead"""
    seed: Annotated[Natural, Option(metavar="S", only=("--random",))] = 0
    """seed of the random networks"""
    predict: bool = False
    """do not simulate"""

    def networks(self) -> "Iterator[tuple[Network, int]]":
        """Yield the networks to measure, each with its batch."""
        from trainwright.timing.random_networks import random_network

        if self.random:
            yield from map(random_network, range(self.seed, self.seed + self.random))
            return
        ranked = (("digits", None), ("fashion", None), ("fashion", ((12, 5, 13), (16,))))
        for name, ranks in [(self.network, self.ranks)] if self.network else ranked:
            yield shared.with_ranks(load_network(name), ranks), self.batch


def _cycles_row(network: Network, batch: int, plan: str, options: CyclesOptions) -> dict[str, Any]:
    from trainwright.accelerator import open_accelerator
    from trainwright.compiler import CompileError, compile_step
    from trainwright.program.descriptors import Program

    parameters = shared.accelerator_parameters(options.accelerator, network)
    ranks = "|".join(",".join(map(str, layer)) for layer in network.ranks)
    row: dict[str, Any] = {"network": network.name, "ranks": ranks, "batch": batch, "plan": plan}
    try:
        step = compile_step(network, batch, parameters, plan=plan)
    except CompileError as error:
        return row | {"error": str(error)}
    predicted = cycles = step.predicted_cycles
    row |= {"macs": step.macs, "predicted_cycles": predicted}
    if not options.predict:
        with closing(open_accelerator("rtl", parameters, memory_bytes=step.memory_bytes)) as rtl:
            runs = [  # on a memory of zeros, which take the same time
                rtl.run(Program(part.descriptors, part.fingerprint), part.address).counters
                for part in step.programs.values()
            ]
        cycles = sum(run.cycles for run in runs)
        row |= {"cycles": cycles, "error_of_prediction": predicted / cycles - 1}
        row["bytes"] = sum(run.bytes_read + run.bytes_written for run in runs)
    row["mac_utilisation"] = row["utilisation"] = step.macs / (parameters.multipliers * cycles)
    if network.name == "fashion" and batch == 64:
        row["paper_over_this"] = PAPER_CYCLES / cycles
    return row


def _cycles(options: CyclesOptions) -> int:
    from trainwright.compiler.base.compiled import AUTO
    from trainwright.compiler.plans import require_plan

    require_effect(options, ("--random" if options.random else "named networks",))
    if options.ranks and not options.network:
        raise OptionError("--ranks needs --network: they apply to one network")
    plans = options.plan or (AUTO,)
    for plan in plans:
        require_plan(plan)
    rows = [
        _cycles_row(network, batch, plan, options)
        for network, batch in options.networks()
        for plan in plans
    ]
    accelerator = shared.accelerator_parameters(options.accelerator)
    content = {"accelerator": accelerator, "paper_cycles": PAPER_CYCLES, "steps": rows}
    return show(options.json, content, dict_table(rows))


# -- compile ---------------------------------------------------------------------------------------
BUILT_IN = (("digits", 64), ("fashion", 64), ("fashion", 256), ("fashion-conv", 64))
"""Networks and batches that are compiled without options."""


class CompileOptions(shared.JsonOptions, shared.AcceleratorOptions):
    """Compile a training step without the cache of programs.

    Processor seconds of one process, and the alternatives that were evaluated, which are equal on
    every machine. Without options: digits, fashion at batches of 64 and 256, fashion-conv.
    """

    network: Annotated[str | None, Option(metavar="NETWORK")] = None
    """compile only this network"""
    batch: Positive = 64
    """samples of a batch"""
    effort: Positive | None = None
    """alternatives that may be evaluated"""


def _compile_row(name: str, batch: int, options: CompileOptions) -> dict[str, Any]:
    from trainwright.compiler import CompileError
    from trainwright.compiler.base.progress import MOST_EFFORT, followed
    from trainwright.compiler.step.compile import compile_network

    network = load_network(name)
    parameters = shared.accelerator_parameters(options.accelerator, network)
    row: dict[str, Any] = {"network": network.name, "batch": batch}
    with followed() as progress:
        begun = process_time()
        try:
            step = compile_network(network, batch, parameters, effort=options.effort or MOST_EFFORT)
            programs = step.forward.descriptors, step.backward.descriptors
            row |= {"cycles": step.cycles, "descriptors": sum(map(len, programs))}
        except CompileError as error:
            row["error"] = str(error)
        row["seconds"] = round(process_time() - begun, 2)
    return row | {"effort": progress.effort, **progress.counts}


def _compile(options: CompileOptions) -> int:
    # Loaded here, as a module that is loaded while a network is compiled counts as compile time.
    import trainwright.compiler  # noqa: F401  imported for its effect alone

    if options.network is None:
        require_unset(options, ["batch"], "is for one network: add --network, or omit it")
    cases = ((options.network, options.batch),) if options.network else BUILT_IN
    rows = [_compile_row(name, batch, options) for name, batch in cases]
    conditions = {
        "clock": "processor time of one process",
        "program_cache": False,
        "most_effort": options.effort,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "accelerator": shared.accelerator_parameters(options.accelerator),
    }
    return show(options.json, {"conditions": conditions, "steps": rows}, dict_table(rows))


# -- golden and loop -------------------------------------------------------------------------------
PEER = "tltorch"
OPTIMISERS = ("trainwright.nn.Adam", "torch.optim.Adam")
WARM_UP = 3
"""Steps before those that are measured: the first ones calibrate exponents and fill caches."""
Step = Callable[[], object]


class RepeatedOptions(shared.NetworkOptions, shared.SeedOptions, shared.JsonOptions):
    """Steps that are measured again and again."""

    repeat: Positive = 200
    """measured steps"""


class GoldenOptions(RepeatedOptions):
    """Measure a training step on the golden model next to tltorch.

    A step is forward, backward and all gradients, without update. Measured are the golden model,
    with the accelerator's bits and statistics, alone and as a compiled torch module; layers of
    trainwright.nn in torch; and in float32 tltorch's tensor-train layers (pip install
    'trainwright[bench]') and dense layers of torch. Kinds of steps alternate; processor seconds of
    one thread.
    """


class LoopOptions(RepeatedOptions):
    """Measure whole training steps of a torch loop next to the trainer's.

    A step of trainwright train on the golden model, update included, alternates with a step of a
    loop around trainwright.compile: same network, batch and random images. Medians of processor
    seconds of one thread.
    """


def _golden_step(network: Any, batch: int, seed: int, rounding: str) -> Step:
    """Return a step with calibrated exponents and new seeds of rounding each time."""
    from trainwright.check.step import random_inputs
    from trainwright.driver import Driver
    from trainwright.fixed.random_bits import step_seeds
    from trainwright.golden.backend import GoldenAccelerator

    stochastic = rounding != "nearest"
    p = AcceleratorParameters(factor_width=network.widths.factor, stochastic_rounding=stochastic)
    driver = Driver(GoldenAccelerator(p, memory_bytes=1 << 24), network, batch)
    given = random_inputs(network, driver, seed)
    numbers = count()

    def step() -> object:
        forward, backward = step_seeds(rounding, seed, next(numbers))
        driver.forward(given.inputs, given.model, given.scales, seed=forward)
        return driver.backward(given.gradient, given.scales, seed=backward)

    return step


def _module_step(model: Any, network: Network, batch: int) -> Step:
    """Return a step of a torch module; gradients are cleared before the backward pass."""
    import torch

    inputs = torch.rand(batch, network.layers[0].input_size)
    gradient = torch.randn(batch, network.layers[-1].output_size) / batch

    def step() -> object:
        outputs = model(inputs)
        model.zero_grad(set_to_none=True)
        return outputs.backward(gradient)

    return step


def _layer_step(modules: Any, network: Network, batch: int) -> Step:
    """Return a step of torch modules, one for each layer, in float32."""
    from torch import nn

    layers = zip(modules, network.layers, strict=True)
    parts = [[module, nn.ReLU()] if layer.relu else [module] for module, layer in layers]
    return _module_step(nn.Sequential(*chain(*parts)), network, batch)


def _own_steps(network: Any, batch: int) -> dict[str, Step]:
    """Return steps of our own layers in torch, and compiled for the golden model."""
    from trainwright.nn import TTLinear, from_network
    from trainwright.offload import compile

    steps = {}
    for numbers, form in (("float32", network.in_float32()), ("fixed point", network)):
        layers = [module for module in from_network(form) if isinstance(module, TTLinear)]
        steps[f"trainwright.nn, {numbers}"] = _layer_step(layers, network, batch)
    model = compile(from_network(network), batch=batch)
    steps["trainwright.compile, golden"] = _module_step(model, network, batch)
    return steps


def _peer_steps(network: Any, batch: int) -> dict[str, Step]:
    import torch

    dense = [torch.nn.Linear(layer.input_size, layer.output_size) for layer in network.layers]
    steps = {"dense float32, torch.nn.Linear": _layer_step(dense, network, batch)}
    if find_spec(PEER) is None:
        return steps
    peer: Any = import_module(PEER)  # its annotations are narrower than what it takes

    for implementation in ("reconstructed", "factorized"):
        layers = [
            peer.FactorizedLinear(
                in_tensorized_features=layer.inputs,
                out_tensorized_features=layer.outputs,
                factorization="blocktt",
                rank=(1, *layer.ranks, 1),
                implementation=implementation,
            )
            for layer in network.layers
        ]
        steps[f"tltorch float32, {implementation}"] = _layer_step(layers, network, batch)
    return steps


def _measure(steps: dict[str, Step], repeat: int) -> list[dict[str, Any]]:
    """Time the steps, in another order each time; return median and least milliseconds of each."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    order = Random(0)
    for number in range(WARM_UP + repeat):
        for name in order.sample(list(steps), len(steps)):
            begun = process_time()
            steps[name]()
            if number >= WARM_UP:
                times[name].append((process_time() - begun) * 1e3)
    return [{"step": name, "median_ms": median(t), "least_ms": min(t)} for name, t in times.items()]


def _prepare(options: RepeatedOptions) -> tuple[Any, dict[str, Any]]:
    """Seed torch; return the network and the conditions of the measurement."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    network = load_network(options.network)
    return network, {
        "network": network.name, "batch": options.batch, "repeat": options.repeat, "threads": 1,
        "clock": "processor time", "torch": torch.__version__, "machine": platform.machine(),
    }  # fmt: skip


def _golden(options: GoldenOptions) -> int:
    from trainwright.fixed.random_bits import ROUNDINGS
    from trainwright.golden.executor import SOURCE
    from trainwright.support import native

    network, conditions = _prepare(options)
    steps: dict[str, Step] = {}
    for rounding in ROUNDINGS:
        name = "golden" if rounding == ROUNDINGS[0] else f"golden, {rounding}"
        steps[name] = _golden_step(network, options.batch, options.seed, rounding)
    steps |= _own_steps(network, options.batch) | _peer_steps(network, options.batch)
    rows = _measure(steps, options.repeat)
    peers = [row["median_ms"] for row in rows if PEER in row["step"]]
    for row in rows:
        row["of_the_faster_tltorch"] = row["median_ms"] / min(peers) if peers else None
    conditions |= {"native_kernel": native.load(SOURCE) is not None, "tltorch": bool(peers)}
    text = dict_table(rows)
    if not peers:
        text += "tltorch is not installed: pip install 'trainwright[bench]'"
    return show(options.json, {"conditions": conditions, "steps": rows}, text)


def _trainer(network: Network, data: "DataSet", batch: int, steps: int) -> "Trainer":
    from trainwright.driver import Driver
    from trainwright.golden.backend import GoldenAccelerator
    from trainwright.train.host_engine import HostEngine
    from trainwright.train.settings import TrainSettings
    from trainwright.train.state import initial_state
    from trainwright.train.trainer import Trainer

    golden = GoldenAccelerator(shared.accelerator_parameters([], network), memory_bytes=1 << 24)
    state = initial_state(network, TrainSettings(steps=steps, batch=batch, prior=None))
    return Trainer(state, data, HostEngine(lambda ranks: Driver(golden, ranks, batch)))


def _loop_step(network: Network, data: "DataSet", batch: int, optimiser: str) -> Step:
    """Return a step of a loop in torch, with the next batch each time."""
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
    numbers = count()

    def step() -> None:
        chosen = order[next(numbers) % len(order)]
        logits = model(rows[chosen])[:, : network.classes]
        loss = torch.nn.functional.cross_entropy(logits, labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _loop(options: LoopOptions) -> int:
    from trainwright.check.training import random_data

    network, conditions = _prepare(options)
    samples = 16 * options.batch
    data = random_data(network, samples, samples, options.seed, shape=network.image)
    trainer = _trainer(network, data, options.batch, WARM_UP + options.repeat)
    steps: dict[str, Step] = {"trainwright train": trainer.step}
    with errors_as("", OptionError, NetworkError):
        for name in OPTIMISERS:
            steps[f"compile, {name}"] = _loop_step(network, data, options.batch, name)
    rows = _measure(steps, options.repeat)
    for row in rows:
        row["over_train"] = row["median_ms"] / rows[0]["median_ms"] - 1
    return show(options.json, {"conditions": conditions, "steps": rows}, dict_table(rows))


COMMANDS = (
    command(CyclesOptions, _cycles, "cycles", "cycles of a step, predicted and simulated"),
    command(CompileOptions, _compile, "compile", "processor time and effort of compiling a step"),
    command(GoldenOptions, _golden, "golden", "a step on the golden model, next to tltorch"),
    command(LoopOptions, _loop, "loop", "a step of a torch loop, next to trainwright train's"),
)
