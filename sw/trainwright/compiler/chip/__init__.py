"""Programs of a training loop that runs on the accelerator alone.

In: a ``CompiledStep`` in rows of the state (plan ``in-rows``). Out: programs that compute the loss,
update the state, draw the next samples and move exponents without the host. ``resident`` joins all
of them to one program of a step, which ``compiler.schedule.weave`` orders. ``loss``, ``update``,
``prior``, ``samples`` and ``schedule`` are the single programs, made with ``passes``; ``memory``
says where their rows lie, ``beside`` in which rows of the scratchpad they run next to the main
passes.
"""
