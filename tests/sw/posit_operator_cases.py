"""For every operator of posit tensors: what it gives, and the same by functions on codes.

A case takes a ``Bench`` and yields pairs: a posit tensor, or what else torch returns, and codes.
"""

import posit_operator_activations
import posit_operator_indexed
import posit_operator_layers
import posit_operator_norms
import posit_operator_places
import posit_operator_resampling
import posit_operator_sequences
import posit_operator_sums
import posit_operator_volumes
import posit_operator_wider

CASES = (
    posit_operator_sums.CASES
    | posit_operator_layers.CASES
    | posit_operator_places.CASES
    | posit_operator_norms.CASES
    | posit_operator_indexed.CASES
    | posit_operator_activations.CASES
    | posit_operator_sequences.CASES
    | posit_operator_volumes.CASES
    | posit_operator_resampling.CASES
    | posit_operator_wider.CASES
)
