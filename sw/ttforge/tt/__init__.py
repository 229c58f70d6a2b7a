"""Tensor trains of matrices: orthogonalisation, TT-SVD and rounding in any precision."""

from ttforge.tt.numbers import Numbers
from ttforge.tt.orthogonal import orthogonalise_left, orthogonalise_right
from ttforge.tt.rounding import balance, tt_round, tt_svd
from ttforge.tt.trains import TrainError, distance, parameters_of, ranks_of, to_matrix

__all__ = [
    "Numbers",
    "TrainError",
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
