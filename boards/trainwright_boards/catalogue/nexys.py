"""Digilent Nexys A7: an Artix-7 with an FT2232H as the serial bridge."""

from dataclasses import replace

from trainwright_boards.catalogue.arty import ARTY_A7_100T

NEXYS_A7_100T = replace(
    ARTY_A7_100T,
    name="nexys-a7-100t",
    title="Digilent Nexys A7-100T with an XC7A100T",
    rx_pin="C4",
    tx_pin="D4",
    lamp_pin="H17",
    loader="-b nexys_a7_100",
    note="its DDR2 is not used",
)
