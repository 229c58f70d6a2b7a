"""What came out of a run: numbers, pictures, one page."""
