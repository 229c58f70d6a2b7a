"""Packages of the accelerator for the flows of others: Vivado, LiteX, FuseSoC."""

from collections.abc import Callable, Mapping
from pathlib import Path

from trainwright.accelerator.register_files import FILES
from trainwright.parameters import AcceleratorParameters
from trainwright.support.native.tools import Progress
from trainwright_boards.export import VERILOG, write_export, writing
from trainwright_boards.ip_xact import ip_xact
from trainwright_hw.build.convert import TOP
from trainwright_hw.build.package import LINT, package_verilog, port_list

CLOCK_NS = 10.0
"""Period of the constraints, for a flow that sets none: 100 MHz."""
LITEX = Path(__file__).with_name("litex_wrapper.py")


def clock_constraints() -> str:
    """Return constraints for the accelerator alone; a flow that instantiates it has its own."""
    return f"create_clock -period {CLOCK_NS:.3f} -name clk [get_ports clk]\n"


def _vivado(p: AcceleratorParameters, _: int) -> Mapping[str, str]:
    return {
        "component.xml": ip_xact(p, [VERILOG]),
        "trainwright_ooc.xdc": clock_constraints(),
    }


def _litex(p: AcceleratorParameters, memory_base: int) -> Mapping[str, str]:
    ports = [(port["name"], port["direction"], port["width"]) for port in port_list(p)]
    listed = "".join(f"    {port!r},\n" for port in ports).replace("'", '"')
    text = LITEX.read_text().replace("] = ()", f"] = (\n{listed})", 1)
    text = text.replace("EXPORTED_BASE = 0\n", f"EXPORTED_BASE = {memory_base:#x}\n", 1)
    return {"trainwright_litex.py": text}


def _fusesoc(p: AcceleratorParameters, _: int) -> Mapping[str, str]:
    waivers = "".join(f", -Wno-{name}" for name in LINT)
    core = f"""\
CAPI=2:
name: trainwright:ip:accelerator:1.0
description: Tensor-train training accelerator of fingerprint {p.fingerprint:08x}

filesets:
  rtl:
    files:
      - {VERILOG}: {{file_type: verilogSource-2005}}
  constraints:
    files:
      - accelerator.sdc: {{file_type: SDC}}

targets:
  default: &default
    filesets: [rtl]
    toplevel: {TOP}
  synth:
    <<: *default
    filesets: [rtl, constraints]
    flow: generic
    flow_options:
      tool: yosys
      arch: xilinx
      output_format: json
      yosys_synth_options: [-flatten]
  lint:
    <<: *default
    flow: lint
    flow_options:
      tool: verilator
      verilator_options: [-Wall{waivers}]
"""
    return {"accelerator.core": core, "accelerator.sdc": clock_constraints()}


FLOWS: Mapping[str, Callable[[AcceleratorParameters, int], Mapping[str, str]]] = {
    "vivado": _vivado,
    "litex": _litex,
    "fusesoc": _fusesoc,
}
"""Files of each flow, for a base of the memory, in addition to Verilog and register map."""


def export_for(
    flow: str,
    parameters: AcceleratorParameters,
    folder: Path,
    *,
    memory_base: int = 0,
    progress: Progress | None = None,
) -> list[Path]:
    """Write the package of a flow, and list its files; ``progress`` gets a line now and then.

    Raises ``BuildError``, ``ConversionError``, and ``ValueError`` for an unknown ``flow`` or a bad
    ``memory_base``.
    """
    if flow not in FLOWS:
        raise ValueError(f"flow must be one of {', '.join(FLOWS)}, not {flow!r}")
    with writing(folder):
        verilog = package_verilog(parameters, memory_base=memory_base, progress=progress)
        registers = {name: text(parameters) for name, text in FILES.items()}
        return write_export(
            folder, {VERILOG: verilog, **FLOWS[flow](parameters, memory_base), **registers}
        )
