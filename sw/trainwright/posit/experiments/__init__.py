"""Experiments on posits: accuracy, training and speed."""
