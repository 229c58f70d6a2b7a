"""The training loop in integers: what the accelerator's vector engine computes, bit by bit.

Loss, update, rank prior, cuts, exponents and the order of the samples; see
``docs/reference/on-chip-loop.md``.
"""
