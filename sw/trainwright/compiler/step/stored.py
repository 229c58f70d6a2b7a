"""Cache compiled steps on disk, by everything that they follow from.

Where a network does not fit, remedies are compiled before an error names them.
"""

import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import islice, takewhile
from pathlib import Path

from trainwright.compiler.base.compiled import AUTO
from trainwright.compiler.base.errors import CompileError, DoesNotFitError, ResourceError
from trainwright.compiler.base.limits import SCRATCHPAD
from trainwright.compiler.base.progress import MOST_EFFORT, enter_phase, followed, is_spent
from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.step.compile import StepPrograms, compile_network
from trainwright.functions.record import FunctionKernel
from trainwright.functions.saturation import warn_of_saturation
from trainwright.graph.ir import Kernel
from trainwright.graph.step import step_graph
from trainwright.network import Network, UserNames
from trainwright.network.nodes import Dropout
from trainwright.parameters import PRESETS, AcceleratorParameters, preset
from trainwright.support.files import write_whole
from trainwright.support.native.cache import default_folder, least_recent
from trainwright.support.waiting import say, waiting

Trial = Callable[[int, AcceleratorParameters], object]
"""Compile for a batch and an accelerator; raises ``CompileError`` where that does not fit."""


MOST_BYTES = 256 << 20
"""Bytes of all entries above which the least recently used are removed: about 1,000 networks."""
SWITCH = "TRAINWRIGHT_PROGRAM_CACHE"
"""Environment variable that switches the cache off where its value is ``0``."""
_DIGEST_BYTES = hashlib.sha256().digest_size
_SUFFIX = ".step"


def _batches(batch: int) -> Iterator[list[int]]:
    """Yield lists of smaller batches, the smallest first."""
    count = TUNING.effort.trial_batches
    smaller = [batch // 4**n for n in range(count, 0, -1)]
    yield [n for n in smaller if n]
    # Where not even the smallest of these fits.
    least = smaller[0] or batch
    yield [n for n in (4**k for k in range(count)) if n < least and n not in smaller]


def _sizes(p: AcceleratorParameters) -> Iterator[AcceleratorParameters]:
    """Yield accelerators with larger scratchpads, the largest first."""
    rows = SCRATCHPAD.greatest
    while rows > p.scratchpad_rows:
        yield replace(p, scratchpad_rows=rows)
        rows //= 4


def _presets(p: AcceleratorParameters) -> Iterator[str]:
    """List presets with larger scratchpads, the largest first, of equally large ones the first."""
    rows = {name: preset(name).scratchpad_rows for name in PRESETS}
    for most in sorted({r for r in rows.values() if r > p.scratchpad_rows}, reverse=True):
        yield next(name for name, r in rows.items() if r == most)


def with_remedies(
    error: DoesNotFitError, batch: int, p: AcceleratorParameters, trial: Trial
) -> DoesNotFitError:
    """Return the error with a batch, a scratchpad and a preset that were tried and do fit.

    What an error guesses from the rows that one tensor lacks is often wrong: other tensors grow
    with the batch, and slices with the scratchpad.
    """

    def fits(samples: int, q: AcceleratorParameters) -> bool:
        with suppress(CompileError):
            if not is_spent():
                trial(samples, q)
                return True
        return False

    # Each search yields the best remedy so far after a trial that fits, and "" after another.
    fitting = 0

    def batches() -> Iterator[str]:
        nonlocal fitting
        # Small batches first: they take less to compile, and a larger one is tried if they fit.
        for tried in _batches(batch):
            remedy, samples = "", 0
            for samples in takewhile(lambda n: fits(n, p), tried):
                fitting, remedy = samples, f"use a batch of {samples}, which fits"
                yield remedy
            if remedy:
                # The trial of a long search may leave no effort for another batch.
                if is_spent() and samples < tried[-1]:
                    yield f"{remedy} (larger ones were not tried)"
                return
            yield ""

    def sizes() -> Iterator[str]:
        # Large scratchpads first, for the same reason.
        for size in takewhile(lambda q: fits(batch, q), _sizes(p)):
            yield f"an accelerator with scratchpad_rows={size.scratchpad_rows} fits"

    def presets() -> Iterator[str]:
        for name in islice(_presets(p), TUNING.effort.trial_presets):
            if fits(batch, preset(name)):
                yield f"preset {name} fits"
                return
            yield ""

    # In turns, so that a kind whose next trial takes long leaves effort for the other kinds: a
    # batch of 4 of `fashion` takes all of it on 2,048 rows, and does not fit.
    searches = {"size": sizes(), "preset": presets(), "batch": batches()}
    best: dict[str, str] = {"batch": "", "size": "", "preset": ""}
    while searches:
        for kind in tuple(searches):
            remedy = next(searches[kind], None)
            if remedy is None:
                del searches[kind]
            best[kind] = remedy or best[kind]
    remedies = [*filter(None, best.values())]
    if not remedies and is_spent():
        remedies.append(
            "try a smaller batch, smaller layers or ranks: no remedy was found before the trials "
            "ran out of effort"
        )
    remedy = (
        "; ".join(remedies) or "use smaller layers or ranks: no smaller batch that was tried fits"
    )
    return DoesNotFitError(error.reason, remedy, batch=fitting)


@cache
def _code() -> bytes:
    """Return a digest of the source files: no entry outlives a change of the compiler."""
    # All files, not the compiler's alone: which modules a program follows from changes over time,
    # and a stale program would be wrong without a word. Reading them takes 20 ms.
    folder = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256(f"{sys.version_info} {pickle.HIGHEST_PROTOCOL}".encode())
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


def own_parts(network: Network, batch: int) -> str:
    """Describe a user's kernels and formats, whose names in ``network`` outlive their changes.

    Warns of a kernel or a dropout whose results saturate.
    """
    parts: list[object] = [
        (fmt, fmt.definition) for _, fmt in (*network.coded, *network.singles) if fmt.own_digest
    ]
    for node in network.nodes:
        if isinstance(node, Dropout):
            function, width = network.function_at(node), network.widths.activation
            warn_of_saturation(function.forward, (width, width), width)
    if all(function.definition.is_library for function in network.functions):
        return repr(parts)
    graph = step_graph(network, batch).whole
    for op in graph.ops:
        if isinstance(op, Kernel) and isinstance(op.body, FunctionKernel):
            widths = [graph.tensors[name].width for name in op.operands]
            width = graph.tensors[op.out].width
            warn_of_saturation(op.body, tuple(widths), width)
            text = op.body.text_of(widths, width)
            parts.append((op, text))
    return repr(parts)


class StepCache:
    """Folder of compiled steps and of the reasons why others do not fit.

    Several processes can use a folder at the same time: an entry is published by a rename, and
    begins with a digest of the rest, so that a damaged or truncated one counts as missing.
    """

    def __init__(self, folder: Path | None = None, most_bytes: int = MOST_BYTES):
        self.folder = default_folder() / "programs" if folder is None else folder
        self.most_bytes = most_bytes

    def path(self, key: str) -> Path:
        """Return the file of an entry, whether it exists or not."""
        return self.folder / f"{key}{_SUFFIX}"

    def step(self, key: str, make: Callable[[], StepPrograms]) -> StepPrograms:
        """Return the step of a key, made only if the folder has none.

        Raises ``CompileError`` if ``make`` does, or did when the entry was written.
        """
        result = self._read(key)
        if result is None:
            try:
                result = make()
            except CompileError as error:
                result = error
            self._write(key, result)
        if isinstance(result, CompileError):
            raise result
        return result

    def _read(self, key: str) -> StepPrograms | CompileError | None:
        path = self.path(key)
        try:
            data = path.read_bytes()
            if hashlib.sha256(data[_DIGEST_BYTES:]).digest() != data[:_DIGEST_BYTES]:
                return None
            result = pickle.loads(data[_DIGEST_BYTES:])  # the user's own folder
            os.utime(path)  # pruning removes the least recently used entries first
        # Unpickling raises anything at all if the entry is of other code: compile again then.
        except Exception:
            return None
        return result if isinstance(result, StepPrograms | CompileError) else None

    def _write(self, key: str, result: StepPrograms | CompileError) -> None:
        data = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
        # A full disk or a folder without write permission costs time only, on the next run.
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.path(key), hashlib.sha256(data).digest() + data)
            for entry in least_recent(self.folder, self.most_bytes):
                entry.unlink(missing_ok=True)


def cached_step(
    network: Network,
    batch: int,
    p: AcceleratorParameters,
    *,
    inputs: bool = False,
    plan: str = AUTO,
    effort: int = MOST_EFFORT,
) -> StepPrograms:
    """Return ``compile_network`` of the same arguments, from the user's cache folder if known.

    Raises ``CompileError`` if the network does not fit, with remedies that do fit and the names of
    layers in the user's network.
    """

    def make() -> StepPrograms:
        what = f"compiling {network.name} for a batch of {batch}"
        with followed() as progress, waiting(say, what, detail=lambda: progress.phase):
            try:
                return compiled(batch, p, effort)
            except ResourceError as error:
                raise _helpful(error).named(UserNames.of_network(network)) from None

    def compiled(samples: int, parameters: AcceleratorParameters, most: int) -> StepPrograms:
        return compile_network(network, samples, parameters, inputs=inputs, plan=plan, effort=most)

    def _helpful(error: ResourceError) -> ResourceError:
        if not isinstance(error, DoesNotFitError):
            return error
        enter_phase("does not fit: smaller batches and larger scratchpads are tried")
        most = min(effort, TUNING.effort.trial)
        with followed(TUNING.effort.all_trials, hopeless=most):
            return with_remedies(error, batch, p, lambda n, q: compiled(n, q, most))

    if os.environ.get(SWITCH) == "0":
        return make()
    definitions = own_parts(network, batch)
    asked = repr((network, batch, p, inputs, plan, effort, definitions)).encode()
    return StepCache().step(hashlib.sha256(_code() + asked).hexdigest(), make)
