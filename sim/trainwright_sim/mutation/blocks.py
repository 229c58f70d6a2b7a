"""Which blocks get how many mutants, by the benches whose tests must find them."""

from trainwright_sim.bench.catalogue import BENCHES, Bench

MUTANTS: dict[str, int] = {
    "requantise-32": 100,
    "nest": 100,
    "fetch": 100,
    "pe1": 200,
    "pe1-posits": 200,
    "pe2": 200,
    "pe2-posits": 200,
    "scratchpad": 100,
    "factor_store": 50,
    "unpack": 100,
    "load": 150,
    "store": 150,
    "statistics": 100,
    "host": 100,
    "sequencer": 200,
}
"""Of each bench: its design is mutated whole, queues and arbiters in it included."""


def bench(name: str) -> Bench:
    """The bench of a block. Raises ``ValueError`` for one that has no mutants."""
    if name not in MUTANTS:
        raise ValueError(f"{name!r} is no block with mutants: {', '.join(MUTANTS)}")
    return BENCHES[name]
