"""The order in which commands are issued: by when they start, as an estimate has it.

Each engine keeps the order of its commands; what is loaded comes as late as it can.
"""

from collections.abc import Sequence

from trainwright.lowering.calls import Call, Clear, Move
from trainwright.lowering.choose import AFTER
from trainwright.lowering.layout import Storage
from trainwright.program.fields import Engine

EARLY = 200
"""Cycles by which a load is issued before its latest time."""


def dependencies(calls: Sequence[Call]) -> list[list[int]]:
    """For each command the earlier ones whose results it reads, or must not precede."""
    writers: dict[Storage, list[int]] = {}
    stores: dict[str, list[int]] = {}
    found = []
    for n, call in enumerate(calls):
        before = [w for piece in call.reads for w in writers.get(piece.storage, ())]
        if isinstance(call, Move):  # what is spilled is stored before it is loaded
            name = call.outer.of or call.outer.tensor
            if call.engine is Engine.STORE:
                stores.setdefault(name, []).append(n)
            else:
                before += stores.get(name, ())
        for piece in call.writes:
            there = writers.setdefault(piece.storage, [])
            before += [w for w in there if isinstance(calls[w], Clear)]
            there.append(n)
        found.append(sorted(set(before)))
    return found


def _times(calls: Sequence[Call], before: Sequence[Sequence[int]], loads: dict[int, float]) -> None:
    """Start and end of every command; ``loads`` says when loads start, else at once."""
    free: dict[Engine, float] = {}
    for n, call in enumerate(calls):
        start = max((calls[b].end + AFTER for b in before[n]), default=0.0)
        if call.engine is Engine.LOAD:
            call.start = max(start, loads.get(n, 0.0))
            call.end = call.start + call.cycles
            continue
        call.start = max(start, free.get(call.engine, 0.0))
        call.end = free[call.engine] = call.start + call.cycles


def _loads(calls: Sequence[Call], before: Sequence[Sequence[int]]) -> dict[int, float]:
    """When each load starts: as late as keeps nobody waiting, one after the other."""
    needed: dict[int, float] = {}
    for n, call in enumerate(calls):
        for b in before[n]:
            needed[b] = min(needed.get(b, float("inf")), call.start)
    every = [n for n, call in enumerate(calls) if call.engine is Engine.LOAD]
    every.sort(key=lambda n: (needed.get(n, float("inf")), n))
    latest, following = {}, float("inf")
    for n in reversed(every):
        end = min(needed.get(n, following), following)
        following = end - calls[n].cycles
        latest[n] = following - EARLY
    free = 0.0
    for n in every:
        there = max((calls[b].end for b in before[n]), default=0.0)
        latest[n] = free = max(latest[n], free if not before[n] else 0.0, there, 0.0)
        free += calls[n].cycles
    return latest


def scheduled(calls: Sequence[Call], *, interleaved: bool = True) -> list[Call]:
    """The commands in the order of issue."""
    before = dependencies(calls)
    _times(calls, before, {})
    _times(calls, before, _loads(calls, before))
    _times(calls, before, _loads(calls, before))
    if not interleaved:
        return list(calls)
    order = sorted(range(len(calls)), key=lambda n: (calls[n].start, n))
    placed: set[int] = set()
    result: list[int] = []
    for n in order:  # a command of no cycles may tie with what it needs
        stack = [n]
        while stack:
            top = stack[-1]
            missing = [b for b in before[top] if b not in placed]
            if missing:
                stack += missing
                continue
            stack.pop()
            if top not in placed:
                placed.add(top)
                result.append(top)
    return [calls[n] for n in result]
