"""Measurements on multi-component floats."""
