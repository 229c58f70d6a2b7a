"""A model in a compiled library of C functions: made by its ``open``, freed by its ``close``."""

import ctypes
from collections.abc import Mapping
from typing import Any


class NativeModel:
    """The functions ``<prefix><name>`` of a library on the handle that its ``open`` gave.

    ``functions``: the type of the result and those of the arguments, by name. Raises
    ``AttributeError`` for one that the library has not.
    """

    def __init__(
        self, library: ctypes.CDLL, prefix: str, functions: Mapping[str, tuple[Any, tuple]]
    ):
        self._handle = None
        self._functions: dict[str, Any] = {}
        for name, (result, arguments) in functions.items():
            function = library[f"{prefix}{name}"]
            function.restype, function.argtypes = result, arguments
            self._functions[name] = function

    def _open(self, *arguments: Any) -> None:
        self._handle = self._functions["open"](*arguments)
        if not self._handle:
            raise MemoryError(f"no memory for {type(self).__name__}")

    def _call(self, name: str, *arguments: Any) -> Any:
        return self._functions[name](self._handle, *arguments)

    @property
    def is_open(self) -> bool:
        """Whether the model was not released."""
        return self._handle is not None

    def close(self) -> None:
        """Release the model; idempotent."""
        handle, self._handle = self._handle, None
        if handle:
            self._functions["close"](handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()
