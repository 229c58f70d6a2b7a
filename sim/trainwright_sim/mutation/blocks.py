"""Which blocks get how many mutants, by the benches whose tests must find them."""

from dataclasses import dataclass

from trainwright_sim.bench.catalogue import BENCHES, Bench


@dataclass(frozen=True)
class Block:
    """``mutants`` in the design of the bench of that name, but for the submodules and the files
    named in ``without``: these have a bench of their own, where their faults are looked for."""

    name: str
    mutants: int
    without: tuple[str, ...] = ()

    @property
    def bench(self) -> Bench:
        """Whose tests are to find them."""
        return BENCHES[self.name]


_STREAM = tuple(f"stream/{name}.py" for name in ("registered_queue", "skid_buffer", "round_robin"))
_ALL = (
    Block("queue", 50),
    Block("skid", 50),
    Block("round-robin", 50),
    Block("requantise-32", 100),
    Block("nest", 100),
    Block("scratchpad", 100, _STREAM),
    Block("factor_store", 50),
    Block("unpack", 150, _STREAM),
    Block("load", 150, ("unpack", *_STREAM)),
    Block("store", 150, _STREAM),
    Block("statistics", 100, _STREAM),
    Block("host", 150, _STREAM),
    Block("fetch", 100, ("nest", *_STREAM)),
    Block("sequencer", 200),
    Block("pe1", 150, ("nest", "encoder", *_STREAM)),
    Block("pe2", 150, ("nest", "fetch", "encoder", *_STREAM)),
    Block("pe1-posits", 150, ("nest", *_STREAM)),
    Block("pe2-posits", 150, ("nest", "fetch", *_STREAM)),
)
BLOCKS: dict[str, Block] = {block.name: block for block in _ALL}
