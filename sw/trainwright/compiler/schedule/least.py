"""The rows that a program needs in whatever order its commands are issued."""

from collections.abc import Sequence

from trainwright.compiler.base.errors import DoesNotFitError
from trainwright.compiler.base.limits import SCRATCHPAD
from trainwright.compiler.forms.calls import Call
from trainwright.compiler.forms.layout import Storage
from trainwright.compiler.schedule.place import lifetimes
from trainwright.compiler.schedule.schedule import dependencies
from trainwright.parameters import AcceleratorParameters


def held(calls: Sequence[Call]) -> list[Storage]:
    """The pieces that are there at one command in any order of issue, where these take most rows:
    those that it touches, and those written before it and read after it because one command needs
    the results of another.
    """
    needs = dependencies(calls)
    before, after = _before(needs), _after(needs)
    touching: dict[Storage, list[int]] = {}
    writing: dict[Storage, int] = {}
    reading: dict[Storage, int] = {}
    for n, call in enumerate(calls):
        for storage in set(call.storages):
            touching.setdefault(storage, []).append(n)
        for piece in call.writes:
            writing[piece.storage] = writing.get(piece.storage, 0) | 1 << n
        for piece in call.reads:
            reading[piece.storage] = reading.get(piece.storage, 0) | 1 << n
    rows = [0] * len(calls)
    at: list[list[Storage]] = [[] for _ in calls]
    for storage, mine in touching.items():
        writers, readers = writing.get(storage, 0), reading.get(storage, 0)
        first, last = mine[0], mine[-1]
        for n in range(first, last + 1):
            touches = (writers | readers) >> n & 1
            if touches or (before[n] & writers and after[n] & readers):
                rows[n] += storage.rows
                at[n].append(storage)
    return max(zip(rows, at, strict=True), key=lambda one: one[0])[1] if calls else []


def _before(needs: Sequence[Sequence[int]]) -> list[int]:
    """For each command a bit for every one whose results it needs, or those that needs."""
    found: list[int] = []
    for mine in needs:
        total = 0
        for n in mine:
            total |= found[n] | 1 << n
        found.append(total)
    return found


def _after(needs: Sequence[Sequence[int]]) -> list[int]:
    """The same the other way round."""
    found = [0] * len(needs)
    for n, mine in reversed(list(enumerate(needs))):
        for one in mine:
            found[one] |= found[n] | 1 << n
    return found


def alive(calls: Sequence[Call]) -> list[Storage]:
    """The pieces that are there at the command of this order of issue at which most rows are."""
    events: dict[int, int] = {}
    lives = list(lifetimes(calls).values())
    for life in lives:
        events[life.first] = events.get(life.first, 0) + life.storage.rows
        events[life.last + 1] = events.get(life.last + 1, 0) - life.storage.rows
    total = most = at = 0
    for n in sorted(events):
        total += events[n]
        if total > most:
            most, at = total, n
    return [life.storage for life in lives if life.first <= at <= life.last]


def require_rows(pieces: Sequence[Storage], p: AcceleratorParameters) -> None:
    """Raise ``DoesNotFitError``, naming the largest, where there are no rows for all of them."""
    total = sum(storage.rows for storage in pieces)
    if total > p.scratchpad_rows:
        worst = max(pieces, key=lambda storage: (storage.rows, storage.name))
        raise DoesNotFitError(
            f"{worst.name} needs {worst.rows} {SCRATCHPAD.what}, there are {p.scratchpad_rows}, "
            f"{total - worst.rows} of them needed for what is used with it",
            SCRATCHPAD.advice(total, p),
        )
