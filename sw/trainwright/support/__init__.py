"""What every package may use: whole files, figures, error-free float64, native kernels."""
