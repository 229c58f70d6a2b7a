"""Turn choices and slices into commands on pieces of tensors."""
