"""The tensor cores against the exact simulation. Needs a GPU; never part of what must pass."""

import pytest
import torch

from trainwright import ape
from trainwright.ape.schemes import SCHEMES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("dtype", [*SCHEMES, "auto"])
def test_close_to_the_simulation(dtype):
    a, b = torch.rand(200, 333), torch.rand(333, 120)
    product = ape.gemm(a.cuda(), b.cuda(), dtype=dtype).cpu()
    torch.testing.assert_close(product, ape.gemm(a, b, dtype=dtype), rtol=4e-6, atol=0)


def test_int16_is_exact():
    a = torch.randint(-32768, 32768, (37, 70001), dtype=torch.int16)
    b = torch.randint(-32768, 32768, (70001, 9), dtype=torch.int16)
    assert torch.equal(ape.gemm(a.cuda(), b.cuda(), dtype="int16").cpu(), a.long() @ b.long())


def test_accumulation_is_the_hardwares():
    a = torch.rand(8, 8, device="cuda")
    with pytest.raises(ValueError, match="accumulation=None"):
        ape.gemm(a, a, dtype="fp32-f", accumulation=ape.NEAREST)
