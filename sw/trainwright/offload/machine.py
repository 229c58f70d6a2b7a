"""The accelerator of a compiled model: opened when it is needed, shared by its programs."""

import weakref
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any

from trainwright.accelerator import Accelerator, backend_names, is_backend, open_accelerator
from trainwright.compiler import CompileError
from trainwright.compiler.base.progress import MOST_EFFORT
from trainwright.driver import HeldActivations, Settling
from trainwright.parameters import AcceleratorParameters
from trainwright.support.arguments import is_size

MEMORY_BYTES = 1 << 26
"""External memory of the accelerator."""


@dataclass(frozen=True)
class Settings:
    """Settings that open an accelerator, and the batch its programs are compiled for."""

    backend: str
    batch: int
    parameters: AcceleratorParameters
    effort: int = MOST_EFFORT
    """Alternatives after which a compilation takes the best program so far."""

    def __post_init__(self) -> None:
        if not is_backend(self.backend):
            names = ", ".join(backend_names())
            raise CompileError(f"backend must be one of {names}, not {self.backend!r}")
        if not is_size(self.batch):
            raise CompileError(f"batch must be an integer of at least 1, not {self.batch!r}")
        if not is_size(self.effort):
            raise CompileError(f"effort must be an integer of at least 1, not {self.effort!r}")


class AcceleratorHandle:
    """Handle of one accelerator; copies and pickles hold its settings alone and open their own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._opened: Accelerator | None = None
        self.memory = HeldActivations()
        self.settling: Settling | None = None
        """Set while exponents are calibrated."""
        self.lock = RLock()
        """Held in each pass: threads take turns, as there is one accelerator."""

    @property
    def accelerator(self) -> Accelerator:
        """The accelerator; ``AcceleratorError`` where the back end cannot run here."""
        if self._opened is None:
            s = self.settings
            try:
                self._opened = open_accelerator(s.backend, s.parameters, memory_bytes=MEMORY_BYTES)
            except ValueError as error:
                raise CompileError(f"back end {s.backend!r}: {error}") from error
            weakref.finalize(self, self._opened.close)
        return self._opened

    def with_sizes(self, **sizes: Any) -> "AcceleratorHandle":
        """Return a handle with other parameters; ``CompileError`` for impossible parameters."""
        s = self.settings
        try:
            return AcceleratorHandle(replace(s, parameters=replace(s.parameters, **sizes)))
        except ValueError as error:
            raise CompileError(str(error)) from error

    def close(self) -> None:
        """Release the accelerator; the next step opens it again."""
        if self._opened is not None:
            self._opened.close()
        self._opened, self.memory.last = None, None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "settling": None, "lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.lock = RLock()
