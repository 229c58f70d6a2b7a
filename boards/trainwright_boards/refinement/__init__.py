"""Moves cells of a placed ECP5 design to where its longest paths become shorter.

nextpnr's placers weigh nets by their share of the longest path, and mostly see wire: a register
may lie at one end of the device with all of its users at the other. Here what lies on long paths
moves, alone (``single_moves``) and in groups (``group_moves``), by the estimate of
``PlacedTiming``. Half of the device is empty, so that places are nearly always free, and nothing
has to be exchanged.

``refine`` is all that a build calls, and ``--no-refine`` builds without it: nothing else imports
what is in here.
"""

from typing import Any, NamedTuple

from trainwright_boards.job import REPORT_IT
from trainwright_boards.refinement.group_moves import GroupMoves
from trainwright_boards.refinement.movable import Movable
from trainwright_boards.refinement.placed import Placed
from trainwright_boards.refinement.single_moves import SingleMoves
from trainwright_boards.refinement.slice_rules import broken_rules
from trainwright_boards.tools import BuildError

PASSES, FEW = 10, 20
"""Of single moves one after the other, at most, and how few moves of a pass end that."""
ROUNDS = 4
"""Of groups, and then single moves again."""


class Refined(NamedTuple):
    """The longest path by estimate, ns, before and after, and how many moves there were."""

    before: float
    after: float
    moved: int


def refine(module: dict[str, Any]) -> Refined:
    """Change the module of a placed design; the same one gives the same result.

    Raises ``BuildError`` where a move broke a rule of the slices.
    """
    placed = Placed(module)
    known = broken_rules(placed)
    movable = Movable(placed)
    single, groups = SingleMoves(movable), GroupMoves(movable)
    before, moved = movable.timing.longest, _alone(single)
    for _ in range(ROUNDS):
        together = groups.run()
        if not together:
            break
        moved += together + _alone(single)
    if broken := broken_rules(Placed(module)) - known:
        raise BuildError(f"moved to where it must not be: {'; '.join(sorted(broken))}. {REPORT_IT}")
    return Refined(before, movable.timing.longest, moved)


def _alone(single: SingleMoves) -> int:
    moved = 0
    for _ in range(PASSES):
        now = single.run()
        moved += now
        if now < FEW:
            break
    return moved
