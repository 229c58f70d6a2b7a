"""Random small networks and accelerators that the tests of the golden model share."""

import random
from dataclasses import dataclass, replace
from math import prod

from trainwright.network import Layer, Network, Widths, rank_bounds
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program


def without_names(program: Program) -> Program:
    """Return the program as a round trip through its file returns it: without tensor names."""
    return Program(
        tuple(replace(d, tensor="") if hasattr(d, "tensor") else d for d in program.descriptors),
        program.fingerprint,
    )


@dataclass(frozen=True)
class Case:
    """A network, a batch and an accelerator that can run it."""

    network: Network
    batch: int
    parameters: AcceleratorParameters

    def __str__(self) -> str:
        layers = "-".join(
            f"{'x'.join(map(str, layer.outputs))}.{'x'.join(map(str, layer.inputs))}"
            f".r{'x'.join(map(str, layer.ranks))}"
            for layer in self.network.layers
        )
        p = self.parameters
        return (
            f"{layers}-b{self.batch}-{p.lanes}x{p.pe1_rows}x{p.pe2_rows}-f{p.factor_width}"
            f"-pad{p.scratchpad_rows}"
        )


def factorised(size: int, order: int, rng: random.Random) -> list[int]:
    """Draw ``order`` numbers that multiply to ``size``."""
    factors = [1] * order
    for prime in (2, 3, 5, 7):
        while size % prime == 0:
            factors[rng.randrange(order)] *= prime
            size //= prime
    assert size == 1
    return factors


def random_layer(
    rng: random.Random, inputs: int, outputs: int, lanes: int, order: int, *, relu: bool
) -> Layer:
    """Draw a layer of sizes that are multiples of ``lanes``, with odd ranks."""
    j = [*factorised(outputs // lanes, order - 1, rng), lanes]
    i = [*factorised(inputs // lanes, order - 1, rng), lanes]
    ranks = [rng.randint(1, min(bound, 11)) for bound in rank_bounds(j, i)]
    return Layer(tuple(j), tuple(i), tuple(ranks), relu=relu, bias=rng.random() < 0.8)


def random_case(seed: int, *, largest: int = 24, most_batch: int = 7) -> Case:
    """Draw orders 2 to 5, few layers, odd ranks and batches, and a small accelerator."""
    rng = random.Random(seed)
    lanes = rng.choice([4, 8, 8, 8, 16])
    pe1_rows = rng.choice([rows for rows in (2, 4, 8) if rows <= lanes])
    pe2_rows = rng.choice([rows for rows in (2, 4, 8) if rows <= lanes])
    factor_width = rng.choice([2, 3, 4, 4, 5, 8, 12, 16])
    count = rng.choice([1, 2, 2, 3])
    budget = largest * 8 // lanes
    sizes = [lanes * rng.choice([n for n in (1, 2, 3, 4, 6, 8, 12) if n <= budget])]
    layers = []
    for n in range(count):
        sizes.append(lanes * rng.choice([m for m in (1, 2, 3, 4, 6) if m <= budget]))
        layers.append(
            random_layer(
                rng,
                sizes[-2],
                sizes[-1],
                lanes,
                2 + (seed + n) % 4,
                relu=n + 1 < count and rng.random() < 0.8,
            )
        )
    widths = Widths(
        factor=rng.randint(2, factor_width),
        bias=rng.choice([4, 6, 8, 8, 12]),
        activation=rng.choice([4, 7, 8, 8, 12]),
        gradient=rng.choice([8, 12, 16, 16]),
        intermediate=rng.choice([8, 11, 16, 16]),
    )
    network = Network(
        name=f"random{seed}",
        layers=tuple(layers),
        classes=min(10, sizes[-1]),
        image=(1, sizes[0]),
        padded=(1, sizes[0]),
        widths=widths,
    )
    parameters = AcceleratorParameters(
        lanes=lanes,
        pe1_rows=pe1_rows,
        pe2_rows=pe2_rows,
        factor_width=factor_width,
        accumulator_width=48,
        scratchpad_rows=1024,
        nest_levels=rng.choice([4, 6, 10]),
        scratchpad_banks=rng.choice([2, 4]),
    )
    return Case(network, rng.choice(range(1, most_batch + 1)), parameters)


def macs_dense(network: Network) -> int:
    """Count multiply-accumulates of one sample through the dense matrices."""
    return sum(prod(layer.outputs) * prod(layer.inputs) for layer in network.layers)
