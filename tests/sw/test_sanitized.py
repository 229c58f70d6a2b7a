"""The golden model's kernel under AddressSanitizer and UndefinedBehaviorSanitizer."""

import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

OPTIONS = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"


def _runtime() -> str:
    """Return the libraries that a process without sanitizers loads first.

    The sanitizer looks up C++'s `throw` when it starts; libraries such as matplotlib's throw later.
    """
    if sys.platform != "linux" or (gcc := which("gcc")) is None:
        pytest.skip("no gcc with sanitizers")
    paths = []
    for library in ("libasan.so", "libstdc++.so.6"):
        asked = [gcc, f"-print-file-name={library}"]
        paths.append(subprocess.run(asked, capture_output=True, text=True).stdout.strip())
        if not Path(paths[-1]).is_file():
            pytest.skip(f"gcc has no {library}")
    return " ".join(paths)


@pytest.mark.slow
def test_sanitized_kernel_is_clean(tmp_path):
    """Random programs and wrong ones, every access and every operation on integers checked."""
    runtime = _runtime()
    compiler = tmp_path / "sanitizing-gcc"
    compiler.write_text(f'#!/bin/sh\nexec gcc "$@" {OPTIONS}\n')
    compiler.chmod(0o755)
    environment = os.environ | {
        "CC": str(compiler),
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",
        "TRAINWRIGHT_CACHE": str(tmp_path / "cache"),
    }
    tests = Path(__file__).with_name("test_executor.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-rs", str(tests)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
    built = list((tmp_path / "cache" / "builds").glob("*/kernels.so"))
    assert built and all(b"__asan_" in library.read_bytes() for library in built)
