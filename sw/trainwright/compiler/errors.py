"""The errors of the compiler."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainwright.compiler.refusals import Refusal

if TYPE_CHECKING:
    from trainwright.compiler.planner import Alternative


class CompileError(ValueError):
    """A network, batch or plan that the given accelerator cannot run, with the reason.

    >>> import torch, trainwright
    >>> trainwright.compile(torch.nn.Linear(2, 2))
    Traceback (most recent call last):
    trainwright.compiler.errors.CompileError: the module has no TTLinear or TTConv2d ...
    """

    @property
    def reason(self) -> str:
        """What is wrong, without what can be done about it."""
        return str(self)

    @property
    def remedy(self) -> str:
        """What can be done about it, where that is not in the reason."""
        return ""


class SizeError(CompileError):
    """A layer's sizes are no multiples of the lanes: only the graph's compiler pads them."""


class DigitsError(CompileError):
    """Tensors or factors of several digits as only the graph's compiler, or the paper's schedule,
    computes them."""


class ResourceError(CompileError):
    """A program needs more of something than the accelerator has: ``trainwright.compiler.limits``.

    The message is ``reason`` and what can be done about it.
    """

    def __init__(self, reason: str, remedy: str):
        super().__init__(f"{reason}; {remedy}")
        self._parts = reason, remedy

    @property
    def reason(self) -> str:
        return self._parts[0]

    @property
    def remedy(self) -> str:
        return self._parts[1]


class DoesNotFitError(ResourceError):
    """What a program must hold at once does not fit a memory of the accelerator."""


class NotPlannedError(CompileError):
    """The planner finds no program that fits, with the reason for every layer and kind of plan."""

    def __init__(
        self,
        cause: CompileError,
        alternatives: "Sequence[Alternative]",
        refusals: Sequence[Refusal],
    ):
        super().__init__(str(cause))
        self._cause = cause
        self.alternatives = tuple(alternatives)
        """What could be measured all the same."""
        self.refusals = tuple(refusals)

    @property
    def reason(self) -> str:
        return self._cause.reason

    @property
    def remedy(self) -> str:
        return self._cause.remedy
