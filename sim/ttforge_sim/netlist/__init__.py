"""The synthesised netlist of an ECP5, simulated with models of its cells."""
