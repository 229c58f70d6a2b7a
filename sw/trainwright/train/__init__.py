"""Training: BinaryConnect on the host around forward and backward passes on an accelerator."""
