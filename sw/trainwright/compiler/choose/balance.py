"""Balance the arrays over a whole program, where blocks of samples follow each other.

In such a program no array waits for the other one, as it always has work of the block before. So
only the sums of both arrays' cycles count, and every place where an operation is divided can be
moved until the sums are equal. ``choose`` calls ``balanced`` for each of its last states.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainwright.compiler.choose.clocks import SearchState
from trainwright.compiler.forms.choices import Choice, Cut, Pad, Work
from trainwright.compiler.forms.impls import Impl
from trainwright.graph.ir import Einsum, Graph

ROUNDS = 3
"""Times that every division is moved to its best place; each move changes what is best for the
rest."""

Cycles = Callable[[Einsum, Impl, Cut], float]
"""Cycles of an array for an operation, or for its values in a cut."""


@dataclass(frozen=True)
class Balanced:
    """Choices, and the cycles of the busier array or of the loads."""

    cycles: float
    choices: tuple[Choice, ...]
    pads: tuple[Pad, ...]


@dataclass(frozen=True)
class _Joint:
    """Operations that are divided at one place of one axis."""

    axis: str
    size: int
    unit: int
    places: tuple[int, ...]
    """Places of the operations among all choices."""


def _joints(graph: Graph, choices: Sequence[Choice], lanes: int) -> Iterator[_Joint]:
    """Yield what is divided together.

    Usually that is one operation. Where a tensor lies in two layouts, its maker and its readers
    have to be divided at the same value: each array reads the layout that it wrote.
    """
    apart: dict[str, list[int]] = {}
    alone: list[int] = []
    two_layouts = {c.op.out for c in choices if len({w.impl.along for w in c.works if w.impl}) > 1}
    for n, choice in enumerate(choices):
        if len(choice.works) != 2 or not (cut := choice.works[0].cut):
            continue
        linked = two_layouts & {choice.op.out, *choice.op.operands}
        if linked:
            apart.setdefault(cut[0], []).append(n)
        else:
            alone.append(n)
    for places in (*apart.values(), *([n] for n in alone)):
        cut = choices[places[0]].works[0].cut
        assert cut
        every = [w.impl.along for n in places for w in choices[n].works if w.impl]
        unit = lanes if any(cut[0] in along for along in every) else 1
        yield _Joint(cut[0], graph.sizes[cut[0]], unit, tuple(places))


def balanced(graph: Graph, state: SearchState, cycles: Cycles, lanes: int) -> Balanced:
    """Return a state's choices, every division moved to where both arrays have as much to do."""
    choices = list(state.choices)

    def taken(works: Sequence[Work], op: Einsum) -> tuple[float, float]:
        first, second = (cycles(op, work.impl, work.cut) for work in works if work.impl)
        return first, second

    def moved(choice: Choice, joint: _Joint, middle: int) -> Choice:
        first, second = choice.works
        cuts = (joint.axis, 0, middle), (joint.axis, middle, joint.size)
        works = tuple(replace(w, cut=c) for w, c in zip((first, second), cuts, strict=True))
        return replace(choice, works=works)

    dots, outers = state.dots, state.outers
    joints = list(_joints(graph, choices, lanes))
    # Coordinate descent: moving one division changes the sums that the others balance.
    for _ in range(ROUNDS):
        for joint in joints:
            old = [choices[n] for n in joint.places]
            now = [taken(c.works, c.op) for c in old if isinstance(c.op, Einsum)]
            rest = dots - sum(d for d, _ in now), outers - sum(o for _, o in now)
            moves = []
            # All places are tried: cycles jump where a part fills another tile or row of lanes.
            for middle in range(joint.unit, joint.size, joint.unit):
                new = [moved(choice, joint, middle) for choice in old]
                then = [taken(c.works, c.op) for c in new if isinstance(c.op, Einsum)]
                both = rest[0] + sum(d for d, _ in then), rest[1] + sum(o for _, o in then)
                moves.append((max(both), middle, both, new))
            if moves:
                _, _, (dots, outers), new = min(moves, key=lambda move: move[:2])
                for n, choice in zip(joint.places, new, strict=True):
                    choices[n] = choice
    return Balanced(max(dots, outers, state.loads), tuple(choices), state.pads)
