"""Memories outside the accelerator: on chip or an SDRAM, with a port for the host."""
