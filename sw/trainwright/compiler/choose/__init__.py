"""Choose the array of each operation and the layouts of its operands."""
