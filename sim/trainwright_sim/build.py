"""From a design in RTLIL to a shared library, compiled once and kept."""

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainwright.accelerator import AcceleratorError
from trainwright.program import records
from trainwright.support.children import Children, result_of
from trainwright.support.native import tools as native_tools
from trainwright.support.native.cache import Cache
from trainwright.support.native.tools import BuildLog, Progress, Tool, ToolError
from trainwright.support.waiting import waiting
from trainwright_sim import engines
from trainwright_sim.engines import NATIVE, Harness, SimulationEngine

LIBRARY = {"win32": "simulator.dll", "darwin": "simulator.dylib"}.get(sys.platform, "simulator.so")
COMPILE = (
    "-std=c++17",
    "-O2",
    "-march=native",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-sanitize=undefined",  # which ziglang adds to unoptimised code
    "-DNDEBUG",
)
COMPILE_ONCE = "-O0"
"""Option for code that only runs at the start: half of Verilator's code, and its runtime."""
_ONCE = "Slow"
"""Suffix that Verilator gives to names of files with such code."""
LINK = ("-shared", "-pthread", "-Os")
"""Options of the link. ziglang compiles its own C++ library with them: ``-Os`` takes two thirds of
the time, and omits debug information, 8 MB in each simulator."""
_REMEDY = "Another compiler may do: name it in CXX."


def tell(message: str) -> None:
    """Print a line on the standard error: the default ``progress``."""
    print(message, file=sys.stderr, flush=True)


def build(
    rtlil: str,
    *,
    engine: str = "verilator",
    harness: Harness | None = None,
    cache: Cache | None = None,
    compiler: str | None = None,
    progress: Progress = tell,
) -> Path:
    """Build the shared library that simulates a design with the ports of ``harness``.

    Compiled at the first call with the same design, engine, tools, compiler and processor; later
    calls find it in the cache. ``compiler`` is a command, see
    ``trainwright.support.native.tools.compiler`` for the default. ``progress`` gets a line before
    each long step.

    Raises ``AcceleratorError`` where a tool is absent or fails; ``ValueError`` for an unknown
    engine.
    """
    if engine not in engines.ENGINES:
        raise ValueError(f"engine must be one of {sorted(engines.ENGINES)}, not {engine!r}")
    try:
        chosen = engines.ENGINES[engine]
        return _built(
            rtlil, chosen, harness or chosen.harness, cache or Cache(), compiler, progress
        )
    except ToolError as error:
        raise AcceleratorError(str(error)) from error


def _built(
    rtlil: str,
    engine: SimulationEngine,
    harness: Harness,
    cache: Cache,
    compiler: str | None,
    progress: Progress,
) -> Path:
    cxx = native_tools.compiler("C++", compiler)
    key = _key(engine, harness, cxx, rtlil)
    if entry := cache.find(key):
        return entry / LIBRARY
    with cache.building(key) as folder:
        if folder is not None:
            begin = time.monotonic()
            log = BuildLog(cache.log(key), folder, "the simulator")
            with waiting(progress, "building the simulator, once"):
                _build(folder, log, engine, harness, cxx, rtlil, cache, progress)
            progress(f"built the simulator in {time.monotonic() - begin:.0f} s")
    return cache.entry(key) / LIBRARY


def _key(engine: SimulationEngine, harness: Harness, cxx: Tool, rtlil: str) -> str:
    files = [
        path
        for folder in (NATIVE, NATIVE / "leaves", harness.folder)
        for path in sorted(folder.iterdir())
    ]
    sources = {path.name: path.read_text() for path in files if path.is_file()}
    used = [(tool.name, tool.version) for tool in (*engine.tools(), cxx)]
    options = (engine.name, engine.options, COMPILE, COMPILE_ONCE, LINK)
    wrapped = engines.wrapper(rtlil, registered=harness.registered)
    instructions = records.header()
    return _hash([rtlil, wrapped, sources, instructions, used, options, native_tools.processor()])


def _hash(material: object) -> str:
    return hashlib.sha256(json.dumps(material).encode()).hexdigest()[:32]


def _build(
    folder: Path,
    log: BuildLog,
    engine: SimulationEngine,
    harness: Harness,
    cxx: Tool,
    rtlil: str,
    cache: Cache,
    progress: Progress,
) -> None:
    progress(f"building the simulator, once: {engine.name} (log: {log.path})")
    (folder / "design.il").write_text(rtlil)
    (folder / "wrapper.v").write_text(engines.wrapper(rtlil, registered=harness.registered))
    (folder / "ports.h").write_text(engines.ports_header(rtlil, engine, harness))
    # Leaving the pool waits for its thread: an interrupt must have ended the thread's tools before.
    with ThreadPoolExecutor(1) as beside, log.children.interruptible():
        runtime = beside.submit(_runtime, engine, harness, cxx, cache, progress, log.children)
        sources = engine.generate(folder, log)
        progress(f"building the simulator, once: compiling with {cxx.name}")
        driving = sorted({*harness.folder.glob("*.cc")} - {*_shared(engine, harness)})
        flags = [*COMPILE, *_include(folder, NATIVE, *sources.includes)]
        objects = _compile(log, cxx, flags, _units(folder, sources.files, driving))
        linked = [str(path) for path in (*objects, *result_of(runtime))]
    log.run(cxx, [*LINK, *linked, "-o", LIBRARY], remedy=_REMEDY)
    _tidy(folder)


def _include(*folders: Path) -> list[str]:
    return [part for folder in folders for part in ("-I", str(folder))]


def _units(folder: Path, files: Sequence[Path], driving: Sequence[Path]) -> list[Path]:
    """Write files that include the given ones, about as many as processors.

    Headers are most of what is compiled, so that fewer files save time. Code that runs once is
    apart, in half as many files. ``driving`` sources come first, because they specialise templates
    of Verilator that the design's code uses.
    """
    processors = _jobs()
    once = [file for file in files if file.stem.endswith(_ONCE)]
    often = [file for file in files if file not in once]
    units: list[Path] = []
    for name, group, most in (("Often", often, processors), (_ONCE, once, (processors + 1) // 2)):
        first = driving if group is often else ()
        shares: list[list[Path]] = [[] for _ in range(min(most, len(group) + len(first)))]
        for file in sorted((*group, *first), key=_size, reverse=True):
            min(shares, key=lambda share: sum(map(_size, share))).append(file)
        for number, share in enumerate(shares):
            share.sort(key=lambda file: file not in first)
            units.append(folder / f"unit{number}{name}.cpp")
            units[-1].write_text("".join(f'#include "{file.as_posix()}"\n' for file in share))
    return units


def _jobs() -> int:
    """Return how many compilers run at a time."""
    return os.cpu_count() or 1


def _size(file: Path) -> int:
    return file.stat().st_size


def _compile(log: BuildLog, cxx: Tool, base: list[str], files: list[Path]) -> list[Path]:
    """Compile each file to an object in the log's folder, several at a time."""

    def compile_file(file: Path) -> Path:
        flags = [*base, COMPILE_ONCE] if file.stem.endswith(_ONCE) else base
        target = log.cwd / f"{file.stem}.o"
        log.run(cxx, [*flags, "-c", str(file), "-o", target.name], remedy=_REMEDY)
        return target

    with ThreadPoolExecutor(_jobs()) as pool, log.children.interruptible():
        try:
            objects = [pool.submit(compile_file, file) for file in files]
            return [result_of(compiled) for compiled in objects]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _shared(engine: SimulationEngine, harness: Harness) -> tuple[Path, ...]:
    """List the harness' sources that are compiled with the engine's runtime, if it has one."""
    names = harness.shared if engine.runtime().files else ()
    return tuple(harness.folder / name for name in names)


def _runtime(
    engine: SimulationEngine,
    harness: Harness,
    cxx: Tool,
    cache: Cache,
    progress: Progress,
    children: Children,
) -> list[Path]:
    """Compile the objects that every design shares: the engine's runtime, the harness' sources.

    Runtime and sources are cached apart, so that all harnesses share the runtime. A link of the
    runtime follows whose result is not used: in its first link on a machine ziglang builds its C++
    library, which takes 43 s of one core. So this happens while the design is turned into C++.
    """
    sources, shared = engine.runtime(), _shared(engine, harness)
    folders = _include(NATIVE, *sources.includes)
    used = [(tool.name, tool.version) for tool in (*engine.tools(), cxx)]
    texts = [path.read_text() for path in (*shared, *sorted(NATIVE.glob("*.h")))]
    objects: list[Path] = []
    # The link comes last: other objects need not wait for it.
    for files, material, flags in (
        (shared, texts, COMPILE),
        (sources.files, [], (*COMPILE, COMPILE_ONCE)),
    ):
        names = [file.name for file in files]
        key = "runtime-" + _hash([names, material, used, flags, native_tools.processor()])
        if files and cache.find(key) is None:
            with cache.building(key) as folder:
                if folder is not None:
                    progress("building the simulator, once: code that all designs share")
                    log = BuildLog(cache.log(key), folder, "the simulator", children)
                    compiled = _compile(log, cxx, [*flags, *folders], list(files))
                    if files is sources.files:
                        log.run(cxx, [*LINK, *map(str, compiled), "-o", LIBRARY], remedy=_REMEDY)
        objects += [cache.entry(key) / f"{file.stem}.o" for file in files]
    return objects


def _tidy(folder: Path) -> None:
    """Remove all files but the library; the log has the commands that make them."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LIBRARY:
            path.unlink()
