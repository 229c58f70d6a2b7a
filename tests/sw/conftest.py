"""Helpers beside the tests of this room can be imported by name; torch uses one thread."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)  # more of them spin against each other on tensors this small
