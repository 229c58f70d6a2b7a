"""Report of a run: numbers, pictures, one page."""
