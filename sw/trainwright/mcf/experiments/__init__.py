"""Experiments on multi-component floats: accuracy, learning, embedding and speed."""
