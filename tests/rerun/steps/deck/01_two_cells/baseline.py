"""The reference's mathematics, with some more work to be beaten."""

import reference


class Model(reference.Model):
    def step(self, hidden, state):
        for _ in range(3):
            for cell in self.cells:
                cell.write(torch_like(hidden))
        return super().step(hidden, state)


def torch_like(hidden):
    return hidden.repeat(2)
