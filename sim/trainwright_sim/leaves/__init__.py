"""Leaf blocks as C++ models in the compiled simulation (``docs/reference/simulation.md``)."""
