"""Updates the given state where it lies, and keeps its memory and its output in buffers of its own."""

import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(2 * width, width)
        self.write = nn.Linear(2 * width, width)
        self.read = nn.Linear(width, width)

    def step(self, x, cell):
        both = torch.cat([x, cell["carry"]])
        gate = torch.sigmoid(self.gate(both))
        carry = gate * cell["carry"] + (1 - gate) * torch.tanh(self.write(both))
        memory = torch.cat([cell["memory"], carry[None]])
        weights = torch.softmax(memory @ self.read(x), dim=0)
        return x + weights @ memory, {"carry": carry, "memory": memory, "tokens": cell["tokens"] + 1}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.cells = nn.ModuleList(Cell(config.width) for _ in range(config.layers))
        self.buffers_of, self.out = {}, None

    def step(self, hidden, state):
        for at, cell in enumerate(self.cells):
            hidden, after = cell.step(hidden, state[at])
            state[at]["carry"].copy_(after["carry"])
            state[at]["memory"] = self._grown(at, state[at]["memory"], after["carry"])
            state[at]["tokens"] += 1
        if self.out is None:
            self.out = torch.empty_like(hidden)
        return self.out.copy_(hidden), state

    def _grown(self, at, memory, row):
        """The memory with `row` behind it, in a buffer with room to spare; what is not ours is taken over first."""
        held = self.buffers_of.get(at)
        if held is None or memory.data_ptr() != held.data_ptr():
            held = self.buffers_of[at] = torch.empty(len(memory) + 64, memory.shape[1])
            held[: len(memory)] = memory
        held[len(memory)] = row
        return held[: len(memory) + 1]
