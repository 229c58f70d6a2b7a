"""Helpers for every package: whole files, figures, error-free float64, native kernels."""
