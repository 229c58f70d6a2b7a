"""A controller for an SDR SDRAM."""
