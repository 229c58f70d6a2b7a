"""Chains of contractions that samples go through in groups, operands on chip."""

from dataclasses import dataclass
from itertools import pairwise

from trainwright.compiler.builder import Builder, Rule
from trainwright.compiler.images import Use, image
from trainwright.compiler.memory import Region, largest_divisor
from trainwright.fixed.scale import TensorClass
from trainwright.network import Network


@dataclass(frozen=True)
class Stage:
    """One contraction of a layer's chain, for one sample: sizes in scratchpad rows."""

    index: int
    """Factor, from 0."""
    use: Use
    a: int
    c: int
    """Rows along c (0 for PE1, which sums over c)."""
    rows: int
    """Rows of the result."""
    count: int
    """Values of the result."""


def chain_rows(first: int, stages: list[Stage]) -> int:
    """Most rows a sample's chain holds at once: a contraction's operand and its result."""
    sizes = [first, *(stage.rows for stage in stages)]
    return max(a + b for a, b in pairwise(sizes))


def group_size(batch: int, rows_a_sample: int, b: Builder, what: str) -> int:
    """Samples that go through a chain together: the most that fit and divide the batch."""
    group = largest_divisor(batch, b.pad.largest_gap // rows_a_sample)
    if not group:
        b.pad.allocate(what, rows_a_sample)  # raises, naming the sizes
    return group


def run_stages(
    b: Builder,
    number: int,
    stages: list[Stage],
    images: dict[int, Region],
    x: Region,
    x_name: str,
    x_width: int,
    group: int,
    batch: int,
    *,
    names: list[str],
    kind: TensorClass,
    width: int,
    network: Network,
) -> Region:
    """Emit a chain on ``group`` samples; every operand is given back once it is used."""
    for stage, name in zip(stages, names, strict=True):
        spec = image(network, number, stage.index, stage.use, b.p)
        tensor = b.written(name, kind, width, batch * stage.count)
        rule = Rule(x_name, f"l{number + 1}.G{stage.index + 1}", tensor)
        z = b.opposite(x, name, group * stage.rows)
        entries = images[stage.index]
        if stage.use in (Use.FORWARD_LAST, Use.BACKWARD_LAST):
            b.pe1(x, z, spec, entries, a=group * stage.a, rule=rule, x_width=x_width)
        else:
            b.pe2(x, z, spec, entries, a=group * stage.a, c=stage.c, rule=rule, x_width=x_width)
        b.pad.free(x)
        x, x_name, x_width = z, name, width
    return x
