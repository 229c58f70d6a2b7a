"""Factorisations that the experiments compare, by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from trainwright.qr import QR, block_qr, householder_qr, tsqr

_MAKERS = {"HQR": householder_qr, "block": block_qr, "TSQR": tsqr}


@dataclass(frozen=True)
class Variant:
    """Factorisation method and its options."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Display name such as ``BLAS-2 TSQR, L = 2``."""
        o = self.options
        level = {"end": "end", "block": "BLAS-3", "inner": "BLAS-2"}[o.get("rounding", "end")]
        numbers = f"{o['low']} {level}" if o.get("low") else o.get("high", "fp64")
        size = f", L = {o['levels']}" if "levels" in o else ""
        size += f", r = {o['block']}" if "block" in o else ""
        return f"{numbers} {self.method}{size}"

    def __call__(self, a: torch.Tensor) -> QR:
        """Factor ``a``."""
        return _MAKERS[self.method](a, **self.options)


def variants(
    low: str = "fp16",
    high: str = "fp32",
    *,
    blocks: tuple[int, ...] = (16,),
    levels: tuple[int, ...] = (2, 4),
) -> list[Variant]:
    """List every method, uniform and mixed, rounded at every level."""
    methods = [Variant("HQR", {"high": h}) for h in ("fp64", high)]
    methods += [Variant("TSQR", {"high": "fp64", "levels": n}) for n in levels]
    for rounding in ("end", "block", "inner"):
        mixed = {"low": low, "high": high, "rounding": rounding}
        if rounding != "block":
            methods.append(Variant("HQR", mixed))
        methods += [Variant("block", {**mixed, "block": r}) for r in blocks]
        methods += [Variant("TSQR", {**mixed, "levels": n}) for n in levels]
    return methods
