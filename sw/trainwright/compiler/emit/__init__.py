"""Emit descriptors from commands with addresses: transfers, loop nests, and waits for engines.

In: ``Lowered`` commands of ``step`` and the buffers of external memory. Out: descriptors without
shifts. ``emit`` walks the commands, ``outer`` packs tensors for external memory.
"""
