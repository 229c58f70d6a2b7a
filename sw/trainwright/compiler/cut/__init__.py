"""Cut the operations of a program into stages, and each stage into slices."""
