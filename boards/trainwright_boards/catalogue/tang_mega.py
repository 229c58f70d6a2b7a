"""Sipeed Tang Mega 138K: a Gowin GW5AST with a BL616 as the serial bridge."""

from trainwright_boards.board import GW5AST_138, Board

TANG_MEGA_138K = Board(
    name="tang-mega-138k",
    title="Sipeed Tang Mega 138K with a GW5AST-138C",
    part=GW5AST_138,
    package="PG484A",
    speed="C1/I0",
    clock_pin="V22",
    clock_hz=50_000_000,
    rx_pin="V14",
    tx_pin="U15",
    lamp_pin="P19",
    baud=2_000_000,
    preset="gw5ast-138c",
    not_routed=("ecp5-85f-64",),
    memory_bytes=1 << 17,
    design_hz=50_000_000,
    loader="-b tangmega138k",
    pin_options="IO_TYPE=LVCMOS33 PULL_MODE=UP BANK_VCCIO=3.3",
    note="the lamp is one of PMOD 0; nothing was tried on a board",
)
