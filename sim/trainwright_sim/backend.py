"""The accelerator in compiled simulation: the RTL itself, with a memory model beside it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import AcceleratorError, Run, control, memory_bytes_of, registers
from trainwright.accelerator.segmented import run_segments
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program
from trainwright.program.encoding import encode_descriptors
from trainwright.program.errors import ProgramError
from trainwright.program.sample_order import SampleOrder
from trainwright.program.segments import ProgramSegment
from trainwright.support.native.cache import Cache
from trainwright.support.native.tools import Progress
from trainwright.support.waiting import waiting
from trainwright_sim.build import build, tell
from trainwright_sim.design import kept_rtlil
from trainwright_sim.engines import ENGINES, LEAVES, WAVES
from trainwright_sim.gates import Operands, multiplication_energy
from trainwright_sim.library import Simulator, Stop, WaveSimulator
from trainwright_sim.memory import MemoryModel
from trainwright_sim.perf_counter import PerfCounter
from trainwright_sim.stepper import RtlStepper

if TYPE_CHECKING:
    from trainwright_sim.waves import Waveform

CYCLES_A_CALL = 1 << 18
"""Cycles between two looks at signals (Ctrl-C) and calls of ``on_cycles``."""


Design = Callable[..., str]
"""``design(parameters, trace=...)`` is RTLIL with the ports of the accelerator."""


@dataclass(frozen=True)
class Spent:
    """Cost of simulating: cycles, seconds of processor time, instructions of the processor.

    ``instructions`` is None if the processor does not count them.
    """

    cycles: int
    seconds: float
    instructions: int | None

    def _each(self, other: "Spent", sign: int) -> "Spent":
        ours, theirs = self.instructions, other.instructions
        instructions = None if ours is None or theirs is None else ours + sign * theirs
        cycles, seconds = self.cycles + sign * other.cycles, self.seconds + sign * other.seconds
        return Spent(cycles, seconds, instructions)

    def __add__(self, other: "Spent") -> "Spent":
        return self._each(other, 1)

    def __sub__(self, other: "Spent") -> "Spent":
        return self._each(other, -1)


class RtlAccelerator:
    """The accelerator, simulated cycle by cycle (``trainwright.accelerator.Accelerator``).

    The simulator is built by the first run, or access to a register: a program that the compiler
    refuses costs no build. Raises ``AcceleratorError`` then if the simulator cannot be built, or is
    not of ``parameters``.

    Parameters
    ----------
    parameters
        Sizes of the design.
    memory_bytes
        Size of the external memory.
    engine
        "verilator"; "leaves", faster, with C++ models of leaf blocks; "cxxrtl", slow, a second
        opinion; or "waves", which writes a ``waveform``.
    memory
        Timing of the external memory, or a mapping of its settings. The bandwidth is that of the
        parameters' ``memory_rate`` unless it is given.
    trace
        Whether every run can be traced, at no measurable cost in speed. Without ``trace`` the
        simulated design is the one that ``trainwright verilog`` writes, and the first traced run
        makes a second simulation for traced runs.
    progress
        Function that gets a line before each step of the build, which the first use of a set of
        parameters needs.
    on_cycles
        Function that is called now and then with the cycles of the present run.
    cache
        Folder of the build; by default the user's.
    compiler
        C++ compiler of the build; by default the one that is found.
    watchdog_cycles
        Cycles without a transfer from or to memory after which a run fails.
    hang_cycles
        Cycles in which nothing moves after which a run fails: the accelerator's own WATCHDOG, which
        tells what hangs.
    max_cycles
        Cycles after which a run fails.
    design
        Another design with the same ports.
    """

    def __init__(
        self,
        parameters: AcceleratorParameters,
        *,
        memory_bytes: int,
        engine: str = "verilator",
        memory: MemoryModel | Mapping[str, Any] | None = None,
        trace: bool = True,
        progress: Progress = tell,
        on_cycles: Callable[[int], None] | None = None,
        cache: str | Path | None = None,
        compiler: str | None = None,
        watchdog_cycles: int = 5_000_000,
        hang_cycles: int = registers.WATCHDOG_CYCLES,
        max_cycles: int | None = None,
        design: Design | None = None,
    ):
        if not 0 < memory_bytes <= 1 << parameters.address_width:
            raise ValueError(f"memory_bytes must be from 1 to 2^32, not {memory_bytes!r}")
        if engine not in ENGINES:  # refused before minutes of conversion
            raise ValueError(f"engine must be one of {sorted(ENGINES)}, not {engine!r}")
        self._parameters = parameters
        self._bytes = np.zeros(memory_bytes, np.uint8)
        self._engine, self._compiler, self._design = engine, compiler, design
        if not isinstance(memory, MemoryModel):
            given: dict[str, Any] = {"bandwidth": 1 / parameters.beat_cycles, **(memory or {})}
            memory = MemoryModel(**given)
        self._memory = memory
        self._progress, self._on_cycles = progress, on_cycles
        self._cache = Cache(None if cache is None else Path(cache))
        self._watchdog_cycles, self._max_cycles = watchdog_cycles, max_cycles
        self._hang_cycles = hang_cycles
        self._traced = trace
        self._simulators: dict[bool, Simulator] = {}
        self.waveform: Waveform | None = None
        """Waveform that traced runs write, with engine "waves"."""
        self.uncovered: tuple[str, ...] = ()
        """Blocks that engine `leaves` simulates as RTL, as no model covers their parameters."""
        self._stepper: RtlStepper | None = None
        self._closed = False
        self._counter = PerfCounter()
        self._spent = Spent(0, 0.0, None if self._counter.read() is None else 0)

    @property
    def parameters(self) -> AcceleratorParameters:
        """Parameters of the simulated design."""
        return self._parameters

    @property
    def spent(self) -> Spent:
        """Cost of all runs so far."""
        return self._spent

    @property
    def memory_bytes(self) -> int:
        """Size of the external memory."""
        return self._bytes.size

    @property
    def memory(self) -> MemoryModel:
        """Timing of the external memory; setting it counts from the next run on."""
        return self._memory

    @memory.setter
    def memory(self, model: MemoryModel) -> None:
        self._memory = model
        for simulator in self._simulators.values():
            simulator.configure(model)

    def timings(self) -> Iterator[str]:
        """Yield the names of memory timings, each set until the next; then the given one is set."""
        given = self._memory
        try:
            yield "given"
            # without latency commands are closest to each other
            self.memory = MemoryModel.ideal()
            yield "ideal"
        finally:
            self.memory = given

    @property
    def order(self) -> SampleOrder:
        """See ``Accelerator.order``."""
        return control.order(self._simulator(self._traced), self._parameters)

    @order.setter
    def order(self, order: SampleOrder) -> None:
        control.set_order(self._simulator(self._traced), self._parameters, order)

    @property
    def exponents(self) -> list[int]:
        """The exponent file, by slot; setting it raises ``ProgramError`` for what it does not hold,
        and both ``AcceleratorError`` for an accelerator without one.
        """
        return control.exponents(self._simulator(self._traced), self._parameters)

    @exponents.setter
    def exponents(self, values: list[int]) -> None:
        control.set_exponents(self._simulator(self._traced), self._parameters, values)

    def write(self, address: int, data: npt.NDArray[np.uint8]) -> None:
        """Put bytes into the external memory; ``ValueError`` outside of it."""
        data = memory_bytes_of(data)
        self._slice(address, data.size)[:] = data

    def read(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        """Copy bytes out of the external memory; ``ValueError`` outside of it."""
        return self._slice(address, size).copy()

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        """Execute a program, its encoding put at ``address``. See ``Accelerator.run``."""
        control.require_program(program, address, self._parameters, self.memory_bytes)
        depth = self._parameters.statistics_depth
        return run_segments(program, depth, lambda part: self._run(part, address, trace=trace))

    def _run(self, part: ProgramSegment, address: int, *, trace: bool) -> Run:
        """Execute a program, or a part of it."""
        self.write(address, np.frombuffer(encode_descriptors(part.program), np.uint8))
        with self._waving(part.numbers, trace=trace):
            return self._execute(part.program, address, trace=trace)

    @contextmanager
    def _waving(self, numbers: Sequence[int], *, trace: bool) -> Iterator[None]:
        """Write the waveform of the run in the block, if its descriptors have the waveform's."""
        window = self._window(numbers) if trace and self.waveform else None
        if window is None:
            yield
            return
        simulator, names = self._wave_simulator(), self._signals()
        assert self.waveform is not None
        simulator.waveform(self.waveform.path, names, *window)
        try:
            yield
        finally:
            simulator.end_waveform()

    def _window(self, numbers: Sequence[int]) -> tuple[int, int] | None:
        """Return the places of the waveform's descriptors in a segment; None without them."""
        assert self.waveform is not None
        asked = range(self.waveform.first, self.waveform.last + 1)
        places = [place for place, number in enumerate(numbers) if number in asked]
        if places and len(places) < len(asked):
            raise AcceleratorError(
                f"descriptors {asked[0]} to {asked[-1]} are executed in several runs, as the "
                f"program counts more tensors than statistics_depth="
                f"{self._parameters.statistics_depth}: ask for {numbers[places[0]]} to "
                f"{numbers[places[-1]]}"
            )
        return (places[0], places[-1]) if places else None

    def _wave_simulator(self) -> WaveSimulator:
        simulator = self._simulator(self._traced)
        if not isinstance(simulator, WaveSimulator) or not self._traced:
            raise AcceleratorError(
                f"engine {self._engine!r} with trace={self._traced} writes no waveforms: open the "
                f"accelerator with engine={WAVES.name!r} and trace=True"
            )
        return simulator

    def _signals(self) -> list[str]:
        """Return the names of the waveform's signals and scopes."""
        from trainwright_sim.waves import selected, signal_names

        assert self.waveform is not None
        with TemporaryDirectory(prefix="trainwright-waves-") as folder:
            path = Path(folder) / "signals.fst"
            self._wave_simulator().signals(path)
            return selected(signal_names(path), self.waveform.signals)

    def repeat(
        self, program: Program, times: int, *, address: int, step: int = 0, trace: bool = False
    ) -> Run:
        """Execute a program at ``address`` ``times`` times by one start.

        ``step`` is the number of the first repetition. Raises ``AcceleratorError`` for an
        accelerator without an exponent file.
        """
        control.require_repetition(program, times, self._parameters)
        control.require_program(program, address, self._parameters, self.memory_bytes)
        encoded = np.frombuffer(encode_descriptors(program), np.uint8)
        if (self.read(address, encoded.size) != encoded).any():
            raise ValueError(f"the program does not lie at {address}; write it there first")
        with self._waving(range(len(program.descriptors)), trace=trace):
            return self._execute(program, address, trace=trace, times=times, step=step)

    def stepper(self, program: Program, address: int) -> RtlStepper:
        """Return a program before its first descriptor, to be executed step by step.

        The next run of the accelerator ends a program that is not done.
        """
        control.require_program(program, address, self._parameters, self.memory_bytes)
        self._end_stepping()
        self._stepper = RtlStepper(self, program, address, self._bytes)
        return self._stepper

    def multiplication_energy(
        self, liberty: Path, operands: Sequence[Operands]
    ) -> tuple[float, float, int, list[str]]:
        """Return ``gates.multiplication_energy`` of this accelerator's multipliers."""
        built = partial(build, cache=self._cache, compiler=self._compiler, progress=self._progress)
        return multiplication_energy(liberty, self._parameters.operand_width, operands, built)

    def _end_stepping(self) -> None:
        if self._stepper is not None:
            self._stepper.close()
        self._stepper = None

    def _execute(
        self, program: Program, address: int, *, trace: bool, times: int = 1, step: int = 0
    ) -> Run:
        self._end_stepping()
        self._simulator(self._traced)  # the first call builds: not part of the run's time
        p, begin = self._parameters, time.perf_counter()
        with self.started(program, address, trace=trace, times=times, step=step) as simulator:
            for _ in self.cycles(simulator, CYCLES_A_CALL):
                pass
            control.check(simulator, program, p)
            seconds = time.perf_counter() - begin
            statistics = control.statistics(simulator, p)
            counters = control.counters(simulator)
        traces = simulator.traces(p) if trace else None
        commands = simulator.commands() if trace else None
        return Run(*statistics, counters, seconds, traces, commands)

    @contextmanager
    def started(
        self, program: Program, address: int, *, trace: bool, times: int = 1, step: int = 0
    ) -> Iterator[Simulator]:
        """Start the program at ``address``; at the end clear the run, or reset after an error."""
        p, main = self._parameters, self._simulator(self._traced)
        simulator = self._simulator(trace or self._traced)
        simulator.trace(trace)
        if simulator is not main:
            control.hand_over(main, simulator, p)
        try:
            control.start(simulator, program, address, p, times=times, step=step)
            yield simulator
            simulator.write_register(registers.CONTROL, registers.CONTROL_CLEAR)
        except ProgramError:  # the run is over, and its exponents tell why
            simulator.write_register(registers.CONTROL, registers.CONTROL_CLEAR)
            raise
        except BaseException:
            if simulator.is_open:  # the garbage collector may have released it before a stepper
                self._reset(simulator)
            raise
        if simulator is not main:
            control.hand_over(simulator, main, p)

    def write_register(self, address: int, value: int) -> None:
        """Write one register of the design as the host does."""
        self._simulator(self._traced).write_register(address, value)

    def read_register(self, address: int) -> int:
        """Read one register of the design as the host does."""
        return self._simulator(self._traced).read_register(address)

    def close(self) -> None:
        """Release the simulations; idempotent. The memory can no longer be accessed."""
        if not self._closed:
            self._end_stepping()
        self._closed = True
        self._counter.close()
        self._bytes = self._bytes[:0]
        while self._simulators:
            self._simulators.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _slice(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        if address < 0 or size < 0 or address + size > self._bytes.size:
            raise ValueError(
                f"bytes {address} to {address + size} are outside of the external memory "
                f"({self._bytes.size} bytes)"
            )
        return self._bytes[address : address + size]

    def _simulator(self, trace: bool) -> Simulator:
        """Return the simulation with or without trace ports; the first call builds and opens it."""
        if self._closed:
            raise AcceleratorError("the accelerator was closed")
        if trace not in self._simulators:
            simulator = self._open(self._rtlil(trace))
            simulator.configure(self._memory)
            control.introduce(simulator, self._parameters)
            self._set_up(simulator)
            self._simulators[trace] = simulator
        return self._simulators[trace]

    def _rtlil(self, trace: bool) -> str:
        if self._design is not None:
            return self._design(self._parameters, trace=trace)
        leaves = self._engine == LEAVES.name
        with waiting(self._progress, "converting the accelerator"):
            text, uncovered = kept_rtlil(
                self._parameters, trace=trace, cache=self._cache, leaves=leaves
            )
        if uncovered and uncovered != self.uncovered:
            self._progress(
                f"--engine {LEAVES.name}: RTL simulates {', '.join(uncovered)}, which no C++ model "
                "covers with these parameters"
            )
        self.uncovered = uncovered
        return text

    def _open(self, rtlil: str) -> Simulator:
        library = build(
            rtlil,
            engine=self._engine,
            cache=self._cache,
            compiler=self._compiler,
            progress=self._progress,
        )
        try:
            kind = WaveSimulator if self._engine == WAVES.name else Simulator
            return kind(library, self._bytes)
        except (OSError, AttributeError) as error:
            raise AcceleratorError(
                f"the compiled simulator {library} cannot be loaded ({error}); remove it, or name "
                "another C++ compiler in CXX"
            ) from error

    def _reset(self, simulator: Simulator) -> None:
        simulator.reset()
        self._set_up(simulator)

    def _set_up(self, simulator: Simulator) -> None:
        control.set_up(
            simulator,
            self._parameters,
            memory_bytes=self._bytes.size,
            watchdog_cycles=self._hang_cycles,
        )

    def _measured(self, simulator: Simulator, cycles: int) -> Stop:
        """Run for some cycles, and count what that takes."""
        before = simulator.cycles, time.process_time(), self._counter.read()
        stop = simulator.run(cycles, self._watchdog_cycles)
        after = simulator.cycles, time.process_time(), self._counter.read()
        self._spent += Spent(*after) - Spent(*before)
        return stop

    def cycles(self, simulator: Simulator, pause: int) -> Iterator[None]:
        """Run until the interrupt; yield after each ``pause`` cycles and at the end."""
        begin, stop = simulator.cycles, Stop.CYCLES
        while stop is Stop.CYCLES:
            elapsed = simulator.cycles - begin
            if self._on_cycles is not None:
                self._on_cycles(elapsed)
            cycles = pause
            if self._max_cycles is not None:
                cycles = min(cycles, self._max_cycles - elapsed)
                if cycles <= 0:
                    break
            stop = self._measured(simulator, cycles)
            if stop in (Stop.CYCLES, Stop.INTERRUPT):
                yield
        if stop is Stop.FAULT:
            raise AcceleratorError(f"the design broke the protocol: {simulator.fault}")
        if stop is not Stop.INTERRUPT:
            elapsed = simulator.cycles - begin
            status = simulator.read_register(registers.STATUS)
            _, descriptor = registers.status_error(status)
            raise AcceleratorError(
                f"not done after {elapsed} cycles"
                + (f", {self._watchdog_cycles} without a transfer" if stop is Stop.IDLE else "")
                + f": STATUS 0x{status:08x}, descriptor {descriptor}"
            )
