"""Leaves two processes behind, out of its session and its process group."""

import os
import time

import torch
from torch import nn

for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)


class Model(nn.Module):
    def __init__(self, rows, cols):
        super().__init__()

    def forward(self, x):
        return torch.softmax(x, dim=-1)
