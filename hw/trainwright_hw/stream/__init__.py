"""Queues, skid buffers, delay lines and arbiters: what data moves through."""
