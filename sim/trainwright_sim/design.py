"""The design as RTLIL, converted once for each set of parameters and kept."""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from trainwright.parameters import AcceleratorParameters
from trainwright.support.native.cache import Cache

FILE = "design.il"
UNCOVERED = "uncovered.json"
"""Names of the blocks with models elsewhere that stay RTL in this design."""
LEAVES = Path(__file__).parent / "leaves"


SOURCES = (
    "trainwright_hw",
    "trainwright.accelerator",
    "trainwright.fixed",
    "trainwright.formats",
    "trainwright.kernels",
    "trainwright.link",
    "trainwright.parameters",
    "trainwright.program",
)
"""Packages that the design is made from: the hardware, and its imports from below."""


def sources() -> Iterator[Path]:
    """List the files of ``SOURCES``, those of packages within packages too."""
    for name in SOURCES:
        spec = find_spec(name)
        assert spec is not None and spec.origin is not None
        origin = Path(spec.origin)
        yield from sorted(origin.parent.rglob("*.py")) if origin.stem == "__init__" else [origin]


def _key(parameters: AcceleratorParameters, trace: bool, leaves: bool) -> str:
    texts = [path.read_text() for path in sources()]
    versions = [version("amaranth"), sys.version]
    material = [texts, versions, asdict(parameters), trace]
    if leaves:
        material += [path.read_text() for path in sorted(LEAVES.glob("*.py"))]
    return "design-" + hashlib.sha256(json.dumps(material).encode()).hexdigest()[:32]


def kept_rtlil(
    parameters: AcceleratorParameters, *, trace: bool, cache: Cache, leaves: bool = False
) -> tuple[str, tuple[str, ...]]:
    """Convert an accelerator to RTLIL, cached; return the text and the blocks without a model.

    With ``leaves`` the leaf blocks that have a model become cells. Conversion takes seconds;
    reading its result, milliseconds.
    """
    key = _key(parameters, trace, leaves)
    entry = cache.find(key)
    if entry is None:
        text, uncovered = _converted(parameters, trace, leaves)
        with cache.building(key) as folder:
            if folder is not None:
                (folder / FILE).write_text(text)
                if leaves:
                    (folder / UNCOVERED).write_text(json.dumps(uncovered))
        return text, uncovered
    uncovered = tuple(json.loads((entry / UNCOVERED).read_text())) if leaves else ()
    return (entry / FILE).read_text(), uncovered


def _converted(
    parameters: AcceleratorParameters, trace: bool, leaves: bool
) -> tuple[str, tuple[str, ...]]:
    from trainwright_hw.build.convert import to_rtlil
    from trainwright_sim.leaves.catalogue import LEAVES as BLOCKS
    from trainwright_sim.leaves.leaf import replaced

    engines = {"VectorEngine": parameters.vector_engine, "SampleRows": parameters.sample_loads}
    uncovered = {name for name, present in engines.items() if present and leaves}
    with replaced(BLOCKS if leaves else (), uncovered) as declared:
        text = to_rtlil(parameters, trace=trace) + "".join(declared.values())
    return text, tuple(sorted(uncovered))
