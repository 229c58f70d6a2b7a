"""``trainwright reproduce table1``: Table 1 of the paper on Fashion-MNIST, and more."""

from typing import Annotated

from trainwright.cli.reproduce import runs as recipes
from trainwright.report.table1 import GROUPS, combined
from trainwright.support.settings import Option


class Table1Options(recipes.RecipeOptions):
    """Repeat the paper's Table 1 on Fashion-MNIST: accuracy against memory.

    Examples
    --------
      trainwright reproduce table1 --data DIR --seeds 3 --jobs 2
      trainwright reproduce table1 --data DIR --rows fixed-prior --epochs 10
      trainwright reproduce table1 --data DIR --rows ablations --seeds 1 --out runs/ablations

    A row is one choice of options of `trainwright train --network fashion`. Every run has a folder
    of its own, OUT/ROW/seed-N, with its report. The same command again keeps runs that are finished
    and continues interrupted ones. Finished runs are combined in OUT: table.md, results.json,
    pictures. Thirty epochs on the golden model take two to three minutes a run on one core.
    """

    rows: Annotated[
        tuple[str, ...], Option(metavar="ROW", arguments={"nargs": "+", "default": ["table"]})
    ] = ("table",)
    """names or groups of rows (default: table)"""
    out: Annotated[str, Option(metavar="DIR")] = "runs/reproduce-table1"
    """folder of the runs and of their tables and pictures"""


EPILOG = "rows (a name, or a group):\n" + "\n".join(
    f"  {name:10} {', '.join(row.name for row in group)}" for name, group in GROUPS.items()
)
command = recipes.recipe_command(
    Table1Options, GROUPS, combined, "table1",
    "the paper's Table 1 on Fashion-MNIST: accuracy against memory", EPILOG,
)  # fmt: skip
