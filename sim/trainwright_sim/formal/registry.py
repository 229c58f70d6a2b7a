"""List all proofs by name."""

from trainwright_sim.formal.proof import LinearProof, Proof
from trainwright_sim.formal.proofs import (
    accumulators,
    axi_lite,
    axi_reader,
    axi_writer,
    block_queue,
    bursts,
    counters,
    deframer,
    delay_line,
    frame_crc,
    loop_nest,
    loop_stack,
    posit_decoder,
    posit_encoder,
    registered_queue,
    registers,
    requantiser,
    result_queue,
    round_robin,
    skid_buffer,
    transfer_runs,
    watchdog,
)

_FILES = (
    registered_queue,
    block_queue,
    skid_buffer,
    round_robin,
    delay_line,
    bursts,
    axi_reader,
    axi_writer,
    axi_lite,
    registers,
    counters,
    watchdog,
    deframer,
    frame_crc,
    loop_stack,
    loop_nest,
    transfer_runs,
    accumulators,
    result_queue,
    requantiser,
    posit_decoder,
    posit_encoder,
)

PROOFS: dict[str, Proof | LinearProof] = {
    proof.name: proof for file in _FILES for proof in file.PROOFS
}
"""Proofs by name, in the order of the table in docs/results/verification.md."""
