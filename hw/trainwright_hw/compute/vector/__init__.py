"""The vector engine: passes of instructions over rows of the scratchpad."""
