"""How a host runs a program through the registers, over any carrier of its accesses."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import registers
from trainwright.accelerator.interface import AcceleratorError, Counters
from trainwright.parameters import PRESETS, AcceleratorParameters, preset
from trainwright.program.descriptors import Compute, Descriptor, Program
from trainwright.program.engines import EVERY_ENGINE
from trainwright.program.exponents import ExponentFile, MoveScales, require_times
from trainwright.program.sample_order import SampleOrder
from trainwright.program.segments import require_one_run
from trainwright.program.validation import check_program
from trainwright.program.vector import Vector

WORD_BYTES = 4
PAGE_BYTES = 4096
Counts = npt.NDArray[np.int64]


class RegisterPort(Protocol):
    """Registers of an accelerator, as the host reaches them."""

    def read_registers(self, address: int, count: int, /) -> npt.NDArray[np.uint32]:
        """Read ``count`` registers from an address on."""
        ...

    def write_register(self, address: int, value: int, /) -> None:
        """Write one register."""
        ...


def _register(port: RegisterPort, address: int) -> int:
    return int(port.read_registers(address, 1)[0])


def introduce(port: RegisterPort, parameters: AcceleratorParameters) -> None:
    """Raise ``AcceleratorError`` where there is no accelerator of these parameters."""
    identity, fingerprint = port.read_registers(registers.IDENTITY, 2).tolist()
    if identity != registers.IDENTITY_VALUE:
        text = f"its IDENTITY reads 0x{identity:08x}, not 0x{registers.IDENTITY_VALUE:08x}"
        if identity >> 8 == registers.IDENTITY_VALUE >> 8:
            raise AcceleratorError(
                f"the design is of another version: {text}; build and load its bitstream again"
            )
        raise AcceleratorError(f"no accelerator: {text}")
    if fingerprint != parameters.fingerprint:
        known = [name for name in PRESETS if preset(name).fingerprint == fingerprint]
        raise AcceleratorError(
            f"the design has other parameters (fingerprint {fingerprint:08x}, not "
            f"{parameters.fingerprint:08x})" + (f": add --preset {known[0]}" if known else "")
        )


def set_up(
    port: RegisterPort,
    parameters: AcceleratorParameters,
    *,
    memory_bytes: int,
    watchdog_cycles: int = registers.WATCHDOG_CYCLES,
) -> None:
    """Write the registers that a host sets after a reset.

    Of the external memory, ``memory_bytes`` from address 0 on belong to the accelerator.
    """
    port.write_register(registers.INTERRUPT_ENABLE, 1)
    port.write_register(registers.WATCHDOG, watchdog_cycles)
    if parameters.address_checks:
        port.write_register(registers.WINDOW + WORD_BYTES, (memory_bytes - 1) // PAGE_BYTES)


def order(port: RegisterPort, parameters: AcceleratorParameters) -> SampleOrder:
    """Read the order in which samples are drawn.

    Raises ``AcceleratorError`` where the accelerator draws none.
    """
    _require_samples(parameters)
    return SampleOrder(*port.read_registers(registers.ORDER, 3).tolist())


def set_order(port: RegisterPort, parameters: AcceleratorParameters, order: SampleOrder) -> None:
    """Write the order from which samples are drawn next.

    Raises ``AcceleratorError`` where the accelerator draws none.
    """
    _require_samples(parameters)
    for number, value in enumerate((order.next, order.increment, order.left)):
        port.write_register(registers.ORDER + WORD_BYTES * number, value)


def _require_samples(parameters: AcceleratorParameters) -> None:
    if not parameters.sample_loads:
        raise AcceleratorError("this accelerator draws no samples; use one with sample_loads=1")


def exponents(port: RegisterPort, parameters: AcceleratorParameters) -> list[int]:
    """Read the exponent file, by slot; ``AcceleratorError`` where there is none."""
    _require_file(parameters)
    words = port.read_registers(registers.exponents_base(parameters), parameters.exponents)
    return words.view(np.int32).tolist()


def set_exponents(
    port: RegisterPort, parameters: AcceleratorParameters, values: Sequence[int]
) -> None:
    """Write all exponents.

    Raises ``AcceleratorError`` where there is no file, ``ProgramError`` for exponents that it does
    not hold.
    """
    _require_file(parameters)
    ExponentFile(parameters.exponents).set(values)
    base = registers.exponents_base(parameters)
    for slot, value in enumerate(values):
        port.write_register(base + WORD_BYTES * slot, value & 0xFFFFFFFF)


def hand_over(source: RegisterPort, to: RegisterPort, parameters: AcceleratorParameters) -> None:
    """Copy the registers that keep values between runs: order of the samples, exponents."""
    if parameters.sample_loads:
        set_order(to, parameters, order(source, parameters))
    if parameters.exponents:
        set_exponents(to, parameters, exponents(source, parameters))


def step(port: RegisterPort, parameters: AcceleratorParameters) -> int:
    """Read the number of the present step, while a program runs and after.

    Raises ``AcceleratorError`` without an exponent file.
    """
    _require_file(parameters)
    return _register(port, registers.STEP)


def require_repetition(program: Program, times: int, parameters: AcceleratorParameters) -> None:
    """Check that a start can run a program ``times`` times.

    Raises ``AcceleratorError`` if the accelerator does not repeat programs, ``ProgramError`` if
    ``times`` is below 1, or if the program counts more tensors than a run has slots for.
    """
    _require_file(parameters)
    require_times(times)
    require_one_run(program, parameters.statistics_depth)


def require_program(
    program: Program, address: int, parameters: AcceleratorParameters, memory_bytes: int
) -> None:
    """Check that hardware can execute a program at an address of its external memory.

    Raises ``AcceleratorError`` for a program of other parameters, ``ProgramError`` for a program
    that no accelerator executes, ``ValueError`` for an address that is no multiple of a beat.
    """
    if program.fingerprint != parameters.fingerprint:
        raise AcceleratorError("the program was compiled for other accelerator parameters")
    check_program(program, parameters, memory_bytes=memory_bytes)
    if address % parameters.beat_bytes:
        raise ValueError(f"address must be a multiple of the beat size, not {address!r}")


def _require_file(parameters: AcceleratorParameters) -> None:
    if not parameters.exponents:
        raise AcceleratorError(
            "this accelerator has no exponent file and repeats no programs; use one with "
            "exponents=64"
        )


def start(
    port: RegisterPort,
    program: Program,
    address: int,
    parameters: AcceleratorParameters,
    *,
    times: int = 1,
    step: int = 0,
) -> None:
    """Start the program at ``address``.

    With an exponent file it runs ``times`` times, the first as step number ``step``.
    """
    if parameters.exponents:
        port.write_register(registers.TIMES, times)
        port.write_register(registers.STEP, step % (1 << 32))
    port.write_register(registers.PROGRAM_ADDRESS, address)
    port.write_register(registers.PROGRAM_LENGTH, len(program.descriptors))
    port.write_register(registers.CONTROL, registers.CONTROL_START)


def check(port: RegisterPort, program: Program, parameters: AcceleratorParameters) -> None:
    """Raise the error with which the last run ended, if any.

    ``ProgramError`` where the exponent file refused a descriptor, else ``AcceleratorError``.
    """
    status = _register(port, registers.STATUS)
    if not status & registers.STATUS_ERROR:
        return
    code, number = registers.status_error(status)
    if code in registers.OF_FILE and number < len(program.descriptors):
        _refused(port, program.descriptors[number], parameters)
    meaning = registers.MEANINGS.get(code, "not a known error")
    text = f"the accelerator stopped at {_named(program, number)}: error {code}, {meaning}"
    last = port.read_registers(registers.LAST, -(-len(EVERY_ENGINE) // 2)).tolist()
    hung = registers.STATUS_FIELDS["HUNG"].value(status)
    for index, engine in enumerate(EVERY_ENGINE):
        if engine & hung:
            given = last[index // 2] >> 16 * (index % 2) & 0xFFFF
            text += f"; {engine.name} hangs, at {_named(program, given)} or before"
    raise AcceleratorError(text)


def counters(port: RegisterPort) -> Counters:
    """Read the counters of the last run."""
    names = registers.COUNTER_NAMES
    places = [(offset - registers.COUNTERS_BASE) // 4 for offset in registers.COUNTER_OFFSETS]
    read = port.read_registers(registers.COUNTERS_BASE, max(places) + 2)
    words = read.astype(np.uint64).tolist()
    values = {name: words[n] | words[n + 1] << 32 for name, n in zip(names, places, strict=True)}
    return Counters(**values)


def statistics(
    port: RegisterPort, parameters: AcceleratorParameters
) -> tuple[Counts, Counts, Counts]:
    """Read sums, saturations and underflows of the last run, a value a slot each."""
    depth = parameters.statistics_depth
    count = depth * registers.STATISTICS_BYTES // WORD_BYTES
    words = port.read_registers(registers.statistics_base(parameters), count).astype(np.int64)
    words = words.reshape(depth, -1)
    return words[:, 0] | words[:, 1] << 32, words[:, 2], words[:, 3]


def _refused(port: RegisterPort, d: Descriptor, parameters: AcceleratorParameters) -> None:
    """Raise the ``ProgramError`` for which the hardware's exponent file refused ``d``.

    The golden model's file finds the error again, from the exponents that the hardware holds.
    """
    file = ExponentFile(parameters.exponents)
    file.exponents = exponents(port, parameters)
    if isinstance(d, Compute):
        file.shifts(d, parameters.most_alignment)
    elif isinstance(d, Vector):
        file.scalars(d)
    elif isinstance(d, MoveScales):
        # A step down is refused only if the exponent was above its floor.
        file.above = [True] * parameters.exponents
        sums, _, _ = statistics(port, parameters)
        # entries before the refused one have cleared their sums
        entry = next(e for e in d.entries if sums[e.statistics])
        file.move(entry, int(sums[entry.statistics]))


def _named(program: Program, number: int) -> str:
    """Return a descriptor's number with its operation and tensor."""
    if number >= len(program.descriptors):
        return f"descriptor {number}"
    descriptor = program.descriptors[number]
    name = f"{descriptor.operation.name} {getattr(descriptor, 'tensor', '')}".strip()
    return f"descriptor {number} ({name})"
