"""Compute engines: PE1 with PE4, PE2 with PE3, the vector engine, and their common parts."""
