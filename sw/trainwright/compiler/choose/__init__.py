"""Choose which array computes each operation, and from operands in which layouts.

In: a graph of products of two, the layouts that external memory imposes, and a ``SearchMode``. Out:
``forms.choices.Chosen``. ``choose`` is a beam search whose states (``clocks``) estimate when arrays
and loads are free; ``divisions`` lists the implementations of both arrays and where they divide an
operation, and moves divisions; ``huge`` keeps axes free for slices where a tensor exceeds the
scratchpad.
"""
