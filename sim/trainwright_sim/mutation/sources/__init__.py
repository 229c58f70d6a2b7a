"""How much the tests of Python and C see: one-token faults in sources, and which a test finds."""
