"""``trainwright reproduce mctensor``: tables 2, 3, 6 to 8, 11, figures 1, 8, 9 of the paper."""

from typing import Annotated

from trainwright.cli.errors import OptionError
from trainwright.cli.reproduce.experiment import ExperimentOptions, command_of
from trainwright.support.settings import Natural, Option, Positive
from trainwright.support.text import suggestion

_LEARNING = ("table-6", "table-7", "table-8", "table-2", "table-11")
_TRAINED = (*_LEARNING, "table-3")


class McTensorOptions(ExperimentOptions):
    r"""Repeat the experiments on multi-component floats.

    experiments, with about the time that one core takes:
      figures   figures 1, 8 and 9: relative error of add, scaling and multiply against the
                magnitude of the operands, 1 to 3 components of float32 (seconds)
      table-6   linear regression (half a minute)
      table-7   logistic regression on points in the plane (a minute)
      table-8   logistic regression on breast cancer (a minute)
      table-2   network with two hidden layers on breast cancer (four minutes)
      table-11  the same on 10,000 images of MNIST, from --data (six minutes)
      table-3   hyperbolic embedding of WordNet's mammals, from --data: mean average precision and
                mean rank (an hour; ctrl-c and the same command go on from the checkpoints in --out)

    All types begin with the same weights, see the same data and take the same steps. Gradients of
    float16 components are one float16, as in the paper, or ("float32 gradients") of float32. A
    table says whether float16 with components has the loss of float32 to the digits that the paper
    prints; table-6 compares after 300 of 2,000 epochs, while float32 still has the digits of
    float64. The folder gets tables.md, results.json and pictures. docs/results/mcf.md has the
    settings.

    Examples
    --------
      trainwright reproduce mctensor --experiment table-8
      trainwright reproduce mctensor --experiment table-3 --seeds 5 \
          --way float64 --way "mcf float64 nc=2"
    """

    seed: Natural = 1234
    """seed of everything random"""
    quick: bool = False
    """few epochs and points, in half a minute; for a look"""
    way: Annotated[tuple[str, ...], Option(metavar="TYPE", only=_TRAINED)] = ()
    """only this type (repeatable), such as float32 or "mcf float16 nc=2"; table-3 has float64
    components, all other tables float16"""
    epochs: Annotated[Positive | None, Option(only=_TRAINED)] = None
    """epochs of a run (default: the paper's; 1000 for table-3)"""
    seeds: Annotated[Positive, Option(only=("table-3",))] = 1
    """seeds of table-3, from --seed on (the paper: 5)"""
    data: Annotated[str | None, Option(metavar="DIR", only=("table-11", "table-3"))] = None
    """folder of the data sets' files (default: the variable TRAINWRIGHT_DATA)"""

    def ways(self, known: tuple[str, ...], name: str) -> list[str]:
        """Return those of the known ways that were asked for. Raises ``OptionError`` if none."""
        chosen = [way for way in known if not self.way or way in self.way]
        if not chosen:
            raise OptionError(f"--way: {name} has {', '.join(known)}")
        return chosen

    def prepared(self) -> "McTensorOptions":
        """See ``ExperimentOptions``."""
        from trainwright.mcf.experiments import embedding, learning

        known = dict.fromkeys(learning.WAYS + embedding.WAYS)
        for way in self.way:
            if way not in known:
                close = suggestion(way, known)
                raise OptionError(f"--way {way!r}: there are {', '.join(known)}{close}")
        return self


command = command_of(
    "mcf", ("figures", *_TRAINED), McTensorOptions, "mctensor",
    "multi-component floats: regression, networks, hyperbolic embedding, errors",
    needs={"sklearn": _LEARNING},
)  # fmt: skip
