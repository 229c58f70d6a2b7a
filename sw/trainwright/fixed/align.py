"""Bring exponents of operands of additions within the bits by which operands can be shifted."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Result = TypeVar("Result")


class AlignmentError(ValueError):
    """Error of an addition whose operands are too far apart for any exponent.

    ``tensor`` is the operand whose exponent has no suitable value, ``most`` the bits of a shift.
    """

    def __init__(self, message: str, tensor: str, most: int) -> None:
        super().__init__(message)
        self.tensor, self.most = tensor, most


class _Moved(Exception):
    """Restart with other exponents: a tensor that was bound already has to move."""

    def __init__(self, wanted: Mapping[str, int], given: Mapping[str, int], most: int):
        super().__init__()
        self.wanted, self.given, self.most = dict(wanted), dict(given), most


class Alignment:
    """Exponents of the operands of a program's additions.

    ``makers`` maps each computed tensor to the tensor whose exponent it has: to itself, unless it
    is a mask. If the host gives both tensors (biases), the second one moves to the first. A tensor
    that the host gives becomes coarser for a computed one, never finer, as it would saturate. Of
    two computed tensors the finer one becomes coarser. ``most`` is the number of bits by which an
    operand can be shifted to the left.
    """

    def __init__(self, makers: Mapping[str, str], exponents: dict[str, int], most: int):
        self.makers, self.exponents, self.most = makers, exponents, most
        self._added: set[str] = set()
        self._limits: dict[str, tuple[int, tuple[str, ...]]] = {}
        """Greatest exponent that each computed tensor can have, and its operands."""

    def limit(self, name: str, most: int, operands: Sequence[str]) -> None:
        """Note the greatest exponent that a tensor's operands allow it."""
        self._limits[name] = most, tuple(operands)

    def align(self, x: str, y: str) -> None:
        """Bring the exponents of ``x`` and ``y`` within reach of each other, to add them."""
        near, far = self.exponents[x], self.exponents[y]
        if y not in self.makers and (x not in self.makers or far <= near + self.most):
            moved = min(max(far, near - self.most), near + self.most)
            if moved != far and y in self._added:
                raise _Moved({}, {y: moved}, self.most)
            self._added.add(y)
            self.exponents[y] = moved
        elif abs(near - far) > self.most:
            finer = self._maker(x if near < far else y)
            finer, wanted = self._movable(finer, max(near, far) - self.most)
            raise _Moved({finer: wanted}, {}, self.most)

    def _movable(self, name: str, wanted: int) -> tuple[str, int]:
        """Choose what to make coarser so that ``name`` can be: the tensor or an operand of it."""
        # A chain of gradients that are all 0 sinks to the sum of all exponents before it, further
        # than one shift reaches.
        while name in self._limits and self._limits[name][0] < wanted:
            most, operands = self._limits[name]
            makers = [self._maker(operand) for operand in operands if operand in self.makers]
            makers = [m for m in makers if m in self.makers and self._limits.get(m, (0, ()))[1]]
            if not makers:
                break
            name = min(makers, key=self.exponents.__getitem__)
            wanted = self.exponents[name] + wanted - most
        return name, wanted

    def _maker(self, name: str) -> str:
        while name in self.makers and self.makers[name] != name:
            name = self.makers[name]
        return name


def aligned(
    attempt: Callable[[Mapping[str, int], Mapping[str, int]], Result],
    wanted: Mapping[str, int],
    given: Mapping[str, int],
) -> Result:
    """Call ``attempt`` with exponents wanted and given, moved until every addition is possible.

    Raises ``AlignmentError`` where exponents would move for ever.
    """
    moved, most = dict[str, int](), 0
    for _ in range(2 * len(wanted) + 64):
        try:
            return attempt(wanted, given)
        except _Moved as other:
            moved, most = {**other.wanted, **other.given}, other.most
            wanted, given = {**wanted, **other.wanted}, {**given, **other.given}
    name, exponent = next(iter(moved.items()))
    raise AlignmentError(
        f"{name} is added to values that are more than {most} bits away from it, and no exponent "
        f"near {exponent} serves them all: scale inputs, weights and biases alike",
        name,
        most,
    )
