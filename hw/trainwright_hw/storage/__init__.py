"""The scratchpad, the factor stores, and their ports."""
