"""LOAD and STORE: transfers between external memory and the accelerator's memories."""
