"""Cut the operations of a program into stages, and each stage into slices.

In: the choice of array and layouts for every operation (``choose``). Out: lists of
``slices.Stage``, the likely fastest first, from which ``tile`` makes commands. A stage computes its
operations on one slice at a time, so that a tensor too large for the scratchpad exists a slice at a
time. ``stages`` decides what is computed together, and enumerates and ranks cuts; ``slices`` has
the values that come out.
"""
