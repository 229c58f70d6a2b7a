"""The one error of the compiler."""


class CompileError(ValueError):
    """A network, batch or plan that the given accelerator cannot run, with the reason."""


class DoesNotFitError(CompileError):
    """What a program must hold at once does not fit a memory of the accelerator."""
