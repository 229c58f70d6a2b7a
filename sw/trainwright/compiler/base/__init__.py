"""Limits, memory, hazards, errors and compiled programs: what every stage of the compiler needs.

``compiled`` has the result of the compiler, ``rules`` how a program is bound to exponents;
``limits`` and ``errors`` say what an accelerator cannot run; ``memory`` lays out buffers and rows,
``hazards`` finds the waits between commands, ``progress`` counts effort.
"""
