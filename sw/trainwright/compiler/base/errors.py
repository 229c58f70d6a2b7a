"""The errors of the compiler."""

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from trainwright.network import UserNames


class CompileError(ValueError):
    """A network, batch or plan that the given accelerator cannot run, with the reason.

    >>> import torch, trainwright
    >>> trainwright.compile(torch.nn.Linear(2, 2))
    Traceback (most recent call last):
    trainwright.compiler.base.errors.CompileError: the module has no TTLinear or TTConv2d ...
    """

    @property
    def reason(self) -> str:
        """What is wrong, without what can be done about it."""
        return str(self)

    @property
    def remedy(self) -> str:
        """What can be done about it, where that is not in the reason."""
        return ""


class ResourceError(CompileError):
    """A program needs more of something than the accelerator has (``compiler.base.limits``).

    The message is ``reason`` and what can be done about it. A reason that begins with a tensor is
    written with the user's name of it where ``names`` are given.
    """

    def __init__(self, reason: str, remedy: str, names: "UserNames | None" = None):
        self._parts = reason, remedy
        self._names = names
        super().__init__(f"{self.reason}; {remedy}")

    def __reduce__(self) -> tuple[type["ResourceError"], tuple[object, ...]]:
        """Rebuild from the parts: exceptions are pickled by their one message otherwise."""
        return type(self), (*self._parts, self._names)

    def named(self, names: "UserNames") -> Self:
        """Return the error with the user's names of layers."""
        return type(self)(*self._parts, names)

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
    """What a program must hold at once does not fit a memory of the accelerator."""
