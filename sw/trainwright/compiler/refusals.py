"""Why a layer is not computed by one kind of plan: what the planner keeps for who asks."""

from collections.abc import Iterable
from dataclasses import dataclass

from trainwright.compiler.plans import (
    BackwardBidirectional,
    BackwardPlan,
    ForwardBidirectional,
    ForwardPlan,
    ForwardRebuild,
)
from trainwright.parameters import AcceleratorParameters

_NO_SIZE = {
    (True, "rebuild"): "the smallest strip of W takes more than a sixth of the scratchpad's "
    "{scratchpad} rows",
    (True, "bidirectional"): "no slice of T is for a multiple of {arrays} outputs (rows of the "
    "arrays) and takes at most a sixth of the scratchpad's {scratchpad} rows",
    (False, "full"): "no slice of the gradient of W takes at most a quarter of the scratchpad's "
    "{scratchpad} rows",
    (False, "bidirectional"): "the outputs left of the bond are no multiple of the {lanes} lanes, "
    "or the smallest slice of T takes more than a sixth of the scratchpad's {scratchpad} rows",
}


@dataclass(frozen=True)
class Kind:
    """A layer (from 0), a pass, a kind of plan (rebuild, full or bidirectional) and a bond."""

    number: int
    forward: bool
    name: str
    bond: int

    @classmethod
    def of(cls, number: int, plan: ForwardPlan | BackwardPlan) -> "Kind":
        """The kind of a layer's plan."""
        forward = isinstance(plan, ForwardRebuild | ForwardBidirectional)
        both = isinstance(plan, ForwardBidirectional | BackwardBidirectional)
        name = "bidirectional" if both else "rebuild" if forward else "full"
        return cls(number, forward, name, plan.bond)

    def no_size(self, p: AcceleratorParameters) -> str:
        """Why there is no size of its strips or slices to try."""
        return _NO_SIZE[self.forward, self.name].format(
            lanes=p.lanes, arrays=max(p.pe1_rows, p.pe2_rows), scratchpad=p.scratchpad_rows
        )


@dataclass(frozen=True)
class Refusal:
    """Why no plan of a kind could be measured."""

    layer: int
    """From 1."""
    forward: bool
    """Whether it is of the forward pass."""
    kind: str
    """rebuild or full, or bidirectional."""
    bond: int
    """Factors on the left of the split."""
    reason: str


class Refusals:
    """The first reason of every kind."""

    def __init__(self) -> None:
        self._reasons: dict[Kind, str] = {}

    def add(self, kind: Kind, reason: str) -> None:
        """Keep a reason."""
        self._reasons.setdefault(kind, reason)

    def beside(self, measured: Iterable[Kind]) -> tuple[Refusal, ...]:
        """The refusals of kinds of which nothing was measured, in the order of the layers."""
        left = self._reasons.keys() - set(measured)
        return tuple(
            Refusal(kind.number + 1, kind.forward, kind.name, kind.bond, self._reasons[kind])
            for kind in sorted(left, key=lambda k: (k.number, not k.forward, k.bond, k.name))
        )
