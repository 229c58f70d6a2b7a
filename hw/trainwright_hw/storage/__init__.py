"""The scratchpad and its ports."""
