"""``trainwright trace``: a look inside the accelerator while chosen descriptors execute."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import numpy as np

from trainwright.accelerator import Accelerator, CommandRecord, FileAccelerator, Run
from trainwright.cli.backend import SimulationOptions, opened, opened_for
from trainwright.cli.declare import command as make_command
from trainwright.cli.errors import OptionError
from trainwright.cli.listing import PARTS, check_part
from trainwright.cli.options import (
    SeedOptions,
    StepOptions,
    UpdateOptions,
    accelerator_and_place,
)
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Descriptor,
    End,
    Halt,
    Loop,
    Program,
    Transfer,
    is_skipped,
)
from trainwright.program.encoding import encode_descriptors
from trainwright.program.engines import ENGINE_OF
from trainwright.program.fields import EIGHTH, Operation
from trainwright.program.listing import listing
from trainwright.support.errors import file_errors
from trainwright.support.files import check_folder, write_whole
from trainwright.support.native.cache import Cache
from trainwright.support.settings import OneOf, Option
from trainwright.support.text import amount

if TYPE_CHECKING:
    from trainwright.check.parts import PreparedPart, RandomStep

SUFFIX = ".fst"


def parse_range(text: str) -> tuple[int, int]:
    """Read ``12`` or ``12..15``, ends included."""
    match = re.fullmatch(r"([0-9]+)(?:\.\.([0-9]+))?", text)
    if match is None:
        raise ValueError(f"must be a number such as 12, or a range such as 12..15, not {text!r}")
    first = int(match[1])
    last = first if match[2] is None else int(match[2])
    if last < first:
        raise ValueError(f"must begin with the smaller number, not {text!r}")
    return first, last


_RANGE = Option(metavar="N[..M]", parse=parse_range)


class TraceOptions(StepOptions, UpdateOptions, SeedOptions, SimulationOptions):
    """Execute a training step with random operands, and show what chosen descriptors do.

    Prints the descriptors as `listing` does, with the shifts that are bound for the step, and the
    cycles of each execution.

    With --out the simulated hardware writes a waveform from the cycle that accepts the first
    descriptor to the cycle in which the last one is done, for GTKWave or Surfer; a cycle takes 10
    units of time, so that the time without its last digit is the cycle of the listing. FILE.txt
    next to it has the whole program with cycles, and the address of each tensor in external memory.
    The first waveform of an accelerator compiles a simulator of its own, for some minutes.

    With --update chip a step has programs of loss and update, too. Some descriptors execute in one
    step of eight: an accelerator that trains alone runs the first step that executes most of the
    chosen ones.

    With --rows the program stops behind the last descriptor, and rows of the scratchpad are printed
    as they are then: on the golden model, in simulation or on a board.

    Examples
    --------
      trainwright trace digits --descriptor 8 --out load.fst
      trainwright trace digits --descriptor 8..9 --signals 'pe1.*' --out pe1.fst
      trainwright trace digits --part backward --descriptor 4 --rows 0..7 --backend golden
      trainwright trace digits --update chip --part step --descriptor 109 --out update.fst
    """

    descriptor: Annotated[tuple[int, int], _RANGE]
    """descriptors by their numbers in the listing"""
    part: Annotated[str | None, OneOf(PARTS)] = None
    """program that has the descriptors (default: forward, or step)"""
    out: Annotated[Path | None, Option(metavar="FILE.fst")] = None
    """write a waveform there, and the listing next to it"""
    signals: Annotated[tuple[str, ...], Option(metavar="GLOB")] = ()
    """signals of the waveform by name, such as 'pe1.*' or '*.ready'; '*' for all (default: all but
    those inside of the arrays, the vector unit and the write-back lanes)"""
    rows: Annotated[tuple[int, int] | None, _RANGE] = None
    """stop behind the last descriptor and print these rows of the scratchpad"""
    backend: Annotated[str, Option(metavar="NAME")] = "rtl"
    """back end to execute the step"""


def depth_behind(descriptors: Sequence[Descriptor], number: int) -> int:
    """Count the loops that are open behind a descriptor."""
    kinds = [type(d) for d in descriptors[: number + 1]]
    return kinds.count(Loop) - kinds.count(End)


def stopped(
    program: Program, number: int, rows: tuple[int, int], address: int, accelerator: Accelerator
) -> Program:
    """Return the program up to a descriptor, which then stores rows of the scratchpad.

    Raises ``ValueError`` where the descriptor is inside of a loop.
    """
    if depth_behind(program.descriptors, number):
        ends = [n for n, d in enumerate(program.descriptors) if isinstance(d, End) and n > number]
        end = next(n for n in ends if not depth_behind(program.descriptors, n))
        raise ValueError(
            f"descriptor {number} is inside of a loop, where no program can stop: stop behind the "
            f"loop, at descriptor {end}"
        )
    p, first = accelerator.parameters, rows[0]
    store = Transfer(
        operation=Operation.STORE, wait=Halt().wait, element_bytes=p.word_width // 8,
        address=address, local=first, beats=row_bytes(accelerator, rows) // p.beat_bytes,
    )  # fmt: skip
    return replace(program, descriptors=(*program.descriptors[: number + 1], store, Halt()))


def row_bytes(accelerator: Accelerator, rows: tuple[int, int]) -> int:
    """Return the bytes of rows in external memory."""
    p = accelerator.parameters
    return (rows[1] - rows[0] + 1) * p.lanes * (p.word_width // 8)


def commands_within(descriptors: Sequence[Descriptor], asked: tuple[int, int]) -> tuple[int, int]:
    """Return the first and the last command of an engine among descriptors."""
    first, last = asked
    if last >= len(descriptors):
        raise OptionError(
            f"--descriptor {last}: the program has descriptors 0 to {len(descriptors) - 1}"
        )
    commands = [n for n, d in enumerate(descriptors) if d.operation in ENGINE_OF]
    inside = [n for n in commands if first <= n <= last]
    if not inside:
        near = min(commands, key=lambda n: abs(n - first))
        raise OptionError(
            f"--descriptor {first}: {descriptors[first].operation.name} is executed by the "
            f"sequencer and no engine; the nearest command of an engine is {near}"
        )
    return inside[0], inside[-1]


def annotated(
    program: Program, commands: Sequence[CommandRecord] | None, first: int, last: int
) -> list[str]:
    """List descriptors ``first`` to ``last``, with the cycles of their executions in front."""
    spans: dict[int, list[str]] = {}
    for command in commands or ():
        spans.setdefault(command.number, []).append(f"{command.start}..{command.end}")
    lines, number = [], -1
    for line in listing(program).splitlines():
        if re.match(r" *\d+ {2}", line) and not line.startswith(" " * 8):
            number = int(line.split(maxsplit=1)[0])
        if first <= number <= last:
            cycles = (
                ", ".join(spans.get(number, ["-"])) if line.lstrip().startswith(str(number)) else ""
            )
            lines.append(f"{cycles:>16}  {line}")
    return lines


def memory_map(step: "RandomStep") -> list[str]:
    """List the buffers in external memory by address."""
    lines = ["; address    bytes  tensor in external memory"]
    for name, buffer in sorted(step.buffers.items(), key=lambda item: item[1].address):
        lines.append(f"; {buffer.address:#09x} {buffer.size:8d}  {name}")
    return lines


def first_step(descriptors: Sequence[Descriptor], asked: tuple[int, int], begin: int) -> int:
    """Return the first step from ``begin`` on that executes most of the chosen descriptors."""
    chosen = descriptors[asked[0] : asked[1] + 1]
    return min(
        range(begin, begin + EIGHTH), key=lambda step: sum(is_skipped(d, step) for d in chosen)
    )


def _check(options: TraceOptions) -> None:
    if options.out is None and options.signals:
        raise OptionError("--signals is for a waveform: add --out FILE.fst")
    if options.out is None:
        return
    if options.backend != "rtl":
        raise OptionError(f"--out is for the simulated hardware, not --backend {options.backend}")
    if options.engine is not None:
        raise OptionError(f"--engine {options.engine} writes no waveforms: omit it")
    if find_spec("pywellen") is None:
        raise OptionError("--out needs the package pywellen: pip install 'trainwright[sim]'")
    if not options.out.parent.is_dir():
        raise OptionError(f"--out: there is no folder {str(options.out.parent)!r}")
    if options.out.suffix != SUFFIX:
        raise OptionError(f"--out must end in {SUFFIX}, not {str(options.out)!r}")
    with file_errors(f"--out: cannot write {str(options.out)!r}"):
        check_folder(options.out.parent)


@dataclass(frozen=True)
class _Observed:
    """Program with its run, the rows that it stored, and the step that it belongs to."""

    program: Program
    run: Run
    rows: bytes
    parameters: AcceleratorParameters
    memory: list[str]
    """Lines about the buffers in external memory."""


def _prepared(
    options: TraceOptions, network: Network, accelerator: Accelerator, place: str
) -> tuple["RandomStep", "PreparedPart", Program, tuple[int, int]]:
    """Execute the step up to the chosen program.

    Returns the step, the program, the program to run (with --rows cut behind the last chosen
    descriptor), and the numbers of the first and the last chosen command. Raises ``ValueError`` for
    descriptors or rows that do not exist.
    """
    from trainwright.check.parts import RandomStep

    step = RandomStep(
        network, options.batch, accelerator, place, seed=options.seed, plan=options.plan
    )
    part = options.part or ("step" if place == "alone" else "forward")
    check_part(part, step.names)
    prepared = step.prepared(part)
    executed = prepared.program
    commands = commands_within(executed.descriptors, options.descriptor)
    if options.rows is not None:
        _check_rows(options.rows, step.free, accelerator)
        _, end = options.descriptor
        executed = stopped(executed, end, options.rows, step.free.start, accelerator)
    return step, prepared, executed, commands


def _observed(options: TraceOptions) -> _Observed:
    """Execute the step up to the program, then the program or a part of it."""
    network = options.network_named(options.network)
    chosen = replace(options, engine="waves") if options.out else options
    p, place = accelerator_and_place(options, network)
    if options.signals:
        _check_signals(options.signals, p)
    if options.backend != "golden":
        # Refuse descriptors and rows before the simulator is built, which takes minutes.
        with opened("golden", p) as golden:
            _prepared(options, network, golden, place)
    with opened_for(chosen, p) as accelerator:
        step, prepared, executed, (first, last) = _prepared(options, network, accelerator, place)
        program, address = prepared.program, prepared.address
        if options.out:
            from trainwright_sim.backend import RtlAccelerator
            from trainwright_sim.waves import Waveform

            assert isinstance(accelerator, RtlAccelerator)
            accelerator.waveform = Waveform(options.out, first, last, options.signals)
        if place == "alone":
            number = first_step(program.descriptors, options.descriptor, prepared.step)
            encoded = np.frombuffer(encode_descriptors(executed), np.uint8)
            accelerator.write(address, encoded)
            run = cast(FileAccelerator, accelerator).repeat(
                executed, 1, address=address, step=number, trace=True
            )
        else:
            run = accelerator.run(executed, address, trace=True)
        size = row_bytes(accelerator, options.rows) if options.rows else 0
        stored = accelerator.read(step.free.start, size).tobytes()
    return _Observed(program, run, stored, p, memory_map(step))


def _check_signals(patterns: Sequence[str], p: AcceleratorParameters) -> None:
    """Refuse patterns without a signal, by the design that the simulator is built from."""
    from trainwright_sim.design import kept_rtlil
    from trainwright_sim.waves import design_names, selected

    selected(design_names(kept_rtlil(p, trace=True, cache=Cache())[0]), patterns)


def _check_rows(rows: tuple[int, int], free: range, accelerator: Accelerator) -> None:
    p = accelerator.parameters
    if rows[1] >= p.scratchpad_rows:
        raise OptionError(f"--rows {rows[1]}: the scratchpad has rows 0 to {p.scratchpad_rows - 1}")
    room = len(free) // row_bytes(accelerator, (0, 0))
    if rows[1] - rows[0] + 1 > room:
        raise OptionError(
            f"--rows: external memory has room for {amount(room, 'row')} behind the step's data"
        )


def _run(options: TraceOptions) -> int:
    _check(options)
    try:
        seen = _observed(options)
    except ValueError as error:
        raise OptionError(str(error)) from None
    program, commands = seen.program, seen.run.commands
    print("          cycles    no  descriptor")
    print("\n".join(annotated(program, commands, *options.descriptor)))
    if options.rows is not None:
        p = seen.parameters
        words = np.frombuffer(seen.rows, f"<i{p.word_width // 8}").reshape(-1, p.lanes)
        for number, row in enumerate(words, options.rows[0]):
            print(f"row {number:5d}  {' '.join(f'{word:6d}' for word in row)}")
    if options.out is not None:
        whole = annotated(program, commands, 0, len(program.descriptors) - 1)
        text = options.out.with_suffix(".txt")
        with file_errors(f"--out: cannot write {str(text)!r}"):
            write_whole(text, "\n".join([*whole, *seen.memory]) + "\n")
        print(f"written: {options.out} ({options.out.stat().st_size:,} bytes), {text}")
    return 0


command = make_command(
    TraceOptions, _run, "trace", "waveform, cycles and rows of chosen descriptors"
)
