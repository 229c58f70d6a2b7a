"""The job of a session: a new run from the options, or a stored one to resume."""

import argparse
import shlex
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from trainwright.cli.backend import check_simulation_options, memory_options
from trainwright.cli.declare import given_values
from trainwright.cli.errors import OptionError
from trainwright.cli.options import accelerator_parameters, with_formats, with_ranks
from trainwright.cli.train.folder import RunFolder
from trainwright.cli.train.options import OTHER_OPTION as _AGREE
from trainwright.cli.train.options import RunOptions, check_same, check_same_settings, make_settings
from trainwright.data import DataSet, OwnOptions, load_data_set, own_data
from trainwright.data.own import TABLE_SUFFIXES
from trainwright.network import Network, NetworkError, load_network
from trainwright.onchip.choices import LOSS_NAMES
from trainwright.parameters import AcceleratorParameters
from trainwright.report.memory import MemoryItem
from trainwright.support.errors import errors_as
from trainwright.support.plain import NONSENSE, of_plain
from trainwright.support.settings import part_of, settings_of
from trainwright.support.tensor_file import CheckpointError
from trainwright.train.batches import check_task, class_names, labelled_for
from trainwright.train.checkpoint import load_checkpoint
from trainwright.train.export import Origin
from trainwright.train.fitting import fitting_network
from trainwright.train.logs import check_curves, own
from trainwright.train.pretrained import Pretrained, load_pretrained, pretrained_model
from trainwright.train.settings import TrainSettings
from trainwright.train.state import TrainingState, initial_state

FLOAT = "float32"
"""Name of the back end of float32 runs, which have no accelerator."""


Load = Callable[[RunOptions], DataSet]
"""Reader of a run's data set; raises `DataError`."""


def load_data(options: RunOptions, *, fetch: bool = False) -> DataSet:
    """Load a run's data set. Raises `DataError`."""
    own = part_of(OwnOptions, options)
    return load_data_set(options.dataset, options.data, fetch=fetch, own=own)


def on_chip(settings: TrainSettings) -> bool:
    """Return whether an accelerator may compute loss and update: not for parts of a batch."""
    return settings.chip is not None and settings.micro_batches == 1


def accelerator_of(
    options: RunOptions, network: Network, settings: TrainSettings
) -> AcceleratorParameters:
    """Return the accelerator that a run trains on. Raises ``OptionError``."""
    return accelerator_parameters(
        options.accelerator,
        network,
        stochastic=settings.rounding != "nearest",
        alone=on_chip(settings),
    )


@dataclass
class Job:
    """A state with the data and the folder that belong to it."""

    state: TrainingState
    options: RunOptions
    data: DataSet
    folder: RunFolder
    begin: float = field(default_factory=time.monotonic)
    """``time.monotonic`` of the start, earlier by what interrupted sessions took."""
    host_writes: int | None = None
    """Bytes written by the host in the last whole epoch, once training is over."""
    resident: Sequence[MemoryItem] = ()
    """Memory of steps that the accelerator does alone, once training is over."""
    resident_cycles: int = 0
    """Cycles of such a step by the cycle model, once training is over."""

    @property
    def accelerator(self) -> AcceleratorParameters:
        """Accelerator that the run trains on. Raises ``OptionError``."""
        return accelerator_of(self.options, self.state.network, self.state.settings)

    @property
    def seconds(self) -> float:
        """Wall-clock time of the run so far, interruptions not counted."""
        return time.monotonic() - self.begin

    @property
    def run(self) -> dict[str, Any]:
        """Plain data that the checkpoint stores of the job."""
        return {
            "options": asdict(self.options),
            "data_crc": self.data.train.crc,
            "whole_crc": self.data.crc,
            "origin": asdict(self.origin),
            "seconds": self.seconds,
        }

    @property
    def origin(self) -> Origin:
        """Origin that the stored model names."""
        return Origin(
            dataset=self.data.name,
            class_names=class_names(self.state.network, self.data),
            full_scale=self.data.full_scale,
            batch=self.state.settings.micro_batch,
            plan=self.options.plan,
            accelerator=self.options.accelerator,
            pixels=self.state.settings.chip and self.state.settings.chip.pixels,
            preparation=None if self.data.preparation is None else dict(self.data.preparation),
            data_crc=None if self.data.preparation is None else self.data.train.crc,
        )

    @property
    def fingerprint(self) -> tuple[object, ...]:
        """Values that workers that train together must have in common."""
        state, options = self.state, self.options
        return (
            state.network, state.settings, state.model.digest(), state.step,
            sorted(state.scales.exponents.items()), self.data.train.crc, options.dataset,
            options.backend, options.plan, options.accelerator, options.test_samples,
            zlib.crc32(self.data.test.images.tobytes()),
        )  # fmt: skip

    @property
    def resume_command(self) -> str:
        """The command line that goes on with this run."""
        return f"trainwright train --resume --out {shlex.quote(str(self.folder.path))}"


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of ``RunOptions`` that were on the command line."""
    given = given_values(RunOptions, args) | {
        "log": tuple(own(args.log)), "memory": memory_options(args),
    }  # fmt: skip
    if "data" in given:  # a run may be resumed from another folder
        given["data"] = str(Path(given["data"]).absolute())
    given.pop("command", None)  # name of the subcommand
    return {name: value for name, value in given.items() if value or name not in ("log", "memory")}


_INTEGER_SETTINGS = ("scales", "scale_range", "factor_scales", "rounding", "spread")


def _check_options(options: RunOptions, network: Network, settings: TrainSettings) -> None:
    """Reject options that do not go with each other or with the network's numbers."""
    if network.widths.is_float != (options.backend == FLOAT):
        raise OptionError(
            f"back end {options.backend!r} computes with integers: omit --backend or "
            "--numbers float32"
        )
    check_simulation_options(options.backend, options.memory, options.engine)
    check_curves(options.log)
    if options.tt_round is None and (options.tt_round_epochs or options.tt_round_beside):
        raise OptionError(
            "--tt-round-epochs and --tt-round-beside need --tt-round: add it, or omit them"
        )
    if options.verify and options.backend == "golden":
        raise OptionError("--verify compares with the golden model: add --backend rtl")
    if options.backend != FLOAT:
        return
    plain = TrainSettings()
    unusable = {
        "--update chip": settings.chip is not None,
        "--accelerator or --preset": bool(options.accelerator),
        f"--plan {options.plan}": options.plan != RunOptions.plan,
        f"--verify {options.verify}": bool(options.verify),
    }
    for setting in settings_of(TrainSettings):
        if setting.name in _INTEGER_SETTINGS:
            value = getattr(settings, setting.name)
            unusable[f"--{setting.flag} {value}"] = value != getattr(plain, setting.name)
    for option in (option for option, is_given in unusable.items() if is_given):
        raise OptionError(
            f"{option} only applies to integers on an accelerator: omit it or --numbers float32"
        )


@dataclass(frozen=True)
class RequestedRun:
    """Run that a command line asks for, checked as far as it can be without the data."""

    network: Network
    options: RunOptions
    settings: TrainSettings
    accelerator: AcceleratorParameters | None = None
    """None where the numbers are floats."""
    pretrained: Pretrained | None = None
    data: DataSet | None = None
    """Own data that was read already, to choose a network for it."""


def asked(args: argparse.Namespace, load: Load = load_data) -> RequestedRun:
    """Make network, options and settings of a new run. Raises ``NetworkError``, ``OptionError``."""
    pretrained = None if args.initial is None else _pretrained(args)
    own, data = own_data(args.data), None
    if pretrained is not None:
        network = pretrained.network
    elif args.network is None and own not in (None, "text") and args.dataset in (None, own):
        read: dict[str, Any] = _given(args) | {"dataset": own}
        data = load(RunOptions(**read))
        network = fitting_network(data, Path(args.data).stem)
    else:
        network = load_network(args.network or "digits")
    for name in ("ranks", "spread"):
        if pretrained is not None and getattr(args, name) is not None:
            raise OptionError(f"--initial decides the {name} of its factors: omit --{name}")
    network = with_ranks(with_formats(network, args.formats), args.ranks)
    given = _given(args)
    if args.numbers == "float32":
        if args.formats is not None:
            raise OptionError("--formats only applies to integers: omit it or --numbers float32")
        network = network.in_float32()
        given["backend"] = given.get("backend", FLOAT)
    own = own_data(args.data, sequences=network.tokens > 1)
    dataset = given.pop("dataset", own or network.dataset)
    if not dataset:
        give = "--data with lines of text" if network.tokens > 1 else "--dataset"
        raise OptionError(
            f"network {network.name!r} names no data set: give {give}"
            + ("" if args.data is None else f"; {_no_data(args.data, network)}")
        )
    options = RunOptions(dataset=dataset, command=getattr(args, "command_line", ""), **given)
    settings = make_settings(args, dataset)
    _check_options(options, network, settings)
    is_float = network.widths.is_float
    accelerator = None if is_float else accelerator_of(options, network, settings)
    return RequestedRun(network, options, settings, accelerator, pretrained, data)


def _no_data(path: str, network: Network) -> str:
    """Return the reason why a path is no data of a user's own."""
    if not Path(path).exists():
        return f"--data: there is no file or folder {path!r}"
    kinds, folder = ", ".join((".npz", *TABLE_SUFFIXES)), "of pictures"
    if network.tokens > 1:
        kinds, folder = ".txt", "with train.txt or train/seq.in"
    return f"--data: {path!r} is neither a file {kinds} nor a folder {folder}"


def _loader(args: argparse.Namespace) -> Load:
    """Return the reader of the data: from a sweep's file, or from what the options name."""
    if args.prepared is None:
        return partial(load_data, fetch=args.download)
    from trainwright.data.prepared import load_prepared

    return lambda _: load_prepared(Path(args.prepared))


def fresh_job(args: argparse.Namespace) -> Job:
    """Begin a new run. Raises ``NetworkError``, ``DataError``, ``OptionError``."""
    load = _loader(args)
    new = asked(args, load)  # complains before data is looked for
    network, options = new.network, new.options
    folder = RunFolder(Path(args.out or Path("runs") / network.name))
    folder.check_new(force=args.force)
    state, data = fresh_state(args, new, load)
    return Job(state, options, data, folder)


def fresh_state(
    args: argparse.Namespace, new: RequestedRun, load: Load = load_data
) -> tuple[TrainingState, DataSet]:
    """Return initial state and data of a new run. Raises ``DataError``, ``OptionError``."""
    data = labelled_for(new.network, new.data or load(new.options))
    check_task(new.network, data, new.settings)
    if data.scale is not None and args.loss == LOSS_NAMES[0]:
        raise OptionError(f"a regression has the squared error: omit --loss {args.loss}")
    model = new.pretrained and pretrained_model(replace(new.pretrained, network=new.network))
    with errors_as("", OptionError, ValueError):
        settings = make_settings(args, new.options.dataset, len(data.train))
        return initial_state(new.network, settings, model), data


def _pretrained(args: argparse.Namespace) -> Pretrained:
    given = load_pretrained(Path(args.initial))
    if args.network is None:
        return given
    named = load_network(args.network)
    with suppress(NetworkError):  # other ranks than it can have
        if named.with_ranks(given.network.ranks) == given.network:
            return given
    raise OptionError(
        f"--initial {args.initial} belongs to network {given.network.name!r} and not to "
        f"--network {args.network}"
    )


def _same(named: Network, stored: Network) -> bool:
    """Return whether a network is the stored one, but for formats that its run was given."""
    if stored.widths.is_float:
        return named.in_float32() == stored
    return named.with_formats(dict(stored.formats, underflow=stored.underflow)) == stored


def resumed_job(args: argparse.Namespace, *, claim: bool = True) -> Job:
    """Continue the run in ``--out`` as its checkpoint has it; claim the folder if asked to.

    Raises ``OptionError`` or ``CheckpointError`` where there is none, it is damaged, or an option
    given with ``--resume`` belongs to another run.
    """
    for flag, does in (("force", "replaces it"), ("initial", "begins one")):
        if getattr(args, flag) not in (None, False):
            raise OptionError(f"--resume goes on with a run and --{flag} {does}: give one of them")
    if args.out is None:
        raise OptionError("--resume needs the folder of the run: --out DIR")
    folder = RunFolder(Path(args.out))
    folder.check_resumable()
    if not claim:
        return _resumed(args, folder)
    folder.claim()
    try:
        folder.check_resumable()  # another run may have ended meanwhile
        return _resumed(args, folder)
    except BaseException:
        folder.release()
        raise


def _resumed(args: argparse.Namespace, folder: RunFolder) -> Job:
    checkpoint = load_checkpoint(folder.checkpoint)
    state = checkpoint.state
    is_float = state.network.widths.is_float
    differing = {
        f"--numbers {args.numbers}": args.numbers and (args.numbers == "float32") != is_float,
        f"--formats {args.formats}": with_formats(state.network, args.formats) != state.network,
        "these --ranks": with_ranks(state.network, args.ranks) != state.network,
    }
    for option in (option for option, differs in differing.items() if differs):
        raise OptionError(f"--resume: the checkpoint was not made with {option}; {_AGREE}")
    if args.network is not None and not _same(
        with_ranks(load_network(args.network), args.ranks), state.network
    ):
        raise OptionError(
            f"--resume: {folder.checkpoint} belongs to network {state.network.name!r} as it was "
            f"described then, not to --network {args.network}; {_AGREE}"
        )
    check_same_settings(args, state.settings)
    with errors_as(f"{folder.checkpoint}: not of trainwright train", CheckpointError, NONSENSE):
        stored = of_plain(RunOptions, checkpoint.run["options"])
        crc = checkpoint.run["data_crc"], checkpoint.run.get("whole_crc")
        begin = time.monotonic() - checkpoint.run["seconds"]
    given = _given(args)
    for name in ("dataset", "plan"):
        check_same(name, given.get(name), getattr(stored, name))
    options = replace(stored, **given)
    sizes = [accelerator_of(o, state.network, state.settings) for o in (stored, options)]
    if sizes[0] != sizes[1]:
        print("note: with another accelerator the run may end with other bits", file=sys.stderr)
    _check_options(options, state.network, state.settings)
    data = labelled_for(state.network, _loader(args)(options))
    if data.train.crc != crc[0] or crc[1] not in (None, data.crc):  # None: of an earlier version
        raise OptionError(
            f"--resume: data set {options.dataset!r} has changed since the run began; give the "
            "files of then with --data, or start over with --force"
        )
    return Job(state, options, data, folder, begin)
