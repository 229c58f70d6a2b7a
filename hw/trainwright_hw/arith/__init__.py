"""Arithmetic of a lane: products, sums, re-quantisation, random bits."""
