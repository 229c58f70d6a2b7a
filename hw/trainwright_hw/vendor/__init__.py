"""Instantiated primitives of device families."""
