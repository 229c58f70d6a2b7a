"""Tensor trains of matrices: orthogonalisation, TT-SVD and rounding in any precision."""

from trainwright.tt.dense import distance, to_matrix
from trainwright.tt.numbers import Numbers
from trainwright.tt.orthogonal import orthogonalise_left, orthogonalise_right
from trainwright.tt.rounding import balance, tt_round, tt_svd
from trainwright.tt.trains import TensorTrainError, parameters_of, ranks_of

__all__ = [
    "Numbers",
    "TensorTrainError",
    "balance",
    "distance",
    "orthogonalise_left",
    "orthogonalise_right",
    "parameters_of",
    "ranks_of",
    "to_matrix",
    "tt_round",
    "tt_svd",
]
