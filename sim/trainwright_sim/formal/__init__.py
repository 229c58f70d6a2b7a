"""Formal proofs of blocks of the hardware: what is claimed of each, and that each claim can fail."""
