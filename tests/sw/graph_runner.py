"""Run the two programs of a step, from arrays of words to arrays of words."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from graph_shifts import Binding, bind
from graph_values import Counted, constants

from trainwright.accelerator import Accelerator, Run
from trainwright.compiler.emit.emit import COPIES, Emitted
from trainwright.compiler.forms.external import constant
from trainwright.compiler.step.compile import StepPrograms
from trainwright.program.descriptors import Compute, Descriptor, Program
from trainwright.program.vector import Vector

Words = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ran:
    """Results of one program, its statistics by tensor, and the accelerator's own record."""

    binding: Binding
    words: dict[str, Words]
    counted: dict[str, Counted]
    run: Run


def bound(emitted: Emitted, binding: Binding, fingerprint: int) -> Program:
    """Return the program with the shifts of a binding."""
    descriptors: list[Descriptor] = list(emitted.descriptors)
    for index, result in emitted.products.items():
        d = descriptors[index]
        shifts = binding.shifts.get(result.tensor)
        if isinstance(d, Vector):
            assert shifts
            constants = (*shifts.constants, *d.constants[len(shifts.constants) :])
            descriptors[index] = replace(d, constants=constants)
            continue
        assert isinstance(d, Compute)
        if not result.exact:
            assert shifts
            d = replace(d, shift=shifts.result, x_shift=shifts.x, g_shift=shifts.y)
        descriptors[index] = d
    return Program(tuple(descriptors), fingerprint, emitted.slots)


class Runner:
    """Programs of a step on an accelerator."""

    def __init__(self, step: StepPrograms, accelerator: Accelerator, *, trace: bool = False):
        self.step, self.accelerator, self.trace = step, accelerator, trace

    def _write(self, emitted: Emitted, given: Mapping[str, npt.NDArray[np.generic]]) -> None:
        step, lanes = self.step, self.step.parameters.lanes
        for outer in emitted.lowered.outer.values():
            values = constant(outer.tensor, lanes)
            if values is None:
                values = constants(emitted.lowered.graph).get(outer.tensor)
            if values is None:
                values = given.get(outer.tensor)
            if values is not None:
                self.accelerator.write(step.buffers[outer.name].address, outer.pack(values))

    def run(
        self,
        emitted: Emitted,
        given: Mapping[str, npt.NDArray[np.generic]],
        exponents: Mapping[str, int],
        wanted: Mapping[str, int],
    ) -> Ran:
        """Run a program on ``given`` words, and on what the program before it left.

        ``exponents`` are those of all that it reads, ``wanted`` those wanted for what it makes.
        """
        graph = emitted.lowered.graph
        most = self.step.parameters.most_alignment
        binding = bind(graph, wanted, exponents, most_alignment=most)
        self._write(emitted, given)
        program = bound(emitted, binding, self.step.parameters.fingerprint)
        run = self.accelerator.run(program, emitted.address, trace=self.trace)
        words = {}
        results = {op.out for op in graph.ops}
        for outer in emitted.lowered.outer.values():
            if outer.tensor in results:
                buffer = self.step.buffers[outer.name]
                whole = words.setdefault(
                    outer.tensor, np.zeros(graph.shape(outer.tensor), np.int64)
                )
                data = self.accelerator.read(buffer.address, outer.size)
                whole[outer.slices] = outer.unpack(data)
        counted = {
            name: Counted(int(run.sums[slot]), int(run.saturations[slot]))
            for slot, name in enumerate(emitted.slots)
            if name != COPIES
        }
        return Ran(binding, words, counted, run)
