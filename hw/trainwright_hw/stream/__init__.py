"""Building blocks of data paths: queues, skid buffers, delay lines and arbiters."""
