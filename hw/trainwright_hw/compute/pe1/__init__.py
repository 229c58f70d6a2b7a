"""PE1, the engine of PE4: contraction along the lanes."""
