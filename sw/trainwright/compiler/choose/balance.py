"""Arrays balanced over a whole program, where blocks of samples follow each other."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainwright.compiler.choose.clocks import State
from trainwright.compiler.forms.choices import Choice, Cut, Pad, Work
from trainwright.compiler.forms.impls import Impl
from trainwright.graph.ir import Einsum, Graph

ROUNDS = 3
"""Times that every division is moved to where the arrays are balanced best."""

Cycles = Callable[[Einsum, Impl, Cut], float]


@dataclass(frozen=True)
class Balanced:
    """Choices, and the cycles of the array that has more to do, or of the loads."""

    cycles: float
    choices: tuple[Choice, ...]
    pads: tuple[Pad, ...]


@dataclass(frozen=True)
class _Joint:
    """Operations divided at one place of one axis."""

    axis: str
    size: int
    unit: int
    places: tuple[int, ...]
    """Among all choices."""


def _joints(graph: Graph, choices: Sequence[Choice], lanes: int) -> Iterator[_Joint]:
    """What is divided together: an operation alone, or all along one axis where a tensor that one
    of them makes lies in two layouts.
    """
    apart: dict[str, list[int]] = {}
    alone: list[int] = []
    there = {c.op.out for c in choices if len({w.impl.along for w in c.works if w.impl}) > 1}
    for n, choice in enumerate(choices):
        if len(choice.works) != 2 or not (cut := choice.works[0].cut):
            continue
        linked = there & {choice.op.out, *choice.op.operands}
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


def balanced(graph: Graph, state: State, cycles: Cycles, lanes: int) -> Balanced:
    """The choices of a state with every division moved to where both arrays have as much to do."""
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
    for _ in range(ROUNDS):
        for joint in joints:
            some = [choices[n] for n in joint.places]
            now = [taken(c.works, c.op) for c in some if isinstance(c.op, Einsum)]
            rest = dots - sum(d for d, _ in now), outers - sum(o for _, o in now)
            found = []
            for middle in range(joint.unit, joint.size, joint.unit):
                new = [moved(choice, joint, middle) for choice in some]
                then = [taken(c.works, c.op) for c in new if isinstance(c.op, Einsum)]
                both = rest[0] + sum(d for d, _ in then), rest[1] + sum(o for _, o in then)
                found.append((max(both), middle, both, new))
            if found:
                _, _, (dots, outers), new = min(found, key=lambda one: one[:2])
                for n, choice in zip(joint.places, new, strict=True):
                    choices[n] = choice
    return Balanced(max(dots, outers, state.loads), tuple(choices), state.pads)
