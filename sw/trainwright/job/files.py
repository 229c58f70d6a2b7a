"""Write a recorded job: its contents of memory, its map as JSON, and its tables as a C header."""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np

from trainwright.accelerator import Accelerator, AcceleratorError, FileAccelerator
from trainwright.accelerator.register_files import c_header
from trainwright.compiler.base.compiled import AUTO
from trainwright.compiler.base.names import SAMPLES_OUTSIDE
from trainwright.compiler.chip.memory import classes_in_rows, label_kinds
from trainwright.compiler.chip.samples import RecordFormat, SampleRecords
from trainwright.compiler.step.adapter import PackedBuffer
from trainwright.compiler.step.rows import sample_axis
from trainwright.data import DataSet
from trainwright.driver.resident import ResidentDriver
from trainwright.driver.tokens import exponent_of_inputs
from trainwright.graph.network import host_operands
from trainwright.job.record import (
    Action,
    RecordedAccelerator,
    SetExponents,
    SetOrder,
    Start,
    Write,
)
from trainwright.onchip.choices import label_bytes
from trainwright.onchip.layout import WeightPart
from trainwright.parameters import AcceleratorParameters
from trainwright.support.errors import UserError
from trainwright.support.files import packaged, write_whole
from trainwright.train.batches import label_tensor
from trainwright.train.resident import ResidentEngine
from trainwright.train.settings import TrainSettings
from trainwright.train.state import TrainingState
from trainwright.train.trainer import Trainer

FORMAT = "trainwright-job-1"
CONTENTS, MAP, TABLES = "contents.bin", "job.json", "trainwright_job.h"
REGISTERS = "trainwright_registers.h"
DRIVER = Path(__file__).with_name("driver")
"""Folder of the reference driver."""
RULES = packaged(__file__, "rules.toml")
"""Rules that a driver follows, or that the accelerator follows by itself."""


class JobError(UserError, ValueError):
    """Training run that a driver cannot repeat without its host."""


def require_job(settings: TrainSettings) -> None:
    """Raise ``JobError`` for a run whose steps need a host, or programs that are compiled later."""
    chip = settings.chip
    assert chip is not None
    if chip.cut_programs != "kept":
        raise JobError(
            f"--cut-programs {chip.cut_programs} compiles while training, which no driver does: "
            "omit it"
        )
    if settings.micro_batches > 1:
        raise JobError(
            f"--micro-batches {settings.micro_batches} leaves loss and update to the host, which "
            "no driver computes: omit it"
        )
    if settings.rounding != "nearest":
        raise JobError(
            f"--rounding-mode {settings.rounding} needs new random bits from the host in every "
            "step: omit it"
        )


@dataclass(frozen=True)
class RecordedJob:
    """A recorded training run with the driver whose buffers and programs it uses."""

    driver: ResidentDriver
    actions: Sequence[Action]
    samples: Mapping[str, SampleRecords]
    """Data sets by name."""
    digest: str
    """Digest of the factors after the last action (``train.model.digest``)."""
    correct: int | None
    """Correct labels of the test set, after the last action; None for a regression."""
    test_samples: int
    test_labels: int
    """Labels that the accelerator compares: one for a sample, or one for each word with a label."""

    @property
    def figures(self) -> dict[str, Any]:
        """Figures of the trained network by name."""
        names = ("digest", "correct", "test_samples", "test_labels")
        return {name: getattr(self, name) for name in names}

    @property
    def summary(self) -> str:
        """Describe the trained network in a line."""
        kind = "samples" if self.driver.network.labels == 1 else "words"
        right = f"{self.correct} of {self.test_labels} test {kind} are right, "
        return f"{'' if self.correct is None else right}digest {self.digest}"

    @property
    def memory_bytes(self) -> int:
        """Bytes of external memory that the job may use, from address 0."""
        return self.driver.accelerator.memory_bytes

    @cached_property
    def contents(self) -> bytes:
        """Bytes of all actions, joined in their order."""
        return b"".join(map(_bytes_of, self.actions))

    @property
    def placed_actions(self) -> Iterator[tuple[Action, int, int]]:
        """Every action with offset and count of its bytes in ``contents``."""
        offset = 0
        for action in self.actions:
            count = len(_bytes_of(action))
            yield action, offset, count
            offset += count

    def program_of(self, start: Start) -> str:
        """Return the name of the program that a start runs."""
        return next(
            name for name, placed in self.driver.programs.items() if placed.address == start.address
        )


def _bytes_of(action: Action) -> bytes:
    if isinstance(action, SetExponents):
        return np.array(action.values, np.int8).tobytes()
    return action.data if isinstance(action, Write) else b""


def recorded_job(
    accelerator: Accelerator,
    state: TrainingState,
    data: DataSet,
    *,
    plan: str = AUTO,
    test_samples: int | None = None,
) -> RecordedJob:
    """Train ``state`` to its end, classify the test set, and return the actions of the host.

    Raises ``AcceleratorError`` if training set and test set do not fit the memory.
    """
    recorded = RecordedAccelerator(accelerator)
    engine = ResidentEngine(cast(FileAccelerator, recorded), plan=plan)
    trainer = Trainer(state, data, engine, test_samples=test_samples)
    network, correct = state.network, None
    if not engine.evaluates and not network.is_regression:
        raise AcceleratorError(
            f"{accelerator.memory_bytes} bytes of external memory hold no test set: use more, or "
            "fewer of --test-samples"
        )
    if engine.evaluates:
        trainer.run()
        _, correct = engine.evaluate(state.scales, state.step)
    else:  # the chip counts no correct samples of a regression: no test between epochs
        while state.step < trainer.total_steps:
            trainer.step()
    test = data.test if test_samples is None else data.test.first(test_samples)
    labels = network.labels_of(network.main, label_tensor(test.labels, network.labels))
    return RecordedJob(
        driver=engine.driver,
        actions=recorded.actions,
        samples=dict(zip(("training", "test"), engine.data_sets, strict=False)),
        digest=state.model.digest(),
        correct=correct,
        test_samples=len(test),
        test_labels=0 if correct is None else int((labels >= 0).sum()),
    )


def write_job(job: RecordedJob, folder: Path) -> list[Path]:
    """Write a job with the registers of its accelerator and the reference driver; list the files.

    Raises ``OSError``.
    """
    files: dict[str, str | bytes] = {
        CONTENTS: job.contents,
        MAP: _json(describe(job)),
        TABLES: header(job),
        REGISTERS: c_header(job.driver.step.parameters),
        **{path.name: path.read_text() for path in sorted(DRIVER.iterdir())},
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_whole(folder / name, content)
    return [folder / name for name in files]


def _json(plain: Mapping[str, Any]) -> str:
    """Return JSON with one entry of a list per line, readable even for large networks."""
    lines = []
    for name, value in plain.items():
        text = json.dumps(value)
        if isinstance(value, list):
            text = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        lines.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


# ---- Map ---------------------------------------------------------------------------------------


def describe(job: RecordedJob) -> dict[str, Any]:
    """Return the map of a job as plain data."""
    driver = job.driver
    slots, tensors = driver.resident.slots.numbers, driver.resident.program.slots
    return {
        "format": FORMAT,
        "network": driver.network.name,
        "batch": driver.step.batch,
        "fingerprint": f"{driver.step.parameters.fingerprint:08x}",
        "accelerator": asdict(driver.step.parameters),
        "verilog": _command(driver.step.parameters),
        "memory_bytes": job.memory_bytes,
        "contents": {"file": CONTENTS, "bytes": len(job.contents), "crc32": _crc(job)},
        "actions": list(_plain_actions(job)),
        "programs": [
            {"name": name, "address": p.address, "descriptors": len(p.program.descriptors)}
            for name, p in driver.programs.items()
        ],
        "buffers": list(_plain_buffers(driver)),
        "samples": [{"name": name, **asdict(where)} for name, where in job.samples.items()],
        "record": list(_plain_record(job)),
        "factors": [_tensor(driver, part) for part in driver.memory.layout.parts],
        "exponents": [{"name": name, "slot": slot} for name, slot in slots.items() if slot],
        "statistics": [{"name": name, "slot": slot} for slot, name in enumerate(tensors)],
        "loss_slot": driver.resident.loss_slot,
        "loss_unit": driver.loss_unit,
        "rules": RULES,
        "digest": job.digest,
    }


def _command(parameters: AcceleratorParameters) -> str:
    """Return the command that writes the Verilog of a job's accelerator."""
    default = asdict(AcceleratorParameters())
    sizes = {k: v for k, v in asdict(parameters).items() if v != default[k]}
    if "formats" in sizes:  # in quotes, as a shell would read the brackets
        sizes["formats"] = f"'{','.join(sizes['formats'])}'"
    texts = {k: v if isinstance(v, str) else int(v) for k, v in sizes.items()}
    options = (f"--accelerator {name}={text}" for name, text in texts.items())
    return " ".join(["trainwright verilog", *options])


def _crc(job: RecordedJob) -> int:
    return zlib.crc32(job.contents)


def _plain_buffers(driver: ResidentDriver) -> Iterator[dict[str, Any]]:
    for name, buffer in driver.memory.everything.items():
        sizes = dict(zip(("row", "lane"), buffer.shape, strict=False))
        strides = {
            "row": prod(buffer.shape[1:]) * buffer.element_bytes,
            "lane": buffer.element_bytes,
        }
        if isinstance(buffer, PackedBuffer):
            sizes, strides = buffer.outer.piece.counts, buffer.outer.strides
        yield {
            "name": name,
            "address": buffer.address,
            "bytes": buffer.size,
            "element_bytes": buffer.element_bytes,
            "axes": [
                {"axis": axis, "size": size, "stride": strides[axis]}
                for axis, size in sizes.items()
            ],
        }


def _plain_record(job: RecordedJob) -> Iterator[dict[str, Any]]:
    """List the parts of a sample's record: its rows of each buffer, and its labels."""
    step, network = job.driver.step, job.driver.network
    size, lanes = job.samples["training"].record_bytes, step.parameters.lanes
    if SAMPLES_OUTSIDE in step.buffers:
        yield {"part": "pixels", "offset": 0, "bytes": size - lanes}
    else:
        exponents = host_operands(network)
        exponents |= dict.fromkeys(step.inputs, exponent_of_inputs(step))
        for content in RecordFormat.of(step).contents:
            part = {"part": content.tensor, "offset": content.first * lanes,
                    "bytes": content.beats * lanes}  # fmt: skip
            if content.packed is None:
                yield part | {"element_bytes": label_bytes(network.classes)}
                continue
            outer = content.packed.outer
            yield part | {
                "element_bytes": outer.element_bytes,
                "exponent": exponents.get(content.tensor, 0),
                "axes": [
                    {"axis": axis, "first": outer.ranges.get(axis, (0, count))[0], "size": count,
                     "stride": outer.strides[axis]}
                    for axis, count in outer.piece.counts.items()
                    if axis != sample_axis(network)
                ],
            }  # fmt: skip
    if kind := label_kinds(network).get(1):
        form = "classes"
        if classes_in_rows(network, lanes):
            form = "number" if label_bytes(kind.classes) == 1 else "digits"
        yield {"part": "label", "offset": size - lanes, "bytes": lanes, "form": form}


def _plain_actions(job: RecordedJob) -> Iterator[dict[str, Any]]:
    for action, offset, count in job.placed_actions:
        if isinstance(action, Write):
            yield {"write": count, "address": action.address, "offset": offset}
        elif isinstance(action, SetExponents):
            yield {"exponents": count, "offset": offset}
        elif isinstance(action, SetOrder):
            yield {"order": [*_order(action)]}
        else:
            loss, correct = _outcome(job, action)
            yield {
                "start": job.program_of(action), "times": action.times, "step": action.step,
                "loss": loss, "correct": correct,
            }  # fmt: skip


def _order(action: SetOrder) -> tuple[int, int, int]:
    return action.order.next, action.order.increment, action.order.left


def _outcome(job: RecordedJob, start: Start) -> tuple[int, int]:
    """Return the summed loss and the correct samples of a start, read from its loss slot."""
    slot = job.driver.resident.loss_slot
    return int(start.run.sums[slot]), int(start.run.saturations[slot])


def _tensor(driver: ResidentDriver, part: WeightPart) -> dict[str, Any]:
    """Return where the values of a factor or a bias are after a run."""
    name, row = driver.memory.place_of(part)
    buffer = driver.memory.everything[name]
    places = (part.places - part.places[0]).reshape(part.shape)
    # Elements of a part are evenly spaced along each axis (`onchip.layout`), so the distance of
    # the first two elements of an axis is its stride.
    strides = [
        int(places[tuple(int(n == axis) for n in range(len(part.shape)))]) if size > 1 else 0
        for axis, size in enumerate(part.shape)
    ]
    steps = np.indices(part.shape).T @ np.array(strides)
    assert (places == steps.T).all(), part.name
    return {
        "name": part.name,
        "buffer": name,
        "address": buffer.address + row * part.lanes * buffer.element_bytes,
        "element_bytes": buffer.element_bytes,
        "exponent": part.exponent,
        "shape": list(part.shape),
        "stride": [stride * buffer.element_bytes for stride in strides],
    }


# ---- C header ----------------------------------------------------------------------------------


def header(job: RecordedJob) -> str:
    """Return the tables of a job for the reference driver."""
    driver = job.driver
    tables = {
        "action": list(_action_rows(job)),
        "program": [
            f'"{name}", {placed.address}u, {len(placed.program.descriptors)}u'
            for name, placed in driver.programs.items()
        ],
        "buffer": [
            f'"{name}", {b.address}u, {b.size}u' for name, b in driver.memory.everything.items()
        ],
        "tensor": [_tensor_row(_tensor(driver, part)) for part in driver.memory.layout.parts],
    }
    lines = [
        f"/* Job of network {driver.network.name}; trainwright_driver.h explains the fields. */",
        "#ifndef TRAINWRIGHT_JOB_H",
        "#define TRAINWRIGHT_JOB_H",
        "",
        '#include "trainwright_driver.h"',
    ]
    for name, rows in tables.items():
        lines += ["", f"static const trainwright_{name} trainwright_job_{name}s[] = {{"]
        lines += [f"    {{{row}}}," for row in rows] + ["};"]
    fields = {
        "network": f'"{driver.network.name}"',
        "fingerprint": f"0x{driver.step.parameters.fingerprint:08x}u",
        "memory_bytes": f"{job.memory_bytes}u",
        "loss_slot": f"{driver.resident.loss_slot}u",
        "contents_bytes": f"{len(job.contents)}u",
        "contents_crc32": f"0x{_crc(job):08x}u",
        **{f"{name}s": f"{len(rows)}u" for name, rows in tables.items()},
        **{name: f"trainwright_job_{name}s" for name in tables},
    }
    lines += ["", "static const trainwright_job trainwright_the_job = {"]
    lines += [f"    .{name} = {value}," for name, value in fields.items()]
    return "\n".join([*lines, "};", "", "#endif", ""])


def _action_rows(job: RecordedJob) -> Iterator[str]:
    programs = list(job.driver.programs)
    for action, offset, count in job.placed_actions:
        row: dict[str, str] = {}
        if isinstance(action, Write):
            row = {"kind": "TRAINWRIGHT_WRITE", "address": f"{action.address}u"}
        elif isinstance(action, SetExponents):
            row = {"kind": "TRAINWRIGHT_EXPONENTS"}
        elif isinstance(action, SetOrder):
            order = ", ".join(f"{word}u" for word in _order(action))
            row = {"kind": "TRAINWRIGHT_ORDER", "order": f"{{{order}}}"}
        else:
            loss, correct = _outcome(job, action)
            row = {
                "kind": "TRAINWRIGHT_START",
                "program": f"{programs.index(job.program_of(action))}u",
                "count": f"{action.times}u", "step": f"{action.step}u", "loss": f"{loss}ull",
                "correct": f"{correct}u",
            }  # fmt: skip
        if count:
            row |= {"offset": f"{offset}u", "count": f"{count}u"}
        yield ", ".join(f".{name} = {value}" for name, value in row.items())


def _tensor_row(tensor: Mapping[str, Any]) -> str:
    shape, stride = (", ".join(f"{n}u" for n in tensor[name]) for name in ("shape", "stride"))
    return (
        f'"{tensor["name"]}", {tensor["address"]}u, {tensor["element_bytes"]}u, '
        f"{tensor['exponent']}, {len(tensor['shape'])}u, {{{shape}}}, {{{stride}}}"
    )
