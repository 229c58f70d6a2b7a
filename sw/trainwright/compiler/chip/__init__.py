"""Loss and update of a step as programs with passes of the vector engine."""
