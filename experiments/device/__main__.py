"""Check and time every library on a device: JSON and a log in the folder ``--out``."""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
import warnings
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import device_cases as cases
import device_checks as checks
import device_figures as figures
import torch


class Report:
    """Results in ``results.json``, written after each: a run that is cut leaves those before."""

    def __init__(self, folder: Path, conditions: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.begin = folder / "results.json", time.monotonic()
        self.log = (folder / "log.txt").open("w")
        self.results: dict[str, Any] = {
            "conditions": conditions,
            "checks": [],
            "figures": {},
            "failures": [],
        }
        self.say(json.dumps(conditions))

    def say(self, line: str) -> None:
        """Print a line with the seconds since the start, and keep it in the log."""
        line = f"[{time.monotonic() - self.begin:6.1f}] {line}"
        print(line, flush=True)
        print(line, file=self.log, flush=True)

    def write(self) -> None:
        """Put the results so far in the file, whole or not at all."""
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.results, indent=1))
        part.replace(self.path)

    def emit(self, table: str, found: list[dict[str, Any]]) -> None:
        """Take rows of a table of figures."""
        self.results["figures"].setdefault(table, []).extend(found)
        self.write()
        for row in found:
            numbers = (
                f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}"
                for k, v in row.items()
                if k not in ("what", "way")
            )
            self.say(f"{table}: {row['what']}: {row['way']}: {', '.join(numbers)}")


def _conditions(device: torch.device, command: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "command": command, "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "python": platform.python_version(), "torch": torch.__version__, "device": str(device),
        "processor": platform.processor() or platform.machine(),
    }  # fmt: skip
    if device.type == "cuda":
        found |= {"card": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
        query = "driver_version,clocks.sm,clocks.max.sm,power.limit,temperature.gpu"
        done = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
                              capture_output=True, text=True)  # fmt: skip
        found["driver, clock, most, power limit, temperature"] = done.stdout.strip()
    for name in ("triton", "tltorch", "tensorly", "numpy"):
        try:
            found[name] = __import__(name).__version__
        except Exception as error:
            found[name] = f"absent: {error}"
    return found


def _register_backends() -> None:
    """Register the backends where the package is not installed, as on a bare machine."""
    if entry_points(group="trainwright.backends"):
        return
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    backends = project["project"]["entry-points"]["trainwright.backends"]
    folder = Path(tempfile.mkdtemp()) / "trainwright-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: trainwright\nVersion: 0\n")
    lines = "\n".join(f"{name} = {place}" for name, place in backends.items())
    (folder / "entry_points.txt").write_text(f"[trainwright.backends]\n{lines}\n")
    sys.path.append(str(folder.parent))


def _checked(report: Report, device: torch.device, only: list[str]) -> None:
    def put(x: Any) -> Any:
        return x.to(device)

    for case in checks.TABLE.cases:
        if only and not any(word in f"{case.library}: {case.name}" for word in only):
            continue
        verdict = cases.judge(case, put)
        report.results["checks"].append(cases.as_row(verdict))
        report.write()
        if not verdict.passed or verdict.seconds > 5:
            state = "passed" if verdict.passed else "FAILED"
            report.say(
                f"{state}: {case.library}: {case.name} ({verdict.seconds:.1f} s)\n{verdict.message}"
            )
    found = report.results["checks"]
    report.say(f"checks: {sum(row['passed'] for row in found)} of {len(found)} passed")


def _steps(rehearse: bool) -> dict[str, Callable[[figures.Emit, torch.device], object]]:
    """Return the figures in the order of their weight: the last are lost where time ends."""
    if rehearse:
        return {
            "gemm": lambda e, d: figures.gemm(e, d, (64,)),
            "chunks": lambda e, d: figures.chunks(e, d, 32),
            "adapter": lambda e, d: figures.adapter(e, d, (64,)),
            "components": lambda e, d: figures.components(e, d, 100, (8,)),
            "posits": lambda e, d: figures.posits(e, d, 100, (8,)),
            "layers": lambda e, d: figures.layers(e, d, (2,)),
            "memory": lambda e, d: figures.memory(e, d, 64),
        }
    return {
        "gemm": lambda e, d: figures.gemm(e, d, (1024, 2048, 4096, 8192)),
        "stages": lambda e, d: figures.stages(e, d, (2048, 8192)),
        "chunks": lambda e, d: figures.chunks(e, d, 8192),
        "adapter": lambda e, d: figures.adapter(e, d, (1024, 4096, 8192, 16384)),
        "graphs": lambda e, d: figures.graphs(e, d, (512, 1024, 2048)),
        "convolutions": lambda e, d: [figures.convolutions(e, d, n) for n in (32, 256)],
        "layers": lambda e, d: figures.layers(e, d, (64, 8192)),
        "components": lambda e, d: figures.components(e, d, 1 << 22, (256, 1024)),
        "posits": lambda e, d: figures.posits(e, d, 1 << 22, (256, 1024)),
        "memory": lambda e, d: figures.memory(e, d, 8192),
        "large": lambda e, d: figures.gemm(e, d, (16384,)),
    }


def main() -> int:
    """Run checks, then figures, until the time is over; 1 where a check or a figure failed."""
    parser = argparse.ArgumentParser(prog="scripts/device", description=__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="for results.json and log.txt"
    )
    parser.add_argument(
        "--device", default=None, metavar="NAME", help="default: cuda where there is one, else cpu"
    )
    parser.add_argument(
        "--rehearse", action="store_true", help="the smallest sizes, for a machine without a GPU"
    )
    parser.add_argument(
        "--check",
        action="append",
        default=[],
        metavar="WORD",
        help="only checks with this in their names (repeatable); none: no checks",
    )
    parser.add_argument(
        "--figure",
        action="append",
        default=[],
        metavar="NAME",
        help="only these figures (repeatable); none: no figures",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=330.0,
        metavar="S",
        help="begin no figure after these; default: 330",
    )
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    report = Report(args.out, _conditions(device, " ".join(["scripts/device", *sys.argv[1:]])))
    begin = time.monotonic()
    _register_backends()
    if args.check != ["none"]:
        _checked(report, device, args.check)
    for name, step in _steps(args.rehearse).items():
        if args.figure and name not in args.figure:
            continue
        if time.monotonic() - begin > args.seconds:
            report.results["failures"].append(f"{name}: no time was left")
            continue
        try:
            step(report.emit, device)
        except Exception:
            report.results["failures"].append(f"{name}: {traceback.format_exc(limit=-4)}")
            report.say(f"FAILED: {name}: {traceback.format_exc(limit=-4)}")
        if device.type == "cuda":
            torch.cuda.empty_cache()
    report.results["seconds"] = time.monotonic() - begin
    report.write()
    failed = [row for row in report.results["checks"] if not row["passed"]]
    report.say(f"{len(failed)} checks and {len(report.results['failures'])} figures failed")
    return 1 if failed or report.results["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
