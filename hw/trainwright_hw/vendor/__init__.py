"""Primitives of device families, instantiated."""
