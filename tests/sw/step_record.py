"""Digests of what the golden model computes, kept beside the tests: a regression for every bit.

``python tests/sw/step_record.py`` records every case anew, ``--check`` only compares. A record
says, for one step on fixed operands, the digest of both programs (descriptors, without the header
of a program file), of every tensor written to the scratchpad in the order of the program, of the
statistics, and of every memory buffer. It also holds the exponents it was computed with, so that a
change of how exponents are chosen does not change it. The operands are raw words of NumPy's PCG64,
whose stream is guaranteed.
"""

import argparse
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from trainwright.accelerator import Run, Trace
from trainwright.compiler import CompiledProgram, CompiledStep, compile_step
from trainwright.driver import Driver, QuantisedModel
from trainwright.fixed.scale import Scales
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Network, load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Program, Transfer
from trainwright.program.encoding import HEADER, encode
from trainwright.program.engines import ENGINE_OF

FOLDER = Path(__file__).parent / "records"


@dataclass(frozen=True)
class Case:
    """Case to record: one step."""

    name: str
    network: str
    ranks: tuple[tuple[int, ...], ...]
    batch: int
    seed: int
    plan: str = "auto"

    @property
    def path(self) -> Path:
        """File of the case's record."""
        return FOLDER / f"{self.name}.json"


CASES = (
    Case("digits", "digits", ((16,), (8,)), 64, 5),
    Case("digits-cut", "digits", ((13,), (5,)), 7, 2),
    Case("digits-paper", "digits", ((16,), (8,)), 64, 1, "paper"),
    Case("fashion", "fashion", ((16, 16, 16), (16,)), 64, 6),
    Case("fashion-cut", "fashion", ((12, 5, 13), (16,)), 64, 7),
)


class Words:
    """Integers from the raw words of a generator."""

    def __init__(self, seed: int):
        self._generator = np.random.PCG64(seed)

    def signed(self, shape: Sequence[int], width: int) -> torch.Tensor:
        """Return uniform integers of ``width`` bits, int64."""
        words = np.asarray(self._generator.random_raw(int(np.prod(shape))))
        values = (words >> np.uint64(64 - width)).astype(np.int64) - (1 << (width - 1))
        return torch.from_numpy(values.reshape(tuple(shape)))

    def bells(self, shape: Sequence[int], exponent: int) -> torch.Tensor:
        """Return bell-shaped integers of deviation 1,400 or so, times 2^``exponent``, float64."""
        parts = [self.signed(shape, 12) for _ in range(4)]
        return torch.stack(parts).sum(dim=0).double() * 2.0**exponent


@dataclass(frozen=True)
class StepOperands:
    """Model, inputs and gradient that a step is given."""

    model: QuantisedModel
    inputs: torch.Tensor
    gradient: torch.Tensor


def operands(network: Network, batch: int, seed: int) -> StepOperands:
    """Return the operands of a case: factors over their range, dark images, small biases."""
    words, widths = Words(seed), network.widths
    factors = [
        [words.signed(shape, widths.factor) for shape in layer.factor_shapes]
        for layer in network.layers
    ]
    exponents = [[1 - widths.factor] * layer.order for layer in network.layers]
    biases = [
        words.bells((layer.output_size,), -12) if layer.bias else None for layer in network.layers
    ]
    inputs = words.signed((batch, network.layers[0].input_size), widths.activation).clamp_min(0)
    gradient = words.bells((batch, network.layers[-1].output_size), -18)
    return StepOperands(QuantisedModel(network, factors, exponents, biases), inputs, gradient)


def digest(data: bytes | npt.NDArray[Any]) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256; arrays as stored, little-endian."""
    if isinstance(data, np.ndarray):
        data = np.ascontiguousarray(data, data.dtype.newbyteorder("<")).tobytes()
    return hashlib.sha256(data).hexdigest()[:16]


def _order(program: CompiledProgram) -> list[tuple[str, str]]:
    """List engine and tensor of everything the program writes to the scratchpad, in its order."""
    written = [
        ((ENGINE_OF[d.operation].name or "").lower(), d.tensor)
        for d in program.descriptors
        if isinstance(d, Compute | Transfer)
    ]
    return list(dict.fromkeys(written))


def _tensors(traces: dict[str, Trace], order: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    rows: dict[tuple[str, str], list[npt.NDArray[np.int16]]] = {}
    for engine, trace in traces.items():
        start = 0
        for tensor, count in trace.labels:
            rows.setdefault((engine, tensor), []).append(trace.rows[start : start + count])
            start += count
    for engine, tensor in order:
        if (engine, tensor) in rows:
            yield f"{engine} {tensor}", digest(np.concatenate(rows[engine, tensor]))


def _statistics(run: Run, program: CompiledProgram) -> dict[str, str]:
    return {
        tensor.name: f"sum {run.sums[slot]}, saturated {run.saturations[slot]}"
        for slot, tensor in enumerate(program.tensors)
        if tensor.counted
    }


class _Recorder(GoldenAccelerator):
    """A golden model that keeps the programs it was given."""

    def __init__(self, step: CompiledStep):
        super().__init__(step.parameters, memory_bytes=step.memory_bytes)
        self.programs: list[Program] = []

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        self.programs.append(program)
        return super().run(program, address, trace=trace)


def compute(case: Case, exponents: dict[str, int] | None = None) -> dict[str, Any]:
    """Compute the record of a case; without ``exponents`` they are calibrated."""
    network = load_network(case.network).with_ranks(case.ranks)
    parameters = AcceleratorParameters()
    step = compile_step(network, case.batch, parameters, plan=case.plan)
    given, recorder = operands(network, case.batch, case.seed), _Recorder(step)
    driver = Driver(recorder, network, case.batch, plan=case.plan, trace=True)
    scales = Scales(exponents=dict(exponents or {}))
    if exponents is None:
        driver.calibrate(given.inputs, lambda logits: given.gradient, given.model, scales)
    wanted = dict(scales.exponents)
    runs = [driver.forward(given.inputs, given.model, scales).run]
    runs.append(driver.backward(given.gradient, scales).run)
    names = ("forward", "backward")
    parts = dict(zip(names, zip((step.forward, step.backward), runs, strict=True), strict=True))
    return {
        "case": {
            "network": case.network,
            "ranks": str([list(ranks) for ranks in case.ranks]),
            "batch": case.batch,
            "seed": case.seed,
            "plan": case.plan,
        },
        "exponents": wanted,
        "tensors": {
            name: dict(_tensors(run.traces or {}, _order(program)))
            for name, (program, run) in parts.items()
        },
        "statistics": {name: _statistics(run, program) for name, (program, run) in parts.items()},
        "memory": {
            name: digest(recorder.read(buffer.address, buffer.size))
            for name, buffer in step.buffers.items()
            if not name.startswith("program.")
        },
        "programs": {
            name: digest(encode(program)[HEADER.size :])
            for name, program in zip(names, recorder.programs, strict=True)
        },
    }


def _leaves(record: dict[str, Any]) -> dict[str, Any]:
    """Return the compared values by readable names, in the order in which they are computed."""
    leaves: dict[str, Any] = {}
    for program in ("forward", "backward"):
        for section, label in (("tensors", "tensor"), ("statistics", "statistics of")):
            for name, value in record[section][program].items():
                leaves[f"{program}: {label} {name}"] = value
    leaves |= {f"memory of {name}": value for name, value in record["memory"].items()}
    return leaves | {f"{name} program": value for name, value in record["programs"].items()}


def differences(recorded: dict[str, Any], actual: dict[str, Any]) -> list[str]:
    """List the names of everything that differs, the first computed first."""
    ours, theirs = _leaves(recorded), _leaves(actual)
    names = [*theirs, *(name for name in ours if name not in theirs)]
    return [name for name in names if ours.get(name) != theirs.get(name)]


def load(case: Case) -> dict[str, Any]:
    """Load the record in the package."""
    return json.loads(case.path.read_text())


def check(case: Case) -> list[str]:
    """List names of values that the golden model computes differently from the record."""
    recorded = load(case)
    return differences(recorded, compute(case, recorded["exponents"]))


def main(argv: Sequence[str] | None = None) -> int:
    """Record or check; the exit status is 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python tests/sw/step_record.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    status = 0
    if parser.parse_args(argv).check:
        for case in CASES:
            different = check(case)
            status |= bool(different)
            text = f"{len(different)} differ, first: {different[0]}" if different else "as recorded"
            print(f"{case.name}: {text}")
        return status
    FOLDER.mkdir(exist_ok=True)
    for case in CASES:
        case.path.write_text(json.dumps(compute(case), indent=1) + "\n")
        print(f"{case.name}: recorded in {case.path.name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
