"""For boards whose tools are the vendor's: Verilog, constraints and a script, to be built there."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwright.accelerator.register_files import FILES
from trainwright.parameters import AcceleratorParameters
from trainwright.support.files import write_whole
from trainwright.support.native.tools import Progress
from trainwright_boards.tools import BuildError

FAMILY = "xcup"
"""UltraScale+, of ``trainwright_hw.arith.multiplier.DevicePlatform``."""
VERILOG, CONSTRAINTS, SCRIPT = "trainwright.v", "trainwright.xdc", "build.tcl"


@dataclass(frozen=True, kw_only=True)
class ZynqBoard:
    """A board with a Zynq UltraScale+: the processor is the host, its memory the accelerator's."""

    name: str
    title: str
    part: str
    board_part: str
    """Name in the vendor's board files, which set up the processor's memory and clocks."""
    preset: str
    clock_mhz: float
    registers_base: int
    """Address at which the processor sees the accelerator's registers."""
    available: Mapping[str, int]
    """``luts``, ``flip_flops``, ``multipliers`` and ``block_rams`` (of 36 Kbit) of the part."""


ULTRA96_V2 = ZynqBoard(
    name="ultra96-v2",
    title="Avnet Ultra96-V2 with a ZU3EG",
    part="xczu3eg-sbva484-1-i",
    board_part="avnet.com:ultra96v2:part0:1.2",
    preset="zu3eg",
    clock_mhz=100.0,
    registers_base=0xA0000000,
    available={"luts": 70560, "flip_flops": 141120, "multipliers": 360, "block_rams": 216},
)
REGISTERS = "registers"
"""Name of the register map among the exports."""
EXPORTS: Mapping[str, ZynqBoard] = {ULTRA96_V2.name: ULTRA96_V2}


def constraints(board: ZynqBoard) -> str:
    """Return timing constraints for the accelerator alone.

    In the block design, the processor's clock sets the period.
    """
    period = 1e3 / board.clock_mhz
    return f"create_clock -period {period:.3f} -name clk [get_ports -quiet clk]\n"


def script(board: ZynqBoard) -> str:
    """Return the Vivado script that builds a bitstream with accelerator and processor."""
    return f"""\
# {board.title}: vivado -mode batch -source {SCRIPT}
# AXI4 of the accelerator to the processor's memory, AXI4-Lite at 0x{board.registers_base:08X}.
create_project trainwright vivado -part {board.part} -force
set_property board_part {board.board_part} [current_project]
add_files {VERILOG}
create_bd_design system

create_bd_cell -type ip -vlnv xilinx.com:ip:zynq_ultra_ps_e processor
apply_bd_automation -rule xilinx.com:bd_rule:zynq_ultra_ps_e \\
  -config {{apply_board_preset 1}} [get_bd_cells processor]
set_property -dict [list \\
  CONFIG.PSU__USE__M_AXI_GP0 1 CONFIG.PSU__USE__M_AXI_GP1 0 CONFIG.PSU__USE__M_AXI_GP2 0 \\
  CONFIG.PSU__USE__S_AXI_GP2 1 CONFIG.PSU__SAXIGP2__DATA_WIDTH 128 \\
  CONFIG.PSU__USE__IRQ0 1 CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ {board.clock_mhz:g} \\
] [get_bd_cells processor]
create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset reset
create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect registers
create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect memory
set_property CONFIG.NUM_SI 1 [get_bd_cells registers]
set_property CONFIG.NUM_SI 1 [get_bd_cells memory]
create_bd_cell -type module -reference trainwright accelerator

set clock [get_bd_pins processor/pl_clk0]
foreach pin {{processor/maxihpm0_fpd_aclk processor/saxihp0_fpd_aclk reset/slowest_sync_clk \\
             registers/aclk memory/aclk accelerator/clk}} {{
  connect_bd_net $clock [get_bd_pins $pin]
}}
connect_bd_net [get_bd_pins processor/pl_resetn0] [get_bd_pins reset/ext_reset_in]
connect_bd_net [get_bd_pins reset/peripheral_aresetn] [get_bd_pins registers/aresetn] \\
  [get_bd_pins memory/aresetn]
connect_bd_net [get_bd_pins reset/peripheral_reset] [get_bd_pins accelerator/rst]
connect_bd_net [get_bd_pins accelerator/irq] [get_bd_pins processor/pl_ps_irq0]
connect_bd_intf_net [get_bd_intf_pins processor/M_AXI_HPM0_FPD] \\
  [get_bd_intf_pins registers/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins registers/M00_AXI] [get_bd_intf_pins accelerator/s_axil]
connect_bd_intf_net [get_bd_intf_pins accelerator/m_axi] [get_bd_intf_pins memory/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins memory/M00_AXI] [get_bd_intf_pins processor/S_AXI_HP0_FPD]
assign_bd_address -offset 0x{board.registers_base:08X} -range 64K \\
  -target_address_space [get_bd_addr_spaces processor/Data] \\
  [get_bd_addr_segs accelerator/s_axil/reg0]
assign_bd_address
validate_bd_design
make_wrapper -files [get_files system.bd] -top -import
set_property top system_wrapper [current_fileset]
launch_runs impl_1 -to_step write_bitstream -jobs 4
wait_on_run impl_1
open_run impl_1
report_utilization -file utilisation.txt
report_timing_summary -file timing.txt
"""


def export(
    board: ZynqBoard,
    parameters: AcceleratorParameters,
    folder: Path,
    *,
    memory_base: int = 0,
    progress: Progress | None = None,
) -> list[Path]:
    """Write the files of a board, and list them; ``progress`` gets a line where that takes long.

    Raises ``BuildError``, ``ConversionError``, and ``ValueError`` for a bad ``memory_base``.
    """
    from trainwright_hw.arith.multiplier import DevicePlatform
    from trainwright_hw.build.package import package_verilog

    files = {
        VERILOG: package_verilog(
            parameters,
            target=DevicePlatform(FAMILY),
            memory_base=memory_base,
            progress=progress,
        ),
        CONSTRAINTS: constraints(board),
        SCRIPT: script(board),
    }
    return write_files(folder, files)


def export_registers(parameters: AcceleratorParameters, folder: Path) -> list[Path]:
    """Write the register map as SystemRDL, SVD and C header, and list the files.

    Raises ``BuildError``.
    """
    return write_files(folder, {name: text(parameters) for name, text in FILES.items()})


def write_files(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write files into a folder, and list them. Raises ``BuildError``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_whole(folder / name, text)
    except OSError as error:
        raise BuildError(f"cannot write to {folder}: {error.strerror}") from error
    return [folder / name for name in files]
