"""Experiments of the paper: figures 8, 14 and 15, the applications' accuracy, and times."""
