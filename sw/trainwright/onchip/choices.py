"""Choices of the training loop on the chip, by name: options list them without importing torch."""

LOSS_NAMES = ("cross-entropy", "squared-error")
OPTIMISERS = ("esgd", "momentum")
