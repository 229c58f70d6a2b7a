"""Choices of the training loop on the chip, by name: options list them without importing torch."""

LANES = 16
"""Words of a row of state. A machine of 8 lanes takes two of its rows for each."""
LOSS_NAMES = ("cross-entropy", "squared-error")
OPTIMISERS = ("esgd", "momentum")
