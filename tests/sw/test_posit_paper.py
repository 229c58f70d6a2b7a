"""The paper's tables line by line: what it has, posit tensors have."""

import pytest

from trainwright.posit.dispatch import _COPY
from trainwright.posit.operators import IN_PLACE, RULES
from trainwright.posit.operators.registry import operator

TABLE_1 = {
    "scalar_fill": "fill_.Scalar full_like",
    "local_scalar_dense": "_local_scalar_dense",
    "copy": "copy_",
    "uniform": "uniform_",
    "fill": "fill_.Scalar fill_.Tensor zero_",
    "add": "add.Tensor add_.Tensor add.Scalar",
    "sub": "sub.Tensor sub_.Tensor rsub.Scalar",
    "sum": "sum sum.dim_IntList",
    "max": "max max.dim maximum",
    "sqrt": "sqrt sqrt_",
    "add_mm": "addmm mm bmm baddbmm",
    "addcmul": "addcmul addcmul_",
    "addcdiv": "addcdiv addcdiv_",
    "unfolded2d_acc": "convolution convolution_backward",
    "avg_pool2d": "avg_pool2d",
    "avg_pool2d_backward": "avg_pool2d_backward",
    "tanh": "tanh tanh_",
    "tanh_backward": "tanh_backward",
    "softmax": "_softmax",
    "softmax_backward": "_softmax_backward_data",
    "log_softmax": "_log_softmax",
    "log_softmax_backward": "_log_softmax_backward_data",
    "nll_loss": "nll_loss_forward",
    "nll_loss_backward": "nll_loss_backward",
    "mse": "mse_loss mse_loss_backward",
}
"""The paper's operators, and torch's that do their work. Table II: test_posit_network."""


@pytest.mark.parametrize("name", TABLE_1)
def test_operators_of_table_1(name):
    """Covered, and so held against codes: test_posit_operators demands a case of each."""
    for torchs in TABLE_1[name].split():
        assert operator(torchs) in {*RULES, *IN_PLACE, _COPY}, torchs
