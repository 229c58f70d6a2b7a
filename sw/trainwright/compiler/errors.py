"""The errors of the compiler."""


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


class ResourceError(CompileError):
    """A program needs more of something than the accelerator has: ``trainwright.compiler.limits``.

    The message is ``reason`` and what can be done about it.
    """

    def __init__(self, reason: str, remedy: str):
        super().__init__(f"{reason}; {remedy}")
        self._parts = reason, remedy

    def __reduce__(self) -> tuple[type["ResourceError"], tuple[str, str]]:
        """Rebuild from both parts: exceptions are pickled by their one message otherwise."""
        return type(self), self._parts

    @property
    def reason(self) -> str:
        return self._parts[0]

    @property
    def remedy(self) -> str:
        return self._parts[1]


class DoesNotFitError(ResourceError):
    """What a program must hold at once does not fit a memory of the accelerator."""
