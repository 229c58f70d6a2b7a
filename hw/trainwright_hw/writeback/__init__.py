"""Requantised words to rows of the scratchpad, and their statistics."""
