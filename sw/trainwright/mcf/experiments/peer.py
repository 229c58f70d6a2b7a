"""The MCTensor paper's published library, loaded from a folder, behind the measured operations."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainwright.support.errors import UserError


class PeerError(UserError, ValueError):
    """Error: the folder does not hold the published library."""


class Published:
    """Package ``MCTensor`` below ``folder``, such as a checkout of ydtydr/MCTensor.

    Raises ``PeerError`` where there is none.
    """

    name = "published"

    def __init__(self, folder: Path):
        modules = sorted(folder.glob("**/MCTensor/MCOpBasics.py"))
        if not modules:
            raise PeerError(
                f"--peer: no package MCTensor in {folder}: name a checkout of "
                "github.com/ydtydr/MCTensor"
            )
        sys.path.insert(0, str(modules[0].parents[1]))
        try:
            self._class = importlib.import_module("MCTensor").MCTensor
        finally:
            sys.path.pop(0)

    def tensor(self, components: Tensor) -> Any:
        """Make the library's tensor of components (*shape, nc)."""
        plain = components.contiguous()
        return self._class(*plain.shape[:-1], nc=plain.shape[-1], val=plain)

    @staticmethod
    def components(x: Any) -> Tensor:
        """Return the components of the library's tensor; a plain tensor is returned unchanged."""
        return x if isinstance(x, Tensor) else x.tensor.detach()

    def calls(self, name: str, operands: tuple[Any, ...]) -> Callable[[], Any] | None:
        """Return a call of operation ``name``, or ``None`` if the library lacks it."""
        if name == "addmm" and operands[0].dim() == 1:
            return None  # the library fails on a one-dimensional bias
        function = getattr(torch, name)
        return lambda: function(*operands)
