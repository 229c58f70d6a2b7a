"""Networks as graphs of tensors with named axes, before any accelerator is considered.

A network passes through the modules in this order:

1. ``network``: the forward pass, in the operations of ``ir``;
2. ``differentiate``: the backward pass; ``casts`` adds fixed point around functions;
3. ``step``: both as a ``StepGraph``, from which ``compiler.step`` goes on;
4. ``order``: products of many tensors as products of two, by search; ``fill`` has the share of the
   multipliers at work, ``named`` the orders that have names, ``remake`` steps that keep less.
"""
