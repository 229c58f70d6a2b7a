"""The accelerator of a run, with drivers and the verifier for it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

from trainwright.accelerator.counted import counted
from trainwright.check.verify import make_verifier
from trainwright.cli.backend import opened
from trainwright.cli.errors import OptionError
from trainwright.cli.options import check_chip_plan, tell_update_place, update_place
from trainwright.cli.train.job import Job, on_chip
from trainwright.compiler.base.errors import CompileError, ResourceError
from trainwright.compiler.step.rows import plan_of_loop, require_chip
from trainwright.driver import Driver
from trainwright.network import Network
from trainwright.train.engine import StepEngine
from trainwright.train.float_driver import FloatDriver
from trainwright.train.host_engine import HostEngine
from trainwright.train.interfaces import DriverFactory
from trainwright.train.parallel import ParallelDriver
from trainwright.train.resident import ResidentEngine
from trainwright.train.settings import TrainSettings
from trainwright.train.workers import Workers


@dataclass(frozen=True)
class Machine:
    """Accelerators of a run: engine of its steps, and maker of drivers for other ranks."""

    engine: StepEngine
    open_driver: DriverFactory


def _of_host(open_driver: DriverFactory) -> Machine:
    return Machine(HostEngine(open_driver), open_driver)


@contextmanager
def _told_of_host() -> Iterator[None]:
    """Add the remedy of loss and update by the host to every ``CompileError``."""
    try:
        yield
    except ResourceError:  # names remedies itself; the step may not fit with the host, either
        raise
    except CompileError as error:
        raise CompileError(
            f"{error}; or leave loss and update to the host: --accelerator exponents=0"
        ) from error


@contextmanager
def _told_of_micro_batches(settings: TrainSettings) -> Iterator[None]:
    """Name ``--micro-batches`` where a smaller batch fits that divides the batch, which stays."""
    try:
        yield
    except ResourceError as error:
        part, batch = error.batch, settings.batch
        if not part or batch % part:
            raise
        raise error.with_remedy(
            f"--micro-batches {batch // part} trains the batch of {batch} in parts of {part}"
        ) from None


@contextmanager
def open_machine(job: Job) -> Iterator[Machine]:
    """Open the back end, close it at the end.

    A network in float32 needs none. Raises what ``cli.backend.opened`` raises, and ``OptionError``
    for options that do not go with an update by the accelerator.
    """
    options, network, settings = job.options, job.state.network, job.state.settings
    if network.widths.is_float:
        yield _of_host(FloatDriver)
        return
    batch, chip, parameters = settings.micro_batch, on_chip(settings), job.accelerator
    alone = chip and update_place(parameters) == "alone"
    if alone:
        check_chip_plan(options.plan)
        if options.verify:
            raise OptionError(
                "--verify does not go with an accelerator that trains alone: omit it, or use "
                "--accelerator exponents=0"
            )
        with _told_of_host():  # refused before a simulator is built
            require_chip(network, parameters)
    with (
        opened(options.backend, parameters, options.memory, options.engine) as accelerator,
        _told_of_host() if alone else nullcontext(),
    ):
        counting, p = counted(accelerator), accelerator.parameters
        if chip:
            tell_update_place(p, network)
        plan = plan_of_loop(network, p, options.plan) if chip else options.plan

        # Neither an accelerator that trains alone nor a comparison of steps takes parts of batches.
        takes_parts = not (alone or options.verify)

        def open_driver(network: Network) -> Driver:
            with _told_of_micro_batches(settings) if takes_parts else nullcontext():
                return Driver(counting, network, batch, plan=plan)

        verifier = make_verifier(accelerator, batch=batch, plan=plan) if options.verify else None
        steps: StepEngine = HostEngine(open_driver, verifier, options.verify)
        if alone:
            steps = ResidentEngine(counting, plan=options.plan)
        yield Machine(steps, open_driver)


def check_parallel(job: Job, workers: Workers) -> None:
    """Raise ``OptionError`` where micro-batches or several workers contradict other options."""
    network, settings = job.state.network, job.state.settings
    parts, count = settings.micro_batches, workers.count
    if parts % count:
        raise OptionError(
            f"{count} workers cannot share --micro-batches {parts} evenly: give a multiple of "
            f"{count}; it decides the bits, the number of workers does not"
        )
    if parts > 1 and network.widths.is_float:
        raise OptionError("--micro-batches sums integers: it does not go with --numbers float32")
    if parts > 1 and job.options.verify:
        raise OptionError("--verify compares whole batches: it does not go with --micro-batches")
    spare_engine = job.accelerator.vector_engine and not network.needs_vector_engine
    if parts > 1 and settings.chip and spare_engine:
        raise OptionError(
            "--micro-batches leaves loss and update to the host: use --accelerator vector_engine=0"
        )
    if count > 1 and job.options.tt_round is not None:
        raise OptionError("--tt-round is for one worker: round the finished model afterwards")


@contextmanager
def open_parallel(job: Job, workers: Workers) -> Iterator[Machine]:
    """Open the accelerator of whole batches, or one for each micro-batch of this worker."""
    network, settings = job.state.network, job.state.settings
    if settings.micro_batches == 1:
        with open_machine(job) as machine:
            yield machine
        return
    if settings.chip and not workers.rank:
        tell_update_place(job.accelerator, network, parts=network.needs_vector_engine)
    with ExitStack() as stack:
        factories = [
            stack.enter_context(open_machine(job)).open_driver
            for _ in range(settings.micro_batches // workers.count)
        ]

        def open_driver(network: Network) -> ParallelDriver:
            drivers = [factory(network) for factory in factories]
            return ParallelDriver([d for d in drivers if isinstance(d, Driver)], workers)

        yield _of_host(open_driver)
