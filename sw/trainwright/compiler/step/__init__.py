"""Compile the programs of a training step: try drafts, keep the fastest, join two programs."""
