"""The one error of the compiler."""


class CompileError(ValueError):
    """A network, batch or plan that the given accelerator cannot run, with the reason."""
