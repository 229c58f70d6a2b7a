"""Codes at random, for the tests of posits."""

import torch

from trainwright import posit


def generator(seed):
    return torch.Generator().manual_seed(seed)


def any_codes(shape, fmt, seed):
    """Draw codes of the whole format without NaR."""
    codes = torch.randint(0, 1 << fmt.n, shape, generator=generator(seed))
    return torch.where(codes == fmt.nar, 1, codes)


def normal_codes(shape, fmt, seed, scale=1.0):
    x = torch.randn(shape, generator=generator(seed), dtype=torch.float64) * scale
    return posit.encode(x, fmt)
