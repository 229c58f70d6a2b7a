"""``trainwright sweep``: trials of all combinations of a few options, and their Pareto front."""
