"""How much the blocks' tests see: faults put into the hardware, and which of them a test finds."""
