"""Data sets: images as unsigned bytes with labels, split into train and test."""

from ttforge.data.dataset import DataError, DataSet, Split
from ttforge.data.registry import DATA_SETS, is_npz, load_data_set

__all__ = ["DATA_SETS", "DataError", "DataSet", "Split", "is_npz", "load_data_set"]
