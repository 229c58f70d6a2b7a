"""Formal proofs of blocks of the hardware, and mutants that show that each proof can fail."""
