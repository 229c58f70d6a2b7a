"""The accelerator of a run, with drivers and the verifier for it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from trainwright.accelerator import Accelerator
from trainwright.accelerator.counted import counted
from trainwright.cli.backend import opened
from trainwright.cli.errors import OptionError
from trainwright.cli.options import accelerator_parameters, check_chip_plan
from trainwright.cli.train.job import RunOptions
from trainwright.compiler.chip.live import Kept
from trainwright.driver import Driver
from trainwright.driver.chip import ChipDriver
from trainwright.lowering.in_rows import plan_of_loop
from trainwright.network import Network
from trainwright.onchip.layout import Layout
from trainwright.train.engine import OpenChip
from trainwright.train.float_driver import FloatDriver
from trainwright.train.interfaces import DriverFactory, Verifier
from trainwright.train.parallel import ParallelDriver
from trainwright.train.settings import TrainSettings
from trainwright.train.verify import make_verifier
from trainwright.train.workers import Workers


@dataclass(frozen=True)
class Machine:
    """What the trainer runs on."""

    open_driver: DriverFactory
    verifier: Verifier | None = None
    open_chip: OpenChip | None = None
    """For loss and update by the vector engine, where the accelerator has one."""
    resident: Accelerator | None = None
    """For whole epochs by one program, where it has what that needs."""
    written: Callable[[], int] | None = None
    """Bytes that the host has written."""


@contextmanager
def open_machine(
    options: RunOptions, network: Network, batch: int, *, stochastic: bool = False,
    chip: bool = False,
) -> Iterator[Machine]:  # fmt: skip
    """Open the back end, close it at the end. Raises what ``cli.backend.opened`` raises, and
    ``OptionError`` for options that do not go with an update on the ``chip``.

    A network in float32 needs none.
    """
    if network.widths.is_float:
        yield Machine(FloatDriver)
        return
    if chip and accelerator_parameters(options.accelerator, network).vector_engine:
        check_chip_plan(options.plan)
        if options.verify:
            raise OptionError(
                "--verify does not go with loss and update by the vector engine: leave it "
                "away, or use --accelerator vector_engine=0"
            )
    with opened(
        options.backend,
        network=network,
        accelerator=options.accelerator,
        memory=options.memory,
        engine=options.engine,
        stochastic=stochastic,
    ) as accelerator:
        to, p = counted(accelerator), accelerator.parameters
        plan = options.plan
        if chip:
            plan = plan_of_loop(network, batch, p, plan)

        def open_chip(layout: Layout, kept: Kept, loss: str) -> ChipDriver:
            return ChipDriver(to, layout, batch, kept=kept, loss=loss, plan=options.plan)

        yield Machine(
            lambda network: Driver(to, network, batch, plan=plan),
            make_verifier(accelerator, batch=batch, plan=plan) if options.verify else None,
            open_chip if p.vector_engine else None,
            to if p.vector_engine and p.exponents and p.sample_loads else None,
            lambda: to.written,
        )


def check_parallel(
    options: RunOptions,
    network: Network,
    settings: TrainSettings,
    workers: Workers,
    *,
    round_: bool,
) -> None:
    """Raise ``OptionError`` where micro-batches or several workers contradict other options."""
    parts, count = settings.micro_batches, workers.count
    if parts % count:
        raise OptionError(
            f"{count} workers cannot share --micro-batches {parts} evenly: give a multiple of "
            f"{count}; it decides the bits, the number of workers does not"
        )
    if parts > 1 and network.widths.is_float:
        raise OptionError("--micro-batches sums integers: it does not go with --numbers float32")
    if parts > 1 and options.verify:
        raise OptionError("--verify compares whole batches: it does not go with --micro-batches")
    if count > 1 and round_:
        raise OptionError("--tt-round is for one worker: round the finished model afterwards")


@contextmanager
def open_parallel(
    options: RunOptions, network: Network, settings: TrainSettings, workers: Workers
) -> Iterator[Machine]:
    """What trains whole batches: one accelerator, or one for each micro-batch of this worker."""
    stochastic = settings.rounding != "nearest"
    if settings.micro_batches == 1:
        with open_machine(
            options, network, settings.batch, stochastic=stochastic, chip=settings.chip is not None
        ) as machine:
            yield machine
        return
    with ExitStack() as stack:
        factories = [
            stack.enter_context(
                open_machine(options, network, settings.micro_batch, stochastic=stochastic)
            ).open_driver
            for _ in range(settings.micro_batches // workers.count)
        ]

        def open_driver(network: Network) -> ParallelDriver:
            drivers = [factory(network) for factory in factories]
            return ParallelDriver([d for d in drivers if isinstance(d, Driver)], workers)

        yield Machine(open_driver)
