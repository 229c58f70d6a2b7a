"""Compile a step: try choices and cuts, keep the fastest program, join forward and backward.

``compile`` has the entry ``compile_network``: contraction orders, then both programs of a step.
``lower`` finds one program: ``drafts`` cuts, tiles and issues, ``lower`` places and times,
``blocks`` does both for large batches, ``rows`` keeps to a state on the chip. ``adapter`` makes
what the driver takes; ``stored`` caches it, and says what would fit.
"""
