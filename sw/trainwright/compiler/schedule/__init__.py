"""Order the commands of a program and place its pieces in the scratchpad."""
