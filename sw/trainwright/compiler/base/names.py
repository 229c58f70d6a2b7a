"""Names of the tensors of a training step, as programs, scales and reports use them."""

SAMPLES_INSIDE, SAMPLES_OUTSIDE = "x.i", "x.s"
"""Inputs of a loop on the chip: samples along the lanes, and a row for each sample."""

IDENTITY, ZEROS = "identity", "zeros"
"""Constants in external memory: the identity matrix, and as many rows of zeros."""
