"""QR from sketches, and TSQR over ranks: against float64's orthogonality and each other's bits."""

import os
import re
import subprocess
import sys
import threading

import pytest
import torch

from trainwright.qr import QRError, Ranks, sketched_qr, tsqr_over_ranks

F64 = torch.float64


def _conditioned(m, n, condition, seed):
    random = torch.Generator().manual_seed(seed)
    left, right = (
        torch.linalg.qr(torch.randn(rows, n, generator=random, dtype=F64)).Q for rows in (m, n)
    )
    return (left * torch.logspace(0, -condition, n, dtype=F64)) @ right.mT


@pytest.mark.parametrize("low", ["fp32", "fp16", "bf16", "tf32", "fp64"])
@pytest.mark.parametrize("digits", [0, 7, 15.5])
def test_sketched_qr_is_orthogonal_whatever_the_condition(low, digits):
    a = _conditioned(700, 40, digits, 1)
    f = sketched_qr(a, low=low)
    assert (f.Q.mT @ f.Q - torch.eye(40, dtype=F64)).norm() <= 3e-14
    assert (f.Q @ f.R - a).norm() <= 3e-14 * a.norm()
    assert torch.equal(f.R, f.R.triu()) and bool((f.R.diagonal() > 0).all())
    plain = torch.linalg.qr(a).R
    assert torch.allclose(f.R[0].abs(), plain[0].abs(), rtol=1e-12, atol=1e-13 * float(a.norm()))
    assert f.sketches <= (1 if digits == 0 else 14)


def test_sketched_qr_of_scaled_columns_is_scaled():
    a = _conditioned(300, 10, 3, 2)
    scale = torch.exp2(torch.linspace(-400, 400, 10, dtype=F64).round())
    f, scaled = sketched_qr(a), sketched_qr(a * scale)
    assert torch.allclose(scaled.Q, f.Q, atol=1e-13)
    assert torch.allclose(scaled.R / scale, f.R, atol=1e-13)
    assert torch.equal(sketched_qr(a, seed=5).Q, sketched_qr(a, seed=5).Q)


def test_sketched_qr_of_dependent_columns_is_orthogonal():
    a = _conditioned(50, 5, 2, 3)
    a[:, 4] = a[:, 0] + a[:, 1]
    f = sketched_qr(a, low="fp16")
    assert (f.Q.mT @ f.Q - torch.eye(5, dtype=F64)).norm() <= 1e-14
    assert (f.Q @ f.R - a).norm() <= 1e-14 and f.R[4, 4] <= 1e-15
    a[:, 4] = 0
    with pytest.raises(QRError, match="column of zeros"):
        sketched_qr(a)
    with pytest.raises(QRError, match="at least as many rows"):
        sketched_qr(torch.ones(2, 3))


def _over(a, cuts, leaf_rows):
    """Factor with as many ranks as parts, each a thread."""
    parts = a.tensor_split(cuts)

    def factor(rank, ranks):
        return tsqr_over_ranks(parts[rank], leaf_rows=leaf_rows, ranks=ranks)

    return _together(len(parts), factor)


def _together(count, factor):
    """Call ``factor(rank, ranks)`` on as many ranks, each a thread; return results and errors."""
    results, lists = [None] * count, [None] * count
    barrier = threading.Barrier(count, timeout=5)

    def run(rank):
        def gather(tensors):
            lists[rank] = tensors
            barrier.wait()
            everything = list(lists)
            barrier.wait()
            return everything

        try:
            results[rank] = factor(rank, Ranks(rank, gather))
        except (QRError, RuntimeError) as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("rows", [80, 83, 10])
def test_tsqr_over_any_number_of_ranks_has_the_same_bits(dtype, rows):
    random = torch.Generator().manual_seed(4)
    a = torch.randn(rows, 6, generator=random, dtype=F64).to(dtype)
    a[:, 2] *= 2.0**-60
    alone = tsqr_over_ranks(a, leaf_rows=8)
    eps = torch.finfo(dtype).eps
    assert (alone.Q.mT @ alone.Q - torch.eye(6, dtype=dtype)).norm() <= 40 * eps
    assert ((alone.Q @ alone.R - a).norm(dim=0) <= 40 * eps * a.norm(dim=0)).all()
    exact = torch.linalg.qr(a.to(F64)).R
    assert torch.allclose(alone.R.abs().to(F64), exact.abs(), rtol=2e3 * eps, atol=0)
    for cuts in ([8], [8, 16, 64], [0, 72]):
        cuts = [min(cut, rows) for cut in cuts]
        results = _over(a, cuts, 8)
        assert all(torch.equal(result.R, alone.R) for result in results)
        assert torch.equal(torch.cat([result.Q for result in results]), alone.Q)


def test_tsqr_over_ranks_names_parts_that_do_not_fit():
    a = torch.ones(30, 3)
    for error in _over(a, [10], 8):
        assert "rank 0 holds 10 rows, no multiple of leaf_rows 8" in str(error)
    a[20, 1] = torch.nan
    assert all("NaN or infinite" in str(error) for error in _over(a, [8, 16], 8))
    with pytest.raises(QRError, match="leaf_rows must be at least the 3 columns, not 2"):
        tsqr_over_ranks(a, leaf_rows=2)
    with pytest.raises(
        ValueError, match=r"leaf_rows must be below 2\^63, not 1180591620717411303424"
    ):
        tsqr_over_ranks(a, leaf_rows=2**70)
    with pytest.raises(QRError, match="2 rows in all are fewer than the 3 columns"):
        tsqr_over_ranks(a[:2], leaf_rows=4)
    assert tsqr_over_ranks(a[:0, :0], leaf_rows=4).R.shape == (0, 0)


@pytest.mark.parametrize(
    "leaf_rows, dtypes, message",
    [((8, 4), (F64, F64), r"leaf_rows: \[8, 4\]"), ((8, 8), (F64, torch.float32), r"\[64, 32\]")],
)
def test_tsqr_over_ranks_that_differ_raises_on_every_rank(leaf_rows, dtypes, message):
    def part(k, ranks):
        a = torch.ones(16, 3, dtype=dtypes[k])
        return tsqr_over_ranks(a, leaf_rows=leaf_rows[k], ranks=ranks)

    for error in _together(2, part):
        assert isinstance(error, QRError) and re.search(message, str(error))


_PROCESS = """
import sys, torch
from torch import distributed
from trainwright.qr import tsqr_over_ranks
torch.set_num_threads(1)
rank, folder = int(sys.argv[1]), sys.argv[2]
store = f"file://{folder}/store"
distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
a = torch.load(f"{folder}/a.pt")[rank * 48 : (rank + 1) * 48]
f = tsqr_over_ranks(a, leaf_rows=16)
torch.save((f.Q, f.R), f"{folder}/{rank}.pt")
distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_tsqr_over_processes_has_the_bits_of_a_single_one(tmp_path):
    a = torch.randn(96, 5, generator=torch.Generator().manual_seed(5), dtype=F64)
    torch.save(a, tmp_path / "a.pt")
    ranks = [
        subprocess.Popen([sys.executable, "-c", _PROCESS, str(rank), str(tmp_path)],
                         env={**os.environ, "OMP_NUM_THREADS": "1"})
        for rank in range(2)
    ]  # fmt: skip
    assert [process.wait(120) for process in ranks] == [0, 0]
    alone = tsqr_over_ranks(a, leaf_rows=16)
    parts = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    assert torch.equal(torch.cat([q for q, _ in parts]), alone.Q)
    assert all(torch.equal(r, alone.R) for _, r in parts)
