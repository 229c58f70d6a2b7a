"""Fixed point: re-quantisation and automatic scales."""
