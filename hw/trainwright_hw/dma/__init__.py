"""LOAD and STORE: between external memory and the memories of the accelerator."""
