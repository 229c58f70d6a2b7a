"""AXI4 masters towards memory, AXI4-Lite towards the host."""
