"""The accelerator of a run, with drivers and the verifier for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ttforge.cli.backend import opened
from ttforge.cli.train.job import RunOptions
from ttforge.driver import Driver
from ttforge.network import Network
from ttforge.train.float_driver import FloatDriver
from ttforge.train.interfaces import DriverFactory, Verifier
from ttforge.train.verify import make_verifier


@dataclass(frozen=True)
class Machine:
    """What the trainer runs on."""

    open_driver: DriverFactory
    verifier: Verifier | None = None


@contextmanager
def open_machine(
    options: RunOptions, network: Network, batch: int, *, stochastic: bool = False
) -> Iterator[Machine]:
    """Open the back end, close it at the end. Raises what ``cli.backend.opened`` raises.

    A network in float32 needs none.
    """
    if network.widths.is_float:
        yield Machine(FloatDriver)
        return
    with opened(
        options.backend,
        factor_width=network.widths.factor,
        accelerator=options.accelerator,
        memory=options.memory,
        engine=options.engine,
        stochastic=stochastic,
    ) as accelerator:
        yield Machine(
            lambda network: Driver(accelerator, network, batch, plan=options.plan),
            make_verifier(accelerator, batch=batch, plan=options.plan) if options.verify else None,
        )
