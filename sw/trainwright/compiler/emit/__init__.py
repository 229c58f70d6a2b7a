"""Emit descriptors of ordered commands, and the buffers in external memory."""
