"""The paper's tables 2, 6, 7, 8 and 11: settings and printed results.

Choices where the paper leaves a setting open (more in ``docs/results/mcf.md``): table 6 runs for
the 2,000 epochs of the published code, and losses are compared after 300, the last multiple of 100
at which float32 and float64 print the same digits (later losses show float32's rounding alone). All
layers start like ``nn.Linear`` and have no bias, as in that code. Table 11's network drops a fifth
of its hidden activations, as in figure 11, and is tested without dropout.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainwright.mcf.experiments import data
from trainwright.mcf.experiments.learning import Task
from trainwright.support.files import packaged

Printed = dict[str, tuple[float, float | None]]


@dataclass(frozen=True)
class PaperTable:
    """Experiment of one table."""

    title: str
    task: Task
    load: Callable[[str | None, int], data.Data]
    """Function from the folder of data sets and a seed to the data."""
    form: str
    """Format of a loss, with the digits that the paper prints."""
    printed: Printed
    """Paper's loss and accuracy, by our names of the types."""
    compared: int | None = None
    """Epoch whose losses are compared, chosen by float32 and float64; default: the last."""

    def spelt(self, loss: float) -> str:
        """Format a loss with the digits that the paper prints."""
        return format(loss, self.form)


_LOADERS: dict[str, Callable[[str | None, int], data.Data]] = {
    "table-6": lambda folder, seed: data.regression(seed),
    "table-7": lambda folder, seed: data.synthetic(seed),
    "table-8": lambda folder, seed: data.cancer(seed),
    "table-2": lambda folder, seed: data.cancer(seed),
    "table-11": data.reduced_mnist,
}
_PRINTED = ("float16", "float32", "float64", *(f"mcf float16 nc={nc}" for nc in (1, 2, 3)))


def _table(name: str, title: str, form: str, task: dict[str, Any], printed: list[list[float]],
           compared: int | None = None) -> PaperTable:  # fmt: skip
    results = {way: (row[0], (*row, None)[1]) for way, row in zip(_PRINTED, printed, strict=True)}
    sizes = tuple(task.pop("sizes"))
    return PaperTable(title, Task(sizes, **task), _LOADERS[name], form, results, compared)


TABLES = {name: _table(name, **row) for name, row in packaged(__file__, "tables.toml").items()}
