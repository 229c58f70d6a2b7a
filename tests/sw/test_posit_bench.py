"""``trainwright bench posit``, with a peer that has SoftPosit's names and wrong results."""

import json

import pytest
import torch

from trainwright import cli
from trainwright.posit import native
from trainwright.posit.experiments import speed

PEER = """
#include <stdint.h>
#include "platform.h"
typedef struct { uint32_t v; } posit_2_t;
typedef struct { uint64_t v[8]; } quire_2_t;
posit_2_t pX2_add(posit_2_t a, posit_2_t b, int width);
static inline posit_2_t pX2_mul(posit_2_t a, posit_2_t b, int width) { return a; }
static inline quire_2_t qX2Clr(void) { return (quire_2_t){{0}}; }
static inline quire_2_t qX2_fdp_add(quire_2_t q, posit_2_t a, posit_2_t b) { return q; }
static inline posit_2_t qX2_to_pX2(quire_2_t q, int width) { return (posit_2_t){HALF}; }
"""
ADD = '#include "softposit.h"\nposit_2_t pX2_add(posit_2_t a, posit_2_t b, int w) { return b; }\n'


@pytest.fixture
def untrained(monkeypatch):
    """Measure no training steps, which take most of the time."""
    monkeypatch.setattr(speed, "run_training", lambda *_, **__: [])


@pytest.fixture
def peer(tmp_path):
    root = tmp_path / "SoftPosit"
    (root / "source" / "include").mkdir(parents=True)
    (root / "build" / "any").mkdir(parents=True)
    (root / "source" / "include" / "softposit.h").write_text(PEER)
    (root / "source" / "add.c").write_text(ADD)
    (root / "build" / "any" / "platform.h").write_text("#define HALF 0x38000000u\n")
    return tmp_path


SMALL = ["bench", "posit", "--count", "100", "--size", "4", "--repeat", "1", "--batch", "1",
         "--json"]  # fmt: skip


def test_rows_of_every_way_and_of_a_peer(peer, capsys):
    if not native.usable(torch.zeros(1)):
        pytest.skip("no C compiler")
    assert cli.main([*SMALL, "--peer", f"softposit={peer}"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["format"], report["threads"]) == ("posit(16,2)", 1)
    rows = {(row["what"], row["way"]): row for row in report["rows"]}
    for what in ("add 100", "mul 100", "gemm 4 sequential", "gemm 4 quire"):
        for way in ("SoftPosit", "native", "torch", "float32"):
            row = rows[what, way]
            assert row["seconds"] >= 0 and row["speedup"] is not None
            assert (row["differing"] is None) == (way == "float32")
    assert rows[("decode 100", "native")]["speedup"] is None
    for mode in ("sequential", "quire"):
        for way in ("native", "torch"):
            assert rows[f"lenet-5 step {mode}, an image of 1", way]["seconds"] > 0
    assert rows["lenet-5 step, an image of 1", "float32"]["seconds"] > 0


@pytest.mark.usefixtures("untrained")
def test_posit_bench_peer_whose_results_are_others_is_told_apart(peer, capsys):
    if not native.usable(torch.zeros(1)):
        pytest.skip("no C compiler")
    assert cli.main([*SMALL, "--peer", f"softposit={peer}"]) == 0
    for row in json.loads(capsys.readouterr().out)["rows"]:
        if row["way"] in ("native", "torch") and row["what"].startswith(("add 1", "gemm")):
            assert row["differing"] > 0


@pytest.mark.usefixtures("untrained")
def test_without_a_peer(capsys):
    assert cli.main([*SMALL[:-1], "--format", "8,0"]) == 0
    table = capsys.readouterr().out
    assert "| gemm 4 quire" in table and "SoftPosit" not in table


@pytest.mark.parametrize(
    "options, message",
    [
        (["--peer", "universal=x"], "--peer must be softposit=FOLDER, not 'universal=x'"),
        (["--peer", "softposit=/nonesuch"], "no SoftPosit in /nonesuch: unpack its sources"),
    ],
)
def test_peers_that_are_not_there(options, message, capsys):
    assert cli.main([*SMALL, *options]) == 2
    assert message in capsys.readouterr().err


def test_formats_the_peer_or_posits_do_not_have(peer, capsys):
    if native.usable(torch.zeros(1)):
        assert cli.main([*SMALL, "--format", "16,1", "--peer", f"softposit={peer}"]) == 2
        assert "free for es = 2 only, not for posit(16,1)" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        cli.main([*SMALL, "--format", "40,2"])
    assert "n from 2 to 32 bits" in capsys.readouterr().err
