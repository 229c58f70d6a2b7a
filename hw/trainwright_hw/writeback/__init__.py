"""From requantised words to rows of the scratchpad, and the statistics of them."""
