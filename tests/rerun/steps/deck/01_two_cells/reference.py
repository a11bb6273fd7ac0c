"""Two gated recurrent cells, each of which also looks at a memory of all tokens before; one token a step."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Config:
    width: int = 64
    layers: int = 2


def build_config(shape):
    return Config(width=shape["width"])


class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(2 * width, width)
        self.write = nn.Linear(2 * width, width)
        self.read = nn.Linear(width, width)

    def step(self, x, cell):
        both = torch.cat([x, cell["carry"]])
        gate = torch.sigmoid(self.gate(both))
        cell["carry"] = gate * cell["carry"] + (1 - gate) * torch.tanh(self.write(both))
        cell["memory"] = torch.cat([cell["memory"], cell["carry"][None]])
        weights = torch.softmax(cell["memory"] @ self.read(x), dim=0)
        cell["tokens"] += 1
        return x + weights @ cell["memory"]


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.cells = nn.ModuleList(Cell(config.width) for _ in range(config.layers))

    def step(self, hidden, state):
        for cell, its in zip(self.cells, state, strict=True):
            hidden = cell.step(hidden, its)
        return hidden, state


def init_state(config, context, seed):
    draw = torch.Generator().manual_seed(seed)
    return [
        {
            "carry": torch.randn(config.width, generator=draw),
            "memory": torch.randn(context, config.width, generator=draw),
            "tokens": context,
        }
        for _ in range(config.layers)
    ]


def init_token(config, seed):
    return torch.randn(config.width, generator=torch.Generator().manual_seed(seed + 1))
