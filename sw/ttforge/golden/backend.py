"""The golden model as an accelerator: same memory, same programs, exact, no cycles."""

import time

import numpy as np
import numpy.typing as npt

from ttforge.accelerator import Counters, Run, Trace
from ttforge.golden.interpreter import State, TraceEntry, execute
from ttforge.parameters import AcceleratorParameters
from ttforge.program.descriptors import Program
from ttforge.program.encoding import ProgramError


def _flatten(groups: list[list[TraceEntry]], lanes: int) -> Trace:
    """Rows in the order in which the engine writes them: iterations outermost within a group."""
    addresses, rows, labels = [], [], []
    for group in groups:
        if not group:
            continue
        n = max(entry.rows.shape[0] for entry in group)
        order = np.concatenate([entry.addresses.numpy() for entry in group])
        data = np.concatenate(
            [np.broadcast_to(e.rows.numpy(), (n, *e.rows.shape[1:])) for e in group], axis=1
        )
        addresses.append(np.tile(order, n))
        rows.append(data.reshape(-1, lanes).astype(np.int16))
        labels += [(entry.tensor, len(entry.addresses)) for entry in group] * n
    empty = np.zeros((0, lanes), np.int16)
    return Trace(
        np.concatenate(addresses) if addresses else np.zeros(0, np.int64),
        np.concatenate(rows) if rows else empty,
        tuple(labels),
    )


class GoldenAccelerator:
    """Implements ``ttforge.accelerator.Accelerator`` by the golden model."""

    def __init__(self, parameters: AcceleratorParameters, *, memory_bytes: int):
        self.parameters = parameters
        self.memory_bytes = memory_bytes
        self._memory = np.zeros(memory_bytes, np.uint8)

    def _check(self, address: int, size: int) -> None:
        if not 0 <= address <= address + size <= self.memory_bytes:
            raise ValueError(
                f"bytes {address} to {address + size - 1} of a memory of {self.memory_bytes}"
            )

    def write(self, address: int, data: npt.NDArray[np.uint8]) -> None:
        self._check(address, data.size)
        self._memory[address : address + data.size] = data.ravel()

    def read(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        self._check(address, size)
        return self._memory[address : address + size].copy()

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        if program.fingerprint != self.parameters.fingerprint:
            raise ProgramError("the program was compiled for other accelerator parameters")
        started = time.perf_counter()
        state = State.fresh(self._memory, self.parameters, trace=trace)
        execute(state, program.descriptors)
        traces = None
        if state.trace is not None:
            traces = {
                engine: _flatten(state.trace[engine], self.parameters.lanes)
                for engine in ("load", "pe1", "pe2")
            }
        return Run(
            sums=np.array(state.sums),
            saturations=np.array(state.saturations),
            counters=Counters(bytes_read=state.bytes_read, bytes_written=state.bytes_written),
            seconds=time.perf_counter() - started,
            traces=traces,
        )

    def close(self) -> None:
        """Nothing to release."""

    def __enter__(self) -> "GoldenAccelerator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
