"""Find the rows that a program needs in whatever order its commands are issued.

``step.drafts`` drops a program by ``held`` before it is issued, which takes some 5 ms.
"""

from collections.abc import Sequence

from trainwright.compiler.forms.calls import Call
from trainwright.compiler.forms.layout import Storage
from trainwright.compiler.schedule.schedule import dependencies


def held(calls: Sequence[Call]) -> list[Storage]:
    """Return the pieces that are alive together at some command in any order of issue.

    Of all commands the one is taken at which these pieces have most rows. Pieces that the command
    touches are alive, and pieces written before it and read after it, where "before" and "after"
    follow from results that commands need of each other.
    """
    # Sets of commands are integers with a bit for each command: a few hundred to a few thousand
    # commands make whole sets cheap to intersect.
    needs = dependencies(calls)
    before, after = _before(needs), _after(needs)
    touching: dict[Storage, list[int]] = {}
    writing: dict[Storage, int] = {}
    reading: dict[Storage, int] = {}
    for n, call in enumerate(calls):
        for storage in set(call.storages):
            touching.setdefault(storage, []).append(n)
        for storage in call.targets:
            writing[storage] = writing.get(storage, 0) | 1 << n
        for storage in call.sources:
            reading[storage] = reading.get(storage, 0) | 1 << n
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
    return max(zip(rows, at, strict=True), key=lambda entry: entry[0])[1] if calls else []


def _before(needs: Sequence[Sequence[int]]) -> list[int]:
    """Return for each command the set of commands that must precede it, as bits."""
    earlier: list[int] = []
    for mine in needs:
        total = 0
        for n in mine:
            total |= earlier[n] | 1 << n
        earlier.append(total)
    return earlier


def _after(needs: Sequence[Sequence[int]]) -> list[int]:
    """Return for each command the set of commands that must follow it, as bits."""
    later = [0] * len(needs)
    for n, mine in reversed(list(enumerate(needs))):
        for earlier in mine:
            later[earlier] |= later[n] | 1 << n
    return later
