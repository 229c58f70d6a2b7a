"""From a C file to a loaded library, compiled once for this compiler and this processor."""

import ctypes
import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from trainwright.support.arguments import require_unrecorded
from trainwright.support.caution import warn_user
from trainwright.support.errors import FileError
from trainwright.support.native.cache import Cache
from trainwright.support.native.tools import BuildLog, Tool, ToolError, compiler, processor

LIBRARY = {"win32": "kernels.dll", "darwin": "kernels.dylib"}.get(sys.platform, "kernels.so")
OPTIONS = (
    "-std=c11",
    "-O3",
    "-march=native",
    "-fPIC",
    "-shared",
    "-fno-sanitize=undefined",  # which ziglang adds to unoptimised code
    "-ffp-contract=off",  # a * b + c rounds twice unless it says fma()
    "-fno-math-errno",  # sqrt() is one instruction
    "-DNDEBUG",
)
_use = True


@contextmanager
def without() -> Iterator[None]:
    """Hide the compiler from ``load`` within the block, to test what callers do without one."""
    global _use
    before, _use = _use, False
    try:
        yield
    finally:
        _use = before


def load(source: Path, *options: str) -> ctypes.CDLL | None:
    """Load the library of a C file, whose headers are in its folder; ``None`` without a compiler.

    ``options`` are further options of the compiler. The same library is returned every time; its
    functions have no types yet. A compiler that fails gives a ``RuntimeWarning`` that names its
    log, and ``None``. Raises ``RuntimeError`` while torch records operations.
    """
    require_unrecorded()
    return _loaded(source, options) if _use else None


@cache
def _loaded(source: Path, options: tuple[str, ...]) -> ctypes.CDLL | None:
    try:
        tool = compiler("C")
    except ToolError:
        return None
    try:
        return ctypes.CDLL(str(build(source, tool, options)))
    except (ToolError, FileError, OSError) as error:
        warn_user(f"running without native kernels: {error}", RuntimeWarning)
        return None


def build(
    source: Path, tool: Tool, options: tuple[str, ...] = (), *, kept: Cache | None = None
) -> Path:
    """Build the shared library, or find one of the same text, tool and processor in the cache.

    Raises ``ToolError`` where the compiler fails.
    """
    kept = kept or Cache()
    texts = {path.name: path.read_text() for path in (source, *sorted(source.parent.glob("*.h")))}
    material = [texts, tool.name, tool.version, OPTIONS, options, processor()]
    digest = hashlib.sha256(json.dumps(material).encode()).hexdigest()[:32]
    key = f"{source.stem}-{digest}"
    if kept.find(key) is None:
        with kept.building(key) as folder:
            if folder is not None:
                log = BuildLog(kept.log(key), folder, source.name)
                arguments = [*OPTIONS, *options, str(source.resolve()), "-o", LIBRARY, "-lm"]
                log.run(tool, arguments, remedy="Another compiler may do: name it in CC.")
    return kept.entry(key) / LIBRARY
