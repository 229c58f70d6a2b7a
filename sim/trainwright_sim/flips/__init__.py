"""Soft errors: single bits of the accelerator's memories flipped while it trains."""
