"""Bit-exactness: steps compared with the golden model, and with digests recorded before."""
