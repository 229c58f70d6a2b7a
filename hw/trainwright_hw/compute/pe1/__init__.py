"""PE1 and PE4: contraction along the lanes."""
