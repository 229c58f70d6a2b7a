"""PE2, the engine of PE3: outer products; bias, activation and mask."""
