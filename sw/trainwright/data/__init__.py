"""Data sets: images as unsigned bytes with labels, split into train and test."""

from trainwright.data.dataset import DataError, DataSet, Split
from trainwright.data.registry import DATA_SETS, is_npz, load_data_set

__all__ = ["DATA_SETS", "DataError", "DataSet", "Split", "is_npz", "load_data_set"]
