"""From a descriptor to the values of its encoded fields and back, a file for each kind."""
