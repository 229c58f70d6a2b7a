"""Offloading: torch modules whose tensor-train layers the accelerator computes."""

from trainwright.offload.compiled import CompiledModule, compile
from trainwright.offload.report import LayerReport, Report

__all__ = ["CompiledModule", "LayerReport", "Report", "compile"]
