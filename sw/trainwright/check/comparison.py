"""Comparison, value by value, of the results of two executions of a program."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Run, Trace
from trainwright.accelerator.interface import CommandRecord
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Descriptor, Transfer
from trainwright.program.fields import Operation
from trainwright.program.footprint import external

Values = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """A value that differs; a member is None where it has no meaning or is not known."""

    tensor: str
    what: str = "value"
    """Kind of difference: value, address (of a row), or the statistic."""
    row: int | None = None
    """Row of the tensor, in the order of writing; in memory, of its buffer."""
    lane: int | None = None
    wanted: int | None = None
    actual: int | None = None
    """None where a row was not written."""
    address: int | None = None
    """Scratchpad row, or byte of external memory."""
    program: str | None = None
    descriptor: int | None = None
    """Number of the descriptor that wrote the value."""
    operation: str | None = None
    cycles: tuple[int, int] | None = None
    """First and last cycle of that descriptor, on a back end that counts cycles: the row was
    written between them. Traces of simulations have the order of rows, and no cycle of each."""
    signal: str | None = None
    """RTL signal that carries the value in these cycles, as `trainwright trace --signals` takes it;
    None on a back end without signals."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, where the actual value is ``found``."""
        return {("found" if key == "actual" else key): value for key, value in asdict(self).items()}


def mismatch_text(at: dict[str, Any]) -> str:
    """Describe a mismatch, ``Mismatch.to_dict``, in one line."""
    place = [f"{name} {at[name]}" for name in ("row", "lane") if at[name] is not None]
    what = "" if at["what"] == "value" else f" {at['what']}"
    actual = "nothing" if at["found"] is None else at["found"]
    line = f"{', '.join([at['tensor'] + what, *place])}: wanted {at['wanted']}, found {actual}"
    if at["address"] is not None:
        line += f", at {at['address']:#x}"
    if at["descriptor"] is not None:
        program = f" of the {at['program']} program" if at["program"] else ""
        operation = f" ({at['operation']})" if at["operation"] else ""
        line += f", by descriptor {at['descriptor']}{operation}{program}"
    if at["cycles"] is not None:
        line += ", which ran in cycles {:,} to {:,}".format(*at["cycles"])
    if at["signal"] is not None:
        line += f", on signal {at['signal']}"
    return line


def closing_lines(figures: Mapping[str, Any]) -> list[str]:
    """Describe the first mismatch of a check and the costs on hardware, where there are any."""
    lines = []
    if figures["first_mismatch"]:
        lines.append(f"first mismatch: {mismatch_text(figures['first_mismatch'])}")
    if figures["cycles"]:
        lines += [
            f"{figures['cycles']:,} cycles for {figures['macs']:,} multiply-accumulates on "
            f"{figures['multipliers']} multipliers: {figures['mac_utilisation']:.1%} utilisation",
            f"{figures['bytes_read']:,} bytes read, {figures['bytes_written']:,} written",
        ]
    return lines


@dataclass
class Comparison:
    """Values compared, and the differences."""

    tensors: dict[str, int] = field(default_factory=dict)
    """Values compared of each tensor, by name."""
    mismatches: dict[str, int] = field(default_factory=dict)
    """Values that differ of each tensor, by name, in the order of discovery."""
    places: dict[str, Mismatch] = field(default_factory=dict)
    """The first value of each tensor that differs."""

    def add(self, name: str, values: int, mismatches: int, at: Mismatch | None = None) -> None:
        """Count a comparison of ``values`` values, the first mismatch of which is ``at``."""
        self.tensors[name] = self.tensors.get(name, 0) + values
        if mismatches:
            self.mismatches[name] = self.mismatches.get(name, 0) + mismatches
            self.places.setdefault(name, at or Mismatch(tensor=name))

    def add_arrays(
        self, name: str, wanted: Values, actual: Values, row: int, start: int | None = None,
        **place: Any,
    ) -> None:  # fmt: skip
        """Compare two arrays of integers, in rows of ``row`` values, of memory from ``start``."""
        wrong = np.flatnonzero(np.asarray(wanted).ravel() != np.asarray(actual).ravel())
        at = None
        if len(wrong):
            first = int(wrong[0])
            values = (int(np.asarray(array).ravel()[first]) for array in (wanted, actual))
            wanted_value, found_value = values
            at = Mismatch(
                tensor=name, row=first // row, lane=first % row, wanted=wanted_value,
                actual=found_value, **place,
                address=None if start is None else start + first * wanted.itemsize,
            )  # fmt: skip
        self.add(name, int(np.size(wanted)), len(wrong), at)

    def merge(self, other: "Comparison") -> None:
        """Count everything of another comparison too."""
        for name, values in other.tensors.items():
            self.add(name, values, other.mismatches.get(name, 0), other.places.get(name))

    @property
    def values(self) -> int:
        """Values compared."""
        return sum(self.tensors.values())

    @property
    def differing(self) -> int:
        """Values that differ."""
        return sum(self.mismatches.values())

    @property
    def first(self) -> str | None:
        """Name of the first tensor that differs."""
        return next(iter(self.mismatches), None)

    @property
    def first_mismatch(self) -> Mismatch | None:
        """First value of the first tensor that differs."""
        return None if self.first is None else self.places[self.first]


def carrying_signal(operation: Operation, lane: int | None) -> str:
    """Return the RTL signal on which an operation's results leave, of one lane if it is known.

    The names are those of ``trainwright_hw.accelerator``; a test compares them with the design.
    """
    row = {
        Operation.LOAD: "load.scratchpad__row",
        Operation.SAMPLES: "load.scratchpad__row",
        Operation.VECTOR: "vector.z__row",
    }.get(operation, "write_back.z__row")
    if operation is Operation.STORE:  # a beat has other lanes than a row
        return "m_axi_wdata"
    return row if lane is None else f"{row}.[{lane}]"


@dataclass(frozen=True)
class RunProgram:
    """Program that was run twice, by its name."""

    name: str
    descriptors: Sequence[Descriptor]
    parameters: AcceleratorParameters

    def by(self, at: Mismatch, number: int | None, run: Run, execution: int = 0) -> Mismatch:
        """Name the descriptor that wrote a value, and the cycles of its n-th ``execution``."""
        if number is None:
            return replace(at, program=self.name)
        commands = [c for c in run.commands or () if c.number == number]
        command: CommandRecord | None = commands[execution] if execution < len(commands) else None
        operation = self.descriptors[number].operation
        at = replace(at, program=self.name, descriptor=number, operation=operation.name)
        if command is None:
            return at
        return replace(
            at, cycles=(command.start, command.end), signal=carrying_signal(operation, at.lane)
        )

    def stored(self, at: Mismatch, run: Run) -> Mismatch:
        """Name the descriptor that stored a value of external memory last, if one did."""
        number = None if at.address is None else self._storing(at.address)
        return at if number is None else self.by(at, number, run)

    def _storing(self, address: int) -> int | None:
        numbers = [
            number
            for number, d in enumerate(self.descriptors)
            if isinstance(d, Transfer) and d.operation is Operation.STORE
            and address in range(*external(d, self.parameters))
        ]  # fmt: skip
        return numbers[-1] if numbers else None


def _compare_trace(
    result: Comparison, golden: Trace, other: Trace, run: Run, program: RunProgram | None
) -> None:
    start = 0
    written: dict[str, int] = {}
    executions: dict[int, int] = {}
    for index, (name, count) in enumerate(golden.labels):
        stop, before = start + count, written.get(name, 0)
        written[name] = before + count
        number = golden.numbers[index] if golden.numbers else None
        execution = 0 if number is None else executions.get(number, 0)
        if number is not None:
            executions[number] = execution + 1
        rows, actual = golden.rows[start:stop], other.rows[start:stop]
        common = len(actual)
        wrong = np.ones(rows.shape, np.bool_)
        wrong[:common] = rows[:common] != actual
        moved = golden.addresses[start : start + common] != other.addresses[start:stop]
        wrong[:common] |= moved[:, None]
        at = None
        if wrong.any():
            row, lane = (int(place) for place in np.argwhere(wrong)[0])
            at = Mismatch(
                tensor=name, row=before + row, lane=lane, wanted=int(rows[row, lane]),
                actual=int(actual[row, lane]) if row < common else None,
                address=int(golden.addresses[start + row]),
            )  # fmt: skip
            if row < common and moved[row]:
                wanted, seen = golden.addresses[start + row], other.addresses[start + row]
                at = replace(at, what="address", lane=None, wanted=int(wanted), actual=int(seen))
            at = at if program is None else program.by(at, number, run, execution)
        result.add(name, rows.size, int(wrong.sum()), at)
        start = stop
    if len(other.rows) > start:
        surplus = other.rows[start:]
        at = Mismatch(
            tensor="rows written beyond the last tensor", row=0, lane=0,
            actual=int(surplus[0, 0]), address=int(other.addresses[start]),
        )  # fmt: skip
        result.add(at.tensor, 0, surplus.size, at)


_COUNTED = ("sums", "saturations", "underflows")


def compare_runs(
    golden: Run, other: Run, slots: tuple[str, ...], program: RunProgram | None = None
) -> Comparison:
    """Compare the traces (where there are any) and the statistics of two runs of one program.

    Mismatches are in the order of the program's descriptors, where ``program`` is known.
    """
    result = Comparison()
    if golden.traces is not None and other.traces is not None:
        for engine, trace in golden.traces.items():
            _compare_trace(result, trace, other.traces[engine], other, program)
    # Engines were compared one after the other: back to the order of the program.
    last = len(program.descriptors) if program else 0
    order = {name: at.descriptor for name, at in result.places.items()}
    result.mismatches = dict(
        sorted(
            result.mismatches.items(),
            key=lambda item: last if (number := order[item[0]]) is None else number,
        )
    )
    # Clips too, where both back ends count them: the hardware does not.
    clips = golden.clips is not None and other.clips is not None
    counted = (*_COUNTED, "clips") if clips else _COUNTED
    for slot, name in enumerate(slots):
        counts = [(int(getattr(golden, c)[slot]), int(getattr(other, c)[slot])) for c in counted]
        wrong = [(c, *pair) for c, pair in zip(counted, counts, strict=True) if pair[0] != pair[1]]
        at = None
        if wrong:
            what, wanted, actual = wrong[0]
            label = f"{name} statistics"
            at = Mismatch(tensor=label, what=what, row=slot, wanted=wanted, actual=actual)
            at = at if program is None else program.by(at, None, other)
        result.add(f"{name} statistics", len(counts), len(wrong), at)
    return result
