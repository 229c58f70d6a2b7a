"""All proofs, by name."""

from trainwright_sim.formal.proof import Proof
from trainwright_sim.formal.proofs import (
    block_queue,
    delay_line,
    registered_queue,
    round_robin,
    skid_buffer,
)

_FILES = (registered_queue, block_queue, skid_buffer, round_robin, delay_line)

PROOFS: dict[str, Proof] = {proof.name: proof for file in _FILES for proof in file.PROOFS}
"""In the order of the table."""
