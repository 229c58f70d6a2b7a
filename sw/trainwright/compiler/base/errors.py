"""Errors of the compiler: each says what does not fit, and what to do about it."""

from typing import TYPE_CHECKING, Self

from trainwright.support.errors import UserError

if TYPE_CHECKING:
    from trainwright.network import UserNames


class CompileError(UserError, ValueError):
    """Network, batch or plan that the given accelerator cannot run, with the reason.

    >>> import torch, trainwright
    >>> trainwright.compile(torch.nn.Linear(2, 2))
    Traceback (most recent call last):
    trainwright.compiler.base.errors.CompileError: the module has no TTLinear or TTConv2d ...
    """

    @property
    def reason(self) -> str:
        """Problem, without what can be done about it."""
        return str(self)

    @property
    def remedy(self) -> str:
        """Remedy, where it is not part of the reason."""
        return ""


class ResourceError(CompileError):
    """Need of a program that exceeds what the accelerator has (``compiler.base.limits``).

    The message is ``reason`` and the remedy. A reason that begins with a tensor is written with the
    user's name of the tensor where ``names`` are given. ``batch`` is a smaller batch that was
    compiled and fits, 0 without any.
    """

    def __init__(
        self, reason: str, remedy: str, names: "UserNames | None" = None, batch: int = 0
    ) -> None:
        self._parts = reason, remedy
        self._names, self.batch = names, batch
        super().__init__(f"{self.reason}; {remedy}")

    def __reduce__(self) -> tuple[type["ResourceError"], tuple[object, ...]]:
        """Rebuild from the parts: exceptions are pickled by their one message otherwise."""
        return type(self), (*self._parts, self._names, self.batch)

    def named(self, names: "UserNames") -> Self:
        """Return the error with the user's names of layers."""
        return type(self)(*self._parts, names, self.batch)

    def with_remedy(self, remedy: str) -> Self:
        """Return the error with another remedy after its own."""
        return type(self)(self._parts[0], f"{self._parts[1]}; {remedy}", self._names, self.batch)

    @property
    def reason(self) -> str:
        reason = self._parts[0]
        if self._names is None:
            return reason
        first, space, rest = reason.partition(" ")
        name = first.rstrip(":")
        return f"{self._names.tensor(name)}{first[len(name) :]}{space}{rest}"

    @property
    def remedy(self) -> str:
        return self._parts[1]


class DoesNotFitError(ResourceError):
    """Pieces that a program must hold at once and that exceed a memory of the accelerator."""


class NoCandidateError(DoesNotFitError):
    """Operation that neither array can compute, in any layout or cut that fits."""
