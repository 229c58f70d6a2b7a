import ctypes
from pathlib import Path
from shutil import which

import pytest

import trainwright
from trainwright.support import native
from trainwright.support.native import library, tools
from trainwright.support.native.cache import Cache
from trainwright.support.native.tools import Tool, ToolError

SOURCE = """
#include "twice.h"
double twice(double x) { return TWO * x; }
double residue(double a, double b, double c) { return a * b + c; }
"""


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    (tmp_path / "twice.h").write_text("#define TWO 2.0\n")
    path = tmp_path / "twice.c"
    path.write_text(SOURCE)
    return path


def test_native_kernel_is_compiled_once_and_kept(source, tmp_path):
    kernels = native.load(source)
    assert kernels is not None
    kernels.twice.restype, kernels.twice.argtypes = ctypes.c_double, [ctypes.c_double]
    assert kernels.twice(1.5) == 3.0
    assert native.load(source) is kernels
    (entry,) = (tmp_path / "cache" / "builds").glob("twice-*[!k]")
    built_ns = (entry / library.LIBRARY).stat().st_mtime_ns
    again = library.build(source, tools.compiler("C"))
    assert again.parent == entry
    assert again.stat().st_mtime_ns == built_ns
    source.with_suffix(".h").write_text("#define TWO 2.5\n")
    assert library.build(source, tools.compiler("C")).parent != entry


def test_products_are_rounded_before_they_are_added(source):
    kernels = native.load(source)
    assert kernels is not None
    kernels.residue.restype, kernels.residue.argtypes = ctypes.c_double, [ctypes.c_double] * 3
    x = 1 + 2.0**-30
    assert kernels.residue(x, x, -(x * x)) == 0.0


@pytest.mark.parametrize("stream", [1, 2])
def test_native_version_is_read_from_either_stream(stream, tmp_path):
    program = tmp_path / "tool"
    program.write_text(f"#!/bin/sh\necho 'tool 1.2' >&{stream}\n")
    program.chmod(0o755)
    assert tools.asked_version((str(program),), "--version") == "tool 1.2"


def test_without_a_compiler_there_is_none(source, monkeypatch):
    monkeypatch.setenv("CC", "nonesuch")
    assert native.load(source) is None
    with pytest.raises(ToolError, match="no C compiler 'nonesuch'; name another in CC"):
        tools.compiler("C")


def test_within_without_there_is_none(source):
    with native.without():
        assert native.load(source) is None
    assert native.load(source) is not None


def test_native_failing_compiler_warns_with_its_log(source):
    source.write_text("this is not C")
    with pytest.warns(RuntimeWarning, match=r"running without native kernels: .*twice.*\.log"):
        assert native.load(source) is None


def test_native_cache_that_cannot_be_written_is_named(source, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path / "file" / "c"))
    with pytest.warns(RuntimeWarning, match=r"kernels: cannot write to the cache \S+/file/c \(TR"):
        assert native.load(source) is None


def test_native_failing_compiler_leaves_nothing(source, tmp_path):
    cache = Cache(tmp_path / "kept")
    tool = Tool("false", ("false",), "1")
    with pytest.raises(ToolError, match=r"false failed with status 1 while building twice[.]c"):
        library.build(source, tool, kept=cache)
    assert not [path for path in (cache.folder / "builds").iterdir() if path.is_dir()]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize(
    "kernels, options",
    [
        ("golden/native/execute.c", ()),
        ("posit/kernels/posit.c", ()),
        ("mcf/kernels/mcf.c", ("-DNC=3",)),
        ("mcf/kernels/mcf.c", ("-DNC=2", "-DDOUBLE")),
        ("precision/kernels/residues.c", ()),
        ("precision/kernels/residues.c", ("-DDOUBLE",)),
    ],
)
def test_native_kernels_are_c_to_the_system_s_compilers_too(compiler, kernels, options, tmp_path):
    command = which(compiler)
    if command is None:
        pytest.skip(f"no {compiler} here")
    (package,) = trainwright.__path__
    tool = Tool(compiler, (command,), "any")
    # without optimisation, which takes most of the time and reads no more C
    options = (*options, "-O0")
    built = library.build(Path(package) / kernels, tool, options, kept=Cache(tmp_path))
    ctypes.CDLL(str(built))
