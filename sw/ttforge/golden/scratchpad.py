"""The golden model's scratchpad: live segments of rows, batched over loop iterations.

A segment is a tensor (n, rows, lanes) of float32 integers: n = 1, or n = the iterations of the
loop that is being executed for all its iterations at once. 16-bit words are exact in float32.
"""

from dataclasses import dataclass

import torch

from ttforge.program.encoding import ProgramError


@dataclass(frozen=True)
class Segment:
    """Rows ``start`` to ``stop`` (exclusive)."""

    start: int
    rows: torch.Tensor

    @property
    def stop(self) -> int:
        return self.start + self.rows.shape[1]


class Scratchpad:
    """Rows that have been written; reading any other row is an error in the program."""

    def __init__(self, rows: int, lanes: int):
        self.rows = rows
        self.lanes = lanes
        self._segments: list[Segment] = []

    def read(self, start: int, stop: int) -> tuple[torch.Tensor, int]:
        """A contiguous tensor (n, rows, lanes) that holds rows start..stop, and its first row."""
        for segment in self._segments:
            if segment.start <= start and stop <= segment.stop:
                return segment.rows, segment.start
        parts = sorted(
            (s for s in self._segments if s.start < stop and s.stop > start), key=lambda s: s.start
        )
        covered = start
        for part in parts:
            if part.start > covered:
                break
            covered = part.stop
        if not parts or covered < stop:
            raise ProgramError(
                f"scratchpad rows {start} to {stop - 1} are read, but row {covered} was never "
                "written"
            )
        count = max(part.rows.shape[0] for part in parts)
        joined = [part.rows.expand(count, -1, -1) for part in parts]
        return torch.cat(joined, dim=1), parts[0].start

    def write(self, start: int, rows: torch.Tensor) -> None:
        """Put (n, rows, lanes) at row ``start``."""
        stop = start + rows.shape[1]
        if not 0 <= start < stop <= self.rows:
            raise ProgramError(
                f"scratchpad rows {start} to {stop - 1} are written; there are {self.rows} rows"
            )
        kept = []
        for s in self._segments:
            if s.start >= stop or s.stop <= start:
                kept.append(s)
                continue
            if s.start < start:
                kept.append(Segment(s.start, s.rows[:, : start - s.start].contiguous()))
            if s.stop > stop:
                kept.append(Segment(stop, s.rows[:, stop - s.start :].contiguous()))
        self._segments = [Segment(start, rows), *kept]

    def keep_last_iteration(self) -> None:
        """Leave the state of the last iteration, as after the loop."""
        self._segments = [
            s if s.rows.shape[0] == 1 else Segment(s.start, s.rows[-1:].contiguous())
            for s in self._segments
        ]

    def copy(self) -> "Scratchpad":
        """The same contents; segments are never changed in place, so they are shared."""
        other = Scratchpad(self.rows, self.lanes)
        other._segments = list(self._segments)
        return other
