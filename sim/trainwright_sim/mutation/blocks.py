"""Which blocks get how many mutants, and the tests that must find them."""

from dataclasses import dataclass
from typing import Any

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.compute.vector.engine import VectorEngine
from trainwright_hw.control.exponent_file import ExponentFile
from trainwright_hw.dma.load import LoadEngine
from trainwright_hw.storage.shared import ReadInTurn, WriteByEither
from trainwright_hw.writeback.unit import WriteBack
from trainwright_sim.bench.catalogue import BENCHES, Bench
from trainwright_sim.mutation.suite import Suite


@dataclass(frozen=True)
class Block:
    """Describe a design to mutate, and the tests that should kill its mutants.

    There are ``mutants`` faults, placed anywhere in the design except in the submodules and source
    files listed in ``without``: these have tests of their own, which are measured separately. With
    ``only``, faults are limited to submodules whose names contain one of these strings. ``tests``
    is the test suite, or the bench of the given name.
    """

    name: str
    mutants: int
    without: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    @property
    def tests(self) -> Bench | Suite:
        """Which are to find them."""
        return SUITES.get(self.name) or BENCHES[self.name]


_STREAM = tuple(f"stream/{name}.py" for name in ("registered_queue", "skid_buffer", "round_robin"))
_SLOTS = ("slots", "results")
"""Parts of the write-back unit that have no posits."""
_TINY: dict[str, Any] = {"lanes": 4, "pe1_rows": 2, "scratchpad_rows": 256}
_VECTOR = AcceleratorParameters(**_TINY, pe2_rows=2, vector_engine=1, engine_lanes=2, exponents=16)
_FOUR_BANKS = AcceleratorParameters(**_TINY, pe2_rows=2, scratchpad_banks=4)
_VECTOR_TESTS = "hw/test_vector_engine.py::test_"
SUITES = {
    "write-back": Suite(
        WriteBack,
        AcceleratorParameters(lanes=4, pe1_rows=2, pe2_rows=4, accumulator_width=24),
        ("hw/test_write_back.py",),
        "4x2-",
    ),
    "vector": Suite(
        VectorEngine,
        _VECTOR,
        (
            f"{_VECTOR_TESTS}vector_engine_wraps_and_saturates_every_width[2-0]",
            *(
                f"{_VECTOR_TESTS}vector_engine_matches_model_on_random_passes[{seed}]"
                for seed in (2, 10, 18)
            ),
            f"{_VECTOR_TESTS}rounding_at_its_edges[4-2]",
            f"{_VECTOR_TESTS}vector_pass_counts_last_unwritten_row[2]",
            f"{_VECTOR_TESTS}vector_engine_scalars_match_exponent_file[0]",
            f"{_VECTOR_TESTS}vector_engine_keeps_rows_while_port_is_shut",
            f"{_VECTOR_TESTS}words_of_code",
            f"{_VECTOR_TESTS}vector_engine_wraps_and_saturates_every_width[2-1]",
        ),
    ),
    "exponents": Suite(
        ExponentFile,
        AcceleratorParameters(exponents=16, vector_engine=1, statistics_depth=16),
        ("hw/test_exponent_file.py",),
        "16 or every or floor",
    ),
    "samples": Suite(
        LoadEngine,
        AcceleratorParameters(sample_loads=1),
        ("hw/test_sample_loads.py",),
        "16- or addresses or errors or counts",
    ),
    "shared-reads": Suite(ReadInTurn, _FOUR_BANKS, ("hw/test_shared_ports.py",), "reads"),
    "shared-writes": Suite(WriteByEither, _FOUR_BANKS, ("hw/test_shared_ports.py",), "writes"),
}
_ALL = (
    Block("queue", 50),
    Block("skid", 50),
    Block("round-robin", 50),
    Block("requantise-32", 100),
    Block("nest", 100),
    Block("scratchpad", 100, _STREAM),
    Block("unpack", 150, _STREAM),
    Block("load", 150, ("unpack", *_STREAM)),
    Block("store", 150, _STREAM),
    Block("statistics", 100, _STREAM),
    Block("host", 150, _STREAM),
    Block("fetch", 100, ("nest", *_STREAM)),
    Block("sequencer", 200),
    Block("pe1", 150, ("nest", "write_back", *_STREAM)),
    Block("pe2", 150, ("nest", "fetch", "write_back", *_STREAM)),
    Block("pe1-posits", 150, ("nest", *_SLOTS, *_STREAM)),
    Block("pe2-posits", 150, ("nest", "fetch", *_SLOTS, *_STREAM)),
    Block("write-back", 150, ("encoder", *_STREAM)),
    Block("vector", 200, _STREAM),
    Block("exponents", 150),
    Block("samples", 100, _STREAM, only=("records.", "rows.", "pixels.")),
    Block("shared-reads", 50),
    Block("shared-writes", 50),
)
BLOCKS: dict[str, Block] = {block.name: block for block in _ALL}
