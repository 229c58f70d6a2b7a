"""Synthesised netlists of an ECP5 and a GW5A, simulated with models of their cells."""
