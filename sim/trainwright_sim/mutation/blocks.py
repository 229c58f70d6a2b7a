"""Which blocks get how many mutants, by the benches whose tests must find them."""

from dataclasses import dataclass

from trainwright_sim.bench.catalogue import BENCHES, Bench


@dataclass(frozen=True)
class Block:
    """``mutants`` in the design of the bench of that name, but for the submodules named in
    ``without``: these have a bench of their own, where their faults are looked for."""

    name: str
    mutants: int
    without: tuple[str, ...] = ()

    @property
    def bench(self) -> Bench:
        """Whose tests are to find them."""
        return BENCHES[self.name]


_ALL = (
    Block("requantise-32", 100),
    Block("nest", 100),
    Block("scratchpad", 100),
    Block("factor_store", 50),
    Block("unpack", 150),
    Block("load", 150, without=("unpack",)),
    Block("store", 150),
    Block("statistics", 100),
    Block("host", 150),
    Block("fetch", 100, without=("nest",)),
    Block("sequencer", 200),
    Block("pe1", 200, without=("nest", "encoder")),
    Block("pe2", 200, without=("nest", "fetch", "encoder")),
    Block("pe1-posits", 150, without=("nest",)),
    Block("pe2-posits", 150, without=("nest", "fetch")),
)
BLOCKS: dict[str, Block] = {block.name: block for block in _ALL}
