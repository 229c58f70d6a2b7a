"""PE2 and PE3: outer products; bias, activation and mask."""
