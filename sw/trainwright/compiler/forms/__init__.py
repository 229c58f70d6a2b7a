"""Forms that the stages hand to each other: layouts, ways to compute, commands, loop nests."""
