"""Export Verilog, constraints and a script for boards that only the vendor's tools can build."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trainwright.accelerator.register_files import FILES
from trainwright.parameters import AcceleratorParameters
from trainwright.support.files import folder_of_files, write_whole
from trainwright.support.locks import Locked, claimed
from trainwright.support.native.tools import Progress
from trainwright_boards.catalogue.zynq import ZynqBoard
from trainwright_boards.tools import BuildError

VERILOG, CONSTRAINTS, SCRIPT = "trainwright.v", "trainwright.xdc", "build.tcl"
RECORD = ".trainwright-export"
"""File with the names of the files that the last export wrote."""
REGISTERS = "registers"
"""Name of the register map among the exports."""


def constraints(board: ZynqBoard) -> str:
    """Return timing constraints for the accelerator alone.

    In the block design, the processor's clock sets the period.
    """
    period = 1e3 / board.clock_mhz
    return f"create_clock -period {period:.3f} -name clk [get_ports -quiet clk]\n"


TIMING = """\
foreach kind {setup hold} {
  set slack [get_property SLACK [get_timing_paths -$kind]]
  if {$slack < 0} {
    error "timing is not met: the slack of $kind is $slack ns (timing.txt): take a slower clock"
  }
}
"""
"""Lines of a Vivado script that end it before a bitstream that its clock outruns: Vivado writes
such a bitstream, and its exit status is 0."""


def script(board: ZynqBoard) -> str:
    """Return the Vivado script that builds a bitstream with accelerator and processor."""
    cpu = board.processor
    pins = " ".join(f"processor/{pin}" for pin in cpu.clocked)
    return f"""\
# {board.title}: vivado -mode batch -source {SCRIPT}
# AXI4 of the accelerator to the processor's memory, AXI4-Lite at 0x{cpu.registers_base:08X}.
create_project trainwright vivado -part {board.part} -force
set boards [get_board_parts -quiet {board.board_part}]
if {{![llength $boards]}} {{
  # without them the processor would be built without the settings of its memory
  error "Vivado has no board files {board.board_part}: install them"
}}
set_property board_part [lindex $boards end] [current_project]
add_files {VERILOG}
create_bd_design system

create_bd_cell -type ip -vlnv xilinx.com:ip:{cpu.ip} processor
apply_bd_automation -rule xilinx.com:bd_rule:{cpu.ip} \\
  -config {{{cpu.preset_option}}} [get_bd_cells processor]
set_property -dict [list {cpu.settings.format(mhz=board.clock_mhz)}] [get_bd_cells processor]
create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset reset
create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect registers
create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect memory
set_property CONFIG.NUM_SI 1 [get_bd_cells registers]
set_property CONFIG.NUM_SI 1 [get_bd_cells memory]
create_bd_cell -type module -reference trainwright accelerator

set clock [get_bd_pins processor/{cpu.clock}]
foreach pin {{{pins} reset/slowest_sync_clk registers/aclk memory/aclk accelerator/clk}} {{
  connect_bd_net $clock [get_bd_pins $pin]
}}
connect_bd_net [get_bd_pins processor/{cpu.reset}] [get_bd_pins reset/ext_reset_in]
connect_bd_net [get_bd_pins reset/peripheral_aresetn] [get_bd_pins registers/aresetn] \\
  [get_bd_pins memory/aresetn]
connect_bd_net [get_bd_pins reset/peripheral_reset] [get_bd_pins accelerator/rst]
connect_bd_net [get_bd_pins accelerator/irq] [get_bd_pins processor/{cpu.interrupt}]
connect_bd_intf_net [get_bd_intf_pins processor/{cpu.registers_port}] \\
  [get_bd_intf_pins registers/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins registers/M00_AXI] [get_bd_intf_pins accelerator/s_axil]
connect_bd_intf_net [get_bd_intf_pins accelerator/m_axi] [get_bd_intf_pins memory/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins memory/M00_AXI] \\
  [get_bd_intf_pins processor/{cpu.memory_port}]
assign_bd_address -offset 0x{cpu.registers_base:08X} -range 64K \\
  -target_address_space [get_bd_addr_spaces processor/Data] \\
  [get_bd_addr_segs accelerator/s_axil/reg0]
assign_bd_address
validate_bd_design
make_wrapper -files [get_files system.bd] -top -import
set_property top system_wrapper [current_fileset]
proc finish {{args}} {{
  launch_runs impl_1 {{*}}$args -jobs 4
  wait_on_run impl_1
  if {{[get_property PROGRESS [get_runs impl_1]] ne "100%"}} {{
    error "impl_1 has failed: see vivado/trainwright.runs/impl_1/runme.log"
  }}
}}
finish
open_run impl_1
report_utilization -file utilisation.txt
report_timing_summary -file timing.txt
{TIMING}finish -to_step write_bitstream
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

    with writing(folder):
        target = DevicePlatform(board.processor.family)
        files = {
            VERILOG: package_verilog(
                parameters, target=target, memory_base=memory_base, progress=progress
            ),
            CONSTRAINTS: constraints(board),
            SCRIPT: script(board),
        }
        return write_export(folder, files)


def export_registers(parameters: AcceleratorParameters, folder: Path) -> list[Path]:
    """Write the register map as SystemRDL, SVD and C header, and list the files.

    Raises ``BuildError``.
    """
    return write_export(folder, {name: text(parameters) for name, text in FILES.items()})


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Make a folder before the block; report an ``OSError`` of the block as a ``BuildError``."""
    try:
        with folder_of_files(folder):
            yield
    except OSError as error:
        raise BuildError(f"cannot write to {folder}: {error.strerror}") from error


@contextmanager
def building(folder: Path) -> Iterator[None]:
    """Do as ``writing``, alone: a second build would take files of both for one design."""
    try:
        with writing(folder), claimed(folder):
            yield
    except Locked:
        raise BuildError(
            f"another build is at work in {folder}: wait for its end, or name another --out"
        ) from None


def write_export(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write the files of an export in place of those of the last one, and list them.

    Files of the user's own stay. Raises ``BuildError``.
    """
    written = write_files(folder, files)
    replace_export(folder, files)
    return written


def replace_export(folder: Path, names: Iterable[str]) -> None:
    """Record the files of an export, and remove those of the last one that it has not.

    Files of two flows would be of two accelerators. Raises ``BuildError``.
    """
    kept, record = sorted(names), folder / RECORD
    with writing(folder):
        earlier = record.read_text().split("\n") if record.is_file() else []
        write_whole(record, "\n".join(kept))
        for name in {*earlier}.difference(kept):
            # A record that was edited names nothing outside of the folder.
            if Path(name).name == name and (folder / name).is_file():
                (folder / name).unlink()


def write_files(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write files into a folder, and list them. Raises ``BuildError``."""
    with writing(folder):
        for name, text in files.items():
            write_whole(folder / name, text)
    return [folder / name for name in files]
