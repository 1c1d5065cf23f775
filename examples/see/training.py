"""An ordinary PyTorch program on the CPU: a small network learns to add. It knows nothing of tensormem.

tensormem record --stacks -o training.tmt -- python training.py
"""

import torch
from torch import nn


def make_batch(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.rand(rows, 512)
    return inputs, inputs.sum(dim=1, keepdim=True)


def train(steps: int, rows: int) -> float:
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 1))
    optimizer = torch.optim.Adam(model.parameters())
    loss = torch.zeros(())
    for _ in range(steps):
        inputs, wanted = make_batch(rows)
        loss = (model(inputs) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    print(f"loss {train(steps=6, rows=1024):.3f}")
