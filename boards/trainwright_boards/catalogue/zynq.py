"""Boards with a Zynq, whose processor is the host and shares its memory with the accelerator.

The vendor's tools build the designs; ``trainwright_boards.export`` writes the files for them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Processor:
    """Block of the processor in a block design of Vivado: names of pins and ports, and settings."""

    family: str
    """Family of the parts, of ``trainwright_hw.arith.multiplier.DevicePlatform``."""
    ip: str
    """Name of the block in Vivado's catalogue."""
    preset_option: str
    """Options by which the block takes its settings from the board's files."""
    settings: str
    """Settings of the block; ``{mhz}`` is the accelerator's clock."""
    clock: str
    reset: str
    interrupt: str
    registers_port: str
    """AXI port of the processor that reaches the accelerator's registers."""
    memory_port: str
    """AXI port through which the accelerator reaches the processor's memory."""
    clocked: tuple[str, ...]
    """Clock pins of these two ports."""
    registers_base: int
    """Address at which the processor sees the accelerator's registers."""


ULTRASCALE = Processor(
    family="xcup",
    ip="zynq_ultra_ps_e",
    preset_option="apply_board_preset 1",
    settings="CONFIG.PSU__USE__M_AXI_GP0 1 CONFIG.PSU__USE__M_AXI_GP1 0 "
    "CONFIG.PSU__USE__M_AXI_GP2 0 CONFIG.PSU__USE__S_AXI_GP2 1 "
    "CONFIG.PSU__SAXIGP2__DATA_WIDTH 128 CONFIG.PSU__USE__IRQ0 1 "
    "CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ {mhz:g}",
    clock="pl_clk0",
    reset="pl_resetn0",
    interrupt="pl_ps_irq0",
    registers_port="M_AXI_HPM0_FPD",
    memory_port="S_AXI_HP0_FPD",
    clocked=("maxihpm0_fpd_aclk", "saxihp0_fpd_aclk"),
    registers_base=0xA0000000,
)
ZYNQ_7000 = Processor(
    family="xc7",
    ip="processing_system7",
    preset_option='make_external "FIXED_IO, DDR" apply_board_preset 1',
    settings="CONFIG.PCW_USE_M_AXI_GP0 1 CONFIG.PCW_USE_S_AXI_HP0 1 "
    "CONFIG.PCW_S_AXI_HP0_DATA_WIDTH 64 CONFIG.PCW_USE_FABRIC_INTERRUPT 1 "
    "CONFIG.PCW_IRQ_F2P_INTR 1 CONFIG.PCW_FPGA0_PERIPHERAL_FREQMHZ {mhz:g}",
    clock="FCLK_CLK0",
    reset="FCLK_RESET0_N",
    interrupt="IRQ_F2P",
    registers_port="M_AXI_GP0",
    memory_port="S_AXI_HP0",
    clocked=("M_AXI_GP0_ACLK", "S_AXI_HP0_ACLK"),
    registers_base=0x43C00000,
)


@dataclass(frozen=True, kw_only=True)
class ZynqBoard:
    """A board with a Zynq."""

    name: str
    title: str
    processor: Processor
    part: str
    board_part: str
    """Name of the vendor's board files, which set up memory and clocks of the processor; ``*`` in
    place of a version stands for any."""
    preset: str
    clock_mhz: float
    available: Mapping[str, int]
    """``luts``, ``flip_flops``, ``multipliers`` and ``block_rams`` (of 36 Kbit) of the part."""


ULTRA96_V2 = ZynqBoard(
    name="ultra96-v2",
    title="Avnet Ultra96-V2 with a ZU3EG",
    processor=ULTRASCALE,
    part="xczu3eg-sbva484-1-i",
    board_part="avnet.com:ultra96v2:part0:1.2",
    preset="zu3eg",
    clock_mhz=100.0,
    available={"luts": 70560, "flip_flops": 141120, "multipliers": 360, "block_rams": 216},
)
KV260 = ZynqBoard(
    name="kv260",
    title="AMD Kria KV260 with a K26 (XCK26)",
    processor=ULTRASCALE,
    part="xck26-sfvc784-2LV-c",
    board_part="xilinx.com:kv260_som:part0:*",
    preset="zu3eg",
    clock_mhz=100.0,
    available={"luts": 117120, "flip_flops": 234240, "multipliers": 1248, "block_rams": 144},
)
PYNQ_Z2 = ZynqBoard(
    name="pynq-z2",
    title="TUL PYNQ-Z2 with a Zynq 7020",
    processor=ZYNQ_7000,
    part="xc7z020clg400-1",
    board_part="tul.com.tw:pynq-z2:part0:*",
    preset="lfe5u-85f",
    clock_mhz=50.0,
    available={"luts": 53200, "flip_flops": 106400, "multipliers": 220, "block_rams": 140},
)
ZYBO_Z7_20 = replace(
    PYNQ_Z2,
    name="zybo-z7-20",
    title="Digilent Zybo Z7-20 with a Zynq 7020",
    board_part="digilentinc.com:zybo-z7-20:part0:*",
)
EXPORTS: Mapping[str, ZynqBoard] = {
    board.name: board for board in (ULTRA96_V2, KV260, PYNQ_Z2, ZYBO_Z7_20)
}
