"""The loop nest against one that counts: steps, addresses and flags of any command."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Mux, Signal

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import COUNT_WIDTH, LOCAL_WIDTH, NEST_LEVELS
from trainwright_hw.compute.loop_nest import LoopNest
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.opened import Opened
from trainwright_sim.formal.proof import Proof

LEVELS = 3
PARAMETERS = AcceleratorParameters(nest_levels=LEVELS)
OPERANDS = ("x", "g", "z")


@dataclass(frozen=True)
class Nest:
    """The fields of a loop nest command, innermost level first.

    ``top`` is the last index of each level. ``delta`` says for each operand by how much its address
    changes when the index of that level changes.
    """

    top: list[Signal]
    reduction: list[Signal]
    tile: list[Signal]
    delta: dict[str, list[Signal]]


@dataclass(frozen=True)
class Position:
    """Indices and addresses of a step."""

    index: list[Any]
    address: dict[str, Any]

    def last(self, nest: Nest) -> list[Any]:
        """Return, for each level, whether it is at its last index."""
        return [index == top for index, top in zip(self.index, nest.top, strict=True)]


def taken(bench: ProofBench, dut: Any) -> Nest:
    """Record the command that the block loads."""

    def kept(value: Any, name: str) -> Signal:
        register = Signal(len(value), name=f"kept_{name}", reset_less=True)
        with bench.m.If(dut.load):
            bench.m.d.sync += register.eq(value)
        return register

    command, numbers = dut.command, [NEST_LEVELS - 1 - level for level in range(LEVELS)]
    counts = [command[f"count{number}"] for number in numbers]
    bench.assume(~dut.load | Cat(count != 0 for count in counts).all())
    return Nest(
        top=[kept((count - 1)[:COUNT_WIDTH], "top") for count in counts],
        reduction=[kept(command.reduce_levels > level, "reduction") for level in range(LEVELS)],
        tile=[kept(command.tile_level == number, "tile") for number in numbers],
        delta={
            name: [kept(command[f"{name}_delta{number}"], name) for number in numbers]
            for name in OPERANDS
        },
    )


def following(bench: ProofBench, nest: Nest, position: Position, name: str) -> Position:
    """Return the next position; the innermost level counts fastest.

    Addresses change by the deltas of the innermost level that is not at its last index. After the
    last position they stay.
    """

    def wire(value: Any, width: int) -> Signal:
        signal = Signal(width, name=name)
        bench.m.d.comb += signal.eq(value)
        return signal

    index, address, moves = [], dict(position.address), Const(1)
    for level, last in enumerate(position.last(nest)):
        old = position.index[level]
        index.append(wire(Mux(moves, Mux(last, 0, old + 1), old), COUNT_WIDTH))
        for operand in OPERANDS:
            moved = position.address[operand] + nest.delta[operand][level]
            address[operand] = Mux(moves & ~last, moved, address[operand])
        moves = wire(moves & last, 1)
    return Position(index, {o: wire(value, LOCAL_WIDTH) for o, value in address.items()})


def reference(bench: ProofBench, dut: Any, nest: Nest) -> tuple[Position, Position, Position]:
    """Return the step that is due, and the two steps after it."""
    m = bench.m
    now = Position(
        [Signal(COUNT_WIDTH, name=f"index_{level}") for level in range(LEVELS)],
        {operand: Signal(LOCAL_WIDTH, name=f"{operand}_address") for operand in OPERANDS},
    )
    after = following(bench, nest, now, "after")
    beyond = following(bench, nest, after, "beyond")
    with m.If(dut.load):
        m.d.sync += [index.eq(0) for index in now.index]
        m.d.sync += [now.address[o].eq(dut.command[f"{o}_base"]) for o in OPERANDS]
    with m.Elif(dut.step.valid & dut.step.ready):
        m.d.sync += [old.eq(new) for old, new in zip(now.index, after.index, strict=True)]
        m.d.sync += [now.address[o].eq(after.address[o]) for o in OPERANDS]
    for index, top in zip(now.index, nest.top, strict=True):
        bench.lemma(dut.free | (index <= top))
    return now, after, beyond


def is_step(step: Any, nest: Nest, at: Position) -> Any:
    """Return whether a step's addresses and flags belong to a position."""
    last = at.last(nest)
    first = [index == 0 for index in at.index]
    return Cat(
        *(step[name] == at.address[name] for name in OPERANDS),
        step.first == Cat(f | ~r for f, r in zip(first, nest.reduction, strict=True)).all(),
        step.last == Cat(f | ~r for f, r in zip(last, nest.reduction, strict=True)).all(),
        step.tile_last == Cat(f | ~t for f, t in zip(last, nest.tile, strict=True)).all(),
        step.final == Cat(last).all(),
    ).all()


def indices_at(inside: Opened, nest: Nest, at: Position) -> Any:
    """Return whether the block's counters are those of a position."""
    return Cat(
        Cat(
            level.remaining == nest.top[n] - at.index[n],
            level.end == (at.index[n] == nest.top[n]),
            level.start == (at.index[n] == 0),
        ).all()
        for n, level in enumerate(inside["levels"])
    ).all()


def settings(bench: ProofBench, inside: Opened, nest: Nest) -> Any:
    """Return whether the block's registers hold the command."""
    return Cat(
        Cat(
            level.top == nest.top[n],
            level.is_reduction == nest.reduction[n],
            level.is_tile == nest.tile[n],
            *(level.delta[o] == nest.delta[o][n] for o in OPERANDS),
        ).all()
        for n, level in enumerate(inside["levels"])
    ).all()


def chosen(inside: Opened, nest: Nest, at: Position) -> Any:
    """Return whether the block has selected the deltas that lead from a position to the next."""
    right: Any = Const(1)  # after the last one it does not
    for level, last in reversed([*enumerate(at.last(nest))]):
        these = Cat(inside["delta"][o] == nest.delta[o][level] for o in OPERANDS).all()
        right = Mux(last, right, these)
    return right


def steps(bench: ProofBench, block: Any) -> None:
    """Claim that the block offers every position in order.

    The block runs one step ahead of its output, and two steps while the skid buffer holds one.
    """
    dut = block(PARAMETERS)
    inside = bench.add(dut)
    bench.assume(~dut.load | dut.free)
    nest = taken(bench, dut)
    now, after, beyond = reference(bench, dut, nest)
    bench.goal(~dut.step.valid | ~dut.free)
    bench.goal(~dut.step.valid | is_step(dut.step.payload, nest, now))
    bench.goal(dut.free | dut.step.valid | inside["prime"])

    prime, valid, step = inside["prime"], inside["valid"], inside["step"]
    holding, held = inside["skid"].holding, inside["skid.held"]
    final = Cat(now.last(nest)).all()
    at_start = Cat(index == 0 for index in now.index).all()
    bench.lemma(~dut.free | ~(prime | valid | holding))
    bench.lemma(dut.free | prime | valid | holding)
    bench.lemma(dut.free | settings(bench, inside, nest))
    bases = Cat(step[o] == now.address[o] for o in OPERANDS).all()
    bench.lemma(~prime | (~valid & ~holding & at_start & bases & indices_at(inside, nest, now)))
    offered = valid & ~holding
    bench.lemma(~offered | (is_step(step, nest, now) & indices_at(inside, nest, after)))
    bench.lemma(~offered | chosen(inside, nest, now))
    bench.lemma(~holding | is_step(held, nest, now))
    two = valid & holding
    bench.lemma(~two | (is_step(step, nest, after) & indices_at(inside, nest, beyond)))
    bench.lemma(~two | chosen(inside, nest, after))
    bench.lemma(~holding | (valid == ~final))


PROOFS = (
    Proof(
        name="loop-nest.steps",
        claim="each step of the command's loops comes once, with its addresses and flags",
        block=LoopNest,
        build=steps,
        mutant=Mutant("level.end.eq(level.remaining == 1)", "level.end.eq(level.remaining == 2)"),
    ),
)
