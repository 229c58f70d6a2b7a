"""The golden model: interprets programs in exact integers, batched."""
