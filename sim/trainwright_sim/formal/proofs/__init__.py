"""The proofs, a file a block."""
