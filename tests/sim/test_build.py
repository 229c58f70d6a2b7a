"""Building and keeping compiled simulators."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial

import pytest

from trainwright.accelerator import AcceleratorError
from trainwright.support.children import Children
from trainwright.support.native import tools as native_tools
from trainwright.support.native.cache import Cache
from trainwright.support.native.tools import BuildLog, ToolError
from trainwright.support.waiting import waiting
from trainwright_sim import build as build_module
from trainwright_sim import copier, engines, tools
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.build import build


@pytest.fixture(scope="module")
def rtlil(parameters) -> str:
    return copier.to_rtlil(parameters)


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path / "cache")


def entries(cache: Cache) -> set[str]:
    return {path.name for path in (cache.folder / "builds").iterdir() if path.suffix != ".lock"}


def test_cache_entry_is_found_until_byte_changes(cache):
    assert cache.find("key") is None
    with cache.building("key") as folder:
        (folder / "library").write_bytes(bytes(1000))
    assert cache.find("key") == cache.entry("key")
    with cache.building("key") as folder:
        assert folder is None
    with (cache.entry("key") / "library").open("r+b") as file:
        file.seek(500)
        file.write(b"x")
    assert cache.find("key") is None
    with cache.building("key") as folder:
        (folder / "library").write_bytes(b"new")
    assert (cache.find("key") / "library").read_bytes() == b"new"


@pytest.mark.parametrize("damage", ["library", "manifest.json"])
def test_cache_entry_missing_a_file_is_not_found(cache, damage):
    with cache.building("key") as folder:
        (folder / "library").write_bytes(b"x")
    (cache.entry("key") / damage).unlink()
    assert cache.find("key") is None


@pytest.mark.parametrize("manifest", ["{}", "[]", "null", "3", '{"x": 1}', "[" * 100_000])
def test_cache_manifest_without_files_is_invalid(cache, manifest):
    """Nor one that leaves a file out."""
    with cache.building("key") as folder:
        assert folder is not None
        (folder / "library").write_bytes(b"as it was")
    entry = cache.entry("key")
    (entry / "manifest.json").write_text(manifest)
    assert cache.find("key") is None
    with cache.building("key") as folder:
        assert folder is not None
        (folder / "library").write_bytes(b"as it was")
    assert cache.find("key") == entry
    (entry / "another").write_bytes(b"file")
    assert cache.find("key") is None


def test_cache_interrupted_build_leaves_no_entry(cache):
    with pytest.raises(KeyboardInterrupt), cache.building("key") as folder:
        (folder / "library").write_bytes(b"half")
        raise KeyboardInterrupt
    assert entries(cache) == set()


def test_cache_removes_leftovers_of_killed_build(cache):
    part = cache.entry("key").with_suffix(".part")
    part.mkdir(parents=True)
    (part / "half").touch()
    with cache.building("key") as folder:
        assert list(folder.iterdir()) == []
    assert entries(cache) == {"key"}


def test_cache_lets_one_of_several_builders_build(cache):
    built = []

    def work() -> None:
        with cache.building("key") as folder:
            if folder is not None:
                (folder / "library").touch()
                time.sleep(0.05)
                built.append(folder)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1


def test_cache_evicts_least_recently_used_entries(tmp_path):
    cache = Cache(tmp_path, most_bytes=60_000)
    for number, key in enumerate("abcd"):
        with cache.building(key) as folder:
            (folder / "library").write_bytes(bytes(10_000))
        os.utime(cache.entry(key), (number, number))
    assert entries(cache) == set("abcd")
    left = cache.entry("killed").with_suffix(".part")
    left.mkdir()
    os.utime(left, (0, 0))
    cache.find("a")  # used just now
    with cache.building("large") as folder:
        (folder / "library").write_bytes(bytes(30_000))
    assert entries(cache) == {"a", "large"}
    assert not cache.entry("b").with_suffix(".lock").exists()


def test_cache_keeps_more_small_entries_than_a_test_suite_uses(cache):
    for number in range(150):
        with cache.building(f"{number}") as folder:
            (folder / "library").touch()
    assert len(entries(cache)) == 150


def test_cache_folder_follows_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path))
    assert Cache().folder == tmp_path
    monkeypatch.delenv("TRAINWRIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert Cache().folder == tmp_path / "trainwright"


def test_engine_ports_are_read_from_rtlil(parameters):
    ports = engines.ports(copier.to_rtlil(parameters, trace=True))
    assert ports["clk"] == engines.Port("clk", 1, "input")
    assert ports["m_axi_wdata"] == engines.Port("m_axi_wdata", 128, "output")
    assert ports["trace_pe2_row"].width == 256
    assert "w_data" not in ports  # of a block inside
    assert "PORT_m_axi_wdata p_m__axi__wdata" in engines.ports_header(
        copier.to_rtlil(parameters), engines.CXXRTL
    )


def test_build_of_design_without_ports_is_rejected(rtlil, cache):
    with pytest.raises(AcceleratorError, match="the design has no port m_axi_wdata"):
        build(rtlil.replace("m_axi_wdata", "other"), engine="cxxrtl", cache=cache)


def test_build_replaces_corrupt_library(rtlil, cache, monkeypatch):
    def made(folder, *_) -> None:  # compiling takes 10 s, and other tests compile
        time.sleep(0.1)
        (folder / build_module.LIBRARY).write_bytes(bytes(20000))

    monkeypatch.setattr(build_module, "waiting", partial(waiting, first_seconds=0.01))
    monkeypatch.setattr(build_module, "_build", made)
    build(rtlil, engine="cxxrtl", cache=cache, progress=lambda _: None)
    said = []
    library = build(rtlil, engine="cxxrtl", cache=cache, progress=said.append)
    assert said == []
    library.write_bytes(library.read_bytes()[:1000])
    assert build(rtlil, engine="cxxrtl", cache=cache, progress=said.append) == library
    assert "building the simulator, once: 0 s so far" in said
    assert library.stat().st_size > 10000


def test_build_interrupted_in_compiler_leaves_no_entry(rtlil, cache):
    def interrupt(message: str) -> None:
        if "compiling" in message:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(rtlil, engine="cxxrtl", cache=cache, progress=interrupt)
    assert entries(cache) == set()


INTERRUPTED = """
import os, signal, sys, threading
from pathlib import Path
from trainwright import cli
from trainwright.cli import core
from trainwright.support.children import Children
from trainwright.support.native.cache import Cache
from trainwright_sim import build, engines

cache = Cache(Path("cache"))
sources = engines.Sources((Path("part.cc"), Path("other.cc")))
engine = engines.SimulationEngine(
    "slow", tuple, lambda *_: sources, str, (), runtime=lambda: engines.Sources((Path("all.cc"),))
)
harness = engines.Harness(Path("."), ("clk",), "test")
RTLIL = f"\\nmodule \\\\{engines.TOP}\\n  wire input 1 \\\\clk\\nend\\n"

def compile_for_a_minute(_):
    build._built(RTLIL, engine, harness, cache, str(Path("compiler").resolve()), print)

core.main = compile_for_a_minute
sys.exit(cli.main([]))
"""
COMPILER = """#!/bin/sh
[ "$1" = --version ] && exit
exec 3> $0.running
echo >&3
sleep 60 & wait
"""


@pytest.mark.skipif(os.name != "posix", reason="sends SIGTERM, which Windows lacks")
def test_build_that_is_killed_ends_its_tools_and_leaves_no_entry(tmp_path, cache):
    # Compilers run in threads, which no signal reaches, and start others: 55 s by ziglang.
    (tmp_path / "compiler").write_text(COMPILER)
    (tmp_path / "compiler").chmod(0o755)
    for name in ("part.cc", "other.cc", "all.cc"):
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "compiler.running")
    running = os.open(tmp_path / "compiler.running", os.O_RDONLY | os.O_NONBLOCK)
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED], cwd=tmp_path)
    end, started = time.monotonic() + 60, b""
    while len(started) < 2:
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
        with suppress(BlockingIOError):
            started += os.read(running, 10)
    began = time.monotonic()
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    assert time.monotonic() - began < 8
    while os.read(running, 10):  # which raises BlockingIOError while a compiler runs
        pass
    os.close(running)
    assert entries(cache) == set()


def test_build_names_failing_tool_and_log(rtlil, cache, tmp_path):
    compiler = tmp_path / "broken-c++"
    compiler.write_text("#!/bin/sh\necho 1.0\n[ $1 = --version ] || { echo no luck; exit 3; }\n")
    compiler.chmod(0o755)
    with pytest.raises(AcceleratorError, match=r"broken-c[+][+] failed with status 3") as failure:
        build(rtlil, engine="cxxrtl", cache=cache, compiler=str(compiler), progress=lambda _: None)
    (log,) = (cache.folder / "logs").iterdir()
    assert str(log) in str(failure.value)
    assert "name it in CXX" in str(failure.value)
    assert "no luck" in log.read_text()
    assert entries(cache) == set()


def test_unusable_choices_are_refused(rtlil, cache, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="engine must be one of"):
        build(rtlil, engine="icarus", cache=cache)
    with pytest.raises(AcceleratorError, match=r"no C\+\+ compiler 'nonesuch'"):
        build(rtlil, compiler="nonesuch", cache=cache)
    monkeypatch.setenv("CXX", "nonesuch -O9")
    with pytest.raises(AcceleratorError, match=r"no C\+\+ compiler 'nonesuch -O9'"):
        build(rtlil, cache=cache)
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("VERILATOR_ROOT", str(tmp_path))
    with pytest.raises(AcceleratorError, match=r"cannot start .*verilator_bin"):
        build(rtlil, cache=cache)


def test_missing_compiler_error_says_how_to_install(monkeypatch):
    for module in (native_tools, tools):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr(native_tools, "which", lambda name: None)
    monkeypatch.delenv("CXX", raising=False)
    for tool in (lambda: native_tools.compiler("C++"), tools.verilator):
        with pytest.raises(ToolError, match=r"pip install 'trainwright\[sim\]'"):
            tool()


def test_harness_is_cpp_to_ziglang_too(rtlil, cache, monkeypatch, tmp_path):
    """Compile without linking, for which ziglang would build its C++ library."""
    monkeypatch.delenv("CXX", raising=False)  # which scripts/test sets
    compiler, engine = native_tools.compiler("C++"), engines.CXXRTL
    assert compiler.name == "ziglang"
    log = BuildLog(tmp_path / "log", tmp_path, "the simulator")
    (tmp_path / "design.il").write_text(rtlil)
    (tmp_path / "wrapper.v").write_text(engines.wrapper(rtlil))
    (tmp_path / "ports.h").write_text(engines.ports_header(rtlil, engine))
    folders = (tmp_path, engines.NATIVE, *engine.generate(tmp_path, log).includes)
    options = [*build_module.COMPILE, *build_module._include(*folders), "-O0"]
    assert build_module._compile(log, compiler, options, [engines.NATIVE / "harness.cc"])


@pytest.mark.slow
def test_simulator_by_ziglang_copies_a_program(parameters, make_program, tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    with RtlAccelerator(
        parameters, memory_bytes=1 << 18, engine="verilator", design=copier.to_rtlil, cache=tmp_path
    ) as accelerator:
        program = make_program(parameters, 30)
        assert accelerator.run(program, 4096).counters.cycles > 30


def test_build_compiles_runtime_once_for_all_harnesses(cache, monkeypatch):
    compiled = []

    def touched(log, _cxx, _flags, files):
        compiled.extend(file.name for file in files)
        for file in files:
            (log.cwd / f"{file.stem}.o").touch()
        return files

    monkeypatch.setattr(build_module, "_compile", touched)
    monkeypatch.setattr(BuildLog, "run", lambda *_, **__: None)
    compiler = native_tools.compiler("C++")
    for engine in (engines.VERILATOR, engines.SAIF, engines.WAVES, engines.VERILATOR):
        objects = build_module._runtime(
            engine, engine.harness, compiler, cache, lambda _: None, Children()
        )
        assert all(path.exists() for path in objects)
    assert sorted(compiled) == ["library.cc", "memory.cc", "verilated.cpp", "verilated_threads.cpp"]


def test_build_key_depends_on_every_input(rtlil, monkeypatch):
    def key(text: str = rtlil, engine=engines.CXXRTL, harness=engines.ACCELERATOR) -> str:
        return build_module._key(engine, harness, native_tools.compiler("C++"), text)

    keys = {key(), key(rtlil + " "), key(engine=engines.VERILATOR), key(harness=engines.SERIAL)}
    monkeypatch.setattr(native_tools, "processor", lambda: "another")
    keys.add(key())
    monkeypatch.setattr(build_module, "COMPILE", ())
    keys.add(key())
    assert len(keys) == 6
