"""The published library of the MCTensor paper, from a folder, behind the operations measured."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


class PeerError(ValueError):
    """The folder does not hold the published library."""


class Published:
    """The package ``MCTensor`` below ``folder``, such as a checkout of ydtydr/MCTensor.

    Raises ``PeerError`` where there is none.
    """

    name = "published"

    def __init__(self, folder: Path):
        found = sorted(folder.glob("**/MCTensor/MCOpBasics.py"))
        if not found:
            raise PeerError(
                f"no package MCTensor in {folder}: name a checkout of github.com/ydtydr/MCTensor"
            )
        sys.path.insert(0, str(found[0].parents[1]))
        try:
            self._class = importlib.import_module("MCTensor").MCTensor
        finally:
            sys.path.pop(0)

    def tensor(self, components: Tensor) -> Any:
        """Its tensor with these components (*shape, nc)."""
        plain = components.contiguous()
        return self._class(*plain.shape[:-1], nc=plain.shape[-1], val=plain)

    @staticmethod
    def components(x: Any) -> Tensor:
        """Of its tensor; of a plain one, that one."""
        return x if isinstance(x, Tensor) else x.tensor.detach()

    def calls(self, name: str, operands: tuple[Any, ...]) -> Callable[[], Any] | None:
        """The operation ``name``; ``None`` if it has none for these operands."""
        if name == "addmm" and operands[0].dim() == 1:
            return None  # a bias of one dimension fails there
        function = getattr(torch, name)
        return lambda: function(*operands)
