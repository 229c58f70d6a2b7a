"""A block with its inside in reach, for lemmas about what no port shows."""

import sys
from types import FrameType
from typing import Any

from amaranth.hdl import Const, Elaboratable, Fragment, Signal
from amaranth.hdl import Value as AmaranthValue


class Opened:
    """``block``, elaborated once; ``fragment`` is what goes into a design.

    A path is the names of submodules and, last, of a local variable (of ``elaborate``, or of a
    method that it calls) or a memory, joined with dots.
    """

    def __init__(self, block: Elaboratable):
        self._block = block
        self._locals: dict[Any, dict[str, Any]] = {}
        before = sys.getprofile()
        sys.setprofile(self._keep)
        try:
            self.fragment: Any = Fragment.get(block, None)
        finally:
            sys.setprofile(before)

    def _keep(self, frame: FrameType, event: str, _: Any) -> None:
        """Record the local variables of a block's methods; Python calls this as a profiler."""
        if event == "return" and isinstance(block := frame.f_locals.get("self"), Elaboratable):
            self._locals.setdefault(block, {}).update(frame.f_locals)

    def __getitem__(self, path: str) -> Any:
        """Return the variable at a path. Raises ``KeyError`` where there is none."""
        value: Any = self._block
        for name in path.split("."):
            value = self._locals[value][name]
        return value

    def memory(self, path: str, address: AmaranthValue, width: int) -> Signal:
        """Return the word that a memory holds at an address, through an additional read port."""
        data = Signal(width, name=f"{path.replace('.', '_')}_at")
        fragment = self.fragment
        for module in path.split("."):
            fragment = {name: fragment for fragment, name, _ in fragment.subfragments}[module]
        fragment.read_port(domain="comb", addr=address, data=data, en=Const(1), transparent_for=())
        return data
