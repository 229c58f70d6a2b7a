"""Blocks with one fault: what a proof must find."""

import inspect
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """``old`` in the source of a block's module, which has it once, becomes ``new``."""

    old: str
    new: str

    def of(self, block: Any) -> Any:
        """Return the class or function as the changed source defines it.

        Raises ``ValueError`` unless the source contains ``old`` exactly once.
        """
        source = inspect.getsource(sys.modules[block.__module__])
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{block.__module__} has {self.old!r} {count} times: write it anew")
        module = ModuleType(block.__module__)
        sys.modules[mutated := f"{block.__module__} mutated"] = module
        try:
            module.__name__ = mutated  # where dataclasses look for names
            exec(compile(source.replace(self.old, self.new), mutated, "exec"), vars(module))
        finally:
            del sys.modules[mutated]
        return getattr(module, block.__name__)
