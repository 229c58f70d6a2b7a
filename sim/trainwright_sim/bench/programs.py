"""Programs for the sequencer alone, an interpreter of them, and engines that take their time."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from trainwright.accelerator.registers import Error
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    CLASSES,
    Compute,
    Descriptor,
    End,
    Halt,
    Level,
    Loop,
    Set,
    Transfer,
    TransferLevel,
)
from trainwright.program.encoding import encode_descriptor
from trainwright.program.engines import ENGINES, SPEC_OF
from trainwright.program.fields import (
    COUNT_WIDTH,
    FORMAT_WIDTH,
    LOCAL_WIDTH,
    NEST_LEVELS,
    REGISTERS,
    TRANSFER_LEVELS,
    Engine,
    Operation,
)
from trainwright.program.table import unpacked
from trainwright_hw.control.engine_ports import used_bits
from trainwright_sim.bench.testbench import Stalls, TestBench

NAMES = {spec.unit: spec.engine for spec in ENGINES}
LAYOUT = {spec.unit: Compute.layout if spec.rows_parameter else Transfer.layout for spec in ENGINES}
ENGINE = {o: s.unit for o, s in SPEC_OF.items() if CLASSES[o] in (Compute, Transfer)}


@dataclass(frozen=True)
class Issue:
    """Command that an engine must receive."""

    engine: str
    fields: dict[str, int]
    number: int


def interpret(
    program: Sequence[Descriptor], parameters: AcceleratorParameters
) -> tuple[list[Issue], Error, int]:
    """Return a program's commands, its final error, and the number of its last descriptor."""
    used = used_bits(parameters)
    registers, issued, loops = [0] * REGISTERS, [], []
    number = 0
    while number < len(program):
        d = program[number]
        raw = unpacked(d.layout, int.from_bytes(encode_descriptor(d), "little"))
        match d:
            case Halt():
                return issued, Error.NONE, number
            case Set():
                for register, value in d.values:
                    registers[register] = value % (1 << 32)
            case Loop():
                if len(loops) == parameters.loop_depth:
                    return issued, Error.NESTING, number
                loops.append([number, d.iterations])
            case End():
                if not loops:
                    return issued, Error.NESTING, number
                for register, step in d.steps:
                    registers[register] = (registers[register] + step) % (1 << 32)
                loops[-1][1] -= 1
                if loops[-1][1]:
                    number = loops[-1][0]
                else:
                    loops.pop()
            case Transfer() | Compute():
                bases = {"address": 32, "local": LOCAL_WIDTH, "x_base": LOCAL_WIDTH,
                         "g_base": LOCAL_WIDTH, "z_base": LOCAL_WIDTH}  # fmt: skip
                for name, width in bases.items():
                    if name in raw:
                        register = registers[raw[name.removesuffix("_base") + "_register"]]
                        raw[name] = (raw[name] + register) % (1 << width)
                for name, width in used.items():
                    if name in raw:
                        raw[name] %= 1 << width
                issued.append(Issue(ENGINE[d.operation], raw, number))
        number += 1
    return issued, Error.OPERATION, number


class EngineModel:
    """Takes commands now and then; busy for a while after each."""

    def __init__(self, tb: TestBench, name: str, stalls: Stalls):
        self._tb, self._name, self._stalls = tb, name, stalls
        self._left = 0
        self.dead = False
        """Whether the engine stays busy for ever with its next command of a program."""
        self._ready = False
        self._held: int | None = None
        tb.set(**{f"{name}_ready": 0})

    @property
    def busy(self) -> bool:
        return self._left > 0

    def stay_busy(self, cycles: int) -> None:
        """Stay busy for ``cycles`` cycles from now on."""
        self._left = cycles

    def die(self) -> None:
        """Stay busy for ever."""
        self.stay_busy(1 << 30)

    def cycle(self) -> int | None:
        """Simulate one cycle; return the command taken in it."""
        tb, taken = self._tb, None
        offered = None
        if tb.get(f"{self._name}_valid"):
            offered = tb.get(f"{self._name}_payload")
        held = None if self.dead else self._held  # a run that hangs ends all the same
        assert held in (None, offered), f"{self._name}: a command was withdrawn or changed"
        self._held = offered
        self._left = max(0, self._left - 1)
        if offered is not None and self._ready:
            taken, self._held = offered, None
            self._left += tb.random.choice((1, 3, tb.random.randrange(1, 40)))
        # busy or not: engines take a command while the last one is still moving
        alive = not (self.dead and self.busy)
        self._ready = alive and self._stalls.go(wanted=self._held is not None)
        tb.set(**{f"{self._name}_ready": int(self._ready)})
        return taken


def random_waits(random: Random) -> dict[str, Any]:
    """Draw the engines that a descriptor waits for."""
    draw = random.randrange
    return {name: Engine(random.choice((0, 0, 15, draw(16)))) for name in ("wait", "wait_older")}


def random_command(random: Random) -> Descriptor:
    """Draw a descriptor of an engine, with any value in every field that the engine sees."""
    draw, register = random.getrandbits, lambda: random.randrange(REGISTERS)

    def count() -> int:
        return 1 + random.randrange((1 << COUNT_WIDTH) - 1)

    operation = random.choice(list(ENGINE))
    if operation in (Operation.LOAD, Operation.STORE):
        levels = random.randrange(TRANSFER_LEVELS + 1)
        return Transfer(
            operation=operation, address=draw(32), local=draw(LOCAL_WIDTH), beats=count(),
            address_register=register(), local_register=register(),
            levels=tuple(
                TransferLevel(count(), draw(32), draw(LOCAL_WIDTH)) for _ in range(levels)
            ),
            element_bytes=random.choice((1, 2)), **random_waits(random),
        )  # fmt: skip
    names = ("x", "g", "z", "x_row_stride", "z_row_stride", "g_row_stride")
    levels = random.randint(1, NEST_LEVELS)
    return Compute(
        operation=operation,
        levels=tuple(
            Level(count(), *(draw(LOCAL_WIDTH) for _ in range(3))) for _ in range(levels)
        ),
        **{name: draw(LOCAL_WIDTH) for name in names},
        reduce_levels=random.randrange(levels), tile_level=random.randrange(levels),
        last_rows=1 + draw(4), shift=draw(6), out_width=1 + draw(4), slot=draw(8),
        relu=bool(draw(1)), x_shift=draw(4), g_shift=draw(4),
        x_register=register(), g_register=register(), z_register=register(),
        **{f"{name}_format": draw(FORMAT_WIDTH) for name in "xgz"},
        stochastic=bool(draw(1)), underflow_zero=bool(draw(1)), digits=draw(1),
        **random_waits(random),
    )  # fmt: skip
