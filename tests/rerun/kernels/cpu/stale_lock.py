"""Waits for a build lock that a killed build left."""

import os
import time
from pathlib import Path

import torch
from torch import nn

lock = Path(os.environ["TORCH_EXTENSIONS_DIR"]) / "kernel" / "lock"
lock.parent.mkdir(parents=True, exist_ok=True)
lock.touch()
while lock.exists():
    time.sleep(0.1)


class Model(nn.Module):
    def __init__(self, rows, cols):
        super().__init__()

    def forward(self, x):
        return torch.softmax(x, dim=-1)
