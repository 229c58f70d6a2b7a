"""Which sources get faults, and which tests must find them."""

from dataclasses import dataclass
from pathlib import Path

from trainwright_sim.mutation.sources import c_faults, python_faults
from trainwright_sim.mutation.sources.fault import Fault

ROOT = Path(__file__).parents[4]
"""The checkout: tests are no part of a package."""


@dataclass(frozen=True)
class Target:
    """Sources by patterns below ``sw/trainwright``, and tests in ``tests/sw``, quick ones first.

    ``options`` go to pytest. The files of one target are of one language; C is built as ``builds``
    say, options of the compiler each, as the package does.
    """

    name: str
    patterns: tuple[str, ...]
    tests: tuple[str, ...]
    options: tuple[str, ...] = ()
    builds: tuple[tuple[str, ...], ...] = ((),)

    @property
    def files(self) -> list[Path]:
        """Return all source files. Raises ``FileNotFoundError`` for a pattern that matches none."""
        sources = []
        for pattern in self.patterns:
            files = sorted((ROOT / "sw" / "trainwright").glob(pattern))
            if not files:
                raise FileNotFoundError(f"{self.name}: no source is {pattern!r}")
            sources += files
        return sources

    @property
    def test_files(self) -> list[Path]:
        """Paths of the tests."""
        return [ROOT / "tests" / "sw" / f"test_{name}.py" for name in self.tests]

    def faults(self) -> list[Fault]:
        """Return all faults that the target's sources can have."""
        return [
            fault
            for path in self.files
            for fault in (python_faults if path.suffix == ".py" else c_faults).faults(path)
        ]


_ALL = (
    Target("fixed", ("fixed/*.py",), ("fixed", "align", "scale")),
    Target("formats", ("formats/*.py",), ("formats", "fixed", "stochastic", "exponent_file")),
    Target(
        "golden-kernel",
        ("golden/native/*.h", "golden/native/*.c"),
        ("executor", "stochastic", "exponent_file", "vector_passes", "samples"),
    ),
    Target(
        "posit",
        ("posit/*.py", "posit/operators/*.py"),
        (
            "posit_rules", "posit_tensor", "posit_functions", "posit_products", "posit_exact",
            "posit_explain", "posit_convolution", "posit_operators", "posit_wide",
        ),
    ),
    Target(
        "posit-kernel",
        ("posit/kernels/*.h", "posit/kernels/*.c"),
        ("posit_rules", "posit_products", "posit_exact", "posit_convolution", "posit_operators"),
        builds=((), ("-DDOUBLE",)),
    ),
    Target(
        "emit",
        ("compiler/emit/emit.py", "compiler/forms/nests.py", "compiler/tile/pieces.py"),
        ("pieces", "emitter", "lowering_digits", "lowering"),
    ),
    Target(
        "program",
        ("program/encoding.py", "program/table.py", "program/footprint.py",
         "program/reach.py"),
        ("program", "footprint", "validation"),
    ),
    Target(
        "kernels",
        ("kernels/*.py", "functions/*.py"),
        ("kernels", "vector_passes", "functions", "group_kernels", "lowering", "overlapping_pools"),
    ),
    Target(
        "graph",
        ("graph/casts.py", "graph/differentiate.py", "graph/fill.py", "graph/ir.py",
         "graph/network.py", "graph/remake.py", "graph/step.py"),
        ("graph", "network_graph", "sequences", "dropout", "coded_functions", "lowering",
         "overlapping_pools"),
    ),
    Target(
        "onchip",
        ("onchip/*.py",),
        ("onchip_loss", "onchip_update", "prior", "output_loss", "update_place", "samples",
         "resident", "resident_prior", "resident_cuts", "resident_momentum", "resident_samples",
         "onchip_functions", "onchip_training"),
    ),
    Target(
        "exponents",
        ("fixed/scale.py", "fixed/health.py", "nn/scales.py", "nn/overflow.py",
         "nn/straight_through.py", "offload/values.py", "offload/padding.py"),
        ("scale", "coded_training", "nn", "nn_conventions", "exponent_recovery",
         "exponents_of_layers",
         "magnitude_jumps", "compile_padding", "compile_norms", "compile", "compile_calls"),
    ),
)  # fmt: skip
TARGETS: dict[str, Target] = {target.name: target for target in _ALL}
